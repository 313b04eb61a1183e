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
        finish(submitted(listOf(call)))
        return call
    }

    /** Whoever crosses takes others along, who are not to fail with him: what is no call is refused here, on its own thread. */
    private fun <T> pending(ask: Ask, isBlocking: Boolean, read: (Answer) -> T): Pending<T> =
        Pending(this, ask, FfiConverterTypeAsk.allocationSize(ask).toLong(), isBlocking, read)

    /** Crosses until nothing waits; for long the common thread does it, so that nobody crosses for others for ever. */
    fun cross() {
        var rounds = 0
        while (waiting.isNotEmpty() && isCrossing.compareAndSet(false, true)) {
            val calls = taken()
            val answered = try {
                submitted(calls)
            } catch (error: Throwable) {
                // Where the stack or the memory is at its end, nobody is left waiting.
                calls.forEach { it.completeExceptionally(told(error)) }
                throw error
            } finally {
                isCrossing.set(false)
            }
            finish(answered)
            rounds += 1
            if (rounds == ROUNDS && waiting.isNotEmpty()) return Answers.later(listOf(Later(null, ::cross)))
        }
    }

    private fun taken(): List<Pending<*>> {
        val calls = ArrayList<Pending<*>>()
        var bytes = 0L
        while (calls.size < MOST) {
            val call = waiting.peek() ?: break
            bytes += call.bytes
            if (calls.isNotEmpty() && bytes > MOST_BYTES) break
            calls.add(call)
            waiting.poll()
        }
        return calls
    }

    /** How a call has ended. */
    private class Ending(val call: Pending<*>, private val answer: Answer?, private val error: Throwable? = null) {
        fun tell() {
            if (answer != null) call.answer(answer) else call.completeExceptionally(error)
        }
    }

    /** Submits what is still wanted. What has ended at once is told later: code of the application may cross again. */
    private fun submitted(calls: List<Pending<*>>): List<Ending> {
        var wanted = calls
        var first = 0L
        return try {
            wanted = calls.filterNot { it.isDone }
            if (wanted.isEmpty()) return emptyList()
            first = Answers.expect(wanted)
            val completed = submit(wanted.mapIndexed { place, call -> Call(first + place, call.ask) })
            // Called off before it was under way: nobody could tell it then.
            wanted.filter { it.isDone }.forEach { it.callOff() }
            beside()
            completed.mapNotNull { done -> Answers.take(done.ticket)?.let { Ending(it, done.answer) } }
        } catch (error: Throwable) {
            if (first != 0L) wanted.indices.forEach { Answers.take(first + it) }
            // Nothing has crossed: one of them has a text that is no Unicode, and the others are not to fail with it.
            if (error is CharacterCodingException && wanted.size > 1) return wanted.flatMap { submitted(listOf(it)) }
            wanted.map { Ending(it, null, told(error)) }
        }
    }

    private fun finish(ended: List<Ending>) {
        // What the application does with an answer may take its time: not on the thread of another caller.
        val (quick, slow) = ended.partition { it.call.isBlocking || it.call.isOfThisThread() }
        Answers.later(slow.map { Later(it.call, it::tell) })
        quick.forEach { it.tell() }
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

        /** What crosses at once at the most, unless one call alone has more. */
        const val MOST_BYTES = 16L shl 20
    }
}
