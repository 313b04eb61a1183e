package tidegate

import java.util.concurrent.CompletableFuture
import java.util.concurrent.ExecutionException

/**
 * A call that is on its way. What it comes to when nobody wants it any more (it was cancelled, it timed out, its thread was
 * interrupted) is given back.
 */
internal class Pending<T>(
    private val inbox: Inbox,
    val ask: Ask,
    /** How much of it crosses, at the most. */
    val bytes: Long,
    /** Where its thread waits, no code of the application runs when it ends. */
    val isBlocking: Boolean,
    private val read: (Answer) -> T,
) : CompletableFuture<T>() {
    private val caller = Thread.currentThread()

    @Volatile
    var ticket: Long = 0

    init {
        // Whoever ends it early, by `cancel` or `orTimeout`: an acquire leaves its line at once.
        if (ask is Ask.Acquire) whenComplete { _, _ -> callOff() }
    }

    /** Nobody else has it yet, where its caller crosses for it. */
    fun isOfThisThread() = Thread.currentThread() === caller && numberOfDependents == 0

    /** An acquire that is under way leaves its line; other calls cannot be stopped. */
    fun callOff() {
        if (ask is Ask.Acquire && ticket != 0L) Answers.callOff(ticket)
    }

    // What is made of it is an ordinary future.
    override fun <U> newIncompleteFuture(): CompletableFuture<U> = CompletableFuture()

    // On the common thread nobody else would answer it.
    override fun get(): T {
        if (Answers.isThisThread()) Answers.until(this)
        return super.get()
    }

    override fun join(): T {
        if (Answers.isThisThread()) Answers.until(this)
        return super.join()
    }

    /** Ends it with its answer. */
    fun answer(answer: Answer) {
        ticket = 0
        val result = if (answer is Answer.Failed) null else runCatching { read(answer) }
        val isWanted = when {
            answer is Answer.Failed -> completeExceptionally(TidegateException.of(answer.failure))
            result!!.isFailure -> completeExceptionally(result.exceptionOrNull())
            else -> complete(result.getOrThrow())
        }
        if (!isWanted) inbox.giveBack(answer)
    }

    /** Waits for it; an interrupt calls it off. */
    fun await(): T {
        try {
            if (Thread.interrupted()) throw InterruptedException()
            return get()
        } catch (error: InterruptedException) {
            abandon()
            throw error
        } catch (error: ExecutionException) {
            // It was made on another thread, whose stack says nothing of who called.
            throw (error.cause as? TidegateException)?.here() ?: error.cause ?: error
        }
    }

    private fun abandon() {
        // Its answer may have come first: then that is what nobody wants.
        if (!cancel(true) && !isCompletedExceptionally) unwanted(join())
    }

    /** Gives back what nobody sees any more. */
    fun unwanted(result: T) {
        if (result != null) inbox.unwanted(result)
    }
}
