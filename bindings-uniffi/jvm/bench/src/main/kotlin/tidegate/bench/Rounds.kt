package tidegate.bench

import java.io.File
import java.util.concurrent.CompletableFuture
import java.util.concurrent.TimeUnit

/** Odd, so that one is in the middle. */
val ROUNDS: Int = System.getenv("ROUNDS")?.toInt() ?: 9

/** How long each contestant plays before its first round that counts, in seconds: its code is compiled by then. */
val WARM_UP: Double = System.getenv("WARM_UP")?.toDouble() ?: 10.0

/** About how long a round is, in seconds: as many checks as the contestant did at the end of its warm-up in that time. */
private const val ROUND = 0.7

/** What a contestant may take to start, or for a round, in seconds. */
private const val PATIENCE = 120L

/** What a round came to: checks in a second, and what one cost the client's process, all its threads, in nanoseconds. */
class Told(val rate: Double, val cpu: Double)

/**
 * A contestant's process, which lives as long as its case: code that another has warmed up, garbage that another has left and
 * what another's threads use of the processor are then no part of its figures.
 */
class Contestant(who: String, kind: Kind, flight: Int, urls: List<String>) : AutoCloseable {
    private val process = start(who, kind, flight, urls)
    private val input = process.outputStream.bufferedWriter()
    private val output = process.inputReader()
    private var checks = flight * 16

    init {
        check(answer() == READY) { "$who does not begin" }
    }

    /** Plays until its code is warm, which settles how many checks a round has. */
    fun warmUp() {
        var left = WARM_UP
        do {
            val told = play()
            left -= checks / told.rate
            checks = (told.rate * ROUND).toInt().coerceAtLeast(1)
        } while (left > 0)
    }

    fun play(): Told {
        input.write("$checks\n")
        input.flush()
        val (rate, cpu) = answer().split(' ').map(String::toDouble)
        return Told(rate, cpu)
    }

    /** It ends with its input. */
    override fun close() {
        input.close()
        if (!process.waitFor(10, TimeUnit.SECONDS)) process.destroyForcibly()
    }

    private fun answer(): String =
        CompletableFuture.supplyAsync(output::readLine).get(PATIENCE, TimeUnit.SECONDS)
            ?: error("a contestant ended: what it says of it is above")

    private fun start(who: String, kind: Kind, flight: Int, urls: List<String>): Process {
        val java = File(System.getProperty("java.home"), "bin/java").path
        val options = listOf("-Dtidegate.library=${named("TIDEGATE_LIBRARY")}", "-cp", System.getProperty("java.class.path"))
        val play = listOf("tidegate.bench.MainKt", who, kind.name, "$flight") + urls
        val builder = ProcessBuilder(onCore(CLIENT_CORE, listOf(java) + options + play))
        builder.environment().remove("TIDEGATE_URL")
        return builder.redirectError(ProcessBuilder.Redirect.INHERIT).start()
    }
}

/** What each told of its rounds. They take turns, and every other round goes the other way round. */
fun play(whos: List<String>, kind: Kind, flight: Int, urls: List<String>): Map<String, List<Told>> {
    val everyone = mutableListOf<Contestant>()
    try {
        whos.forEach { everyone += Contestant(it, kind, flight, urls).apply { warmUp() } }
        val played = List(whos.size) { mutableListOf<Told>() }
        for (round in 0 until ROUNDS) {
            val places = if (round % 2 == 0) whos.indices.reversed() else whos.indices
            places.forEach { played[it] += everyone[it].play() }
        }
        return whos.zip(played).toMap()
    } finally {
        everyone.forEach(Contestant::close)
    }
}

fun median(figures: List<Double>): Double {
    val sorted = figures.sorted()
    return (sorted[(sorted.size - 1) / 2] + sorted[sorted.size / 2]) / 2
}

/** The median of each round's quotient. */
fun ratio(ours: List<Double>, theirs: List<Double>): Double = median(ours.zip(theirs) { one, other -> one / other })
