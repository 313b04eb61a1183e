package tidegate.bench

import io.github.bucket4j.BucketConfiguration
import io.github.bucket4j.TimeMeter
import io.github.bucket4j.distributed.BucketProxy
import io.github.bucket4j.distributed.ExpirationAfterWriteStrategy
import io.github.bucket4j.distributed.proxy.ProxyManager
import io.github.bucket4j.distributed.proxy.optimization.DefaultOptimizationListener
import io.github.bucket4j.distributed.proxy.optimization.skiponzero.SkipSyncOnZeroOptimization
import io.github.bucket4j.redis.jedis.Bucket4jJedis
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce
import io.lettuce.core.RedisClient
import io.lettuce.core.RedisURI
import io.lettuce.core.ScriptOutputType
import io.lettuce.core.cluster.RedisClusterClient
import java.net.URI
import java.time.Duration
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ConcurrentHashMap
import redis.clients.jedis.ConnectionPoolConfig
import redis.clients.jedis.HostAndPort
import redis.clients.jedis.RedisClient as Jedis
import redis.clients.jedis.RedisClusterClient as JedisOnCluster
import tidegate.Decision
import tidegate.Limiter

/** A limiter: what its user calls, and reads in the answer. */
class Check(val allows: (key: String) -> Boolean, val allowsAsync: (key: String) -> CompletableFuture<Boolean>)

/** Makes a limiter of so many units in a window. */
typealias Make = (units: Long, window: Duration) -> Check

const val OURS = "tidegate"
const val EVALSHA = "Lettuce EVALSHA"
const val ON_LETTUCE = "Bucket4j on Lettuce"
const val ON_JEDIS = "Bucket4j on Jedis"
const val SKIPPING = "Bucket4j on Lettuce, skipping sync on zero"

/** Each connects, for so many calls at once, and gives what makes its limiters. */
fun peer(who: String, urls: List<String>, flight: Int): Make = when (who) {
    OURS -> ours(urls)
    EVALSHA -> evalsha(urls)
    ON_LETTUCE -> bucket4j(onLettuce(urls))
    ON_JEDIS -> bucket4j(onJedis(urls, flight))
    SKIPPING -> skipping(onLettuce(urls))
    else -> error("there is no contestant $who")
}

private fun ours(urls: List<String>): Make = { units, window ->
    val url = urls.singleOrNull() ?: urls.joinToString(",", "redis+cluster://") { URI(it).authority }
    // A store that fails is no answer here.
    val rule = """{"limits": "$units/${window.toMillis()}ms token_bucket", "on_error": "deny"}"""
    val limiter = Limiter.ofJson("""{"version": 1, "store": {"url": "$url", "deadline": "10s"}, "rules": {"login": $rule}}""")
    limiter.ready()
    Check({ limiter.check("login", it).allowed }, { limiter.checkAsync("login", it).thenApply(Decision::allowed) })
}

/** A fixed window, the least that a limiter by script can do: one command, and what is left or how long to wait. */
private const val FIXED_WINDOW = """
local hits = redis.call('INCR', KEYS[1])
if hits == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if hits > tonumber(ARGV[1]) then return { 0, redis.call('PTTL', KEYS[1]) } end
return { 1, ARGV[1] - hits }
"""

/** All threads use one connection, as Lettuce's pages say. */
private fun evalsha(urls: List<String>): Make {
    val async = if (urls.size == 1) RedisClient.create(urls[0]).connect().async() else onCluster(urls).connect().async()
    val sha = async.scriptLoad(FIXED_WINDOW).get()
    return { units, window ->
        val (limit, millis) = listOf("$units", "${window.toMillis()}")
        val send = { key: String -> async.evalsha<List<Long>>(sha, ScriptOutputType.MULTI, arrayOf("fixed:$units:$key"), limit, millis) }
        Check({ send(it).get()[0] == 1L }, { key -> send(key).thenApply { it[0] == 1L }.toCompletableFuture() })
    }
}

private fun onCluster(urls: List<String>) = RedisClusterClient.create(urls.map { RedisURI.create(it) })

/** A state's time to live is at least what its bucket takes to be full again. */
private val EXPIRY = ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(Duration.ofMinutes(1))

private fun onLettuce(urls: List<String>): ProxyManager<ByteArray> {
    val builder = if (urls.size == 1) Bucket4jLettuce.casBasedBuilder(RedisClient.create(urls[0]))
    else Bucket4jLettuce.casBasedBuilder(onCluster(urls))
    return builder.expirationAfterWrite(EXPIRY).build()
}

/** A connection for each call that may be under way. */
private fun onJedis(urls: List<String>, flight: Int): ProxyManager<ByteArray> {
    val pool = ConnectionPoolConfig().apply {
        maxTotal = flight
        maxIdle = flight
    }
    val nodes = urls.map { HostAndPort(URI(it).host, URI(it).port) }
    val client = if (nodes.size == 1) Jedis.builder().hostAndPort(nodes[0]).poolConfig(pool).build()
    else JedisOnCluster.builder().nodes(nodes.toSet()).poolConfig(pool).build()
    return Bucket4jJedis.casBasedBuilder(client).expirationAfterWrite(EXPIRY).build()
}

private fun bucket(units: Long, window: Duration): BucketConfiguration =
    BucketConfiguration.builder().addLimit { it.capacity(units).refillGreedy(units, window) }.build()

/** A proxy is made for each check, as its pages have it for keys of users: it is cheap, and there may be any number of keys. */
private fun bucket4j(manager: ProxyManager<ByteArray>): Make = { units, window ->
    val configuration = bucket(units, window)
    val named = { key: String -> "bucket4j:$units:$key".toByteArray() }
    val future = CompletableFuture.completedFuture(configuration)
    val async = if (manager.isAsyncModeSupported) manager.asAsync() else null
    Check(
        { manager.getProxy(named(it)) { configuration }.tryConsumeAndReturnRemaining(1).isConsumed },
        { key -> async!!.getProxy(named(key)) { future }.tryConsumeAndReturnRemaining(1).thenApply { it.isConsumed } },
    )
}

/** Its proxy keeps that the bucket was empty, and so must be kept itself. */
private fun skipping(manager: ProxyManager<ByteArray>): Make = { units, window ->
    val configuration = bucket(units, window)
    val optimization = SkipSyncOnZeroOptimization(DefaultOptimizationListener(), TimeMeter.SYSTEM_MILLISECONDS)
    val proxies = ConcurrentHashMap<String, BucketProxy>()
    val proxy = { key: String ->
        proxies.computeIfAbsent(key) {
            manager.builder().withOptimization(optimization).build("bucket4j:$units:$key".toByteArray()) { configuration }
        }
    }
    Check({ proxy(it).tryConsumeAndReturnRemaining(1).isConsumed }, { error("only blocking") })
}
