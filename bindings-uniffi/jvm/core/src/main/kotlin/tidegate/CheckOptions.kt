package tidegate

import java.time.Duration

/**
 * What a call may be told beside its rule and key. In Kotlin `CheckOptions(cost = 4)`, in Java
 * `CheckOptions.cost(4).withLimits("10/s")`.
 *
 * @property cost the units that the request takes, from 1.
 * @property limits limits instead of the rule's own, such as a customer's.
 * @property deadline how long the store may take; the document's own, or 100 ms, unless said.
 */
class CheckOptions @JvmOverloads constructor(
    val cost: Long = 1,
    val limits: String? = null,
    requestId: ByteArray? = null,
    val deadline: Duration? = null,
) {
    private val id: ByteArray? = requestId?.copyOf()

    /** The request's id, 1 to 200 bytes, for a `sliding_window_log`: the same id is charged once. */
    val requestId: ByteArray?
        get() = id?.copyOf()

    internal val hasId: Boolean
        get() = id != null

    internal val native: Options
        get() = Options(cost, limits, id, deadline?.let(::milliseconds))

    /** These, and so many units, from 1. */
    fun withCost(cost: Long) = CheckOptions(cost, limits, id, deadline)

    /** These, and limits instead of the rule's own. */
    fun withLimits(limits: String?) = CheckOptions(cost, limits, id, deadline)

    /** These, and the request's id, 1 to 200 bytes. */
    fun withRequestId(requestId: ByteArray?) = CheckOptions(cost, limits, requestId, deadline)

    /** These, and the request's id as its UTF-8. */
    fun withRequestId(requestId: String) = withRequestId(utf8(requestId))

    /** These, and how long the store may take. */
    fun withDeadline(deadline: Duration?) = CheckOptions(cost, limits, id, deadline)

    companion object {
        /** One unit, and nothing else. */
        @JvmField
        val DEFAULT = CheckOptions()

        /** So many units, from 1. */
        @JvmStatic
        fun cost(cost: Long) = DEFAULT.withCost(cost)

        /** Limits instead of the rule's own. */
        @JvmStatic
        fun limits(limits: String) = DEFAULT.withLimits(limits)

        /** The request's id, 1 to 200 bytes. */
        @JvmStatic
        fun requestId(requestId: ByteArray) = DEFAULT.withRequestId(requestId)

        /** The request's id as its UTF-8. */
        @JvmStatic
        fun requestId(requestId: String) = DEFAULT.withRequestId(requestId)

        /** How long the store may take. */
        @JvmStatic
        fun deadline(deadline: Duration) = DEFAULT.withDeadline(deadline)
    }
}

/** Whole milliseconds, rounded up; what is too long for them is the longest. */
internal fun milliseconds(time: Duration): Long =
    try {
        if (time.isNegative) time.toMillis() else time.plusNanos(999_999).toMillis()
    } catch (_: ArithmeticException) {
        if (time.isNegative) Long.MIN_VALUE else Long.MAX_VALUE
    }
