package tidegate.support

import java.io.File
import java.util.concurrent.TimeUnit

/** What a child process said, and how it ended. */
class Ended(val code: Int, val output: String, val errors: String)

/**
 * The home of a JVM of 21 or later, for virtual threads: this one's, what `TIDEGATE_JDK21` names, or one that is installed
 * beside this one. None where there is none.
 */
fun jdk21(): String? {
    val here = System.getProperty("java.home")
    if (Runtime.version().feature() >= 21) return here
    System.getenv("TIDEGATE_JDK21")?.let { return it }
    return File(here).parentFile.listFiles().orEmpty().firstOrNull { feature(it) >= 21 }?.path
}

/** The major version of the JDK in a folder, as its file `release` has it; 0 where there is none. */
private fun feature(home: File): Int {
    val release = File(home, "release").takeIf { it.isFile && File(home, "bin/java").canExecute() } ?: return 0
    return Regex("""JAVA_VERSION="(\d+)""").find(release.readText())?.groupValues?.get(1)?.toInt() ?: 0
}

/** Runs a main class of the tests in a JVM of its own, which must end by itself. */
fun runJava(
    main: String,
    vararg args: String,
    home: String = System.getProperty("java.home"),
    options: List<String> = emptyList(),
): Ended {
    val (output, errors) = List(2) { File.createTempFile("tidegate", ".txt") }
    try {
        val command = listOf("$home/bin/java", "-cp", System.getProperty("java.class.path")) + options + main + args
        val process = ProcessBuilder(command).redirectOutput(output).redirectError(errors).start()
        if (!process.waitFor(120, TimeUnit.SECONDS)) {
            process.destroyForcibly().waitFor()
            error("$main did not end: ${output.readText()} ${errors.readText()}")
        }
        return Ended(process.exitValue(), output.readText(), errors.readText())
    } finally {
        output.delete()
        errors.delete()
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
