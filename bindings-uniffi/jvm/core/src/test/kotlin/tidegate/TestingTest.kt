package tidegate

import java.nio.file.Files
import java.time.Duration
import java.time.Instant
import java.util.logging.Handler
import java.util.logging.LogRecord
import java.util.logging.Logger
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import tidegate.support.until
import tidegate.testing.FakeClock

/** What applications test their own code with, and what is logged. */
class TestingTest {
    private val document = """{"version": 1, "store": {"url": "redis://127.0.0.1:1"}, "rules": {"a": "2/m"},
        "routes": [{"path": "/login", "rules": "a", "key": "user", "without_identity": "refuse"}, {"prefix": "/", "rules": "a", "key": "ip"}]}"""

    @Test
    fun `a clock moves when it is told, and decides in memory whatever the document says`() {
        val clock = FakeClock(Instant.parse("2030-01-01T00:00:00Z"))
        clock.limiterOfJson(document).use { limiter ->
            repeat(2) { assertTrue(limiter.check("a", "x").allowed) }
            val wait = limiter.check("a", "x").retryAfterMs!!
            clock.advance(wait - 1)
            assertFalse(limiter.check("a", "x").allowed)
            clock.advance(Duration.ofMillis(1))
            assertTrue(limiter.check("a", "x").allowed)
            assertEquals(Instant.parse("2030-01-01T00:00:00Z").plusMillis(wait), clock.now)
        }
        assertEquals("invalid_request", assertThrows(TidegateException::class.java) { FakeClock(Instant.MIN) }.code)
    }

    @Test
    fun `a time that is too late is told as such`() {
        val clock = FakeClock()
        val far = listOf({ clock.advance(Long.MAX_VALUE) }, { clock.advance(java.time.Duration.ofSeconds(Long.MAX_VALUE)) }, { FakeClock(java.time.Instant.MAX) })
        for (one in far) assertEquals("invalid_request", assertThrows(TidegateException::class.java) { one() }.code)
    }

    @Test
    fun `documents of all formats`() {
        val file = Files.createTempFile("tidegate", ".toml")
        Files.writeString(file, "version = 1\n[rules]\na = '2/m'\n[[routes]]\nprefix = '/'\nrules = 'a'\nkey = 'ip'\n")
        val clock = FakeClock()
        val yaml = "version: 1\nrules: {a: 2/m}\nroutes: [{prefix: /, rules: a, key: ip}]"
        val limiters = listOf(
            clock.limiterOfToml(Files.readString(file)), clock.limiterOfYaml(yaml), clock.limiterOfFile(file),
            clock.limiter(mapOf("a" to "2/m")), Limiter.ofFile(file), Limiter.ofYaml(yaml),
        )
        for (limiter in limiters) limiter.use { assertEquals(listOf("a"), it.rules) }
        val policies = listOf(
            clock.policyOfToml(Files.readString(file)), clock.policyOfYaml(yaml), clock.policyOfFile(file),
            Policy.ofFile(file), Policy.watch(file), Policy.ofToml(Files.readString(file)),
        )
        for (policy in policies) policy.use { assertEquals(1, it.admit("GET", "/", Told("192.0.2.1")).charge.decisions()[0].remaining) }
        Files.delete(file)
    }

    @Test
    fun `the application is asked only where a route needs it`() {
        FakeClock().policyOfJson(document).use { policy ->
            var asked = 0
            val ask = { needs: Needs ->
                asked += 1
                assertTrue(needs.user)
                Told(user = "alice".toByteArray())
            }
            val open = Told(peer = "192.0.2.1")
            assertEquals(AdmissionOutcome.ALLOWED, policy.admit("GET", "/", open, ask).outcome)
            assertEquals(AdmissionOutcome.ALLOWED, policy.admitAsync("GET", "/", open, ask).get().outcome)
            assertEquals(0, asked)
            assertEquals(AdmissionOutcome.ALLOWED, policy.admit("GET", "/login", open, ask).outcome)
            assertEquals(AdmissionOutcome.ALLOWED, policy.admitAsync("GET", "/login", open, ask).get().outcome)
            val refused = kotlinx.coroutines.runBlocking { policy.suspending().admit("GET", "/login", open, ask) }
            assertEquals(listOf(429, 3), listOf(refused.status, asked))
            assertThrows(IllegalStateException::class.java) { policy.admit("GET", "/login", open) { error("no session") } }
            assertEquals("invalid_document", assertThrows(TidegateException::class.java) { policy.reload("{}") }.code)
            policy.reload(document.replace("2/m", "9/m"))
            assertEquals(listOf("/login", "/"), policy.routes)
            assertTrue("tidegate" in policy.prometheus())
        }
    }

    @Test
    fun `what happens is logged`() {
        val texts = java.util.concurrent.ConcurrentLinkedQueue<String>()
        val handler = object : Handler() {
            override fun publish(record: LogRecord) = record.run { texts.add("$level ${java.text.MessageFormat.format(message, *parameters)}").let {} }
            override fun flush() = Unit
            override fun close() = Unit
        }
        val logger = Logger.getLogger("tidegate").apply { addHandler(handler) }
        try {
            Limiter.of(mapOf("pass{er}s" to "1/m"), "redis://127.0.0.1:1").use { limiter ->
                assertEquals(Origin.OPEN, limiter.check("pass{er}s", "x").origin)
                until("it is told") { texts.any { it.startsWith("WARNING while the store fails, requests pass under pass{er}s") } }
            }
        } finally {
            logger.removeHandler(handler)
        }
    }
}
