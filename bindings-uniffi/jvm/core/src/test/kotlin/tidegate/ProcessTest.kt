package tidegate

import java.util.concurrent.CountDownLatch
import java.util.concurrent.atomic.AtomicInteger
import kotlin.system.exitProcess
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Assumptions.assumeTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.extension.ExtendWith
import tidegate.support.Servers
import tidegate.support.jdk21
import tidegate.support.runJava
import tidegate.support.until

/** JVMs of their own: how they end, what they keep, and virtual threads. */
@ExtendWith(Servers.Shared::class)
class ProcessTest {
    /** A heap that is there in full from the beginning: what grows is none of it. */
    private val steady = listOf("-Xms64m", "-Xmx64m", "-XX:+AlwaysPreTouch")

    @Test
    fun `a JVM ends by itself with calls in flight and limiters that are open`() {
        Servers("server").use { server ->
            val ended = runJava("tidegate.LeftOpen", server.url, Servers.redis.url)
            assertEquals("in flight\n" to 0, ended.output.substringAfter("pause\n") to ended.code)
        }
    }

    @Test
    fun `100,000 checks keep no memory`() {
        val ended = runJava("tidegate.ManyChecks", Servers.redis.url, Servers.prefix(), options = steady)
        assertEquals(0, ended.code, ended.output + ended.errors)
    }

    @Test
    fun `virtual threads wait and admit exactly the limit`() {
        val home = jdk21()
        val none = "virtual threads were NOT tested: let TIDEGATE_JDK21 name the home of a JDK of 21 or later"
        if (home == null) System.err.println(none)
        assumeTrue(home != null, none)
        val ended = runJava("tidegate.VirtualThreads", Servers.redis.url, Servers.prefix(), home = home!!)
        assertEquals("500 of 2000, 1 interrupted\n" to 0, ended.output to ended.code, ended.errors)
    }

    @Test
    fun `the common thread ends with the last limiter, and another begins with the next one`() {
        val ended = runJava("tidegate.Again", Servers.redis.url, Servers.prefix())
        assertEquals("true true\n" to 0, ended.output to ended.code)
    }

    @Test
    fun `the library that a property names has to be there`() {
        val ended = runJava("tidegate.ManyChecks", "", "", options = listOf("-Dtidegate.library=/no/such.so"))
        assertTrue("there is no /no/such.so, which the system property tidegate.library names" in ended.errors, ended.errors)
        assertEquals(1, ended.code)
    }
}

/** Its main thread ends while calls wait for a server that nobody answers for. */
object LeftOpen {
    @JvmStatic
    fun main(urls: Array<String>) {
        Limiter.of(mapOf("a" to "9/h"), urls[1]).checkAsync("a", "x").get()
        Limiter.of(mapOf("a" to "9/h"))
        val limiter = Limiter.of(mapOf("a" to "9/h"), urls[0])
        limiter.check("a", "left open")
        println("pause")
        repeat(50) { limiter.acquireAsync("a", "x", options = CheckOptions.cost(5)) }
        println("in flight")
    }
}

/** Limiters that are closed before the next one is made. */
object Again {
    @JvmStatic
    fun main(args: Array<String>) {
        val allowed = List(2) {
            val allowed = Limiter.of(mapOf("a" to "9/h"), args[0]).use { limiter ->
                limiter.ready()
                limiter.checkAsync("a", args[1], CheckOptions.deadline(java.time.Duration.ofSeconds(20))).get().origin == Origin.STORE
            }
            until("it ends") { Thread.getAllStackTraces().keys.none { it.name == "tidegate" } }
            allowed
        }
        println(allowed.joinToString(" "))
    }
}

/** Resident memory after 20,000 and after 120,000 checks, of all kinds. */
object ManyChecks {
    private fun residentKiB() = java.io.File("/proc/self/status").readLines()
        .first { it.startsWith("VmRSS") }.filter(Char::isDigit).toLong()

    @JvmStatic
    fun main(args: Array<String>) {
        val memory = Limiter.of(mapOf("a" to "1000000/h"))
        val redis = Limiter.of(mapOf("a" to "1000000/h", "b" to "1/h"), args[0])
        val policy = Policy.ofJson("""{"version": 1, "rules": {"a": "1000000/h"}, "routes": [{"prefix": "/", "rules": "a", "key": "ip"}]}""")
        val told = Told(peer = "192.0.2.1")
        val checks = { times: Int ->
            for (number in 0 until times / 100) {
                repeat(40) { memory.check("a", "x") }
                List(30) { redis.checkAsync("a", args[1]) }.forEach { it.get() }
                repeat(10) { redis.check("b", args[1] + number % 1000) }
                repeat(20) { policy.admit("GET", "/", told) }
            }
            System.gc()
        }
        checks(20_000)
        val before = residentKiB()
        checks(100_000)
        val grown = residentKiB() - before
        println("grown by $grown KiB")
        exitProcess(if (grown < 30_000) 0 else 1)
    }
}

/** Started by reflection: this is compiled for a JVM that has none of them. */
object VirtualThreads {
    private fun start(work: () -> Unit): Thread =
        Thread::class.java.getMethod("startVirtualThread", Runnable::class.java).invoke(null, Runnable(work)) as Thread

    @JvmStatic
    fun main(args: Array<String>) {
        val store = """{"url": "${args[0]}", "prefix": "${args[1]}", "deadline": "20s"}"""
        val limiter = Limiter.ofJson("""{"version": 1, "store": $store, "rules": {"a": "500/h", "b": "1/h"}}""")
        val (admitted, asked) = AtomicInteger() to AtomicInteger()
        val threads = List(2000) {
            start {
                if (limiter.check("a", "x").allowed) admitted.incrementAndGet()
                asked.incrementAndGet()
            }
        }
        threads.forEach { it.join() }
        limiter.check("b", "x")
        val (begun, interrupted) = CountDownLatch(1) to AtomicInteger()
        val waiting = start {
            begun.countDown()
            try {
                limiter.acquire("b", "x", java.time.Duration.ofHours(2))
            } catch (_: InterruptedException) {
                interrupted.incrementAndGet()
            }
        }
        begun.await()
        Thread.sleep(100)
        waiting.interrupt()
        waiting.join()
        println("$admitted of $asked, $interrupted interrupted")
    }
}
