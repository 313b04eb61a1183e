package tidegate.support

import java.io.BufferedReader
import java.io.File
import java.util.concurrent.LinkedBlockingQueue
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicInteger
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.extension.BeforeAllCallback
import org.junit.jupiter.api.extension.ExtensionContext

/** The repository. */
val ROOT: File = generateSequence(File("").absoluteFile) { it.parentFile }.first { File(it, "tests/vectors").isDirectory }

/** A real server (`server`), or a cluster of six (`cluster`), from the workspace's own harness. It ends with this process. */
class Servers(kind: String) : AutoCloseable {
    private val process = ProcessBuilder(HARNESS, kind).redirectError(ProcessBuilder.Redirect.INHERIT).start()
    private val lines = LinkedBlockingQueue<String>()
    private val commands = process.outputStream.bufferedWriter()

    init {
        Thread { process.inputReader().use { read(it) } }.apply { isDaemon = true }.start()
    }

    val url: String = line()

    /** `pause`, `resume`, `kill`, `restart`, `flush` it, or count its `eternal` keys. */
    fun order(what: String): String {
        commands.write("$what\n")
        commands.flush()
        return line()
    }

    /** Every key must have a TTL, and the servers must end. */
    override fun close() {
        val eternal = order("eternal")
        commands.close()
        assertTrue(process.waitFor(PATIENCE_S, TimeUnit.SECONDS), "the servers end")
        assertEquals("0", eternal, "every key has a TTL")
        assertEquals(0, process.exitValue())
    }

    private fun read(output: BufferedReader) {
        output.forEachLine(lines::put)
        lines.put(GONE)
    }

    private fun line(): String {
        val line = lines.poll(PATIENCE_S, TimeUnit.SECONDS) ?: error("the servers said nothing for $PATIENCE_S s")
        check(line != GONE) { "the servers are gone" }
        return line
    }

    companion object {
        private const val PATIENCE_S = 60L
        private const val GONE = "gone"
        private val HARNESS: String
            get() = System.getenv("TIDEGATE_TEST_SERVERS")
                ?: error("TIDEGATE_TEST_SERVERS names no program that starts servers: `make test-uniffi` sets it")

        private val prefixes = AtomicInteger()

        /** A prefix that no other test has. */
        fun prefix() = "jvm${ProcessHandle.current().pid()}-${prefixes.incrementAndGet()}"

        lateinit var redis: Servers
            private set
        lateinit var cluster: Servers
            private set

        /** The URL of a store by its name; none for `memory`. */
        fun url(store: String) = when (store) {
            "memory" -> null
            "redis" -> redis.url
            else -> cluster.url
        }
    }

    /** Servers for all tests, which take prefixes of their own and leave them alone. */
    class Shared : BeforeAllCallback {
        override fun beforeAll(context: ExtensionContext) {
            val store = context.root.getStore(ExtensionContext.Namespace.GLOBAL)
            redis = store.getOrComputeIfAbsent("redis", { Servers("server") }, Servers::class.java)
            cluster = store.getOrComputeIfAbsent("cluster", { Servers("cluster") }, Servers::class.java)
        }
    }
}
