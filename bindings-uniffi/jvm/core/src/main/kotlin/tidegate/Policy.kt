package tidegate

import java.nio.file.Path
import java.time.Duration
import java.util.concurrent.CompletableFuture

/**
 * Decides requests by a document's routes: which rules a request has, whose bucket, what it costs, and what the response is to
 * say. One for the process is enough: all threads may use it at once.
 *
 * The path of a request is as on the wire, without the query.
 */
class Policy internal constructor(private val policy: NativePolicy) : AutoCloseable {
    private val number by lazy { policy.number(Answers.queue) }
    private val inbox = Inbox { calls -> Crossing.submit(number, calls) }
    private var isClosed = false

    init {
        Answers.opened()
    }

    /** The names of its routes, in their order. */
    val routes: List<String>
        get() = crossing { policy.routes() }

    /** The request headers that any route needs, in lower case. */
    val needsHeaders: List<String>
        get() = crossing { policy.needsHeaders() }

    /** What the route of a request needs to be told of it. */
    fun request(method: String, path: String): Needs = crossing { policy.request(method, path) }

    /** Decides whether a request may pass, and charges it. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun admit(method: String, path: String, told: Told = Told()): Admission =
        inbox.send(asking(method, path, told, true), true, ::admitted).await()

    /**
     * The same in one call where the route needs nothing of the application. `ask` is called only where it does, on this
     * thread, and tells all that is told.
     */
    @Throws(InterruptedException::class)
    fun admit(method: String, path: String, told: Told, ask: (Needs) -> Told): Admission =
        when (val answer = inbox.send(asking(method, path, told, false), true) { it }.await()) {
            is Answer.Needing -> admit(method, path, ask(answer.needs))
            else -> admitted(answer)
        }

    /** [admit], and a future of its admission. */
    @JvmOverloads
    fun admitAsync(method: String, path: String, told: Told = Told()): CompletableFuture<Admission> =
        inbox.send(asking(method, path, told, true), false, ::admitted)

    /** The same; `ask` is called on this thread, before the future is returned. */
    fun admitAsync(method: String, path: String, told: Told, ask: (Needs) -> Told): CompletableFuture<Admission> =
        admitting(method, path, told, ask)

    internal fun admitting(method: String, path: String, told: Told, ask: (Needs) -> Told): Pending<Admission> {
        var needs: Needs? = null
        // What it needs is known at once.
        val first = inbox.sendAlone(asking(method, path, told, false)) { answer ->
            if (answer is Answer.Needing) throw Asking.also { needs = answer.needs }
            admitted(answer)
        }
        val needed = needs ?: return first
        return inbox.send(asking(method, path, ask(needed), true), false, ::admitted)
    }

    /** The same policy for coroutines. */
    fun suspending(): SuspendingPolicy = SuspendingPolicy(this)

    /** The client's address: the peer's, or what trusted proxies say; null if it is not known. */
    fun clientAddress(method: String, path: String, told: Told): String? =
        crossing { policy.clientAddress(method, path, told) }

    /** The client's address as it stands in keys: IPv6 by its prefix. */
    fun clientKey(method: String, path: String, told: Told): String? = crossing { policy.clientKey(method, path, told) }

    /** Another policy on the same store, such as of rules beside those of the document: its text as JSON. */
    fun beside(json: String): Policy = Policy(crossing { policy.beside(Source.Json(json)) })

    /** Goes on with another document, its text as JSON; nothing changes where it cannot be meant. */
    fun reload(json: String) = crossing { policy.reload(Source.Json(json)) }

    /** Goes on with what stands in a file; nothing changes where it cannot be meant. */
    fun reload(path: Path) = crossing { policy.reload(Source.File(path.toString())) }

    /** A limiter of its rules, on the same connections. To close it leaves the policy open. */
    fun limiter(): Limiter = Limiter(crossing { policy.limiter() }, isOwn = false)

    /** Waits until the store can be used, at most so long. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun ready(timeout: Duration = Limiter.READY) {
        inbox.send(Ask.Ready(milliseconds(timeout)), true) {}.await()
    }

    /** What has been counted since it was made, as JSON. */
    fun metrics(): String = crossing { policy.metrics() }

    /** The same as Prometheus scrapes it. */
    fun prometheus(): String = crossing { policy.prometheus() }

    /** Lets its connections go. Calls that are on their way are answered; later ones are errors. */
    override fun close() {
        synchronized(this) { if (isClosed) return else isClosed = true }
        policy.shut()
        Answers.closed()
    }

    private fun asking(method: String, path: String, told: Told, asked: Boolean): Ask {
        // What is freed must not cross.
        if (told.after?.uniffiIsDestroyed == true) throw TidegateException.invalid("the charge is closed; close it after this call")
        return Ask.Admit(method, path, told, asked)
    }

    private fun admitted(answer: Answer) = (answer as Answer.Admitted).admission

    /** That the application has to be asked first. */
    private object Asking : RuntimeException(null, null, false, false) {
        private fun readResolve(): Any = Asking
    }

    companion object {
        /** A policy of a document: its text as TOML. */
        @JvmStatic
        fun ofToml(text: String): Policy = of(Source.Toml(text))

        /** A policy of a document: its text as JSON. */
        @JvmStatic
        fun ofJson(text: String): Policy = of(Source.Json(text))

        /** A policy of a document: its text as YAML. */
        @JvmStatic
        fun ofYaml(text: String): Policy = of(Source.Yaml(text))

        /** A policy of a document in a file whose name ends in `.toml`, `.json`, `.yaml` or `.yml`. */
        @JvmStatic
        fun ofFile(path: Path): Policy = of(Source.File(path.toString()))

        /** The same, which is read again when it changes. What cannot be meant is logged, and the old one stays. */
        @JvmStatic
        fun watch(path: Path): Policy = Policy(crossing { NativePolicy.watch(path.toString()) })

        internal fun of(source: Source) = Policy(crossing { NativePolicy(source) })

        internal fun at(source: Source, clock: Clock) = Policy(crossing { NativePolicy.at(source, clock) })
    }
}

/** [Policy] for coroutines. To cancel one calls its call off: what it charged is given back. */
class SuspendingPolicy internal constructor(private val policy: Policy) {
    /** As [Policy.admit]. */
    suspend fun admit(method: String, path: String, told: Told = Told()): Admission =
        (policy.admitAsync(method, path, told) as Pending<Admission>).awaited()

    /** As [Policy.admit]; `ask` is called before anything waits. */
    suspend fun admit(method: String, path: String, told: Told, ask: (Needs) -> Told): Admission =
        policy.admitting(method, path, told, ask).awaited()
}
