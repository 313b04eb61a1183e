package tidegate

import java.util.concurrent.Callable
import java.util.concurrent.Executors
import java.util.concurrent.TimeUnit
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.extension.ExtendWith
import tidegate.support.Servers
import tidegate.support.json

/** Many threads, and a server that hangs. */
@ExtendWith(Servers.Shared::class)
class StoreTest {
    private fun limiter(url: String?, limits: String, onError: String = "allow"): Limiter {
        val store = mapOf("prefix" to Servers.prefix()) + (url?.let { mapOf("url" to it) } ?: emptyMap())
        val rule = mapOf("limits" to limits, "on_error" to onError)
        return Limiter.ofJson(json(mapOf("version" to 1, "store" to store, "rules" to mapOf("a" to rule))))
    }

    private fun <T> together(threads: Int, work: (Int) -> T): List<T> {
        val pool = Executors.newFixedThreadPool(threads)
        try {
            val tasks = (0 until threads).map { Callable { work(it) } }
            return pool.invokeAll(tasks, 60, TimeUnit.SECONDS).map { it.get() }
        } finally {
            pool.shutdownNow()
        }
    }

    @Test
    fun `64 threads admit exactly the limit, everywhere`() {
        for (store in listOf("memory", "redis", "cluster")) {
            limiter(Servers.url(store), "1000/h sliding_window_log").use { limiter ->
                limiter.ready()
                val options = CheckOptions.deadline(java.time.Duration.ofSeconds(20))
                val admitted = together(64) { (0 until 50).count { limiter.check("a", "x", options).allowed } }.sum()
                assertEquals(1000, admitted, store)
            }
        }
    }

    @Test
    fun `a server that hangs holds nobody longer than the deadline, and others not at all`() {
        Servers("server").use { server ->
            limiter(server.url, "1000/h", "deny").use { hanging ->
                val other = limiter(Servers.redis.url, "1000/h")
                hanging.check("a", "x")
                server.order("pause")
                val begun = System.nanoTime()
                val origins = together(65) { number ->
                    if (number == 64) List(20) { other.check("a", "y", CheckOptions.deadline(java.time.Duration.ofSeconds(20))).origin }.last()
                    else hanging.check("a", "x").origin
                }
                val seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begun)
                assertEquals(setOf(Origin.CLOSED), origins.take(64).toSet())
                assertEquals(Origin.STORE, origins.last())
                assertTrue(seconds < 10, "$seconds s")
                val failed = assertThrows(TidegateException::class.java) { hanging.reset("a", "x") }
                assertTrue(failed.code in setOf("timeout", "store_unavailable"), failed.code)
                server.order("resume")
                other.close()
            }
        }
    }
}
