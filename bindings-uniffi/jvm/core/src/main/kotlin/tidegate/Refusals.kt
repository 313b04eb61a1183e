package tidegate

import com.sun.jna.Pointer
import java.lang.invoke.MethodHandles
import java.lang.ref.Reference
import java.nio.ByteOrder
import java.util.ArrayDeque
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

/** A check, as far as its refusal depends on it. */
internal data class Asked(val rules: List<String>, val key: LimitKey, val cost: Long, val limits: String?)

/**
 * The refusals that may be told again without crossing: as long as each of them says, and while nothing in this process has
 * ended any.
 */
internal class Refusals(private val limiter: NativeLimiter) {
    private class Refusal(val asked: Asked, val at: Moment, val until: Long, val decision: Decision)

    /** When a check set out, and what had ended refusals until then. */
    internal class Moment(val nanos: Long, val ended: Long)

    private val ended = run {
        val address = limiter.refusalsEnded()
        if (address == 0L) null else Pointer(address).getByteBuffer(0, Long.SIZE_BYTES.toLong())
    }
    private val known = ConcurrentHashMap<Asked, Refusal>()
    private val oldest = ArrayDeque<Refusal>()
    private val untold = ConcurrentHashMap<List<String>, AtomicLong>()

    /** How many are kept. */
    internal val size: Int
        get() = known.size

    /** Whether there can be any: in memory there are none. */
    val isPossible: Boolean
        get() = ended != null

    fun now() = Moment(System.nanoTime(), number())

    /** The refusal of the same check, aged; none where it has to be asked. */
    fun find(asked: Asked): Decision? {
        val refusal = known[asked] ?: return null
        val now = now()
        if (now.ended != refusal.at.ended || now.nanos - refusal.until >= 0) {
            known.remove(asked, refusal)
            return null
        }
        val times = untold[asked.rules] ?: untold.computeIfAbsent(refusal.asked.rules) { AtomicLong() }
        times.incrementAndGet()
        return aged(refusal.decision, (now.nanos - refusal.at.nanos) / NANOS_IN_MS)
    }

    fun keep(asked: Asked, at: Moment, decision: Decision) {
        if (decision.repeatsMs <= 0) return
        val refusal = Refusal(asked, at, at.nanos + decision.repeatsMs * NANOS_IN_MS, decision)
        known[asked] = refusal
        synchronized(oldest) {
            oldest.add(refusal)
            // Two at a time, as the core does: those whose time is over go sooner than others come.
            repeat(2) {
                val first = oldest.peek()
                if (oldest.size <= MOST && at.nanos - first.until < 0) return
                oldest.remove()
                known.remove(first.asked, first)
            }
        }
    }

    /** Tells the core how many were told again, for its metrics. */
    fun tell() {
        for ((rules, times) in untold) {
            val count = times.getAndSet(0)
            try {
                if (count > 0) limiter.repeated(rules, count)
            } catch (_: NativeException) {
                // It was closed in between, and counts no more.
            }
        }
    }

    private fun number(): Long {
        val number = if (ended == null) 0 else LONG.getVolatile(ended, 0) as Long
        // The number is part of the limiter.
        Reference.reachabilityFence(limiter)
        return number
    }

    private fun aged(decision: Decision, ms: Long) = decision.copy(
        origin = Origin.DENY_CACHE,
        retryAfterMs = aged(decision.retryAfterMs, ms),
        resetAfterMs = aged(decision.resetAfterMs, ms),
        limits = decision.limits.map {
            it.copy(retryAfterMs = aged(it.retryAfterMs, ms), resetAfterMs = aged(it.resetAfterMs, ms))
        },
    )

    /** As the core ages what it remembers: what refuses is never over at once. */
    private fun aged(time: Long?, ms: Long) = time?.let { (it - ms).coerceAtLeast(1) }

    private companion object {
        const val MOST = 65_536
        const val NANOS_IN_MS = 1_000_000L
        val LONG = MethodHandles.byteBufferViewVarHandle(LongArray::class.java, ByteOrder.nativeOrder())
    }
}
