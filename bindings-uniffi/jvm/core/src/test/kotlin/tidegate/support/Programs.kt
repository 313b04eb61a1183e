package tidegate.support

import java.io.File
import java.util.concurrent.TimeUnit

/** What a child process said, and how it ended. */
class Ended(val code: Int, val output: String)

/** A JVM of 21 or later, for virtual threads: this one, or the one whose home `TIDEGATE_JDK21` names. */
fun jdk21(): String? =
    if (Runtime.version().feature() >= 21) System.getProperty("java.home") else System.getenv("TIDEGATE_JDK21")

/** Runs a main class of the tests in a JVM of its own, which must end by itself. */
fun runJava(main: String, vararg args: String, home: String = System.getProperty("java.home"), options: List<String> = emptyList()): Ended {
    val output = File.createTempFile("tidegate", ".out")
    try {
        val command = listOf("$home/bin/java", "-cp", System.getProperty("java.class.path")) + options + main + args
        val process = ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output).start()
        if (!process.waitFor(60, TimeUnit.SECONDS)) {
            process.destroyForcibly().waitFor()
            error("$main did not end: ${output.readText()}")
        }
        return Ended(process.exitValue(), output.readText())
    } finally {
        output.delete()
    }
}

/** Waits until something is so, for half a minute at the most. */
fun until(what: String, isSo: () -> Boolean) {
    val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30)
    while (!isSo()) {
        check(System.nanoTime() < end) { "half a minute, and not yet: $what" }
        Thread.sleep(10)
    }
}
