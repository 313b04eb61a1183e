package tidegate.bench

import java.io.PrintStream
import java.util.Locale

private val JSON_LINES = System.getenv("JSON") == "1"
private const val UNIT = "checks/s"

/**
 * One comparison: our figure beside a peer's of the same run. `ratio` is the median of the rounds' ratios, which is not always
 * the ratio of the medians.
 */
class Line(val case: String, val ours: Double, val peer: Double, val peerName: String, val ratio: Double) {
    fun json(): String =
        """{"case":"$case","ours":${number(ours)},"peer":${number(peer)},"peer_name":"$peerName","unit":"$UNIT","ratio":${ratio(ratio)}}"""

    fun row() = listOf(case, whole(ours), whole(peer), ratio(ratio), UNIT, peerName)
}

/** A contestant's figure, for people alone: `cpu` is what a check cost the client's processor, in nanoseconds. */
class Shown(val case: String, val who: String, val figure: Double, val cpu: Double, val ratio: Double) {
    fun row() = listOf(case, who, whole(figure), UNIT, whole(cpu), ratio(ratio))
}

/** What was measured: a table for people, and with `JSON=1` a line per comparison for programs. No bar is set for any. */
class Report {
    private val lines = mutableListOf<Line>()
    private val shown = mutableListOf<Shown>()

    /** Adds a comparison, and prints its line at once where lines are asked for. */
    fun add(line: Line) {
        lines += line
        if (JSON_LINES) println(line.json())
    }

    fun show(one: Shown) {
        shown += one
    }

    /** Prints the tables and what is to be known of them, beside the lines on standard error. */
    fun finish(notes: List<String>) {
        val out = if (JSON_LINES) System.err else System.out
        table(out, listOf("case", "who", "figure", "unit", "client CPU ns", "ours to it"), shown.map { it.row() }, setOf(2, 4, 5))
        table(out, listOf("case", "ours", "peer", "ratio", "unit", "peer"), lines.map { it.row() }, setOf(1, 2, 3))
        notes.forEach(out::println)
    }

    private fun table(out: PrintStream, heads: List<String>, rows: List<List<String>>, right: Set<Int>) {
        val widths = heads.indices.map { column -> (rows + listOf(heads)).maxOf { it[column].length } }
        for (row in listOf(heads, widths.map("-"::repeat)) + rows) {
            val cells = row.mapIndexed { i, cell -> if (i in right) cell.padStart(widths[i]) else cell.padEnd(widths[i]) }
            out.println(cells.joinToString("  ").trimEnd())
        }
        out.println()
    }
}

private fun number(figure: Double) = Math.round(figure).toString()

private fun whole(figure: Double) = String.format(Locale.ROOT, "%,d", Math.round(figure))

private fun ratio(ratio: Double) = String.format(Locale.ROOT, "%.3f", ratio)
