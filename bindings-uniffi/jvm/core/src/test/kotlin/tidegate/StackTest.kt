package tidegate

import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicBoolean
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** A thread whose stack is at its end fails by itself. */
class StackTest {
    private fun dive(limiter: Limiter): Int {
        limiter.check("a", "x")
        return dive(limiter) + 1
    }

    @Test
    fun `a stack overflow in a call leaves nobody waiting`() {
        Limiter.of(mapOf("a" to "1000000/h")).use { limiter ->
            limiter.check("a", "x")
            val isOver = AtomicBoolean()
            val others = List(2) {
                Thread {
                    while (!isOver.get()) runCatching { limiter.check("a", "y") }.also { Thread.sleep(1) }
                }.apply { isDaemon = true; start() }
            }
            repeat(100) { number ->
                val diver = Thread(null, { runCatching { dive(limiter) } }, "diver", 200_000L + 4096 * (number % 64))
                diver.isDaemon = true
                diver.start()
                diver.join(10_000)
                assertFalse(diver.isAlive, "dive $number waits")
            }
            isOver.set(true)
            for (other in others) {
                other.join(10_000)
                assertFalse(other.isAlive, "another thread waits")
            }
            assertTrue(limiter.checkAsync("a", "z").thenApply { it }.get(30, TimeUnit.SECONDS).allowed)
        }
    }
}
