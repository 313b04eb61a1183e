package tidegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.Base64;
import org.junit.jupiter.api.Test;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.security.config.Customizer;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.core.userdetails.User;
import org.springframework.security.core.userdetails.UserDetailsService;
import org.springframework.security.provisioning.InMemoryUserDetailsManager;
import org.springframework.security.web.SecurityFilterChain;
import tidegate.servlet.Http;

/** Logins are limited before Spring Security answers them, and users once it knows who they are. */
class SecurityTest {
    private static final String DOCUMENT = """
            version = 1
            rules = { login = "3/h", user = "2/h" }
            [[routes]]
            path = "/login"
            methods = ["POST"]
            rules = "login"
            key = "ip"
            [[routes]]
            path = "/items/{id}"
            rules = "user"
            key = "user"
            without_identity = "refuse"
            """;

    @Configuration
    static class Secured {
        @Bean
        SecurityFilterChain chain(HttpSecurity http) throws Exception {
            return http.authorizeHttpRequests(requests -> requests.anyRequest().authenticated())
                    .csrf(csrf -> csrf.disable())
                    .formLogin(Customizer.withDefaults())
                    .httpBasic(Customizer.withDefaults())
                    .build();
        }

        @Bean
        UserDetailsService users() {
            return new InMemoryUserDetailsManager(
                    User.withUsername("anna").password("{noop}a").build(),
                    User.withUsername("bert").password("{noop}b").build());
        }
    }

    private static String as(String user, String password) {
        return "Authorization: Basic " + Base64.getEncoder().encodeToString((user + ":" + password).getBytes());
    }

    @Test
    void loginsBeforeItAndUsersBehindIt() {
        try (App.Running app = App.secured(Secured.class, DOCUMENT)) {
            Http http = app.http();
            String form = "Content-Type: application/x-www-form-urlencoded";
            for (int left = 2; left >= 0; left--) {
                Http.Answer wrong = http.ask("POST", "/login", "username=anna&password=guess", form);
                assertEquals(302, wrong.status());
                assertEquals(String.valueOf(left), wrong.remaining());
                assertNotNull(wrong.header("X-Content-Type-Options"), "Security's own fields stay");
            }
            assertEquals(429, http.ask("POST", "/login", "username=anna&password=a", form).status());

            Http.Answer nobody = http.get("/items/1");
            assertEquals(401, http.get("/items/1", "Accept: application/json", "X-Requested-With: XMLHttpRequest").status());
            assertNull(nobody.remaining(), "whom Security refuses nobody counts");
            assertEquals(401, http.get("/items/1", as("anna", "guess")).status());
            assertEquals("1", http.get("/items/1", as("anna", "a")).remaining());
            assertEquals("0", http.get("/items/2", as("anna", "a")).remaining());
            assertEquals(429, http.get("/items/3", as("anna", "a")).status());
            assertEquals("1", http.get("/items/1", as("bert", "b")).remaining());
        }
    }
}
