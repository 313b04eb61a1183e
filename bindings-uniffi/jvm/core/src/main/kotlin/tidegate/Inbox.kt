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
        val call = Pending(this, ask, isBlocking, read)
        waiting.add(call)
        if (!Answers.isToCross(this)) cross()
        return call
    }

    /** Brings one on its way by itself, and tells what is known at once. */
    fun <T> sendAlone(ask: Ask, read: (Answer) -> T): Pending<T> {
        val call = Pending(this, ask, false, read)
        finish(submitted(listOf(call)))
        return call
    }

    /** Crosses until nothing waits; for long the common thread does it, so that nobody crosses for others for ever. */
    fun cross() {
        var rounds = 0
        while (waiting.isNotEmpty() && isCrossing.compareAndSet(false, true)) {
            val answered = try {
                submitted(generateSequence { waiting.poll() }.take(MOST).toList())
            } finally {
                isCrossing.set(false)
            }
            finish(answered)
            rounds += 1
            if (rounds == ROUNDS && waiting.isNotEmpty()) return Answers.later(::cross)
        }
    }

    /** Submits what is still wanted, and tells what is answered at once. */
    private fun submitted(calls: List<Pending<*>>): List<Pair<Pending<*>, Answer>> {
        val wanted = calls.filterNot { it.isDone }
        if (wanted.isEmpty()) return emptyList()
        val first = Answers.expect(wanted)
        val completed = try {
            submit(wanted.mapIndexed { place, call -> Call(first + place, call.ask) })
        } catch (error: Throwable) {
            wanted.indices.forEach { Answers.take(first + it) }
            // Nothing has crossed: one of them has a text that is no Unicode, and the others are not to fail with it.
            if (error is CharacterCodingException && wanted.size > 1) return wanted.flatMap { submitted(listOf(it)) }
            wanted.forEach { it.completeExceptionally(told(error)) }
            return emptyList()
        }
        // Called off before it was under way: nobody could tell it then.
        wanted.filter { it.isDone }.forEach { it.callOff() }
        beside()
        return completed.mapNotNull { done -> Answers.take(done.ticket)?.let { it to done.answer } }
    }

    private fun finish(answered: List<Pair<Pending<*>, Answer>>) {
        // What the application does with an answer may take its time: not on the thread of another caller.
        val (slow, quick) = answered.partition { (call, _) -> !call.isBlocking && call.numberOfDependents > 0 }
        quick.forEach { (call, answer) -> call.answer(answer) }
        if (slow.isNotEmpty()) Answers.later { slow.forEach { (call, answer) -> call.answer(answer) } }
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
    }
}
