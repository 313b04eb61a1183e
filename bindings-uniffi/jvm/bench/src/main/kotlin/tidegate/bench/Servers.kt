package tidegate.bench

import io.lettuce.core.ClientOptions
import io.lettuce.core.RedisClient
import io.lettuce.core.RedisException
import io.lettuce.core.api.StatefulRedisConnection
import java.io.File
import java.util.concurrent.CompletableFuture
import java.util.concurrent.TimeUnit

const val CLIENT_CORE = "0"
private const val SERVER_CORE = "1"

/** The six processes of a cluster must find each other. In seconds. */
private const val PATIENCE = 60L

/** A command that runs on one core. */
fun onCore(core: String, command: List<String>) = listOf("taskset", "--cpu-list", core) + command

/** The file that a variable of the environment names. */
fun named(variable: String): String =
    System.getenv(variable)?.takeIf { File(it).isFile } ?: error("$variable must name a file; `make bench-uniffi` sets it")

/** Servers of this run alone, on a core of their own, as long as `use` runs: one, or three masters. */
fun withServers(kind: String, use: (urls: List<String>) -> Unit) {
    val command = onCore(SERVER_CORE, listOf(named("TIDEGATE_TEST_SERVERS"), kind))
    val harness = ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start()
    try {
        val url = CompletableFuture.supplyAsync(harness.inputReader()::readLine).get(PATIENCE, TimeUnit.SECONDS)
            ?: error("the servers do not start; the benchmarks need taskset, and cores 0 and 1 for client and servers")
        use(if (kind == "cluster") mastersAlone(url) else listOf(url))
    } finally {
        // It ends what it started when its input ends.
        harness.outputStream.close()
        harness.waitFor(PATIENCE, TimeUnit.SECONDS)
    }
}

private class Node(val url: String, client: RedisClient) {
    val connection: StatefulRedisConnection<String, String> = client.connect()
    private val commands = connection.sync()
    val id: String = commands.clusterMyId()
    val isMaster = commands.role().first() == "master"

    fun forget(other: Node) {
        commands.clusterForget(other.id)
    }

    /** It closes the connection instead of answering. */
    fun end() {
        try {
            commands.shutdown(false)
        } catch (_: RedisException) {
            // That is its answer.
        }
    }
}

/**
 * Ends the replicas, which have machines of their own elsewhere, and here would share the masters' core. The masters forget
 * them, so that no client looks for them.
 */
private fun mastersAlone(url: String): List<String> {
    val urls = url.removePrefix("redis+cluster://").split(',').map { "redis://$it" }
    val clients = urls.map(::clientOf)
    try {
        val (masters, replicas) = urls.zip(clients, ::Node).partition(Node::isMaster)
        for (replica in replicas) {
            replica.end()
            masters.forEach { it.forget(replica) }
        }
        return masters.map(Node::url)
    } finally {
        clients.forEach { it.shutdown() }
    }
}

/** A client that does not look for a server which has ended. */
private fun clientOf(url: String): RedisClient =
    RedisClient.create(url).apply { options = ClientOptions.builder().autoReconnect(false).build() }
