package tidegate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Principal;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import tidegate.Policy;

class FilterTest {
    private static final String SHOP = """
            version = 1
            rules = { login = "2/h", api = "3/h", all = "4/h", costly = "10/h" }
            [[routes]]
            path = "/login"
            methods = ["POST"]
            rules = "login"
            key = "ip"
            [[routes]]
            path = "/api"
            rules = "api"
            key = "user"
            without_identity = "refuse"
            exempt = { app = ["is_staff"] }
            [[routes]]
            path = "/page"
            rules = "all"
            key = "ip"
            [[routes]]
            path = "/costly"
            rules = "costly"
            key = "app:tenant"
            cost = "app:units"
            without_identity = "share"
            [[routes]]
            path = "/watched"
            rules = "login"
            key = "constant:watched"
            mode = "shadow"
            """;

    private final AtomicInteger served = new AtomicInteger();

    private Jetty jetty(RateLimitFilter filter) {
        return new Jetty("/").filter(filter).servlet("/", (request, response) -> {
            served.incrementAndGet();
            response.getWriter().print(RateLimitFilter.admissionOf(request).map(one -> one.getOutcome().name()).orElse("none"));
        });
    }

    private static RateLimitFilter filter(Policy policy) {
        return RateLimitFilter.of(policy).build();
    }

    @Test
    void whatPassesHasFieldsAndWhatDoesNotIsAnsweredByTheFilter() throws Exception {
        try (Policy policy = Policy.ofToml(SHOP); Jetty jetty = jetty(filter(policy))) {
            Http http = jetty.start();
            Http.Answer first = http.post("/login");
            assertEquals(200, first.status());
            assertEquals("ALLOWED", first.body());
            assertEquals("1", first.remaining());
            assertTrue(first.header("RateLimit").contains("\"login\";r=1"), first.toString());
            assertNull(first.header("Retry-After"));
            assertEquals("0", http.post("/login").remaining());

            Http.Answer refused = http.post("/login");
            assertEquals(429, refused.status());
            assertTrue(Integer.parseInt(refused.header("Retry-After")) > 3500, refused.toString());
            assertEquals("no-store", refused.header("Cache-Control"));
            assertEquals(2, served.get());

            assertEquals("UNLIMITED", http.get("/elsewhere").body());
            assertNull(http.get("/login").remaining(), "the route is for POST alone");
        }
    }

    @Test
    void aRefusalIsWhatTheClientAccepts() throws Exception {
        try (Policy policy = Policy.ofToml(SHOP); Jetty jetty = jetty(filter(policy))) {
            Http http = jetty.start();
            for (int i = 0; i < 2; i++) http.post("/login");
            Http.Answer problem = http.post("/login");
            assertEquals("application/problem+json", problem.header("Content-Type"));
            assertTrue(problem.body().contains("\"violated-policies\":[\"login\"]"), problem.body());
            Http.Answer json = http.post("/login", "Accept: application/json");
            assertEquals("application/json", json.header("Content-Type"));
            assertTrue(json.body().startsWith("{\"error\":\"Too Many Requests\",\"retry_after_seconds\":"), json.body());
            Http.Answer text = http.post("/login", "Accept: text/html,application/xhtml+xml");
            assertTrue(text.header("Content-Type").startsWith("text/plain"), text.toString());
            assertTrue(text.body().startsWith("Too many requests. Try again in "), text.body());
            assertEquals("Accept", text.header("Vary"));
            assertEquals(String.valueOf(text.body().length()), text.header("Content-Length"));
        }
    }

    @Test
    void headIsCountedAsGetAndRefusedWithoutABody() throws Exception {
        try (Policy policy = Policy.ofToml(SHOP); Jetty jetty = jetty(filter(policy))) {
            Http http = jetty.start();
            for (int i = 0; i < 4; i++) assertEquals(200, http.ask(i % 2 == 0 ? "HEAD" : "GET", "/page", "").status());
            Http.Answer refused = http.ask("HEAD", "/page", "");
            assertEquals(429, refused.status());
            assertEquals("", refused.body());
        }
    }

    @Test
    void forgedHeadersAreNobodysAddress() throws Exception {
        try (Policy policy = Policy.ofToml(SHOP); Jetty jetty = jetty(filter(policy))) {
            Http http = jetty.start();
            for (int i = 0; i < 2; i++) assertEquals(200, http.post("/login", "X-Forwarded-For: 203.0.113." + i).status());
            for (String forged : List.of("X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP", "True-Client-IP")) {
                assertEquals(429, http.post("/login", forged + ": 203.0.113.77").status(), forged);
            }
        }
    }

    @Test
    void aTrustedProxysWordIsReadFromTheRightOverAllLines() throws Exception {
        String behind = SHOP + "[http]\ntrusted_proxies = [\"127.0.0.0/8\"]\n";
        try (Policy policy = Policy.ofToml(behind); Jetty jetty = jetty(filter(policy))) {
            Http http = jetty.start();
            for (int i = 0; i < 2; i++) {
                assertEquals(200, http.post("/login", "X-Forwarded-For: 1.1.1." + i, "X-Forwarded-For: 203.0.113.7").status());
            }
            String theOne = "X-Forwarded-For: 203.0.113.7";
            assertEquals(429, http.post("/login", "X-Forwarded-For: 8.8.8.8", theOne).status());
            assertEquals(429, http.post("/login", "X-Forwarded-For: 8.8.8.8, 203.0.113.7").status());
            assertEquals(200, http.post("/login", theOne, "X-Forwarded-For: 203.0.113.8").status());
        }
    }

    @Test
    void theApplicationIsAskedWhereARouteNeedsIt() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        try (Policy policy = Policy.ofToml(SHOP);
                Jetty jetty = jetty(RateLimitFilter.of(policy)
                        .user(request -> {
                            asked.incrementAndGet();
                            return request.getHeader("Test-User");
                        })
                        .value("tenant", request -> request.getHeader("Test-Tenant"))
                        .value("units", request -> request.getHeader("Test-Units"))
                        .answer("is_staff", request -> request.getHeader("Test-Staff") != null)
                        .build())) {
            Http http = jetty.start();
            http.get("/page");
            assertEquals(0, asked.get());
            assertEquals("2", http.get("/api", "Test-User: anna").remaining());
            assertEquals("2", http.get("/api", "Test-User: bert").remaining());
            assertEquals("1", http.get("/api", "Test-User: anna").remaining());
            assertEquals("EXEMPT", http.get("/api", "Test-User: anna", "Test-Staff: yes").body());
            assertEquals(403, http.get("/api").status());
            assertEquals("6", http.get("/costly", "Test-Tenant: a", "Test-Units: 4").remaining());
            assertEquals("7", http.get("/costly", "Test-Tenant: b", "Test-Units: 3").remaining());
            assertEquals(429, http.get("/costly", "Test-Tenant: a", "Test-Units: 7").status());
        }
    }

    @Test
    void withoutACallbackTheUserIsThePrincipal() throws Exception {
        try (Policy policy = Policy.ofToml(SHOP); Jetty jetty = new Jetty("/")) {
            jetty.filter((request, response, chain) -> {
                HttpServletRequest http = (HttpServletRequest) request;
                chain.doFilter(
                        new HttpServletRequestWrapper(http) {
                            @Override
                            public Principal getUserPrincipal() {
                                String name = http.getHeader("Test-User");
                                return name == null ? null : () -> name;
                            }
                        },
                        response);
            });
            Http http = jetty.filter(filter(policy)).servlet("/", (request, response) -> {}).start();
            assertEquals("2", http.get("/api", "Test-User: anna").remaining());
            assertEquals("1", http.get("/api", "Test-User: anna").remaining());
            assertEquals("2", http.get("/api", "Test-User: bert").remaining());
            assertEquals(403, http.get("/api").status());
        }
    }

    @Test
    void aCostThatIsNotSuppliedIsTheApplicationsError() throws Exception {
        try (Policy policy = Policy.ofToml(SHOP);
                Jetty jetty = jetty(RateLimitFilter.of(policy)
                        .value("units", request -> request.getHeader("Test-Units"))
                        .build())) {
            Http http = jetty.start();
            assertEquals(500, http.get("/costly").status());
            assertEquals(500, http.get("/costly", "Test-Units: 0").status());
            assertEquals(0, served.get());
            assertEquals("9", http.get("/costly", "Test-Units: 1").remaining());
        }
    }

    @Test
    void aShadowRouteLetsEverythingPassWithoutAWord() throws Exception {
        try (Policy policy = Policy.ofToml(SHOP); Jetty jetty = jetty(filter(policy))) {
            Http http = jetty.start();
            List<String> outcomes = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                Http.Answer answer = http.get("/watched");
                assertEquals(200, answer.status());
                assertNull(answer.header("RateLimit"));
                assertNull(answer.remaining());
                outcomes.add(answer.body());
            }
            assertEquals(List.of("ALLOWED", "ALLOWED", "REFUSED"), outcomes);
        }
    }

    @Test
    void whateverComesAtOnceTheLimitHolds() throws Exception {
        String document = SHOP.replace("login = \"2/h\"", "login = \"50/h\"");
        try (Policy policy = Policy.ofToml(document); Jetty jetty = jetty(filter(policy))) {
            Http http = jetty.start();
            var threads = Executors.newFixedThreadPool(32);
            List<Callable<Integer>> calls = new ArrayList<>();
            for (int i = 0; i < 400; i++) calls.add(() -> http.post("/login").status());
            int allowed = 0;
            for (var status : threads.invokeAll(calls)) {
                assertTrue(List.of(200, 429).contains(status.get()));
                if (status.get() == 200) allowed++;
            }
            threads.shutdown();
            assertEquals(50, allowed);
            assertEquals(50, served.get());
        }
    }

    @Test
    void aWebXmlNamesTheDocument(@TempDir Path folder) throws Exception {
        var file = Files.writeString(folder.resolve("tidegate.toml"), SHOP);
        FilterHolder holder = new FilterHolder(RateLimitFilter.class);
        holder.setInitParameter("document", file.toString());
        try (Jetty jetty = new Jetty("/").filter(holder).servlet("/", (request, response) -> {})) {
            Http http = jetty.start();
            assertEquals("1", http.post("/login").remaining());
        }
        FilterHolder none = new FilterHolder(RateLimitFilter.class);
        try (Jetty jetty = new Jetty("/").filter(none)) {
            Throwable refused = assertThrows(Throwable.class, jetty::start);
            assertTrue(refused.getMessage().contains("<init-param>"), refused.getMessage());
        }
    }

    @Test
    void inFrontOfAuthenticationRoutesOfUsersAreLeftForLater() throws Exception {
        try (Policy policy = Policy.ofToml(SHOP); Jetty jetty = new Jetty("/")) {
            RateLimitFilter behind =
                    RateLimitFilter.of(policy).user(request -> (String) request.getAttribute("user")).build();
            jetty.filter(behind.inFront());
            jetty.filter((request, response, chain) -> {
                HttpServletRequest http = (HttpServletRequest) request;
                request.setAttribute("user", http.getHeader("Test-User"));
                if (http.getRequestURI().endsWith("/login")) response.getWriter().print("logged in");
                else chain.doFilter(request, response);
            });
            Http http = jetty.filter(behind).servlet("/", (request, response) -> {}).start();
            assertEquals("1", http.post("/login").remaining());
            assertEquals("0", http.post("/login;a=b").remaining());
            assertEquals(429, http.post("/login").status());
            assertEquals("2", http.get("/api", "Test-User: anna").remaining());
            assertEquals("1", http.get("/api;a=b", "Test-User: anna").remaining());
            assertEquals("0", http.get("/api", "Test-User: anna").remaining());
            assertEquals(429, http.get("/api", "Test-User: anna").status());
            assertEquals("3", http.get("/page").remaining());
            assertEquals("2", http.get("/page").remaining());
        }
    }
}
