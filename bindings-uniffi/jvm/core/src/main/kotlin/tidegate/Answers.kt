package tidegate

import java.util.concurrent.CompletableFuture
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.atomic.AtomicLong

/** Where answers come that were not known at once: one queue for the process, and one thread that waits for it. */
internal object Answers {
    val queue: NativeQueue by lazy { keepLog().let { NativeQueue() } }

    private val number by lazy { queue.number() }
    private val waiting = ConcurrentHashMap<Long, Pending<*>>()
    private val next = AtomicLong(1)
    private val later = ConcurrentLinkedQueue<Later>()

    /** What has come, for the common thread: also for code of the application on it that waits for another call. */
    private val come = ArrayDeque<Completed>()

    /** Whether nothing came when it waited last. */
    private var isQuiet = false

    /** How many wait so, one on top of the other. */
    private var depth = 0

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
    fun later(works: List<Later>) {
        if (works.isEmpty()) return
        later.addAll(works)
        if (thread == null) start()
        queue.wake()
    }

    /** The same within a second, for whoever has too little of its stack left to ring the bell. */
    fun silently(work: () -> Unit) {
        later.add(Later(null, work))
    }

    fun opened() {
        synchronized(this) { open += 1 }
        if (thread == null) start()
    }

    fun closed() = synchronized(this) { open -= 1 }

    fun isThisThread() = Thread.currentThread() === thread

    /** Goes on while code of the application, called on the common thread, waits for another call. */
    fun until(call: CompletableFuture<*>) {
        if (call.isDone) return
        // Another thread may end it.
        call.whenComplete { _, _ -> queue.wake() }
        depth += 1
        try {
            // Other code that waits would stand on top of this one, until the stack is full.
            while (!call.isDone) round(call) { depth < MOST_DEEP || it == null || it === call || it.isBlocking }
        } finally {
            depth -= 1
        }
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
        while (true) {
            try {
                if (isOver()) return
                round(null) { true }
            } catch (_: Throwable) {
                // There was no memory, or no way to log that: the next round may have some.
            }
        }
    }

    /** Tells the answers that are `due`, and then waits for others. It fails with nothing: everybody waits for this thread. */
    private fun round(target: CompletableFuture<*>?, due: (Pending<*>?) -> Boolean) {
        crossAll()
        while (true) {
            val done = come.firstOrNull { due(waiting[it.ticket]) } ?: break
            come.remove(done)
            isAnswering = true
            guarded { take(done.ticket)?.answer(done.answer) }
        }
        isAnswering = false
        crossAll()
        while (true) {
            val work = later.firstOrNull { due(it.call) } ?: break
            // Code that waits in it must not find it again.
            if (later.remove(work)) guarded { work.work() }
        }
        crossAll()
        // Whoever waited in between has heard its bell.
        if (target?.isDone == true) return
        guarded { Log.take(atOnce = isQuiet) }
        guarded {
            val completed = Crossing.wait(number, MOST_MS)
            isQuiet = completed.isEmpty()
            come.addAll(completed)
        }
    }

    /** Whether the calls of an inbox cross a little later: while the common thread answers many, what they lead to crosses at once. */
    fun isToCross(inbox: Inbox): Boolean {
        if (!isThisThread() || !isAnswering) return false
        if (inbox !in toCross) toCross.add(inbox)
        return true
    }

    private fun crossAll() {
        while (true) (toCross.removeFirstOrNull() ?: return).let { guarded { it.cross() } }
    }

    private inline fun guarded(work: () -> Unit) =
        try {
            work()
        } catch (error: Throwable) {
            Log.failed(error)
        }

    private fun isOver() = synchronized(this) {
        val isIdle = open == 0 && waiting.isEmpty() && later.isEmpty() && come.isEmpty()
        if (isIdle) thread = null
        // A call that was added in between found the thread running.
        if (isIdle && (waiting.isNotEmpty() || later.isNotEmpty())) thread = Thread.currentThread()
        thread !== Thread.currentThread()
    }

    /** How long it waits at the most, in milliseconds: lines to be logged ring no bell. */
    private const val MOST_MS = 1_000L

    private const val MOST_DEEP = 16
}

/** What the common thread is to do: to tell what a call has come to, or something else. */
internal class Later(val call: Pending<*>?, val work: () -> Unit)
