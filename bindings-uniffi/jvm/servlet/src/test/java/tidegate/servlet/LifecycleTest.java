package tidegate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.servlet.AsyncContext;
import jakarta.servlet.ServletException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.eclipse.jetty.ee10.servlet.ErrorPageErrorHandler;
import org.junit.jupiter.api.Test;
import tidegate.Policy;

/** A request is judged once and settled by how it ends, whatever way it takes through the container. */
class LifecycleTest {
    private static final String DOCUMENT = """
            version = 1
            rules = { one = "3/h", other = "5/h" }
            [http.default]
            rules = "one"
            key = "ip"
            refund_status = [404, "5xx"]
            """;

    private static RateLimitFilter filter(Policy policy) {
        return RateLimitFilter.of(policy).build();
    }

    private static void ends(Jetty.Handler handler, int status, boolean isGivenBack) throws Exception {
        try (Policy policy = Policy.ofToml(DOCUMENT); Jetty jetty = new Jetty("/").filter(filter(policy))) {
            jetty.servlet("/again", (request, response) -> response.getWriter().print("again"));
            Http http = jetty.servlet("/", handler).start();
            Http.Answer answer = http.get("/");
            assertEquals(status, answer.status());
            assertEquals("2", answer.remaining(), answer.toString());
            assertNotNull(answer.header("RateLimit"));
            assertUsed(policy, isGivenBack ? 0 : 1);
        }
    }

    /** What is given back is so in the background; what is not, stays. */
    private static void assertUsed(Policy policy, long used) throws InterruptedException {
        long until = System.nanoTime() + (used == 0 ? 5_000_000_000L : 100_000_000L);
        while (System.nanoTime() < until && (used != 0 || used(policy) != 0)) Thread.sleep(5);
        assertEquals(used, used(policy));
    }

    private static long used(Policy policy) throws InterruptedException {
        // An address is a part of its own among keys.
        return 3 - policy.limiter().peek("one", tidegate.LimitKey.parts("ip", "127.0.0.1")).getRemaining();
    }

    @Test
    void aStatusSettles() throws Exception {
        ends((request, response) -> response.setStatus(204), 204, false);
        ends((request, response) -> response.setStatus(404), 404, true);
        ends((request, response) -> response.sendError(404), 404, true);
        ends((request, response) -> response.sendError(409, "no"), 409, false);
    }

    @Test
    void anExceptionIsAServersError() throws Exception {
        ends((request, response) -> {
            throw new IllegalStateException("a fault of the test's application");
        }, 500, true);
    }

    @Test
    void aClientThatHasGoneStaysCharged() throws Exception {
        ends((request, response) -> {
            throw new IOException("Broken pipe");
        }, 500, false);
        ends((request, response) -> {
            throw new ServletException("as frameworks do", new UncheckedIOException(
                    new IOException("Connection reset by peer")));
        }, 500, false);
        try (Policy policy = Policy.ofToml(DOCUMENT); Jetty jetty = new Jetty("/").filter(filter(policy))) {
            var ended = new CountDownLatch(1);
            Http http = jetty.servlet("/", (request, response) -> {
                try {
                    byte[] much = new byte[1 << 16];
                    while (true) response.getOutputStream().write(much);
                } finally {
                    ended.countDown();
                }
            }).start();
            http.hangUp("/");
            assertTrue(ended.await(30, TimeUnit.SECONDS), "it is told that the client has gone");
            assertUsed(policy, 1);
        }
    }

    @Test
    void fieldsStayWhenAResponseIsReset() throws Exception {
        ends((request, response) -> {
            response.setHeader("Test", "gone");
            response.reset();
            response.setStatus(202);
        }, 202, false);
    }

    @Test
    void whatTheApplicationSetsItselfStays() throws Exception {
        try (Policy policy = Policy.ofToml(DOCUMENT); Jetty jetty = new Jetty("/").filter(filter(policy))) {
            Http http = jetty.servlet("/", (request, response) -> {
                response.setHeader("X-RateLimit-Limit", "77");
                response.addHeader("X-RateLimit-Remaining", "66");
                response.addHeader("Test", "a");
                response.addHeader("Test", "b");
            }).start();
            Http.Answer answer = http.get("/");
            assertEquals("77", answer.header("X-RateLimit-Limit"));
            assertEquals("66", answer.remaining());
            assertEquals("a, b", answer.header("Test"));
        }
    }

    @Test
    void anAsynchronousRequestIsSettledWhenItIsComplete() throws Exception {
        ends((request, response) -> later(request.startAsync(), () -> {
            response.setStatus(404);
            response.getWriter().print("nothing");
        }), 404, true);
        ends((request, response) -> later(request.startAsync(), () -> response.setStatus(201)), 201, false);
        ends((request, response) -> {
            AsyncContext async = request.startAsync();
            response.setStatus(404);
            async.complete();
        }, 404, true);
    }

    @Test
    void oneThatIsDispatchedIsJudgedOnce() throws Exception {
        ends((request, response) -> {
            AsyncContext async = request.startAsync();
            new Thread(() -> async.dispatch("/again")).start();
        }, 200, false);
    }

    @Test
    void oneThatIsStartedAgainIsSettledWhenItIsComplete() throws Exception {
        AtomicInteger turns = new AtomicInteger();
        ends((request, response) -> {
            AsyncContext async = request.startAsync();
            if (turns.getAndIncrement() == 0) new Thread(async::dispatch).start();
            else later(async, () -> response.setStatus(404));
        }, 404, true);
    }

    @Test
    void oneThatRunsOutOfTimeIsAServersError() throws Exception {
        ends((request, response) -> request.startAsync().setTimeout(50), 500, true);
    }

    private interface Answering {
        void answer() throws IOException;
    }

    private static void later(AsyncContext async, Answering answering) {
        new Thread(() -> {
            try {
                Thread.sleep(20);
                answering.answer();
            } catch (IOException | InterruptedException failed) {
                throw new IllegalStateException(failed);
            }
            async.complete();
        }).start();
    }

    @Test
    void forwardsAndIncludesAreNotCountedAgain() throws Exception {
        ends((request, response) -> request.getRequestDispatcher("/again").forward(request, response), 200, false);
        ends((request, response) -> request.getRequestDispatcher("/again").include(request, response), 200, false);
    }

    @Test
    void anErrorPageHasTheFields() throws Exception {
        try (Policy policy = Policy.ofToml(DOCUMENT); Jetty jetty = new Jetty("/").filter(filter(policy))) {
            ErrorPageErrorHandler pages = new ErrorPageErrorHandler();
            pages.addErrorPage(404, "/page");
            pages.addErrorPage(Throwable.class, "/page");
            jetty.context.setErrorHandler(pages);
            jetty.servlet("/page", (request, response) -> response.getWriter().print("a page"));
            jetty.servlet("/throws", (request, response) -> {
                throw new IllegalStateException("a fault of the test's application");
            });
            Http http = jetty.servlet("/", (request, response) -> response.sendError(404)).start();
            for (String path : List.of("/nowhere", "/throws")) {
                Http.Answer answer = http.get(path);
                assertEquals("a page", answer.body());
                assertEquals("2", answer.remaining(), path);
                assertNotNull(answer.header("RateLimit"));
                assertUsed(policy, 0);
            }
        }
    }

    @Test
    void aForwardBeforeTheFilterIsJudged() throws Exception {
        String document = DOCUMENT.replace("[http.default]", "[[routes]]\npath = \"/again\"");
        try (Policy policy = Policy.ofToml(document); Jetty jetty = new Jetty("/")) {
            jetty.filter((request, response, chain) -> {
                boolean isFirst = request.getAttribute("Test") == null;
                request.setAttribute("Test", true);
                if (isFirst) request.getRequestDispatcher("/again").forward(request, response);
                else chain.doFilter(request, response);
            });
            Http http = jetty.filter(filter(policy)).servlet("/again", (request, response) -> {}).start();
            for (int i = 0; i < 3; i++) assertEquals(200, http.get("/old").status());
            assertEquals(429, http.get("/old").status());
        }
    }

    @Test
    void filtersOfTwoPoliciesTellOfBoth() throws Exception {
        String other = DOCUMENT.replace("rules = \"one\"", "rules = [\"one\", \"other\"]");
        try (Policy first = Policy.ofToml(DOCUMENT); Policy second = Policy.ofToml(other); Jetty jetty = new Jetty("/")) {
            Http http = jetty.filter(filter(first)).filter(filter(second)).servlet("/", (request, response) -> {}).start();
            Http.Answer answer = http.get("/");
            assertTrue(answer.header("RateLimit").contains("\"other\";r=4"), answer.toString());
            assertTrue(answer.header("RateLimit").contains("\"one\""), answer.toString());
            assertEquals(1, answer.lines().stream().filter(line -> line.startsWith("RateLimit:")).count());
            assertNull(answer.header("Retry-After"));
        }
    }
}
