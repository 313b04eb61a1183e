package tidegate

import java.nio.charset.CharacterCodingException

/**
 * What cannot be done, and what to write instead. A refusal is none of these, and a store that fails is none of a `check`,
 * `peek`, `acquire` or `admit`.
 *
 * @property code which kind it is: one of [errorCodes], such as `invalid_request`. It never changes; the message may.
 */
open class TidegateException internal constructor(val code: String, message: String, cause: Throwable? = null) :
    RuntimeException(message, cause) {

    /** As it crosses: the code and the message in one text. */
    internal constructor(text: String) : this(text.substringBefore(": "), text.substringAfter(": "))

    /** The same with the stack of this thread. */
    internal fun here() = TidegateException(code, message.orEmpty(), cause)

    override fun toString(): String = "${TidegateException::class.java.name}: $code: $message"

    internal companion object {
        const val INVALID_REQUEST = "invalid_request"

        fun of(failure: Failure) = TidegateException(failure.code, failure.message)

        fun invalid(message: String) = TidegateException(INVALID_REQUEST, message)
    }
}

/** Does what crosses, and throws the error of this package where it fails. */
internal inline fun <T> crossing(work: () -> T): T =
    try {
        work()
    } catch (error: Exception) {
        throw told(error)
    }

/** The error of this package, of one of what crosses. */
internal fun told(error: Throwable): Throwable = when (error) {
    is CharacterCodingException -> {
        val message = "the text has half a surrogate pair, which is no Unicode; write whole characters"
        TidegateException(TidegateException.INVALID_REQUEST, message, error)
    }
    else -> error
}
