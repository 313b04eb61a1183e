package tidegate

import com.sun.jna.Memory
import com.sun.jna.Native
import com.sun.jna.Pointer
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.util.concurrent.ConcurrentLinkedQueue

/**
 * The short way across: plain numbers, and memory that both sides know. A call through the generated half, with a status and
 * buffers of its own, costs tens of microseconds; one of these costs less than one. What is written is written and read by the
 * generated converters all the same.
 */
internal object Crossing {
    /** Memory outside of the heap, which is used again. */
    private class Room(size: Long) {
        private val memory = Memory(size)
        val address: Long = Pointer.nativeValue(memory)
        val size: Long = memory.size()
        val bytes: ByteBuffer = memory.getByteBuffer(0, size).order(ByteOrder.BIG_ENDIAN)
    }

    private val rooms = ConcurrentLinkedQueue<Room>()

    init {
        Native.register(Crossing::class.java, LibraryFile.path())
    }

    /** Submits calls, and tells those that are answered at once. `number` is that of their limiter or policy. */
    fun submit(number: Long, calls: List<Call>): List<Completed> =
        within(FfiConverterSequenceTypeCall.allocationSize(calls).toLong()) { asked ->
            FfiConverterSequenceTypeCall.write(calls, asked.bytes)
            val length = asked.bytes.position().toLong()
            within(ROOM) { room -> read(room, tidegate_cross(number, asked.address, length, room.address, room.size)) }
        }

    /** Blocks until something has come, for so many milliseconds at the most. `number` is that of a queue. */
    fun wait(number: Long, mostMs: Long): List<Completed> =
        within(ROOM) { room -> read(room, tidegate_wait(number, mostMs, room.address, room.size)) }

    private fun read(room: Room, written: Long): List<Completed> = when {
        written == BROKEN -> throw InternalException("tidegate's library failed; its log may say why")
        written >= 0 -> FfiConverterSequenceTypeCompleted.read(room.bytes.limit(written.toInt()))
        else -> within(tidegate_left(-written, 0, 0)) { large -> read(large, tidegate_left(-written, large.address, large.size)) }
    }

    private inline fun <T> within(size: Long, work: (Room) -> T): T {
        val room = (if (size <= ROOM) rooms.poll() else null) ?: Room(size.coerceAtLeast(ROOM))
        try {
            room.bytes.clear()
            return work(room)
        } finally {
            if (room.size == ROOM) rooms.add(room)
        }
    }

    @Suppress("FunctionName")
    private external fun tidegate_cross(number: Long, asked: Long, askedLength: Long, room: Long, roomLength: Long): Long

    @Suppress("FunctionName")
    private external fun tidegate_wait(number: Long, mostMs: Long, room: Long, roomLength: Long): Long

    @Suppress("FunctionName")
    private external fun tidegate_left(number: Long, room: Long, roomLength: Long): Long

    /** Bytes: a few dozen decisions. */
    private const val ROOM = 65_536L
    private const val BROKEN = Long.MIN_VALUE
}
