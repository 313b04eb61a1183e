package tidegate.testing

import java.nio.file.Path
import java.time.DateTimeException
import java.time.Duration
import java.time.Instant
import java.time.temporal.ChronoUnit
import tidegate.Clock
import tidegate.Limiter
import tidegate.Policy
import tidegate.Source
import tidegate.TidegateException

/**
 * A clock that stands still until a test moves it, and limiters and policies that decide by it: in memory, whatever their
 * document and `TIDEGATE_URL` say. An `acquire` that has to wait does so in real time.
 */
class FakeClock @JvmOverloads constructor(start: Instant = Instant.parse("2026-01-01T00:00:00Z")) {
    private val clock = Clock(micros(start))

    /** What it shows. */
    val now: Instant
        get() = Instant.EPOCH.plus(clock.micros(), ChronoUnit.MICROS)

    /** Moves it on; nothing is too short for it but a fraction of a microsecond. */
    fun advance(time: Duration) {
        synchronized(this) { clock.set(inTime("$now and $time") { micros(now.plus(time)) }) }
    }

    /** The same in milliseconds, such as a decision's `retryAfterMs`. */
    fun advance(milliseconds: Long) = advance(Duration.ofMillis(milliseconds))

    /** A limiter of rules such as `"login" to "5/m"`. */
    fun limiter(rules: Map<String, String>): Limiter = Limiter.at(Limiter.sourceOf(rules), clock)

    /** A limiter of a document: its text as TOML. */
    fun limiterOfToml(text: String): Limiter = Limiter.at(Source.Toml(text), clock)

    /** A limiter of a document: its text as JSON. */
    fun limiterOfJson(text: String): Limiter = Limiter.at(Source.Json(text), clock)

    /** A limiter of a document: its text as YAML. */
    fun limiterOfYaml(text: String): Limiter = Limiter.at(Source.Yaml(text), clock)

    /** A limiter of a document in a file. */
    fun limiterOfFile(path: Path): Limiter = Limiter.at(Source.File(path.toString()), clock)

    /** A policy of a document: its text as TOML. */
    fun policyOfToml(text: String): Policy = Policy.at(Source.Toml(text), clock)

    /** A policy of a document: its text as JSON. */
    fun policyOfJson(text: String): Policy = Policy.at(Source.Json(text), clock)

    /** A policy of a document: its text as YAML. */
    fun policyOfYaml(text: String): Policy = Policy.at(Source.Yaml(text), clock)

    /** A policy of a document in a file. */
    fun policyOfFile(path: Path): Policy = Policy.at(Source.File(path.toString()), clock)

    private fun micros(time: Instant): Long {
        if (time < Instant.EPOCH) throw TidegateException.invalid("$time is before 1970; write a later time")
        return inTime("$time") { ChronoUnit.MICROS.between(Instant.EPOCH, time) }
    }

    private fun inTime(what: String, micros: () -> Long) =
        try {
            micros()
        } catch (_: ArithmeticException) {
            throw TidegateException.invalid("$what is too late for a clock; write an earlier time")
        } catch (_: DateTimeException) {
            throw TidegateException.invalid("$what is too late for a clock; write an earlier time")
        }
}
