package tidegate

import java.time.Duration

/** The calls of a limiter, for those who block, those who go on, and those who are suspended. */
internal class Calls(val limiter: NativeLimiter, private val isOwn: Boolean) {
    /** What is told again has to be counted here, so that only a limiter of its own does. */
    private val refusals = if (isOwn) Refusals(limiter).takeIf { it.isPossible } else null
    private val number by lazy { limiter.number(Answers.queue) }
    private val inbox = Inbox { calls -> Crossing.submit(number, calls) }

    @Volatile
    private var isClosed = false

    init {
        refusals?.let { inbox.beside = it::tell }
        if (isOwn) Answers.opened()
    }

    fun close() {
        synchronized(this) { if (isClosed) return else isClosed = true }
        refusals?.tell()
        limiter.shut()
        if (isOwn) Answers.closed()
    }

    /** What it told again belongs to what it has counted. */
    fun <T> counted(read: NativeLimiter.() -> T): T = crossing {
        if (!isClosed) refusals?.tell()
        limiter.read()
    }

    /** A refusal that is known to be the answer. */
    fun known(rules: List<String>, key: LimitKey, options: CheckOptions): Decision? {
        if (refusals == null || options.hasId || isClosed) return null
        return refusals.find(Asked(rules, key, options.cost, options.limits))
    }

    fun check(rules: List<String>, key: LimitKey, options: CheckOptions, isBlocking: Boolean): Pending<Decision> {
        val ask = Ask.Check(rules.toList(), key.native, options.native)
        if (refusals == null || options.hasId) return inbox.send(ask, isBlocking, ::decided)
        val at = refusals.now()
        val asked = Asked(rules.toList(), key, options.cost, options.limits)
        return inbox.send(ask, isBlocking) { answer -> decided(answer).also { refusals.keep(asked, at, it) } }
    }

    fun peek(rules: List<String>, key: LimitKey, options: CheckOptions, isBlocking: Boolean) =
        inbox.send(Ask.Peek(rules.toList(), key.native, options.native), isBlocking, ::decided)

    fun acquire(rule: String, key: LimitKey, timeout: Duration, options: CheckOptions, isBlocking: Boolean) =
        inbox.send(Ask.Acquire(rule, key.native, options.native, milliseconds(timeout)), isBlocking, ::decided)

    fun refund(receipt: String, isBlocking: Boolean) =
        inbox.send(Ask.Refund(receipt), isBlocking) { (it as Answer.Refunded).isSo }

    fun reset(rule: String, key: LimitKey, limits: String?, isBlocking: Boolean) =
        inbox.send(Ask.Reset(rule, key.native, limits), isBlocking, ::done)

    fun count(rule: String, key: LimitKey, window: Duration, add: Long, isBlocking: Boolean) =
        inbox.send(Ask.Count(rule, key.native, milliseconds(window), add), isBlocking, ::counted)

    fun takeBack(rule: String, key: LimitKey, window: Duration, units: Long, start: Long, isBlocking: Boolean) =
        inbox.send(Ask.TakeBack(rule, key.native, milliseconds(window), units, start), isBlocking, ::counted)

    fun ready(timeout: Duration, isBlocking: Boolean) =
        inbox.send(Ask.Ready(milliseconds(timeout)), isBlocking, ::done)

    private fun decided(answer: Answer) = (answer as Answer.Decided).decision

    private fun counted(answer: Answer) = (answer as Answer.Counting).counted

    @Suppress("UNUSED_PARAMETER")
    private fun done(answer: Answer): Void? = null
}
