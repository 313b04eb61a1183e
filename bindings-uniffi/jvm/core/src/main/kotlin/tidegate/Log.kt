package tidegate

import java.lang.System.Logger.Level

/** What the core says of itself, to the logger `tidegate` of the platform. */
internal object Log {
    private val logger: System.Logger by lazy { System.getLogger("tidegate") }

    fun take() {
        if (!logWaits()) return
        for (line in takeLog()) logger.log(level(line.level), "{0}", line.text)
    }

    fun failed(error: Throwable) = logger.log(Level.ERROR, "an answer could not be told", error)

    private fun level(name: String) = if (name == "warn") Level.WARNING else Level.valueOf(name.uppercase())
}
