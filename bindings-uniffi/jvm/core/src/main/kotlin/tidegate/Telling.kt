package tidegate

import kotlin.text.Charsets.ISO_8859_1

/** For Java, which has no named arguments: [Told], and something more. `new Told().withPeer("203.0.113.7").withUser("alice")`. */
sealed interface Telling {
    /** These, and the address of whoever is connected, or `unix`. */
    fun withPeer(peer: String?): Told = told.copy(peer = peer)

    /** These, and a line of a header. */
    fun withHeader(name: String, value: ByteArray): Told = told.copy(headers = told.headers + HeaderLine(name, value))

    /** These, and a line of a header as servers tell it: a character for each byte. One that they have decoded is its UTF-8. */
    fun withHeader(name: String, value: String): Told =
        withHeader(name, if (value.all { it <= '\u00ff' }) value.toByteArray(ISO_8859_1) else utf8(value))

    /** These, and who the user is; null for nobody. */
    fun withUser(user: ByteArray?): Told = told.copy(user = user)

    /** These, and who the user is, as its UTF-8; null for nobody. */
    fun withUser(user: String?): Told = withUser(user?.let(::utf8))

    /** These, and what the document calls `app:NAME`. */
    fun withValue(name: String, value: ByteArray): Told = told.copy(values = told.values + Value(name, value))

    /** These, and what the document calls `app:NAME`, as its UTF-8. */
    fun withValue(name: String, value: String): Told = withValue(name, utf8(value))

    /** These, and a cost that the document calls `app:NAME`. */
    fun withValue(name: String, cost: Long): Told = withValue(name, cost.toString())

    /** These, and a question that the application answers with yes. */
    fun withAnswer(question: String): Told = told.copy(answers = told.answers + question)

    /** These, and the name of the route, where the path does not choose it. */
    fun withRoute(route: String?): Told = told.copy(route = route)

    /** These, and what an admission before this one charged: what both name is charged once. */
    fun withAfter(after: Charge?): Told = told.copy(after = after)

    private val told: Told
        get() = when (this) {
            is Told -> this
        }
}
