package shop;

import jakarta.servlet.http.HttpServletRequest;
import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.http.HttpHeaders;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import tidegate.servlet.RateLimitFilter;
import tidegate.spring.RateLimitCustomizer;

/** A shop whose uploads and logins are limited by a document: no handler knows of it. */
@SpringBootApplication
@RestController
public class Shop {
    private static final Map<String, String> PASSWORDS = Map.of("alice", "alice", "bob", "bob");

    public static void main(String[] arguments) {
        SpringApplication.run(Shop.class, arguments);
    }

    /** Who uploads, by a cookie that only this server can write. With Spring Security nothing of this is needed. */
    @Bean
    RateLimitCustomizer users(Sessions sessions) {
        return filter -> filter.user(sessions::user);
    }

    @Bean
    Sessions sessions() {
        return new Sessions("only-for-this-example-and-no-other-site");
    }

    @PostMapping("/login")
    ResponseEntity<Map<String, String>> login(@RequestParam String name, @RequestParam String password) {
        if (!password.equals(PASSWORDS.get(name))) {
            return ResponseEntity.status(401).body(Map.of("error", "wrong name or password"));
        }
        String cookie = sessions().cookie(name).toString();
        return ResponseEntity.ok().header(HttpHeaders.SET_COOKIE, cookie).body(Map.of("user", name));
    }

    @PostMapping("/upload")
    Map<String, Object> upload(HttpServletRequest request, @RequestBody(required = false) byte[] bytes) {
        // What the filter has decided, for whoever wants to know.
        var decision = RateLimitFilter.admissionOf(request).orElseThrow().getCharge().decisions().get(0);
        return Map.of("received", bytes == null ? 0 : bytes.length, "remaining", decision.getRemaining());
    }
}
