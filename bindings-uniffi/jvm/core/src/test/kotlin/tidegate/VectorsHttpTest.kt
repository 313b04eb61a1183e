package tidegate

import java.net.ServerSocket
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.DynamicTest.dynamicTest
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.TestFactory
import org.junit.jupiter.api.extension.ExtendWith
import tidegate.support.Json
import tidegate.support.Servers
import tidegate.support.bytes
import tidegate.support.cases
import tidegate.support.json
import tidegate.support.list
import tidegate.support.long
import tidegate.support.parsed
import tidegate.support.text

/** The vectors of whole requests (tests/vectors/README.md). */
@ExtendWith(Servers.Shared::class)
class VectorsHttpTest {
    @Test
    fun addresses() {
        for (case in cases("addresses")) {
            val found = seen {
                Policy.ofJson(document(case)).use { policy ->
                    val told = Told(peer = case["peer"] as String?, headers = lines(case))
                    val address = policy.clientAddress("GET", "/", told)
                    mapOf("address" to address, "key" to policy.clientKey("GET", "/", told))
                }
            }
            assertEquals(case["expect"], found, case.text("name"))
        }
    }

    @Test
    fun routes() {
        for (case in cases("routes")) {
            val requests = case.list("requests").map { it.json() }
            val found = seen {
                Policy.ofJson(document(case)).use { policy ->
                    mapOf("routes" to requests.map { policy.request(it.text("method"), it.text("path")).route })
                }
            }
            val expected = case["error"]?.let { mapOf("error" to it) } ?: mapOf("routes" to requests.map { it["route"] })
            assertEquals(expected, found, case.text("name"))
        }
    }

    @TestFactory
    fun requests(): List<DynamicTest> = listOf("memory", "redis", "cluster").flatMap { store ->
        listOf("admissions", "http_responses").map { name ->
            dynamicTest("$name on $store") { cases(name).forEach { play(it, Servers.url(store)) } }
        }
    }

    private fun play(case: Json, url: String?) {
        val clock = Clock(0, true)
        Policy.at(Source.Json(document(case, url)), clock).use { policy ->
            for ((number, step) in case.list("steps").map { it.json() }.withIndex()) {
                clock.set(step.long("at_ms") * 1000)
                assertEquals(expected(step), seen { answered(policy, step) }, "${case["name"]}, step $number")
            }
        }
    }

    private fun expected(step: Json): Json = step["expect"].json().mapValues { (field, value) ->
        if (field == "headers") value.json().mapKeys { it.key.lowercase() } else value
    }

    private fun answered(policy: Policy, step: Json): Json {
        val admission = policy.admit(step.text("method"), step.text("path"), told(step))
        val found = step["expect"].json().keys.associateWith { told(admission, it, step) }
        if ("settled" !in found) step["settle"]?.let { admission.charge.settleAndWait((it as Long).toInt()) }
        admission.destroy()
        return found
    }

    private fun told(step: Json): Told {
        val values = (step["values"]?.json() ?: emptyMap()) + step.filterKeys { it == "cost" }
        return Told(
            peer = step["peer"] as String?,
            headers = lines(step),
            user = step["user"]?.let(::bytes),
            values = values.map { (name, value) -> Value(name, if (value is Long) bytes("$value") else bytes(value)) },
            answers = step.list("yes").map { it as String },
        )
    }

    /** A field of the answer as the files have it. */
    private fun told(admission: Admission, field: String, step: Json): Any? {
        val headers = admission.headers.associate { it.name.lowercase() to it.value }
        return when (field) {
            "outcome" -> admission.outcome.name.lowercase()
            "status" -> admission.status?.toLong()
            "headers" -> headers
            "body" -> if (headers["content-type"]?.endsWith("json") == true) parsed(admission.body!!) else admission.body
            "remaining" -> admission.charge.decisions().map { it.remaining }
            "settled" -> admission.charge.settleAndWait((step["settle"] as Long? ?: 200).toInt())
            else -> error("there is no $field")
        }
    }

    private fun lines(step: Json) = step.list("headers").map {
        val (name, value) = it as List<*>
        HeaderLine(name as String, bytes(value))
    }

    /** The case's document on a store; without a URL it is memory. */
    private fun document(case: Json, url: String? = null): String {
        val rules = case["rules"]?.json() ?: mapOf("r" to "100/m")
        val on = if (case["store"] == "down") "redis://127.0.0.1:${ServerSocket(0).use { it.localPort }}" else url
        val store = mapOf("deadline" to "20s", "prefix" to Servers.prefix()) + (on?.let { mapOf("url" to it) } ?: emptyMap())
        val costs = case.list("steps").any { (it.json()["cost"] ?: 1L) != 1L }
        val route = mapOf("prefix" to "/", "rules" to rules.keys, "key" to "ip") +
            (if (costs) mapOf("cost" to "app:cost") else emptyMap())
        val http = case["http"] ?: emptyMap<String, Any>()
        val routes = case["routes"] ?: listOf(route)
        return json(mapOf("version" to 1, "store" to store, "rules" to rules, "http" to http, "routes" to routes))
    }
}
