package shop;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The shop as it is shipped, in a process of its own, on a port of its own. */
class Service implements AutoCloseable {
    private static final Pattern STARTED = Pattern.compile("Tomcat started on port (\\d+)");
    private static final int MOST_SECONDS = 120;

    private final Process process;
    private final int port;

    Service(Path document, String store) throws Exception {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        // They would tell of each refusal, and of each request that no method takes.
        String[] quiet = {"--logging.level.tidegate=warn", "--logging.level.org.springframework.web=error"};
        var builder = new ProcessBuilder(java, "-Xmx256m", "-jar", System.getProperty("shop.jar"), quiet[0], quiet[1]);
        builder.redirectErrorStream(true);
        builder.environment().put("PORT", "0");
        builder.environment().put("SHOP_LIMITS", document.toUri().toString());
        builder.environment().put("TIDEGATE_URL", store);
        process = builder.start();
        port = CompletableFuture.supplyAsync(this::started).get(MOST_SECONDS, TimeUnit.SECONDS);
    }

    private int started() {
        StringBuilder said = new StringBuilder();
        try {
            BufferedReader lines = process.inputReader();
            for (String line; (line = lines.readLine()) != null; ) {
                said.append(line).append('\n');
                Matcher started = STARTED.matcher(line);
                if (!started.find()) continue;
                drain(lines);
                return Integer.parseInt(started.group(1));
            }
        } catch (IOException failed) {
            throw new IllegalStateException(said.toString(), failed);
        }
        throw new IllegalStateException("the shop does not start:\n" + said);
    }

    /** Or it would stop where nobody reads what it says. */
    private static void drain(BufferedReader lines) {
        Thread thread = new Thread(() -> {
            try {
                for (String line; (line = lines.readLine()) != null; ) System.out.println("shop: " + line);
            } catch (IOException ended) {
                // So has the shop.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    String url(String path) {
        return "http://127.0.0.1:" + port + path;
    }

    @Override
    public void close() throws InterruptedException {
        process.destroy();
        if (!process.waitFor(30, TimeUnit.SECONDS)) process.destroyForcibly();
    }
}
