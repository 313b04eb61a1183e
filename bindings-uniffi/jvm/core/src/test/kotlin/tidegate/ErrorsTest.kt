package tidegate

import java.nio.file.Path
import java.time.Duration
import java.util.concurrent.ExecutionException
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** What cannot be meant is told as such, with what to write instead. */
class ErrorsTest {
    private fun code(work: () -> Unit): String {
        val error = assertThrows(TidegateException::class.java, work)
        assertTrue(error.code in errorCodes(), error.code)
        assertTrue(error.message!!.length > 10)
        assertTrue("${error.code}: ${error.message}" in error.toString())
        return error.code
    }

    @Test
    fun `constructors judge`() {
        assertEquals("invalid_rule", code { Limiter.of(mapOf("a" to "many")) })
        assertEquals("invalid_document", code { Limiter.ofToml("version = 1\nfoo = 2") })
        assertEquals("invalid_document", code { Limiter.ofJson("{") })
        assertEquals("invalid_document", code { Limiter.ofFile(Path.of("/no/such.toml")) })
        assertEquals("invalid_document", code { Policy.ofYaml("version: 1\nroutes: 3") })
        assertEquals("invalid_document", code { Policy.watch(Path.of("/no/such.toml")) })
    }

    @Test
    fun `calls judge, and futures fail`() {
        Limiter.of(mapOf("a" to "5/m")).use { limiter ->
            assertEquals("unknown_rule", code { limiter.check("b", "x") })
            assertEquals("invalid_request", code { limiter.check("a", "") })
            assertEquals("invalid_request", code { limiter.check("a", "x", CheckOptions.cost(-1)) })
            assertEquals("invalid_request", code { limiter.check("a", "x", CheckOptions.deadline(Duration.ofSeconds(-1))) })
            assertEquals("invalid_request", code { limiter.acquire("a", "x", Duration.ofMillis(-5)) })
            val past = assertThrows(TidegateException::class.java) { limiter.acquire("a", "x", Duration.ofSeconds(-1)) }
            assertTrue("-1000 ms" in past.message!!, past.message)
            assertEquals("invalid_request", code { limiter.checkAll(emptyList(), "x") })
            assertEquals("invalid_receipt", code { limiter.refund("what") })
            val failed = assertThrows(ExecutionException::class.java) { limiter.checkAsync("b", "x").get() }
            assertEquals("unknown_rule", (failed.cause as TidegateException).code)
            assertFalse(limiter.refund(""))
        }
    }

    @Test
    fun `an error tells who called`() {
        Limiter.of(mapOf("a" to "5/m"), "redis://127.0.0.1:1").use { limiter ->
            val error = assertThrows(TidegateException::class.java) { limiter.ready(Duration.ofMillis(50)) }
            assertTrue(error.stackTrace.any { it.className.startsWith(ErrorsTest::class.java.name) }, error.stackTraceToString())
        }
    }

    @Test
    fun `text without UTF-8 is refused, and is nobody else's key`() {
        Limiter.of(mapOf("a" to "5/m")).use { limiter ->
            assertEquals("invalid_request", code { limiter.check("a", "x\uD800") })
            assertEquals("invalid_request", code { CheckOptions.requestId("\uDC00") })
            assertEquals(4, limiter.check("a", "x").remaining)
            assertEquals("invalid_request", code { limiter.check("\uD800", "x") })
            assertEquals("invalid_request", code { limiter.check("a", "x", CheckOptions.limits("\uD800")) })
        }
        assertEquals("invalid_request", code { Limiter.ofJson("\uD800") })
    }

    @Test
    fun `a call that cannot cross fails alone`() {
        Limiter.of(mapOf("a" to "1000000/m")).use { limiter ->
            val threads = List(16) { number ->
                java.util.concurrent.CompletableFuture.supplyAsync {
                    (0 until 200).count { runCatching { limiter.check(if (number % 4 == 0) "\uD800" else "a", "x") }.isSuccess }
                }
            }
            assertEquals(List(16) { if (it % 4 == 0) 0 else 200 }, threads.map { it.get(60, java.util.concurrent.TimeUnit.SECONDS) })
        }
    }

    @Test
    fun `a charge that is closed does not cross`() {
        val json = """{"version": 1, "rules": {"a": "5/m"}, "routes": [{"prefix": "/", "rules": "a", "key": "ip"}]}"""
        Policy.ofJson(json).use { policy ->
            val told = Told(peer = "192.0.2.1")
            val charge = policy.admit("GET", "/", told).charge
            assertEquals(1, policy.admit("GET", "/", told.copy(after = charge)).charge.decisions().size)
            charge.close()
            assertEquals("invalid_request", code { policy.admit("GET", "/", told.copy(after = charge)) })
        }
    }

    @Test
    fun `keys are told apart`() {
        assertEquals(LimitKey.of("ü"), LimitKey.of("ü".toByteArray()))
        assertEquals(LimitKey.parts("a", "b").hashCode(), LimitKey.parts("a", "b").hashCode())
        assertNotEquals(LimitKey.parts("a", "bc"), LimitKey.parts("ab", "c"))
        assertNotEquals(LimitKey.parts("a"), LimitKey.of("a"))
    }

    @Test
    fun `what is closed stays closed`() {
        val limiter = Limiter.of(mapOf("a" to "5/m"))
        val policy = Policy.ofJson("""{"version": 1, "rules": {"a": "5/m"}, "routes": [{"prefix": "/", "rules": "a", "key": "ip"}]}""")
        val ofPolicy = policy.limiter()
        ofPolicy.close()
        assertTrue(policy.admit("GET", "/", Told(peer = "192.0.2.1")).allowed)
        repeat(2) {
            limiter.close()
            policy.close()
        }
        assertEquals("invalid_request", code { limiter.check("a", "x") })
        assertEquals("invalid_request", code { limiter.metrics() })
        assertEquals("invalid_request", code { policy.admit("GET", "/") })
        assertEquals("invalid_request", code { policy.request("GET", "/") })
    }
}
