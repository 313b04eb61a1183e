package tidegate

import kotlin.system.measureNanoTime
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import tidegate.testing.FakeClock

class SmokeTest {
    @Test
    fun `decides in memory`() {
        val clock = FakeClock()
        clock.limiter(mapOf("login" to "2/m")).use { limiter ->
            val decision = limiter.check("login", "alice")
            assertTrue(decision.allowed)
            assertEquals(1, limiter.checkAsync("login", "bob").get().remaining)
            runBlocking { assertEquals(0, limiter.suspending().check("login", "alice").remaining) }
            assertFalse(limiter.check("login", "alice").allowed)
            assertTrue(limiter.refund(decision))
            assertEquals(1, limiter.peek("login", "alice").remaining)
        }
    }
}
