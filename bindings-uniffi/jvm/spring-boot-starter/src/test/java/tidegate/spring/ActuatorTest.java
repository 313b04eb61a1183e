package tidegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import tidegate.servlet.Http;
import tidegate.servlet.Servers;

class ActuatorTest {
    private static final String DOCUMENT = """
            version = 1
            [store]
            url = "%s"
            [rules]
            login = { limits = "1/h", on_error = "deny" }
            [[routes]]
            path = "/login"
            rules = "login"
            key = "ip"
            """;

    @Test
    void healthIsTheStoresAndMetersCountRequests() throws Exception {
        try (Servers servers = new Servers("server");
                App.Running app = App.start(
                        DOCUMENT.formatted(servers.url()),
                        "management.endpoints.web.exposure.include=health,metrics",
                        "management.endpoint.health.show-details=always")) {
            Http http = app.http();
            Http.Answer up = http.get("/actuator/health");
            assertEquals(200, up.status(), up.body());
            assertTrue(up.body().contains("\"tidegate\":{\"status\":\"UP\""), up.body());
            assertEquals(200, http.post("/login").status());
            for (int i = 0; i < 3; i++) assertEquals(429, http.post("/login").status());
            String meter = "/actuator/metrics/tidegate.http.requests?tag=outcome:refused";
            long until = System.nanoTime() + 20_000_000_000L;
            // What a snapshot says may be a second old.
            while (!http.get(meter).body().contains("\"value\":3.0") && System.nanoTime() < until) Thread.sleep(50);
            assertTrue(http.get(meter).body().contains("\"value\":3.0"), http.get(meter).body());

            servers.order("kill");
            until = System.nanoTime() + 20_000_000_000L;
            while (http.get("/actuator/health").status() == 200 && System.nanoTime() < until) Thread.sleep(50);
            Http.Answer down = http.get("/actuator/health");
            assertEquals(503, down.status());
            String why = "\"tidegate\":{\"status\":\"DOWN\",\"details\":{\"error\":\"store_unavailable\"";
            assertTrue(down.body().contains(why), down.body());
        }
    }
}
