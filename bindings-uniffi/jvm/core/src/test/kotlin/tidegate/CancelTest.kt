package tidegate

import java.time.Duration
import java.util.concurrent.CancellationException
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ExecutionException
import java.util.concurrent.TimeUnit
import java.util.concurrent.TimeoutException
import java.util.concurrent.atomic.AtomicReference
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.extension.ExtendWith
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.ValueSource
import tidegate.support.Servers
import tidegate.support.json
import tidegate.support.until

/** Calls that nobody waits for any more: an acquire leaves its line, and what was charged is given back. */
@ExtendWith(Servers.Shared::class)
class CancelTest {
    private fun limiter(url: String?, rules: Map<String, String>, deadline: String = "20s"): Limiter {
        val store = mapOf("prefix" to Servers.prefix(), "deadline" to deadline) + (url?.let { mapOf("url" to it) } ?: emptyMap())
        return Limiter.ofJson(json(mapOf("version" to 1, "store" to store, "rules" to rules)))
    }

    private fun full(store: String) = limiter(Servers.url(store), mapOf("a" to "1/2s sliding_window_log")).also {
        assertTrue(it.check("a", "x").allowed)
    }

    /** One that still stood in line would have its turn before this one. */
    private fun assertFree(limiter: Limiter) = limiter.use {
        assertTrue(it.acquireAsync("a", "x", MINUTE).get(30, TimeUnit.SECONDS).allowed)
        assertFalse(it.peek("a", "x").allowed)
    }

    @ParameterizedTest
    @ValueSource(strings = ["memory", "redis"])
    fun `a cancelled future leaves its line`(store: String) {
        val limiter = full(store)
        val waits = List(10) { limiter.acquireAsync("a", "x", MINUTE) }
        val timed = limiter.acquireAsync("a", "x", MINUTE).orTimeout(50, TimeUnit.MILLISECONDS)
        assertTrue(assertThrows(ExecutionException::class.java) { timed.get() }.cause is TimeoutException)
        waits.forEach { assertTrue(it.cancel(true)) }
        waits.forEach { assertThrows(CancellationException::class.java) { it.get() } }
        assertFree(limiter)
    }

    @ParameterizedTest
    @ValueSource(strings = ["memory", "redis"])
    fun `a cancelled coroutine leaves its line`(store: String) {
        val limiter = full(store)
        runBlocking {
            val waits = List(10) { launch(Dispatchers.Default) { limiter.suspending().acquire("a", "x", MINUTE) } }
            Thread.sleep(50)
            waits.forEach { it.cancelAndJoin() }
        }
        assertFree(limiter)
    }

    @ParameterizedTest
    @ValueSource(strings = ["memory", "redis"])
    fun `an interrupted thread leaves its line`(store: String) {
        val limiter = full(store)
        val thrown = AtomicReference<Throwable>()
        val thread = Thread { thrown.set(runCatching { limiter.acquire("a", "x", MINUTE) }.exceptionOrNull()) }
        thread.start()
        until("it waits") { thread.state == Thread.State.WAITING }
        thread.interrupt()
        thread.join(30_000)
        assertTrue(thrown.get() is InterruptedException, "${thrown.get()}")
        assertFree(limiter)
    }

    @Test
    fun `a thread that is interrupted already charges nothing`() {
        limiter(Servers.redis.url, mapOf("a" to "5/h")).use { limiter ->
            limiter.ready()
            Thread.currentThread().interrupt()
            assertThrows(InterruptedException::class.java) { limiter.check("a", "x") }
            assertFalse(Thread.interrupted())
            until("what it charged is given back") { limiter.peek("a", "x").remaining == 5L }
        }
    }

    @Test
    fun `what a server has charged for nobody is given back`() {
        Servers("server").use { server ->
            limiter(server.url, mapOf("a" to "300/h"), "60s").use { limiter ->
                limiter.check("a", "warm")
                server.order("pause")
                val futures = List(100) { limiter.checkAsync("a", "x") }
                val acquires = List(100) { limiter.acquireAsync("a", "x") }
                runBlocking {
                    val coroutines = List(100) {
                        launch(Dispatchers.Default, CoroutineStart.UNDISPATCHED) { limiter.suspending().check("a", "x") }
                    }
                    Thread.sleep(100)
                    coroutines.forEach { it.cancelAndJoin() }
                }
                (futures + acquires).forEach { assertTrue(it.cancel(true)) }
                server.order("resume")
                assertTrue(limiter.check("a", "warm").allowed)
                until("all is given back") { limiter.peek("a", "x").remaining == 300L }
            }
        }
    }

    @Test
    fun `a future that has ended keeps its charge`() {
        limiter(Servers.redis.url, mapOf("a" to "5/h")).use { limiter ->
            val future = limiter.checkAsync("a", "x")
            assertEquals(4, future.get().remaining)
            assertFalse(future.cancel(true))
            Thread.sleep(100)
            assertEquals(4, limiter.peek("a", "x").remaining)
        }
    }

    @Test
    fun `what is done with a future may wait for another call`() {
        limiter(Servers.redis.url, mapOf("a" to "1000/h")).use { limiter ->
            val chains = List(200) { limiter.checkAsync("a", "x").thenApply { limiter.check("a", "x").allowed } }
            CompletableFuture.allOf(*chains.toTypedArray()).get(30, TimeUnit.SECONDS)
            assertTrue(chains.all { it.get() })
            assertEquals(600, limiter.peek("a", "x").remaining)
        }
    }

    private companion object {
        val MINUTE: Duration = Duration.ofMinutes(1)
    }
}
