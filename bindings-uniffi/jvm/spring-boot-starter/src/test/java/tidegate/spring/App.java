package tidegate.spring;

import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.web.servlet.context.ServletWebServerApplicationContext;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Import;
import org.springframework.http.HttpStatus;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.context.request.async.DeferredResult;
import org.springframework.web.server.ResponseStatusException;
import tidegate.servlet.Http;

/** A service on Tomcat, as a test's document limits it. */
@SpringBootConfiguration
@EnableAutoConfiguration
@Import(App.Shop.class)
class App {
    /** Security is on the class path of the tests, and not for all of them. */
    private static final String WITHOUT_SECURITY = "spring.autoconfigure.exclude="
            + "org.springframework.boot.autoconfigure.security.servlet.SecurityAutoConfiguration,"
            + "org.springframework.boot.autoconfigure.security.servlet.SecurityFilterAutoConfiguration,"
            + "org.springframework.boot.autoconfigure.security.servlet.UserDetailsServiceAutoConfiguration,"
            + "org.springframework.boot.actuate.autoconfigure.security.servlet.ManagementWebSecurityAutoConfiguration";

    /** It, while it runs. */
    record Running(ConfigurableApplicationContext context) implements AutoCloseable {
        Http http() {
            return new Http(((ServletWebServerApplicationContext) context).getWebServer().getPort());
        }

        @Override
        public void close() {
            context.close();
        }
    }

    /** @param document null for none */
    static Running start(String document, String... properties) {
        return with(List.of(), document, properties);
    }

    /** @param more configurations beside this one */
    static Running with(List<Class<?>> more, String document, String... properties) {
        List<String> all = new ArrayList<>(List.of(properties));
        all.add(WITHOUT_SECURITY);
        return run(more, document, all);
    }

    static Running secured(Class<?> configuration, String document, String... properties) {
        return run(List.of(configuration), document, new ArrayList<>(List.of(properties)));
    }

    private static Running run(List<Class<?>> more, String document, List<String> properties) {
        properties.addAll(List.of("server.port=0", "spring.main.banner-mode=off", "logging.level.root=error"));
        if (document != null) properties.add("tidegate.toml=" + document);
        var builder = new SpringApplicationBuilder(App.class).sources(more.toArray(Class<?>[]::new));
        return new Running(builder.run(properties.stream().map(line -> "--" + line).toArray(String[]::new)));
    }

    @RestController
    static class Shop {
        final AtomicInteger logins = new AtomicInteger();

        @PostMapping("/login")
        String login() {
            return "welcome " + logins.incrementAndGet();
        }

        @GetMapping("/items/{id}")
        String item(@PathVariable String id) {
            return id;
        }

        @GetMapping("/missing")
        String missing() {
            throw new ResponseStatusException(HttpStatus.NOT_FOUND);
        }

        @GetMapping("/broken")
        String broken() {
            throw new IllegalStateException("a fault of the test's application");
        }

        @GetMapping("/sent")
        void sent(HttpServletResponse response) throws IOException {
            response.sendError(404);
        }

        @GetMapping("/later")
        Callable<String> later() {
            return () -> "later";
        }

        @GetMapping("/later/missing")
        DeferredResult<String> laterMissing() {
            DeferredResult<String> result = new DeferredResult<>();
            new Thread(() -> result.setErrorResult(new ResponseStatusException(HttpStatus.NOT_FOUND))).start();
            return result;
        }
    }
}
