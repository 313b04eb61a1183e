package tidegate

import java.time.Duration
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.DynamicTest.dynamicTest
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.TestFactory
import org.junit.jupiter.api.extension.ExtendWith
import tidegate.support.Json
import tidegate.support.Servers
import tidegate.support.bytes
import tidegate.support.cases
import tidegate.support.differences
import tidegate.support.json
import tidegate.support.list
import tidegate.support.long
import tidegate.support.text

/** The vectors that every store and language answers alike (tests/vectors/README.md). */
@ExtendWith(Servers.Shared::class)
class VectorsTest {
    @Test
    fun `the library under test takes a clock for servers`() {
        assertTrue(isForTesting(), "make test-uniffi builds the library with the feature testing")
    }

    @TestFactory
    fun histories(): List<DynamicTest> = listOf("memory", "redis", "cluster").flatMap { store ->
        HISTORIES.map { name -> dynamicTest("$name on $store") { play(name, Servers.url(store)) } }
    }

    private fun play(name: String, url: String?) {
        val told = cases(name).filterNot { case -> case.list("steps").any { it.json()["op"] in UNTOLD } }
        assertTrue(told.size > 5)
        for (case in told) {
            Scene(case, url).use { scene ->
                for ((number, step) in case.list("steps").map { it.json() }.withIndex()) {
                    val missing = differences(step["expect"] ?: emptyMap<String, Any>(), scene.play(step))
                    assertEquals(emptyList<String>(), missing, "${case["name"]}, step $number ${json(step)}")
                }
            }
        }
    }

    @Test
    fun `rules mean what they mean everywhere`() {
        for (case in cases("rules")) {
            val expected = case["expect"].json().filterKeys { it in setOf("error", "limits") }
            val found = seen { meaning(mapOf("version" to 1, "rules" to mapOf("r" to case["rule"]))) }
            assertEquals(emptyList<String>(), differences(expected, found), case.text("name"))
        }
    }

    private fun meaning(document: Json) = Limiter.ofJson(json(document)).use { limiter ->
        mapOf("limits" to limiter.peek("r", "x").limits.map {
            mapOf(
                "algorithm" to it.algorithm.name.lowercase(), "limit" to it.limit, "burst" to it.burst, "name" to it.name,
                "window_ms" to it.windowMs, "precision_ms" to it.precisionMs, "enforce" to it.enforced,
            )
        })
    }

    @Test
    fun `documents are judged as everywhere`() {
        for (case in cases("documents")) {
            val expected = case["expect"].json()
            val text = case.text("text")
            val found = seen {
                val limiter = when (case["format"]) {
                    "toml" -> Limiter.ofToml(text)
                    "json" -> Limiter.ofJson(text)
                    else -> Limiter.ofYaml(text)
                }
                mapOf("rules" to limiter.use { it.rules }.toSet())
            }
            val rules = expected["rules"]?.json()?.keys
            if ("error" in expected) assertEquals(expected, found, case.text("name"))
            else if (!rules.isNullOrEmpty()) assertEquals(mapOf("rules" to rules), found, case.text("name"))
        }
    }

    @Test
    fun `keys are told apart and refused as everywhere`() {
        for (case in cases("keys")) {
            val given = case["key"]
            val key = if (given is Map<*, *> && "parts" in given) {
                LimitKey.parts(*given.json().list("parts").map(::bytes).toTypedArray())
            } else {
                LimitKey.of(bytes(given))
            }
            val store = case.filterKeys { it in setOf("prefix", "key_secret") }
            val document = mapOf("version" to 1, "store" to store, "rules" to mapOf(case["rule_name"] to case["rule"]))
            val found = seen {
                Limiter.ofJson(json(document)).use { it.check(case.text("rule_name"), key) }
                emptyMap()
            }
            assertEquals(case["expect"].json()["error"], found["error"], case.text("name"))
        }
    }

    private companion object {
        val HISTORIES = listOf(
            "sliding_window_log", "sliding_window", "token_bucket", "sliding_window_counter", "fixed_window",
            "several_limits", "request_ids", "refunds", "clock_steps", "changes", "stored_values", "counts",
        )

        /** What plants something in Redis is the Rust tests' business. */
        val UNTOLD = setOf("set", "persist")
    }
}

/** What the work tells, or the error's code. */
internal fun seen(work: () -> Json): Json =
    try {
        work()
    } catch (error: TidegateException) {
        mapOf("error" to error.code)
    }

/** A history on a limiter of its own. */
private class Scene(case: Json, private val url: String?) : AutoCloseable {
    private val start = case.long("start")
    private val rules = case["rules"].json().toMutableMap()

    /**
     * A new limiter in memory would begin empty. So that one has the rules as they are in the end, and is given those of the
     * moment at the call.
     */
    private var madeWith: Json =
        if (url != null) rules.toMap() else case.list("steps").fold(rules.toMap()) { all, step ->
            all + (step.json()["rules"]?.json() ?: emptyMap())
        }
    private val clock = Clock(start, true)
    private val prefix = Servers.prefix()
    private val receipts = mutableMapOf<String, String>()
    private var limiter = made()

    private fun made(): Limiter {
        val store = mapOf("prefix" to prefix, "deadline" to "20s") + (url?.let { mapOf("url" to it) } ?: emptyMap())
        return Limiter.at(Source.Json(json(mapOf("version" to 1, "store" to store, "rules" to madeWith))), clock)
    }

    override fun close() = limiter.close()

    fun play(step: Json): Any? {
        clock.set(start + step.long("at"))
        // The compiler lets nobody say such a cost.
        if (step["cost"] !is Long? || step["op"] == "state") return step["expect"]
        return seen {
            when (val op = step["op"]) {
                "check" -> check(step)
                "peek" -> told(limiter.peekAll(names(step), key(step), options(step)))
                "count" -> count(step)
                "refund" -> mapOf("refunded" to limiter.refund(receipts.getValue(step.text("receipt"))))
                "reset" -> emptyMap<String, Any>().also { limiter.reset(step.text("rule"), key(step), limits(step)) }
                "rules" -> configure(step)
                else -> error("there is no $op")
            }
        }
    }

    private fun names(step: Json) = (step["rule"] as? String)?.let(::listOf) ?: step.list("rule").map { it as String }

    private fun key(step: Json) = LimitKey.of(step.text("key"))

    private fun limits(step: Json): String? {
        val rule = step["rule"]
        val isAnother = rule is String && madeWith[rule] != rules[rule]
        return step["limits"] as String? ?: if (isAnother) rules[rule] as String else null
    }

    private fun options(step: Json) =
        CheckOptions(step["cost"] as Long? ?: 1, limits(step), step["id"]?.let(::bytes))

    private fun check(step: Json): Json {
        val times = step["times"] as Long? ?: 1
        val decisions = (0 until times).map { number ->
            if (number > 0) clock.set(clock.micros() + (step["every_us"] as Long? ?: 0))
            limiter.checkAll(names(step), key(step), options(step))
        }
        step["save"]?.let { receipts[it as String] = decisions.last().receipt }
        return told(decisions.last()) + mapOf("admitted" to decisions.count { it.allowed }.toLong())
    }

    private fun count(step: Json): Json {
        val (rule, n) = step.text("rule") to step.long("n")
        val window = Duration.ofNanos(step.long("window_us") * 1000)
        val counted =
            if (n >= 0) limiter.count(rule, key(step), window, n)
            else limiter.takeBack(rule, key(step), window, -n, start + step.long("start_us"))
        val began = if (counted.start == 0L) 0 else -Math.floorDiv(start - counted.start, 1000L)
        return mapOf("total" to counted.total, "time_left_us" to counted.leftMs, "start_us" to began)
    }

    private fun configure(step: Json): Json {
        rules += step["rules"].json()
        if (url != null) {
            madeWith = rules.toMap()
            limiter.close()
            limiter = made()
        }
        return emptyMap()
    }

    /** A decision as the files have it. */
    private fun told(decision: Decision): Json = with(decision) {
        figures(allowed, remaining, retryAfterMs, resetAfterMs) + mapOf(
            "repeat" to repeat,
            "origin" to origin.name.lowercase(),
            "failure" to failure?.code,
            "binding" to binding.toLong(),
            "limits" to limits.map { figures(it.allowed, it.remaining, it.retryAfterMs, it.resetAfterMs) },
        )
    }

    private fun figures(allowed: Boolean, remaining: Long, retry: Long?, reset: Long?): Json =
        mapOf("allowed" to allowed, "remaining" to remaining, "retry_after_us" to retry, "reset_after_us" to reset)
}
