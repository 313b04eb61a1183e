package tidegate

import java.nio.file.Path
import java.time.Duration
import java.util.concurrent.CompletableFuture

/**
 * Decides whether somebody may pass a rule. One for the process is enough: all threads may use it at once.
 *
 * A refusal is no exception, and a store that fails is none either: then `check`, `peek` and `acquire` answer by the deadline
 * (100 ms unless said), as the rule's `on_error` says. What goes wrong otherwise is a [TidegateException].
 *
 * Each call is there three times: `check` parks the calling thread, a virtual one too, and throws [InterruptedException];
 * `checkAsync` returns a [CompletableFuture]; and `suspending().check` is a suspend function. A call that is interrupted or
 * cancelled is called off: what it charged is given back, and an acquire leaves its line.
 *
 * What is to be done when a future ends is done on Tidegate's own thread: write `thenApplyAsync` for what takes its time.
 */
class Limiter internal constructor(limiter: NativeLimiter, isOwn: Boolean = true) : AutoCloseable {
    internal val calls = Calls(limiter, isOwn)

    /** The names of its rules. */
    val rules: List<String>
        get() = crossing { calls.limiter.rules() }

    /** Decides whether a request may pass a rule, and charges it. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun check(rule: String, key: String, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        check(rule, LimitKey.of(key), options)

    /** The same for a key of bytes. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun check(rule: String, key: ByteArray, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        check(rule, LimitKey.of(key), options)

    /** The same for any key. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun check(rule: String, key: LimitKey, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        checkAll(listOf(rule), key, options)

    /** Decides several rules together: all are charged, or none. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun checkAll(rules: List<String>, key: String, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        checkAll(rules, LimitKey.of(key), options)

    /** The same for any key. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun checkAll(rules: List<String>, key: LimitKey, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        calls.known(rules, key, options) ?: calls.check(rules, key, options, true).await()

    /** What [check] would decide, without charging. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun peek(rule: String, key: String, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        peek(rule, LimitKey.of(key), options)

    /** The same for any key. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun peek(rule: String, key: LimitKey, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        peekAll(listOf(rule), key, options)

    /** What [checkAll] would decide, without charging. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun peekAll(rules: List<String>, key: LimitKey, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        calls.peek(rules, key, options, true).await()

    /**
     * Waits in line until the request may pass, at most so long: then the decision is a refusal, and it is one at once where
     * the wait would be longer. Those who wait in this process for one rule and key are served in their order.
     */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun acquire(
        rule: String,
        key: String,
        timeout: Duration = PATIENCE,
        options: CheckOptions = CheckOptions.DEFAULT,
    ): Decision = acquire(rule, LimitKey.of(key), timeout, options)

    /** The same for any key. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun acquire(
        rule: String,
        key: LimitKey,
        timeout: Duration = PATIENCE,
        options: CheckOptions = CheckOptions.DEFAULT,
    ): Decision = calls.acquire(rule, key, timeout, options, true).await()

    /** Gives back what a decision charged, once, and tells whether anything came back. */
    @Throws(InterruptedException::class)
    fun refund(decision: Decision): Boolean = refund(decision.receipt)

    /** The same by the decision's receipt, which may have been kept. */
    @Throws(InterruptedException::class)
    fun refund(receipt: String): Boolean = calls.refund(receipt, true).await()

    /** Forgets what a rule has counted for a key. Limits that were given at calls are written here too. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun reset(rule: String, key: String, limits: String? = null) = reset(rule, LimitKey.of(key), limits)

    /** The same for any key. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun reset(rule: String, key: LimitKey, limits: String? = null) {
        calls.reset(rule, key, limits, true).await()
    }

    /** Adds to a plain counter of a rule and key, whose window begins with the first hit and does not move; 0 only looks. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun count(rule: String, key: LimitKey, window: Duration, add: Long = 1): Counted =
        calls.count(rule, key, window, add, true).await()

    /** Takes units back from the window that began at `start`: never below 0, and nothing in another window. */
    @Throws(InterruptedException::class)
    fun takeBack(rule: String, key: LimitKey, window: Duration, units: Long, start: Long): Counted =
        calls.takeBack(rule, key, window, units, start, true).await()

    /** Waits until the store can be used, at most so long. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun ready(timeout: Duration = READY) {
        calls.ready(timeout, true).await()
    }

    /** [check], and a future of its decision. */
    @JvmOverloads
    fun checkAsync(rule: String, key: String, options: CheckOptions = CheckOptions.DEFAULT): CompletableFuture<Decision> =
        checkAsync(rule, LimitKey.of(key), options)

    /** The same for any key. */
    @JvmOverloads
    fun checkAsync(rule: String, key: LimitKey, options: CheckOptions = CheckOptions.DEFAULT): CompletableFuture<Decision> =
        checkAllAsync(listOf(rule), key, options)

    /** [checkAll], and a future of its decision. */
    @JvmOverloads
    fun checkAllAsync(
        rules: List<String>,
        key: LimitKey,
        options: CheckOptions = CheckOptions.DEFAULT,
    ): CompletableFuture<Decision> =
        calls.known(rules, key, options)?.let { CompletableFuture.completedFuture(it) }
            ?: calls.check(rules, key, options, false)

    /** [peek], and a future of its decision. */
    @JvmOverloads
    fun peekAsync(rule: String, key: String, options: CheckOptions = CheckOptions.DEFAULT): CompletableFuture<Decision> =
        peekAsync(rule, LimitKey.of(key), options)

    /** The same for any key. */
    @JvmOverloads
    fun peekAsync(rule: String, key: LimitKey, options: CheckOptions = CheckOptions.DEFAULT): CompletableFuture<Decision> =
        calls.peek(listOf(rule), key, options, false)

    /** [acquire], and a future of its decision. */
    @JvmOverloads
    fun acquireAsync(
        rule: String,
        key: String,
        timeout: Duration = PATIENCE,
        options: CheckOptions = CheckOptions.DEFAULT,
    ): CompletableFuture<Decision> = acquireAsync(rule, LimitKey.of(key), timeout, options)

    /** The same for any key. */
    @JvmOverloads
    fun acquireAsync(
        rule: String,
        key: LimitKey,
        timeout: Duration = PATIENCE,
        options: CheckOptions = CheckOptions.DEFAULT,
    ): CompletableFuture<Decision> = calls.acquire(rule, key, timeout, options, false)

    /** [refund], and a future of whether anything came back. */
    fun refundAsync(receipt: String): CompletableFuture<Boolean> = calls.refund(receipt, false)

    /** [reset], and a future of its end. */
    @JvmOverloads
    fun resetAsync(rule: String, key: LimitKey, limits: String? = null): CompletableFuture<Void?> =
        calls.reset(rule, key, limits, false)

    /** [count], and a future of what it found. */
    @JvmOverloads
    fun countAsync(rule: String, key: LimitKey, window: Duration, add: Long = 1): CompletableFuture<Counted> =
        calls.count(rule, key, window, add, false)

    /** [takeBack], and a future of what it found. */
    fun takeBackAsync(rule: String, key: LimitKey, window: Duration, units: Long, start: Long): CompletableFuture<Counted> =
        calls.takeBack(rule, key, window, units, start, false)

    /** [ready], and a future of its end. */
    @JvmOverloads
    fun readyAsync(timeout: Duration = READY): CompletableFuture<Void?> = calls.ready(timeout, false)

    /** The same limiter for coroutines. */
    fun suspending(): SuspendingLimiter = SuspendingLimiter(this)

    /** What has been counted since it was made, as JSON. */
    fun metrics(): String = calls.counted { metrics() }

    /** The same as Prometheus scrapes it. */
    fun prometheus(): String = calls.counted { prometheus() }

    /** Lets its connections go. Calls that are on their way are answered; later ones are errors. */
    override fun close() = calls.close()

    companion object {
        internal val PATIENCE: Duration = Duration.ofSeconds(10)
        internal val READY: Duration = Duration.ofSeconds(5)

        /**
         * A limiter of rules such as `"login" to "5/m"`, in memory, or shared on the server of a URL such as
         * `redis://127.0.0.1:6379`. The environment's `TIDEGATE_URL` comes before any other. No server is asked yet.
         *
         * @throws TidegateException `invalid_rule` or `invalid_document` for what cannot be meant, with what to write instead.
         */
        @JvmStatic
        @JvmOverloads
        fun of(rules: Map<String, String>, url: String? = null): Limiter = of(sourceOf(rules, url))

        /** A limiter of a document: its text as TOML. */
        @JvmStatic
        fun ofToml(text: String): Limiter = of(Source.Toml(text))

        /** A limiter of a document: its text as JSON. */
        @JvmStatic
        fun ofJson(text: String): Limiter = of(Source.Json(text))

        /** A limiter of a document: its text as YAML. */
        @JvmStatic
        fun ofYaml(text: String): Limiter = of(Source.Yaml(text))

        /** A limiter of a document in a file whose name ends in `.toml`, `.json`, `.yaml` or `.yml`. */
        @JvmStatic
        fun ofFile(path: Path): Limiter = of(Source.File(path.toString()))

        internal fun of(source: Source) = Limiter(crossing { NativeLimiter(source) })

        internal fun at(source: Source, clock: Clock) = Limiter(crossing { NativeLimiter.at(source, clock) })

        internal fun sourceOf(rules: Map<String, String>, url: String? = null) =
            Source.Rules(rules.map { (name, limits) -> NamedRule(name, limits) }, url)
    }
}
