package tidegate

import java.nio.file.Path
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.runBlocking

/** `Together DOCUMENT CALLS`: see tests/src/bin/together.rs. */
object Together {
    @JvmStatic
    fun main(arguments: Array<String>) {
        val (document, calls) = arguments
        Limiter.ofFile(Path.of(document)).use { limiter ->
            // A machine that has just begun would come when all is over.
            runBlocking { admitted(limiter.suspending(), "somebody else", WARM) }
            println("ready")
            readln()
            println(runBlocking { admitted(limiter.suspending(), "alice", calls.toInt()) })
        }
    }

    private suspend fun admitted(limiter: SuspendingLimiter, key: String, calls: Int): Int =
        (1..calls).chunked(IN_FLIGHT).sumOf { some ->
            coroutineScope { some.map { async { limiter.check("hammer", key) } }.awaitAll().count { it.allowed } }
        }

    private const val IN_FLIGHT = 100
    private const val WARM = 5_000
}
