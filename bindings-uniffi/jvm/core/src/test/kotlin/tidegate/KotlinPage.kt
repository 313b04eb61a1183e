package tidegate

import java.time.Duration
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeoutOrNull
import tidegate.testing.FakeClock

/** What docs/kotlin.md shows, in its order. */
internal class KotlinPage {
    /** What it has printed. */
    val lines = mutableListOf<String>()

    private fun println(line: Any?) {
        lines.add("$line")
    }

    fun run() = runBlocking {
        val limiter = Limiter.of(mapOf("login" to "2/m", "search" to "10/s burst 30; 1000/h")) // url = "redis://..." shares it

        val decision = limiter.check("login", "alice")
        println("${decision.allowed} ${decision.remaining}") // true 1

        limiter.check("login", "alice")
        val refused = limiter.check("login", "alice")
        println("${refused.allowed} ${refused.retryAfterMs!! <= 60_000}") // false true

        limiter.refund(decision) // something went wrong that was not alice's fault
        println(limiter.check("login", "alice").allowed) // true

        val suspending = limiter.suspending()
        if (suspending.check("search", "alice").allowed) println("search") // search

        withTimeoutOrNull(50) { suspending.acquire("login", "alice", Duration.ofMinutes(2)) } ?: println("left the line") // left the line

        limiter.check("search", "alice", CheckOptions(cost = 4)) // counts as four
        limiter.check("search", "alice", CheckOptions(limits = "100/s")) // a customer's own limits, in place of the rule's
        limiter.check("search", LimitKey.parts("shop", "alice")) // a tenant and a user, who stay apart
        limiter.checkAll(listOf("login", "search"), "bob") // both are charged, or none
        println(limiter.peek("search", "carol").remaining) // 30

        val turn = limiter.acquire("search", "alice", Duration.ofSeconds(5))
        println(turn.allowed) // true

        val policy = Policy.ofToml(
            """
            version = 1
            rules.login = "5/m"
            [[routes]]
            path = "/login"
            rules = "login"
            key = "ip"
            """,
        )
        val admission = policy.admit("POST", "/login", Told(peer = "203.0.113.7"))
        println("${admission.allowed} ${admission.headers.first { it.name == "X-RateLimit-Remaining" }.value}") // true 4
        admission.charge.settle(200) // gives back what the route's refund_status says
        admission.destroy()

        try {
            limiter.check("logn", "alice")
        } catch (error: TidegateException) {
            println(error.code) // unknown_rule
        }

        val clock = FakeClock()
        val tested = clock.limiter(mapOf("login" to "1/m"))
        tested.check("login", "alice")
        clock.advance(tested.check("login", "alice").retryAfterMs!!)
        println(tested.check("login", "alice").allowed) // true

        listOf(limiter, policy, tested).forEach { it.close() }
    }
}
