package tidegate

import java.lang.System.Logger.Level

/** What the core says of itself, to the logger `tidegate` of the platform. */
internal object Log {
    private val logger: System.Logger by lazy { System.getLogger("tidegate") }

    private var looked = System.nanoTime()

    /** Logs what waits; not with each answer, since to look costs a crossing. */
    fun take(atOnce: Boolean) {
        val now = System.nanoTime()
        if (!atOnce && now - looked < OFTEN_NS) return
        looked = now
        if (!logWaits()) return
        for (line in takeLog()) logger.log(level(line.level), "{0}", line.text)
    }

    /** Whatever the application's logger does, the answers go on. */
    fun failed(error: Throwable) {
        try {
            logger.log(Level.ERROR, "an answer could not be told", error)
        } catch (_: Throwable) {
            // Nobody is left to tell.
        }
    }

    private const val OFTEN_NS = 100_000_000L

    private fun level(name: String) = if (name == "warn") Level.WARNING else Level.valueOf(name.uppercase())
}
