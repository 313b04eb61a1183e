package tidegate

import java.time.Duration
import java.util.concurrent.CompletableFuture
import java.util.concurrent.Executors
import java.util.concurrent.TimeUnit
import java.util.logging.Handler
import java.util.logging.LogRecord
import java.util.logging.Logger
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.extension.ExtendWith
import tidegate.support.Servers

/** Calls cross together: what goes wrong with one is nobody else's, and nobody waits for ever. */
@ExtendWith(Servers.Shared::class)
class TogetherTest {
    private fun memory() = Limiter.of(mapOf("a" to "10000000/s"))

    /** How many succeed, of each kind on a thread of its own. */
    private fun <T> together(times: Int, vararg kinds: () -> T): List<Int> {
        val threads = Executors.newFixedThreadPool(kinds.size) { Thread(it).apply { isDaemon = true } }
        val all = kinds.map { kind ->
            CompletableFuture.supplyAsync({ (0 until times).count { runCatching(kind).isSuccess } }, threads)
        }
        return all.map { it.get(60, TimeUnit.SECONDS) }.also { threads.shutdown() }
    }

    @Test
    fun `a null in a list is the error of its own call alone`() {
        @Suppress("UNCHECKED_CAST")
        val names = listOf(null) as List<String>
        memory().use { limiter ->
            val check = { limiter.check("a", "x") }
            assertEquals(listOf(0, 500, 500, 500), together(500, { limiter.checkAll(names, "x") }, check, check, check))
        }
    }

    @Test
    fun `one who handles a call that could not cross may ask again`() {
        memory().use { limiter ->
            val check = { limiter.check("a", "x") }
            val again = { limiter.checkAsync("\uD800", "x").exceptionally { limiter.check("a", "x") }.get() }
            assertEquals(List(6) { 500 }, together(500, again, again, again, check, check, check))
        }
    }

    @Test
    fun `many who wait on the common thread do not pile up`() {
        Limiter.of(mapOf("a" to "10000/h"), Servers.redis.url).use { limiter ->
            val key = Servers.prefix()
            val chains = List(3000) { limiter.checkAsync("a", key).thenApply { limiter.check("a", key) } }
            chains.forEach { it.get(60, TimeUnit.SECONDS) }
        }
    }

    @Test
    fun `a stack that overflows in a call lets the others end`() {
        memory().use { limiter ->
            val check = { limiter.check("a", "x") }
            // The deepest calls overflow, and so do those that are made from there.
            fun deep(): Int {
                val height = try {
                    deep()
                } catch (_: StackOverflowError) {
                    0
                }
                if (height < 40) runCatching { limiter.check("a", "x") }
                return height + 1
            }
            assertEquals(30, together(30, { deep() }, check, { limiter.checkAsync("a", "x").get() })[0])
            assertTrue(check().allowed)
        }
    }

    @Test
    fun `code on the common thread may wait for other futures`() {
        Limiter.of(mapOf("a" to "10000/h"), Servers.redis.url).use { limiter ->
            limiter.ready()
            val key = Servers.prefix()
            val options = CheckOptions.deadline(Duration.ofSeconds(20))
            val chains = List(200) {
                val (one, other) = List(2) { limiter.checkAsync("a", key, options) }
                listOf(one.thenApply { other.join() }, other.thenApply { limiter.checkAsync("a", key, options).get() })
            }
            chains.flatten().forEach { assertTrue(it.get(30, TimeUnit.SECONDS).allowed) }
        }
    }

    @Test
    fun `a logger that throws stops no answers`() {
        val logger = Logger.getLogger("tidegate")
        val throwing = object : Handler() {
            override fun publish(record: LogRecord) = error("a handler of the test's that fails")
            override fun flush() = Unit
            override fun close() = Unit
        }
        logger.addHandler(throwing)
        try {
            Limiter.of(mapOf("a" to "5/m"), "redis://127.0.0.1:1").use { limiter ->
                repeat(4) {
                    limiter.checkAsync("a", "x").get(10, TimeUnit.SECONDS)
                    Thread.sleep(300)
                }
            }
        } finally {
            logger.removeHandler(throwing)
        }
    }
}
