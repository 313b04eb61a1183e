package tidegate

import java.util.ArrayDeque
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.Future
import java.util.concurrent.atomic.AtomicLong

/** Where answers come that were not known at once: one queue for the process, and one thread that waits for it. */
internal object Answers {
    val queue: NativeQueue by lazy { keepLog().let { NativeQueue() } }

    private val number by lazy { queue.number() }
    private val waiting = ConcurrentHashMap<Long, Pending<*>>()
    private val next = AtomicLong(1)
    private val later = ConcurrentLinkedQueue<() -> Unit>()

    /** Limiters and policies that are open: while there are any, lines may come that are to be logged. */
    private var open = 0

    /** Of the common thread alone: whether it answers, and whose calls are to cross when it has. */
    private var isAnswering = false
    private val toCross = ArrayDeque<Inbox>()

    @Volatile
    private var thread: Thread? = null

    /** Gives calls their tickets, which follow the first one that is told. */
    fun expect(calls: List<Pending<*>>): Long {
        val first = next.getAndAdd(calls.size.toLong())
        calls.forEachIndexed { place, call ->
            call.ticket = first + place
            waiting[first + place] = call
        }
        if (thread == null) start()
        return first
    }

    fun take(ticket: Long): Pending<*>? = waiting.remove(ticket)

    fun callOff(ticket: Long) {
        if (waiting.containsKey(ticket)) queue.callOff(ticket)
    }

    /** Does something on the common thread, soon. */
    fun later(work: () -> Unit) {
        later.add(work)
        if (thread == null) start()
        queue.wake()
    }

    fun opened() {
        synchronized(this) { open += 1 }
        if (thread == null) start()
    }

    fun closed() = synchronized(this) { open -= 1 }

    fun isThisThread() = Thread.currentThread() === thread

    /** Goes on while code of the application, called on the common thread, waits for another call. */
    fun until(call: Future<*>) {
        while (!call.isDone) round()
    }

    private fun start() = synchronized(this) {
        if (thread != null) return
        thread = Thread(::run, "tidegate").apply {
            isDaemon = true
            contextClassLoader = null
            start()
        }
    }

    private fun run() {
        while (!isOver()) {
            try {
                round()
            } catch (error: Throwable) {
                Log.failed(error)
            }
        }
    }

    private fun round() {
        crossAll()
        val completed = Crossing.wait(number, if (later.isEmpty()) MOST_MS else 0)
        isAnswering = true
        try {
            for (done in completed) take(done.ticket)?.answer(done.answer)
        } finally {
            isAnswering = false
        }
        crossAll()
        while (true) later.poll()?.invoke() ?: break
        Log.take(atOnce = completed.isEmpty())
    }

    /** Whether the calls of an inbox cross a little later: while the common thread answers many, what they lead to crosses at once. */
    fun isToCross(inbox: Inbox): Boolean {
        if (!isThisThread() || !isAnswering) return false
        if (inbox !in toCross) toCross.add(inbox)
        return true
    }

    private fun crossAll() {
        while (true) (toCross.pollFirst() ?: return).cross()
    }

    private fun isOver() = synchronized(this) {
        val isIdle = open == 0 && waiting.isEmpty() && later.isEmpty()
        if (isIdle) thread = null
        // A call that was added in between found the thread running.
        if (isIdle && (waiting.isNotEmpty() || later.isNotEmpty())) thread = Thread.currentThread()
        thread !== Thread.currentThread()
    }

    /** How long it waits at the most, in milliseconds: lines to be logged ring no bell. */
    private const val MOST_MS = 1_000L
}
