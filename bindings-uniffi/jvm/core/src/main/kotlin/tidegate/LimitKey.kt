package tidegate

import java.nio.CharBuffer
import java.nio.charset.CodingErrorAction

/** Who is limited: any 1 to 65,536 bytes, or several such parts that stay apart. */
class LimitKey private constructor(private val parts: List<ByteArray>, private val isWhole: Boolean) {
    private val hash = parts.fold(if (isWhole) 1 else 2) { hash, part -> 31 * hash + part.contentHashCode() }

    internal val native: Key
        get() = if (isWhole) Key.Whole(parts.single()) else Key.Parts(parts)

    override fun equals(other: Any?): Boolean =
        other is LimitKey && isWhole == other.isWhole && parts.size == other.parts.size &&
            parts.indices.all { parts[it].contentEquals(other.parts[it]) }

    override fun hashCode(): Int = hash

    override fun toString(): String = "LimitKey of ${parts.joinToString(" + ") { "${it.size} bytes" }}"

    companion object {
        /**
         * A user, an address, an API key: the text's UTF-8.
         *
         * @throws TidegateException `invalid_request` for half a surrogate pair, which has no UTF-8.
         */
        @JvmStatic
        fun of(text: String) = LimitKey(listOf(utf8(text)), true)

        /** The bytes as they are. */
        @JvmStatic
        fun of(bytes: ByteArray) = LimitKey(listOf(bytes.copyOf()), true)

        /** Several parts, such as a tenant and a user: `("a", "bc")` is another than `("ab", "c")`. */
        @JvmStatic
        fun parts(vararg texts: String) = LimitKey(texts.map(::utf8), false)

        /** The same of bytes. */
        @JvmStatic
        fun parts(vararg parts: ByteArray) = LimitKey(parts.map(ByteArray::copyOf), false)
    }
}

/** The text's UTF-8, strictly: what has none would be somebody else's key. */
internal fun utf8(text: String): ByteArray = crossing {
    val encoder = Charsets.UTF_8.newEncoder().onMalformedInput(CodingErrorAction.REPORT)
    val bytes = encoder.encode(CharBuffer.wrap(text))
    ByteArray(bytes.remaining()).also(bytes::get)
}
