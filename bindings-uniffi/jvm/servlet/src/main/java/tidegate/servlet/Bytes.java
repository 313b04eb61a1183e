package tidegate.servlet;

import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** Text as the bytes that a policy takes. No two texts are the same bytes. */
final class Bytes {
    private Bytes() {}

    /** As UTF-8. Half of a surrogate pair, which UTF-8 does not have, makes it UTF-16, which is UTF-8 of nothing then. */
    static byte[] of(String text) {
        try {
            var buffer = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            return bytes;
        } catch (CharacterCodingException lone) {
            return text.getBytes(StandardCharsets.UTF_16BE);
        }
    }

    /** A header's line as it came: containers tell a letter for each byte. Where something has decoded it, that is undone. */
    static byte[] ofLine(String line) {
        boolean isOfBytes = line.chars().allMatch(letter -> letter <= 0xff);
        return isOfBytes ? line.getBytes(StandardCharsets.ISO_8859_1) : of(line);
    }
}
