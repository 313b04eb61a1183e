// Checks through the jar on real servers, beside the peers. `CASES` names the cases to run, `ROUNDS` how many rounds, `WARM_UP`
// the seconds that each contestant plays before.
//
// The client runs on one core and the servers on the other, so that neither waits for the other's turn.
package tidegate.bench

import kotlin.system.exitProcess

private val BUCKET4J = listOf(ON_LETTUCE, ON_JEDIS)

private class Case(
    val name: String,
    val kind: Kind,
    val flight: Int,
    val limiters: List<String> = BUCKET4J,
    val servers: String = "server",
)

private val CASES = listOf(
    Case("jvm-1", Kind.BLOCKING, 1),
    Case("jvm-16", Kind.BLOCKING, 16),
    Case("jvm-256", Kind.VIRTUAL, 256),
    // Jedis has no futures.
    Case("jvm-async-256", Kind.ASYNC, 256, limiters = listOf(ON_LETTUCE)),
    Case("jvm-denied-hot", Kind.DENIED, 1, limiters = BUCKET4J + SKIPPING),
    Case("jvm-cluster-256", Kind.VIRTUAL, 256, servers = "cluster"),
)

private val NOTES = listOf(
    "tidegate: a token bucket, judged and charged by one script, a round trip a check; what several threads ask at once shares",
    "  round trips and crossings; a refusal is told again from memory for as long as it must stand.",
    "Bucket4j: a token bucket, judged in the client: it gets the state, and swaps it by a script if nobody has changed it since,",
    "  two round trips a check, and two more each time somebody has; a refusal is one, for it changes nothing. Skipping sync on",
    "  zero, a refusal is judged by the state that the process has seen last.",
    "EVALSHA: a fixed window of one INCR, a round trip a check; it has no refill, and lets twice the limit pass around a window's end.",
)

fun main(arguments: Array<String>) {
    if (arguments.isEmpty()) {
        compareAll()
    } else {
        val (who, kind, flight) = arguments
        play(who, Kind.valueOf(kind), flight.toInt(), arguments.drop(3))
    }
    // Clients keep threads.
    exitProcess(0)
}

private fun compareAll() {
    val wanted = System.getenv("CASES").orEmpty().split(' ').filter(String::isNotEmpty)
    val unknown = wanted - CASES.map(Case::name).toSet()
    if (unknown.isNotEmpty()) {
        System.err.println("there is no case ${unknown[0]}; write some of ${CASES.joinToString(" ", transform = Case::name)}")
        exitProcess(2)
    }
    val report = Report()
    val now = CASES.filter { wanted.isEmpty() || it.name in wanted }
    for ((servers, cases) in now.groupBy(Case::servers)) {
        withServers(servers) { urls -> cases.forEach { compare(report, it, urls) } }
    }
    val threads = if (HAS_VIRTUAL_THREADS) "virtual threads where there are 256" else "platform threads, for it has no virtual ones"
    val rounds = "Each has a process, warms up for $WARM_UP s, and plays $ROUNDS rounds in turn."
    report.finish(NOTES + rounds + "Java ${System.getProperty("java.version")}: $threads.")
}

/** Shows everyone, and compares ours with the better of the limiters and with the script. */
private fun compare(report: Report, case: Case, urls: List<String>) {
    val played = play(listOf(OURS) + case.limiters + EVALSHA, case.kind, case.flight, urls)
    val rates = played.mapValues { (_, told) -> told.map(Told::rate) }
    val ours = rates.getValue(OURS)
    for ((who, told) in played) {
        val cpu = median(told.map(Told::cpu))
        report.show(Shown(case.name, who, median(rates.getValue(who)), cpu, ratio(ours, rates.getValue(who))))
    }
    val best = case.limiters.maxBy { median(rates.getValue(it)) }
    for ((name, who) in listOf(case.name to best, "${case.name}-evalsha" to EVALSHA)) {
        val theirs = rates.getValue(who)
        report.add(Line(name, median(ours), median(theirs), who, ratio(ours, theirs)))
    }
}
