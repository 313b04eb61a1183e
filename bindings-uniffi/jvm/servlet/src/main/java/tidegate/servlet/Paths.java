package tidegate.servlet;

import jakarta.servlet.http.HttpServletRequest;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * The paths under which a request may find its handler.
 *
 * <p>A container and the router in it read one path in different ways: the container takes off path parameters, decodes, and
 * resolves {@code ..}; Spring's router splits what came over the wire, in which {@code %2F} parts nothing, and another may
 * split what was decoded. Whichever of them finds the handler, its route must hold, or a spelling would be a way around the
 * limit. Nearly every request has one path; only one that is written in an unusual way has several.
 */
final class Paths {
    private static final Pattern PARAMETERS = Pattern.compile(";[^/]*");
    private static final Pattern SLASHES = Pattern.compile("/{2,}");
    private static final Pattern ENCODED_SLASH = Pattern.compile("%2f", Pattern.CASE_INSENSITIVE);
    private static final Pattern UNUSUAL = Pattern.compile("[%;\\\\]|//|/\\.");
    /** What stands for itself in a path, beside letters and digits. */
    private static final String PLAIN = "/-._~!$&'()*+,=:@";

    private Paths() {}

    /**
     * The paths of a request within its application, without the context path; the one on the wire is the first.
     *
     * @throws IllegalArgumentException if the container calls the path ambiguous, and does not tell how it reads it
     */
    static List<String> of(HttpServletRequest request) {
        String wire = onTheWire(request);
        if (wire != null && !UNUSUAL.matcher(wire).find()) return List.of(wire);
        Map<String, String> paths = new LinkedHashMap<>();
        if (wire != null) add(paths, PARAMETERS.matcher(wire).replaceAll(""));
        add(paths, encoded(inContainer(request)));
        // A router that decodes before it splits.
        for (String path : List.copyOf(paths.values())) add(paths, ENCODED_SLASH.matcher(path).replaceAll("/"));
        return new ArrayList<>(paths.values());
    }

    /** Null where it does not begin with the context path as the container tells it, as where that is written otherwise. */
    private static String onTheWire(HttpServletRequest request) {
        String context = request.getContextPath();
        String path = request.getRequestURI();
        if (!path.startsWith(context)) return null;
        String within = path.substring(context.length());
        return within.isEmpty() ? "/" : within;
    }

    private static String inContainer(HttpServletRequest request) {
        String path = request.getServletPath();
        String rest = request.getPathInfo();
        return rest == null ? path : path + rest;
    }

    private static void add(Map<String, String> paths, String path) {
        paths.putIfAbsent(SLASHES.matcher(decoded(path)).replaceAll("/"), path);
    }

    /** Of a decoded path; an encoded slash that the container has left as it was stays one. */
    static String encoded(String path) {
        StringBuilder out = new StringBuilder();
        for (byte one : path.getBytes(StandardCharsets.UTF_8)) {
            char letter = (char) (one & 0xff);
            boolean isPlain = letter < 0x80 && (Character.isLetterOrDigit(letter) || PLAIN.indexOf(letter) >= 0);
            out.append(isPlain ? String.valueOf(letter) : "%%%02X".formatted((int) letter));
        }
        return out.toString().replaceAll("%25(2[fF]|5[cC])", "%$1");
    }

    /** What a path comes to, for comparing: a letter for each byte, with {@code %2F} as it is. */
    private static String decoded(String path) {
        byte[] bytes = path.getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream out = new ByteArrayOutputStream(bytes.length);
        for (int at = 0; at < bytes.length; at++) {
            int value = bytes[at] == '%' && at + 2 < bytes.length ? hex(bytes[at + 1]) << 4 | hex(bytes[at + 2]) : -1;
            boolean isEscape = value >= 0 && value != '/';
            out.write(isEscape ? value : Character.toUpperCase(bytes[at]));
            if (isEscape) at += 2;
        }
        return out.toString(StandardCharsets.ISO_8859_1);
    }

    /** -1 for what is no digit, also where it is shifted or joined with another. */
    private static int hex(byte digit) {
        return Character.digit(digit, 16);
    }
}
