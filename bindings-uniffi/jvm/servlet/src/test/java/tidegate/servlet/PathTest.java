package tidegate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import tidegate.Policy;

/** No spelling of a path that reaches a handler goes around its route. */
class PathTest {
    private static final String DOCUMENT = """
            version = 1
            rules = { login = "1/h", deep = "1/h", item = "1/h" }
            [[routes]]
            path = "/login"
            rules = "login"
            key = "ip"
            [[routes]]
            prefix = "/deep/er/"
            rules = "deep"
            key = "ip"
            [[routes]]
            path = "/items/{id}"
            rules = "item"
            key = "ip"
            """;

    private static final List<String> SPELLINGS = List.of(
            "/login",
            "/login/",
            "/Login",
            "//login",
            "/login?next=/x",
            "/login;jsessionid=1A2B",
            "/login;a=b;c",
            "/;a/login",
            "/%6Cogin",
            "/%6cogin",
            "/./login",
            "/x/../login",
            "/x/%2e%2e/login",
            "/x/%2E./login",
            "/x/..;/login",
            "/x/..;a=b/login",
            "/x;a/..;b//login;c",
            "/%2e/login",
            "/x%2F..%2Flogin",
            "/%2Flogin",
            "/%2flogin",
            "/x/..%2Flogin",
            "/login%2F",
            "/login%3Ba",
            "/login%00",
            "/login%09",
            "/login%20",
            "/login#a",
            "http://localhost/login",
            "http://localhost//login;a",
            "/.//login",
            "/x//..//login",
            "/x//../login",
            "/x/.../login");

    @Test
    void noSpellingReachesTheHandlerUncounted() throws Exception {
        everySpelling("", jetty -> {});
    }

    @Test
    void norDoesOneInAContext() throws Exception {
        everySpelling("/shop", jetty -> {});
        everySpelling("/shop", jetty -> jetty.lenient(true));
    }

    @Test
    void norDoesOneWhereTheContainerTakesEverything() throws Exception {
        everySpelling("", jetty -> jetty.lenient(true));
        everySpelling("", jetty -> jetty.lenient(false));
    }

    private interface Setting {
        void set(Jetty jetty);
    }

    private static void everySpelling(String context, Setting setting) throws Exception {
        AtomicInteger logins = new AtomicInteger();
        try (Policy policy = Policy.ofToml(DOCUMENT); Jetty jetty = new Jetty(context.isEmpty() ? "/" : context)) {
            setting.set(jetty);
            jetty.filter(RateLimitFilter.of(policy).build());
            jetty.servlet("/login/*", (request, response) -> logins.incrementAndGet());
            Http http = jetty.servlet("/", (request, response) -> response.setStatus(404)).start();
            assertEquals(200, http.get(context + "/login").status());
            assertEquals(1, logins.get());
            for (String spelling : SPELLINGS) {
                String path = spelling.startsWith("http") ? spelling : context + spelling;
                int status = http.get(path).status();
                assertTrue(status == 429 || status == 400 || status == 404, spelling + ": " + status);
                assertEquals(1, logins.get(), spelling);
            }
            for (String plain : List.of("/login", "/login;a", "/%6Cogin", "/login/")) {
                assertEquals(429, http.get(context + plain).status(), plain);
            }
        }
    }

    @Test
    void aRouterThatSplitsWhatCameIsHeldAsOneThatDecodesFirst() throws Exception {
        try (Policy policy = Policy.ofToml(DOCUMENT); Jetty jetty = new Jetty("/").lenient(true)) {
            jetty.filter(RateLimitFilter.of(policy).build());
            Http http = jetty.servlet("/", (request, response) -> {}).start();
            assertEquals(200, http.get("/items/a%2Fb").status(), "one segment to whoever splits first");
            assertEquals(429, http.get("/items/c%2fd").status());
            assertEquals(200, http.get("/deep%2Fer/x").status(), "three to whoever decodes first");
            assertEquals(429, http.get("/deep/er/x").status());
        }
    }

    @Test
    void severalRoutesOfOnePathAreAllOrNone() throws Exception {
        String document = DOCUMENT.replace("item = \"1/h\"", "item = \"2/h\"");
        try (Policy policy = Policy.ofToml(document); Jetty jetty = new Jetty("/").lenient(true)) {
            jetty.filter(RateLimitFilter.of(policy).build());
            Http http = jetty.servlet("/", (request, response) -> {}).start();
            assertEquals(200, http.get("/login").status());
            // On the wire an item, in the container the login.
            assertEquals(429, http.get("/items/%2e%2e/login").status(), "the login's limit is used up");
            assertEquals(200, http.get("/items/1").status());
            assertEquals(200, http.get("/items/2").status(), "what the refused one took of the items is back");
            assertEquals(429, http.get("/items/3").status());
        }
    }

    @Test
    void whatTheContainerCallsAmbiguousAndDoesNotTellIsRefused() throws Exception {
        try (Policy policy = Policy.ofToml(DOCUMENT); Jetty jetty = new Jetty("/").lenient(false)) {
            jetty.filter(RateLimitFilter.of(policy).build());
            Http http = jetty.servlet("/", (request, response) -> {}).start();
            assertEquals(400, http.get("/x/..%2Flogin").status());
        }
    }

    @Test
    void encodingIsWhatRoutersUndo() {
        assertEquals("/a%20b/%C3%A9;".replace(";", "%3B"), Paths.encoded("/a b/\u00e9;"));
        assertEquals("/a%2Fb%2f%5Cc%25", Paths.encoded("/a%2Fb%2f%5Cc%"));
        assertNotEquals(Paths.encoded("/a?b"), Paths.encoded("/a#b"));
    }
}
