package tidegate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import tidegate.Policy;

/** On real servers that fail. */
class StoreTest {
    private static final String DOCUMENT = """
            version = 1
            [store]
            url = "%s"
            [rules]
            login = { limits = "5/h", on_error = "deny" }
            search = { limits = "5/h", on_error = "allow" }
            both = { limits = "2/h", on_error = "local" }
            [[routes]]
            path = "/login"
            rules = "login"
            key = "ip"
            [[routes]]
            path = "/search"
            rules = "search"
            key = "ip"
            [[routes]]
            path = "/both"
            rules = "both"
            key = "ip"
            """;
    /** The document's deadline is 100 ms; the rest is the machine's. */
    private static final Duration BOUND = Duration.ofSeconds(5);

    private static Http.Answer inTime(Http http, String path) {
        long since = System.nanoTime();
        Http.Answer answer = http.get(path);
        Duration took = Duration.ofNanos(System.nanoTime() - since);
        assertTrue(took.compareTo(BOUND) < 0, path + " took " + took);
        return answer;
    }

    private static void whileItFails(Http http) {
        for (int i = 0; i < 12; i++) {
            Http.Answer denied = inTime(http, "/login");
            assertEquals(503, denied.status());
            assertTrue(denied.body().contains("temporary-reduced-capacity"), denied.body());
            Http.Answer open = inTime(http, "/search");
            assertEquals(200, open.status());
            assertNull(open.header("RateLimit"), open.toString());
        }
        List<Integer> local = List.of(1, 2, 3).stream().map(i -> inTime(http, "/both").status()).toList();
        assertEquals(List.of(200, 200, 429), local);
    }

    private static void goesOn(Http http) throws InterruptedException {
        long until = System.nanoTime() + 20_000_000_000L;
        while (inTime(http, "/login").status() == 503 && System.nanoTime() < until) Thread.sleep(50);
        assertEquals(200, inTime(http, "/login").status());
    }

    @Test
    void whileTheStoreIsPausedOrDeadEachRuleSaysWhatIsAnswered() throws Exception {
        try (Servers servers = new Servers("server");
                Policy policy = Policy.ofToml(DOCUMENT.formatted(servers.url()));
                Jetty jetty = new Jetty("/").filter(RateLimitFilter.of(policy).build())) {
            Http http = jetty.servlet("/", (request, response) -> {}).start();
            policy.ready(Duration.ofSeconds(10));
            assertEquals("4", http.get("/login").remaining());
            servers.order("pause");
            whileItFails(http);
            servers.order("resume");
            goesOn(http);
            servers.order("kill");
            for (int i = 0; i < 12; i++) assertEquals(503, inTime(http, "/login").status());
            assertEquals(200, inTime(http, "/search").status());
            servers.order("restart");
            goesOn(http);
        }
    }
}
