package tidegate

import java.time.Duration
import kotlin.coroutines.resumeWithException
import kotlinx.coroutines.suspendCancellableCoroutine

/** [Limiter] for coroutines. To cancel one calls its call off: what it charged is given back, and an acquire leaves its line. */
class SuspendingLimiter internal constructor(private val limiter: Limiter) {
    private val calls = limiter.calls

    /** As [Limiter.check]. */
    suspend fun check(rule: String, key: String, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        check(rule, LimitKey.of(key), options)

    /** As [Limiter.check]. */
    suspend fun check(rule: String, key: LimitKey, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        checkAll(listOf(rule), key, options)

    /** As [Limiter.checkAll]. */
    suspend fun checkAll(rules: List<String>, key: String, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        checkAll(rules, LimitKey.of(key), options)

    /** As [Limiter.checkAll]. */
    suspend fun checkAll(rules: List<String>, key: LimitKey, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        calls.known(rules, key, options) ?: calls.check(rules, key, options, false).awaited()

    /** As [Limiter.peek]. */
    suspend fun peek(rule: String, key: String, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        peek(rule, LimitKey.of(key), options)

    /** As [Limiter.peek]. */
    suspend fun peek(rule: String, key: LimitKey, options: CheckOptions = CheckOptions.DEFAULT): Decision =
        calls.peek(listOf(rule), key, options, false).awaited()

    /** As [Limiter.acquire]. */
    suspend fun acquire(
        rule: String,
        key: String,
        timeout: Duration = Limiter.PATIENCE,
        options: CheckOptions = CheckOptions.DEFAULT,
    ): Decision = acquire(rule, LimitKey.of(key), timeout, options)

    /** As [Limiter.acquire]. */
    suspend fun acquire(
        rule: String,
        key: LimitKey,
        timeout: Duration = Limiter.PATIENCE,
        options: CheckOptions = CheckOptions.DEFAULT,
    ): Decision = calls.acquire(rule, key, timeout, options, false).awaited()

    /** As [Limiter.refund]. */
    suspend fun refund(decision: Decision): Boolean = refund(decision.receipt)

    /** As [Limiter.refund]. */
    suspend fun refund(receipt: String): Boolean = calls.refund(receipt, false).awaited()

    /** As [Limiter.reset]. */
    suspend fun reset(rule: String, key: String, limits: String? = null) = reset(rule, LimitKey.of(key), limits)

    /** As [Limiter.reset]. */
    suspend fun reset(rule: String, key: LimitKey, limits: String? = null) {
        calls.reset(rule, key, limits, false).awaited()
    }

    /** As [Limiter.count]. */
    suspend fun count(rule: String, key: LimitKey, window: Duration, add: Long = 1): Counted =
        calls.count(rule, key, window, add, false).awaited()

    /** As [Limiter.takeBack]. */
    suspend fun takeBack(rule: String, key: LimitKey, window: Duration, units: Long, start: Long): Counted =
        calls.takeBack(rule, key, window, units, start, false).awaited()

    /** As [Limiter.ready]. */
    suspend fun ready(timeout: Duration = Limiter.READY) {
        calls.ready(timeout, false).awaited()
    }
}

/** Waits for a call; one that is cancelled is called off, even where its answer has come and nobody has seen it. */
@Suppress("DEPRECATION") // The other `resume` is not there in the coroutines that Spring Boot 3.5 manages.
internal suspend fun <T> Pending<T>.awaited(): T = suspendCancellableCoroutine { coroutine ->
    coroutine.invokeOnCancellation { cancel(true) }
    whenComplete { result, error ->
        if (error != null) coroutine.resumeWithException(error)
        else coroutine.resume(result) { unwanted(result) }
    }
}
