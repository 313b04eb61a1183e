package tidegate.servlet;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.util.concurrent.TimeUnit;

/** Real Redis servers, which end with it. */
public final class Servers implements AutoCloseable {
    private final Process process;
    private final BufferedReader answers;
    private final PrintStream orders;
    private final String url;

    /** @param kind {@code server}, or {@code cluster} */
    public Servers(String kind) throws IOException {
        String program = System.getenv("TIDEGATE_TEST_SERVERS");
        if (program == null) throw new IllegalStateException("TIDEGATE_TEST_SERVERS is not set; write `make test-uniffi`");
        process = new ProcessBuilder(program, kind).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        answers = process.inputReader();
        orders = new PrintStream(process.getOutputStream(), true);
        url = answers.readLine();
        if (url == null) throw new IOException("no servers came up");
    }

    public String url() {
        return url;
    }

    /** @param order {@code pause}, {@code resume}, {@code kill}, {@code restart} or {@code flush}; returns when it is done */
    public void order(String order) throws IOException {
        orders.println(order);
        if (!order.equals(answers.readLine())) throw new IOException("the servers do not " + order);
    }

    @Override
    public void close() throws InterruptedException {
        orders.close();
        if (!process.waitFor(30, TimeUnit.SECONDS)) process.destroyForcibly();
    }
}
