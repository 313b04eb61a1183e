package tidegate.support

import com.fasterxml.jackson.databind.ObjectMapper
import java.io.File
import java.util.HexFormat

/** A JSON object as it is read: text, Boolean, Long, Double, null, lists and objects. */
typealias Json = Map<String, Any?>

private val mapper = ObjectMapper()

fun json(value: Any?): String = mapper.writeValueAsString(value)

fun parsed(text: String): Any? = plain(mapper.readValue(text, Any::class.java))

/** All whole numbers are of one type. */
private fun plain(value: Any?): Any? = when (value) {
    is Int -> value.toLong()
    is List<*> -> value.map(::plain)
    is Map<*, *> -> value.mapValues { plain(it.value) }
    else -> value
}

@Suppress("UNCHECKED_CAST")
fun Any?.json(): Json = this as Json

@Suppress("UNCHECKED_CAST")
fun Json.list(name: String): List<Any?> = (this[name] ?: emptyList<Any?>()) as List<Any?>

fun Json.text(name: String) = this[name] as String

fun Json.long(name: String) = this[name] as Long

/** The cases of a file: tests/vectors/README.md. */
fun cases(name: String): List<Json> {
    val cases = parsed(File(ROOT, "tests/vectors/$name.json").readText()).json().list("cases").map { it.json() }
    check(cases.isNotEmpty())
    return cases
}

/** The bytes of text or of bytes, as the files write them. */
fun bytes(given: Any?): ByteArray {
    if (given is String) return given.toByteArray()
    val parts = given.json()
    return (parts["hex"] as String?)?.let(HexFormat.of()::parseHex)
        ?: parts.text("text").repeat(parts.long("times").toInt()).toByteArray()
}

/** What is expected and not so; times are compared in whole milliseconds, rounded up. */
fun differences(expected: Any?, found: Any?, name: String = ""): List<String> {
    val different = listOf("$name: ${json(expected)} and not ${json(found)}")
    return when (expected) {
        is List<*> ->
            if (found !is List<*> || found.size != expected.size) different
            else expected.indices.flatMap { differences(expected[it], found[it], name) }
        is Map<*, *> ->
            if (found !is Map<*, *>) different
            else expected.flatMap { (key, value) -> differences(value, found[key], key as String) }
        is Long -> {
            val wanted = if (name.endsWith("_us")) -Math.floorDiv(-expected, 1000L) else expected
            if (wanted == found) emptyList() else different
        }
        else -> if (expected == found) emptyList() else different
    }
}
