package tidegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import org.apache.tomcat.util.buf.EncodedSolidusHandling;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.boot.web.embedded.tomcat.TomcatServletWebServerFactory;
import org.springframework.boot.web.server.WebServerFactoryCustomizer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import tidegate.LimitKey;
import tidegate.Limiter;
import tidegate.Policy;
import tidegate.servlet.Http;

class ServiceTest {
    private static final String SHOP = """
            version = 1
            rules = { login = "2/h", item = "1/h", all = "3/h" }
            [[routes]]
            path = "/login"
            methods = ["POST"]
            rules = "login"
            key = "ip"
            [[routes]]
            path = "/items/{id}"
            rules = "item"
            key = "ip"
            [http.default]
            rules = "all"
            key = "ip"
            refund_status = [404, "5xx"]
            """;

    @Test
    void aPropertyPutsLimitsBeforeAService() {
        try (App.Running app = App.start(SHOP)) {
            Http http = app.http();
            assertEquals("1", http.post("/login").remaining());
            assertEquals("welcome 2", http.post("/login", "X-Forwarded-For: 203.0.113.9").body());
            Http.Answer refused = http.post("/login", "X-Forwarded-For: 203.0.113.10", "Accept: application/json");
            assertEquals(429, refused.status());
            assertTrue(refused.body().startsWith("{\"error\":\"Too Many Requests\""), refused.body());
            assertNotNull(app.context().getBean(Limiter.class));
        }
    }

    @Test
    void howARequestEndsSettlesIt() throws InterruptedException {
        try (App.Running app = App.start(SHOP)) {
            Http http = app.http();
            Limiter limiter = app.context().getBean(Limiter.class);
            for (String path : List.of("/missing", "/sent", "/broken", "/later/missing", "/nothing-here")) {
                Http.Answer answer = http.get(path);
                assertEquals(path.equals("/broken") ? 500 : 404, answer.status(), path);
                assertEquals("2", answer.remaining(), path + answer);
                assertTrue(answer.body().contains("\"status\":"), "the service's own error page: " + answer.body());
                assertUsed(limiter, 0, path);
            }
            assertEquals("later", http.get("/later").body());
            assertUsed(limiter, 1, "/later");
        }
    }

    private static void assertUsed(Limiter limiter, long used, String path) throws InterruptedException {
        long until = System.nanoTime() + (used == 0 ? 5_000_000_000L : 100_000_000L);
        while (System.nanoTime() < until && (used != 0 || used(limiter) != 0)) Thread.sleep(5);
        assertEquals(used, used(limiter), path);
    }

    private static long used(Limiter limiter) throws InterruptedException {
        return 3 - limiter.peek("all", LimitKey.parts("ip", "127.0.0.1")).getRemaining();
    }

    @Configuration
    static class Decoding {
        @Bean
        WebServerFactoryCustomizer<TomcatServletWebServerFactory> slashes() {
            return factory -> factory.addConnectorCustomizers(
                    connector -> connector.setEncodedSolidusHandling(EncodedSolidusHandling.DECODE.getValue()));
        }
    }

    @Configuration
    static class PassingThrough {
        @Bean
        WebServerFactoryCustomizer<TomcatServletWebServerFactory> slashes() {
            return factory -> factory.addConnectorCustomizers(
                    connector -> connector.setEncodedSolidusHandling(EncodedSolidusHandling.PASS_THROUGH.getValue()));
        }
    }

    @Configuration
    static class Refusing {}

    /** Of whatever Tomcat and Spring's routers take. */
    @Test
    void noSpellingGoesAroundARoute() {
        for (Class<?> slashes : List.of(Refusing.class, Decoding.class, PassingThrough.class)) {
            for (String matching : List.of("path_pattern_parser", "ant_path_matcher")) {
                for (String context : List.of("", "/shop")) {
                    String[] properties = {
                        "spring.mvc.pathmatch.matching-strategy=" + matching,
                        "server.servlet.context-path=" + context
                    };
                    try (App.Running app = App.with(List.of(slashes), SHOP, properties)) {
                        everySpelling(app, context, slashes.getSimpleName() + " " + matching + " " + context);
                    }
                }
            }
        }
    }

    private static void everySpelling(App.Running app, String context, String how) {
        Http http = app.http();
        for (int i = 0; i < 2; i++) assertEquals(200, http.post(context + "/login").status(), how);
        for (String spelling : List.of(
                "/login", "/login/", "//login", "/login;a=b", "/;a/login", "/%6Cogin", "/x/../login", "/x/..;/login",
                "/x/%2e%2e/login", "/./login", "/%2Flogin", "/x%2F..%2Flogin", "/login%2F", "/login%3Ba", "/%2e/login;b",
                "/LOGIN", "/x//../login", "/login%252F", "/..;/login", "/x/..%5Clogin", "/login%00")) {
            int status = http.post(context + spelling).status();
            assertTrue(status >= 400, how + " " + spelling + ": " + status);
        }
        assertEquals(2, app.context().getBean(App.Shop.class).logins.get(), how);
        long items = List.of("/items/a%2Fb", "/items/a;b%2fc", "/items/a", "/items/%61;b").stream()
                .filter(path -> http.get(context + path).status() == 200)
                .count();
        // None where the first takes the limit and has a path of three segments for the router.
        assertTrue(items <= 1, how + ": " + items);
    }

    @Test
    void aFileIsReadAgain(@TempDir Path folder) throws Exception {
        Path file = Files.writeString(folder.resolve("limits.toml"), SHOP);
        try (App.Running app = App.start(null, "tidegate.document=file:" + file, "tidegate.watch=true")) {
            Http http = app.http();
            assertEquals("1", http.post("/login").remaining());
            Path other = Files.writeString(folder.resolve("other"), SHOP.replace("login = \"2/h\"", "login = \"9/h\""));
            Files.move(other, file, StandardCopyOption.ATOMIC_MOVE);
            long until = System.nanoTime() + 20_000_000_000L;
            while (!"9".equals(http.post("/login").header("X-RateLimit-Limit")) && System.nanoTime() < until) Thread.sleep(50);
            assertEquals("9", http.post("/login").header("X-RateLimit-Limit"));
        }
    }

    @Test
    void placeholdersOfADocumentAreTheServices(@TempDir Path folder) throws Exception {
        Path file = Files.writeString(folder.resolve("limits.yaml"), """
                version: 1
                rules: {login: "${shop.logins}/h"}
                http: {default: {rules: login, key: ip}}
                """);
        String location = "tidegate.document=file:" + file;
        try (App.Running app = App.start(null, location, "shop.logins=7")) {
            assertEquals("6", app.http().post("/login").remaining());
        }
    }

    @Configuration
    static class Own {
        @Bean
        Policy policy() {
            return Policy.ofToml(SHOP.replace("login = \"2/h\"", "login = \"8/h\""));
        }

        @Bean
        RateLimitCustomizer peers() {
            return filter -> filter.peer(request -> request.getHeader("Test-Peer"));
        }
    }

    @Test
    void theApplicationsOwnBeansComeFirst() {
        try (App.Running app = App.with(List.of(Own.class), null)) {
            Http http = app.http();
            assertEquals("7", http.post("/login", "Test-Peer: 203.0.113.1").remaining());
            assertEquals("7", http.post("/login", "Test-Peer: 203.0.113.2").remaining());
            assertEquals("6", http.post("/login", "Test-Peer: 203.0.113.2").remaining());
        }
    }

    @Test
    void itStartsWithoutItsStore() {
        String nowhere = SHOP.replace("rules = {", "store = { url = \"redis://127.0.0.1:1\" }\nrules = {");
        try (App.Running app = App.start(nowhere)) {
            for (int i = 0; i < 5; i++) assertEquals(200, app.http().post("/login").status(), "on_error is allow");
        }
    }

    @Test
    void whoeverRewritesTheAddressIsBelieved() {
        // The test is Tomcat's internal proxy, which has added the address at the right.
        try (App.Running app = App.start(SHOP, "server.forward-headers-strategy=native")) {
            Http http = app.http();
            for (int i = 0; i < 2; i++) {
                assertEquals(200, http.post("/login", "X-Forwarded-For: 203.0.113." + i + ", 198.51.100.7").status());
            }
            assertEquals(429, http.post("/login", "X-Forwarded-For: 203.0.113.9, 198.51.100.7").status());
            assertEquals(200, http.post("/login", "X-Forwarded-For: 203.0.113.9, 198.51.100.8").status());
        }
    }

    @Test
    void aMethodThatAFormHidesIsTheRequests() {
        String document = SHOP.replace("path = \"/items/{id}\"", "path = \"/items/{id}\"\nmethods = [\"DELETE\"]");
        try (App.Running app = App.start(document, "spring.mvc.hiddenmethod.filter.enabled=true")) {
            Http http = app.http();
            String form = "Content-Type: application/x-www-form-urlencoded";
            assertEquals("0", http.ask("POST", "/items/1", "_method=DELETE", form).remaining());
            assertEquals(429, http.ask("POST", "/items/1", "_method=DELETE", form).status());
        }
    }

    @Test
    void itCanBeSwitchedOff() {
        try (App.Running app = App.start(null, "tidegate.enabled=false")) {
            for (int i = 0; i < 5; i++) assertEquals(200, app.http().post("/login").status());
            assertEquals(0, app.context().getBeanNamesForType(Policy.class).length);
        }
    }
}
