package tidegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import tidegate.servlet.Http;
import tidegate.servlet.Page;
import tidegate.servlet.Servers;

/** What docs/spring.md shows works. */
class DocsTest {
    @TempDir
    private Path folder;

    /** The page's properties, with its document for a file and with the test's server. */
    private String[] properties(int document, Servers servers) throws Exception {
        Page page = Page.of("spring.md");
        Properties properties = new Properties();
        properties.load(new StringReader(page.snippets("properties").get(0)));
        assertEquals("classpath:tidegate.toml", properties.getProperty("tidegate.document"));
        Path file = Files.writeString(folder.resolve("tidegate.toml"), page.snippets("toml").get(document));
        properties.setProperty("tidegate.document", "file:" + file);
        assertTrue(properties.containsKey("shop.redis"));
        properties.setProperty("shop.redis", servers.url());
        List<String> lines = new ArrayList<>();
        properties.forEach((name, value) -> lines.add(name + "=" + value));
        return lines.toArray(String[]::new);
    }

    @Test
    void aLoginInFiveMinutes() throws Exception {
        assertTrue(Page.isCutFrom(Page.of("spring.md").snippets("java").get(0), "tidegate/spring/Limits.java"));
        try (Servers servers = new Servers("server");
                App.Running app = App.with(List.of(Limits.class), null, properties(0, servers))) {
            Http http = app.http();
            for (int i = 0; i < 5; i++) assertEquals(200, http.post("/login").status());
            assertEquals(429, http.post("/login").status());
            assertEquals("4", http.post("/upload", "Test-User: anna").remaining());
            assertEquals(403, http.post("/upload").status());
        }
    }

    @Test
    void theDocumentThatReplacesBucket4js() throws Exception {
        try (Servers servers = new Servers("server");
                App.Running app = App.with(List.of(Limits.class), null, properties(1, servers))) {
            Http http = app.http();
            assertEquals("4", http.post("/login").remaining());
            Http.Answer answer = http.get("/api/a", "Test-User: anna");
            assertEquals("19", answer.remaining());
            assertEquals("100", answer.header("X-RateLimit-Limit"));
            assertEquals("18", http.get("/api/a", "Test-User: anna").remaining());
            assertEquals("19", http.get("/api/a").remaining());
        }
    }

    @Test
    void theDependencyIsThisModule() throws Exception {
        String pom = Files.readString(Path.of("pom.xml"));
        String dependency = Page.of("spring.md").snippets("xml").get(0);
        for (String line : dependency.lines().filter(line -> line.contains("Id>") || line.contains("version>")).toList()) {
            assertTrue(pom.contains(line.trim()), line);
        }
    }

    /** The page has the names and the defaults of all properties. */
    @Test
    void thePropertiesAreAllOnThePage() throws Exception {
        String metadata = Files.readString(Path.of("src/main/resources/META-INF/spring-configuration-metadata.json"));
        var names = Pattern.compile("\"name\": \"(tidegate\\.[a-z-]+)\"").matcher(metadata).results().toList();
        assertEquals(6, names.size());
        for (var name : names) assertTrue(Page.of("spring.md").text().contains("| `" + name.group(1) + "` |"), name.group(1));
        assertTrue(metadata.contains("\"defaultValue\": " + TidegateProperties.ORDER));
        assertTrue(Page.of("spring.md").text().contains("| " + TidegateProperties.ORDER + " |"));
    }
}
