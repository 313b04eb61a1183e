package tidegate

import java.time.Duration
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.extension.ExtendWith
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.ValueSource
import tidegate.support.Servers
import tidegate.support.json
import tidegate.support.until

/** Refusals that are told again without crossing. */
@ExtendWith(Servers.Shared::class)
class RefusalsTest {
    /** It remembers refusals for longer than a busy machine stands still, unless said. */
    private fun limiter(
        url: String,
        vararg rules: Pair<String, String>,
        prefix: String = Servers.prefix(),
        max: String = "1m",
    ): Limiter {
        val store = mapOf("prefix" to prefix, "deadline" to "20s", "url" to url, "deny_cache_max" to max)
        return Limiter.ofJson(json(mapOf("version" to 1, "store" to store, "rules" to mapOf(*rules))))
    }

    /** Whether the check was answered without crossing. */
    private fun Limiter.isKnown(key: String, options: CheckOptions = CheckOptions.DEFAULT, rules: List<String> = listOf("a")) =
        calls.known(rules, LimitKey.of(key), options) != null

    private fun refused(limiter: Limiter, key: String = "x"): Decision {
        while (true) limiter.check("a", key).let { if (!it.allowed) return it }
    }

    @ParameterizedTest
    @ValueSource(strings = ["redis", "cluster"])
    fun `the same refusal is known, aged, and no other is`(store: String) {
        limiter(Servers.url(store)!!, "a" to "2/h", "b" to "9/h").use { limiter ->
            val asked = refused(limiter)
            assertEquals(Origin.STORE, asked.origin)
            Thread.sleep(120)
            val again = limiter.check("a", "x")
            assertEquals(Origin.DENY_CACHE, again.origin)
            assertFalse(again.allowed)
            val age = asked.retryAfterMs!! - again.retryAfterMs!!
            assertTrue(age in 120..60_000, "$age ms")
            assertEquals(asked.resetAfterMs!! - age, again.resetAfterMs)
            assertEquals(asked.limits[0].retryAfterMs!! - age, again.limits[0].retryAfterMs)
            assertEquals(asked.remaining, again.remaining)
            assertTrue(limiter.isKnown("x"))
            assertFalse(limiter.isKnown("y"))
            assertFalse(limiter.isKnown("x", CheckOptions.cost(2)))
            assertFalse(limiter.isKnown("x", CheckOptions.limits("3/h")))
            assertFalse(limiter.isKnown("x", CheckOptions.requestId("1")))
            assertFalse(limiter.isKnown("x", rules = listOf("a", "b")))
            assertTrue(limiter.check("b", "x").allowed)
        }
    }

    @Test
    fun `a reset and a refund show at once`() {
        limiter(Servers.redis.url, "a" to "1/h sliding_window_log").use { limiter ->
            val first = limiter.check("a", "x")
            refused(limiter)
            assertTrue(limiter.isKnown("x"))
            assertTrue(limiter.refund(first))
            assertTrue(limiter.check("a", "x").allowed)
            refused(limiter)
            assertTrue(limiter.isKnown("x"))
            limiter.reset("a", "x")
            assertTrue(limiter.check("a", "x").allowed)
        }
    }

    @Test
    fun `a reset by another limiter of the process shows within what a refusal may be repeated`() {
        val prefix = Servers.prefix()
        limiter(Servers.redis.url, "a" to "1/h", prefix = prefix, max = "1s").use { one ->
            limiter(Servers.redis.url, "a" to "1/h", prefix = prefix).use { other ->
                val repeats = refused(one).repeatsMs
                assertTrue(repeats in 1..1_000, "$repeats ms")
                other.reset("a", "x")
                until("the reset shows") { one.check("a", "x").allowed }
            }
        }
    }

    @Test
    fun `nobody is refused for longer than it holds`() {
        limiter(Servers.redis.url, "a" to "1/300ms sliding_window_log").use { limiter ->
            repeat(5) {
                val wait = refused(limiter).retryAfterMs!!
                while (limiter.isKnown("x")) Thread.sleep(1)
                Thread.sleep(wait)
                assertTrue(limiter.check("a", "x").allowed)
            }
        }
    }

    @Test
    fun `metrics count what was told again`() {
        val limiter = limiter(Servers.redis.url, "a" to "2/h")
        refused(limiter)
        repeat(1000) { assertEquals(Origin.DENY_CACHE, limiter.check("a", "x").origin) }
        val told = Regex("""tidegate_decisions_total\{[^}]*rule="a"[^}]*\} (\d+)""").findAll(limiter.prometheus())
        assertEquals(1003, told.sumOf { it.groupValues[1].toInt() }, limiter.prometheus())
        assertTrue("1000" in limiter.metrics())
        limiter.close()
    }

    @Test
    fun `memory repeats nothing, and a closed limiter neither`() {
        Limiter.of(mapOf("a" to "1/h")).use { limiter ->
            assertEquals(0, refused(limiter).repeatsMs)
            assertFalse(limiter.isKnown("x"))
        }
        val limiter = limiter(Servers.redis.url, "a" to "1/h")
        refused(limiter)
        limiter.close()
        assertFalse(limiter.isKnown("x"))
    }

    @Test
    fun `no time of a refusal comes to nothing, as in the core`() {
        limiter(Servers.redis.url, "a" to "1/h").use { limiter ->
            val refusals = Refusals(limiter.calls.limiter)
            val refusal = refused(limiter)
            val brief = refusal.limits.map { it.copy(retryAfterMs = 1, resetAfterMs = 1) }
            val asked = Asked(listOf("a"), LimitKey.of("y"), 1, null)
            refusals.keep(asked, refusals.now(), refusal.copy(limits = brief, repeatsMs = Duration.ofHours(1).toMillis()))
            Thread.sleep(10)
            assertEquals(brief, refusals.find(asked)!!.limits)
        }
    }

    @Test
    fun `many refusals are bounded, and the oldest go`() {
        limiter(Servers.redis.url, "a" to "1/h").use { limiter ->
            val refusals = Refusals(limiter.calls.limiter)
            val refusal = refused(limiter).copy(repeatsMs = Duration.ofHours(1).toMillis())
            fun asked(number: Int) = Asked(listOf("a"), LimitKey.of("$number"), 1, null)
            for (number in 0..65_536) refusals.keep(asked(number), refusals.now(), refusal)
            assertEquals(null, refusals.find(asked(0)))
            assertFalse(refusals.find(asked(1)) == null)
            assertFalse(refusals.find(asked(65_536)) == null)
        }
    }

    @Test
    fun `refusals that are over are not kept`() {
        limiter(Servers.redis.url, "a" to "1/h").use { limiter ->
            val refusals = Refusals(limiter.calls.limiter)
            val refusal = refused(limiter).copy(repeatsMs = 1)
            for (number in 0 until 1_000) {
                val at = Refusals.Moment(refusals.now().nanos + number * 2_000_000L, 0)
                refusals.keep(Asked(listOf("a"), LimitKey.of("$number"), 1, null), at, refusal)
            }
            assertEquals(1, refusals.size)
        }
    }
}
