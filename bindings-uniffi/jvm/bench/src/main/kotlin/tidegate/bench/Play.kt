package tidegate.bench

import com.sun.management.OperatingSystemMXBean
import java.lang.management.ManagementFactory
import java.time.Duration
import java.util.UUID
import java.util.concurrent.CompletableFuture
import java.util.concurrent.CountDownLatch
import java.util.concurrent.ExecutorService
import java.util.concurrent.Executors
import java.util.concurrent.TimeUnit
import java.util.concurrent.ThreadLocalRandom

/** How a contestant checks. */
enum class Kind {
    /** Threads that wait for each answer. All checks pass. */
    BLOCKING,

    /** The same on virtual threads, where the JVM has them. */
    VIRTUAL,

    /** Futures: each that ends begins the next check of its chain. All checks pass. */
    ASYNC,

    /** Threads that wait for each answer, on one key that has had its unit. All checks are refused. */
    DENIED,
}

const val READY = "ready"
private val KEYS = List(10_000) { "user-%07d".format(it) }

/** More than a key sees in a run. */
private const val UNITS = 100_000L
private val MINUTE = Duration.ofMinutes(1)
private val HOUR = Duration.ofHours(1)

/** How long a round may take, in seconds. */
private const val PATIENCE = 110L

/** A virtual thread for each task, found by reflection; null before Java 21, which has none. */
private val onVirtualThreads = Executors::class.java.methods.find { it.name == "newVirtualThreadPerTaskExecutor" }

val HAS_VIRTUAL_THREADS = onVirtualThreads != null

/** A contestant's part: proves that it limits, and then plays a round whenever its input has a line that says how many checks. */
fun play(who: String, kind: Kind, flight: Int, urls: List<String>) {
    val make = peer(who, urls, flight)
    prove(make)
    val player = Player(kind, flight, make)
    println(READY)
    generateSequence(::readLine).forEach { line ->
        val told = player.round(line.toInt())
        println("${told.rate} ${told.cpu}")
    }
}

/** That it decides: of ten checks in an hour, three pass, and they are the first. */
private fun prove(make: Make) {
    val limiter = make(3, HOUR)
    val key = "proof-${UUID.randomUUID()}"
    for (number in 1..10) {
        val allowed = limiter.allows(key)
        check(allowed == number <= 3) { "of 3 units, check $number is ${if (allowed) "allowed" else "refused"}" }
    }
}

private class Player(private val kind: Kind, private val flight: Int, make: Make) {
    private val limiter = if (kind == Kind.DENIED) make(1, HOUR) else make(UNITS, MINUTE)
    private val keys = if (kind == Kind.DENIED) listOf("hot-${UUID.randomUUID()}") else KEYS
    private val threads =
        onVirtualThreads?.takeIf { kind == Kind.VIRTUAL }?.invoke(null) as ExecutorService? ?: Executors.newFixedThreadPool(flight)

    init {
        // All keys exist from now on, and what is refused has had its unit.
        keys.forEach { check(limiter.allows(it)) { "a key has its unit" } }
    }

    fun round(checks: Int): Told {
        val each = (checks / flight).coerceAtLeast(1)
        val random = ThreadLocalRandom.current()
        val drawn = List(flight) { List(each) { keys[random.nextInt(keys.size)] } }
        return if (kind == Kind.ASYNC) chains(drawn, each * flight) else blocking(drawn, each * flight)
    }

    private fun blocking(drawn: List<List<String>>, checks: Int): Told {
        val ready = CountDownLatch(flight)
        val begin = CountDownLatch(1)
        val works = drawn.map { mine ->
            threads.submit {
                ready.countDown()
                begin.await()
                mine.forEach { expected(limiter.allows(it)) }
            }
        }
        ready.await()
        return measured(checks) {
            begin.countDown()
            works.forEach { it.get(PATIENCE, TimeUnit.SECONDS) }
        }
    }

    private fun chains(drawn: List<List<String>>, checks: Int): Told {
        val chains = drawn.map { Chain(it.iterator()) }
        return measured(checks) {
            chains.forEach(Chain::next)
            chains.forEach { it.end.get(PATIENCE, TimeUnit.SECONDS) }
        }
    }

    private inner class Chain(private val keys: Iterator<String>) {
        val end = CompletableFuture<Unit>()

        /** What is answered at once is a turn of the loop, and no call within a call. */
        fun next() {
            while (keys.hasNext()) {
                val answer = limiter.allowsAsync(keys.next())
                if (!answer.isDone) {
                    answer.whenComplete(::went)
                    return
                }
                expected(answer.join())
            }
            end.complete(Unit)
        }

        private fun went(allowed: Boolean?, error: Throwable?) {
            try {
                expected(allowed ?: throw error!!)
                next()
            } catch (failed: Throwable) {
                end.completeExceptionally(failed)
            }
        }
    }

    private fun expected(allowed: Boolean) = check(allowed == (kind != Kind.DENIED)) {
        if (allowed) "a check that should be refused passes" else "a check that should pass is refused"
    }
}

private val system = ManagementFactory.getOperatingSystemMXBean() as OperatingSystemMXBean

private fun measured(checks: Int, work: () -> Unit): Told {
    val cpu = system.processCpuTime
    val begun = System.nanoTime()
    work()
    val nanos = System.nanoTime() - begun
    return Told(checks * 1e9 / nanos, (system.processCpuTime - cpu).toDouble() / checks)
}
