package tidegate.servlet;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** A client that writes what it is told, byte by byte: clients that are meant to be used tidy paths and headers up. */
public final class Http {
    private static final int MOST_MS = 20_000;

    private final int port;

    public Http(int port) {
        this.port = port;
    }

    public Answer get(String path, String... headers) {
        return ask("GET", path, "", headers);
    }

    public Answer post(String path, String... headers) {
        return ask("POST", path, "", headers);
    }

    /** @param headers whole lines */
    public Answer ask(String method, String path, String body, String... headers) {
        StringBuilder request = new StringBuilder(method + " " + path + " HTTP/1.1\r\n");
        request.append("Host: localhost\r\nConnection: close\r\n");
        for (String line : headers) request.append(line).append("\r\n");
        if (!method.equals("GET")) request.append("Content-Length: ").append(body.length()).append("\r\n");
        request.append("\r\n").append(body);
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            socket.setSoTimeout(MOST_MS);
            socket.getOutputStream().write(request.toString().getBytes(StandardCharsets.ISO_8859_1));
            return Answer.of(new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8));
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /** Asks, reads the first byte of the answer, and goes away. */
    public void hangUp(String path) throws IOException {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            socket.setSoTimeout(MOST_MS);
            // Closed so, the other side hears of it by a reset.
            socket.setSoLinger(true, 0);
            socket.getOutputStream().write(("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n").getBytes(StandardCharsets.US_ASCII));
            socket.getInputStream().read();
        }
    }

    /** @param lines of its header */
    public record Answer(int status, List<String> lines, String body) {
        static Answer of(String text) {
            int end = text.indexOf("\r\n\r\n");
            List<String> lines = new ArrayList<>(List.of(text.substring(0, end).split("\r\n")));
            int status = Integer.parseInt(lines.remove(0).split(" ")[1]);
            String body = text.substring(end + 4);
            boolean isChunked = lines.stream().anyMatch(line -> line.equalsIgnoreCase("Transfer-Encoding: chunked"));
            return new Answer(status, lines, isChunked ? joined(body) : body);
        }

        private static String joined(String chunks) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            byte[] bytes = chunks.getBytes(StandardCharsets.UTF_8);
            for (int at = 0; at < bytes.length; ) {
                int line = at;
                while (bytes[line] != '\r') line++;
                int size = Integer.parseInt(new String(bytes, at, line - at, StandardCharsets.US_ASCII), 16);
                out.write(bytes, line + 2, size);
                at = line + 2 + size + 2;
            }
            return out.toString(StandardCharsets.UTF_8);
        }

        /** All values of a field, joined by a comma; null where there is none. */
        public String header(String name) {
            List<String> values = lines.stream()
                    .filter(line -> line.regionMatches(true, 0, name + ":", 0, name.length() + 1))
                    .map(line -> line.substring(name.length() + 1).trim())
                    .toList();
            return values.isEmpty() ? null : String.join(", ", values);
        }

        public String remaining() {
            return header("X-RateLimit-Remaining");
        }
    }
}
