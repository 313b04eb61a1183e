package tidegate

import com.sun.jna.Native
import com.sun.jna.Platform
import java.io.File
import java.io.IOException

/** Where the native library is: in the jar, from which it is taken once for each process. */
internal object LibraryFile {
    private const val PROPERTY = "tidegate.library"

    private val found: File by lazy {
        val named = System.getProperty(PROPERTY)
        if (named != null) named(File(named)) else packed()
    }

    /** Called by the generated half before it loads. */
    @JvmStatic
    fun path(): String = found.absolutePath

    private fun named(file: File): File {
        if (file.isFile) return file
        throw UnsatisfiedLinkError("there is no $file, which the system property $PROPERTY names; write the path of the library")
    }

    private fun packed(): File {
        val resource = "/tidegate/native/${Platform.RESOURCE_PREFIX}/${System.mapLibraryName("tidegate_uniffi")}"
        try {
            return Native.extractFromResourcePath(resource, LibraryFile::class.java.classLoader)
        } catch (error: IOException) {
            val text = "tidegate's jar has no $resource; let the system property $PROPERTY name a library for this platform"
            throw UnsatisfiedLinkError(text).apply { initCause(error) }
        }
    }
}
