package tidegate

import java.nio.charset.CharacterCodingException
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.atomic.AtomicBoolean

/**
 * The calls of one limiter or policy that are to cross. A crossing costs more than a decision: whoever finds nobody crossing
 * takes all that wait here along, and the others add theirs and leave.
 */
internal class Inbox(private val submit: (List<Call>) -> List<Completed>) {
    private val waiting = ConcurrentLinkedQueue<Pending<*>>()
    private val isCrossing = AtomicBoolean()

    /** What else is told when somebody crosses. */
    var beside: () -> Unit = {}

    /** Brings a call on its way. */
    fun <T> send(ask: Ask, isBlocking: Boolean, read: (Answer) -> T): Pending<T> {
        val call = pending(ask, isBlocking, read)
        waiting.add(call)
        if (!Answers.isToCross(this)) cross()
        return call
    }

    /** Brings one on its way by itself, and tells what is known at once. */
    fun <T> sendAlone(ask: Ask, read: (Answer) -> T): Pending<T> {
        val call = pending(ask, false, read)
        val calls = arrayListOf<Pending<*>>(call)
        finish(orFailed(calls) { submitted(calls) })
        return call
    }

    /** Whoever crosses takes others along, who are not to fail with him: what is no call is refused here, on its own thread. */
    private fun <T> pending(ask: Ask, isBlocking: Boolean, read: (Answer) -> T): Pending<T> =
        Pending(this, ask, FfiConverterTypeAsk.allocationSize(ask).toLong(), isBlocking, read)

    /** Crosses until nothing waits; for long the common thread does it, so that nobody crosses for others for ever. */
    fun cross() =
        try {
            crossing()
        } catch (error: Throwable) {
            // Others have added theirs meanwhile, and left.
            Answers.silently(::cross)
            throw error
        }

    private fun crossing() {
        var rounds = 0
        while (waiting.isNotEmpty()) {
            val calls = ArrayList<Pending<*>>()
            // As deep as it takes to tell of a stack that ends: if it ends here, nothing has been taken yet.
            deep(DEPTH)
            if (!isCrossing.compareAndSet(false, true)) return
            val answered = try {
                orFailed(calls) {
                    take(calls)
                    submitted(calls)
                }
            } finally {
                isCrossing.set(false)
            }
            finish(answered)
            rounds += 1
            if (rounds == ROUNDS && waiting.isNotEmpty()) return Answers.later(listOf(Later(null, ::cross)))
        }
    }

    /** Where the stack or the memory is at its end, nobody is left waiting: the common thread tells them, whose stack is free. */
    private inline fun <T> orFailed(calls: List<Pending<*>>, work: () -> T): T =
        try {
            work()
        } catch (error: Throwable) {
            Answers.silently { calls.forEach { Ending(it, null, told(error)).tellAgain() } }
            throw error
        }

    private fun deep(levels: Int): Int = if (levels == 0) 0 else deep(levels - 1) + 1

    private fun take(calls: ArrayList<Pending<*>>) {
        var bytes = 0L
        while (calls.size < MOST) {
            val call = waiting.peek() ?: break
            bytes += call.bytes
            if (calls.isNotEmpty() && bytes > MOST_BYTES) break
            // In this order: one that is in both fails, and one that is in neither would wait for ever.
            calls.add(call)
            waiting.poll()
        }
    }

    /** How a call has ended. */
    private class Ending(val call: Pending<*>, private val answer: Answer?, private val error: Throwable? = null) {
        fun tell() {
            if (answer != null) call.answer(answer) else call.completeExceptionally(error)
        }

        /** Where the first time may have broken off. Nothing comes for it any more. */
        fun tellAgain() {
            Answers.take(call.ticket)
            if (!call.isDone) tell()
        }
    }

    /** Submits what is still wanted. What has ended at once is told later: code of the application may cross again. */
    private fun submitted(calls: List<Pending<*>>): List<Ending> {
        var wanted = calls
        return try {
            wanted = calls.filterNot { it.isDone }
            if (wanted.isEmpty()) return emptyList()
            val first = Answers.expect(wanted)
            val completed = submit(wanted.mapIndexed { place, call -> Call(first + place, call.ask) })
            // Called off before it was under way: nobody could tell it then.
            wanted.filter { it.isDone }.forEach { it.callOff() }
            beside()
            completed.mapNotNull { done -> Answers.take(done.ticket)?.let { Ending(it, done.answer) } }
        } catch (error: Throwable) {
            wanted.forEach { Answers.take(it.ticket) }
            // Nothing has crossed: one of them has a text that is no Unicode, and the others are not to fail with it.
            if (error is CharacterCodingException && wanted.size > 1) return wanted.flatMap { submitted(listOf(it)) }
            wanted.map { Ending(it, null, told(error)) }
        }
    }

    private fun finish(ended: List<Ending>) =
        try {
            // What the application does with an answer may take its time: not on the thread of another caller.
            val (quick, slow) = ended.partition { it.call.isBlocking || it.call.isOfThisThread() }
            Answers.later(slow.map { Later(it.call, it::tell) })
            quick.forEach { it.tell() }
        } catch (error: Throwable) {
            Answers.silently { ended.forEach { it.tellAgain() } }
            throw error
        }

    /** Gives back what a call charged, in the background. */
    fun giveBack(answer: Answer) {
        when (answer) {
            is Answer.Decided -> unwanted(answer.decision)
            is Answer.Admitted -> unwanted(answer.admission)
            else -> {}
        }
    }

    /** The same of what was made of its answer. */
    fun unwanted(result: Any) {
        when (result) {
            is Decision -> if (result.receipt.isNotEmpty()) send(Ask.Refund(result.receipt), false) {}
            is Admission -> result.charge.use { it.undo() }
        }
    }

    private companion object {
        const val MOST = 512
        const val ROUNDS = 16
        const val DEPTH = 64

        /** What crosses at once at the most, unless one call alone has more. */
        const val MOST_BYTES = 16L shl 20
    }
}
