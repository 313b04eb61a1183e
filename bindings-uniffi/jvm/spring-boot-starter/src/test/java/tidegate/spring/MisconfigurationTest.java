package tidegate.spring;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.boot.diagnostics.FailureAnalysis;
import org.springframework.boot.diagnostics.FailureAnalyzer;
import org.springframework.core.io.support.SpringFactoriesLoader;
import org.springframework.core.io.support.SpringFactoriesLoader.FailureHandler;

/** A service with a mistake does not start, and says what to write instead. */
class MisconfigurationTest {
    /** What Boot prints for it. */
    private static String refusal(String document, String... properties) {
        Throwable refused = assertThrows(Throwable.class, () -> App.start(document, properties).close());
        // Those of Boot that need a service cannot be made; ours can.
        var unmade = FailureHandler.handleMessage((message, failure) -> {});
        var factories = SpringFactoriesLoader.forDefaultResourceLocation();
        for (FailureAnalyzer analyzer : factories.load(FailureAnalyzer.class, unmade)) {
            FailureAnalysis analysis = analyzer.analyze(refused);
            if (analysis != null) return analysis.getDescription() + "\n" + analysis.getAction();
        }
        throw new AssertionError("nobody says what is wrong", refused);
    }

    private static void says(String refusal, String... words) {
        for (String word : words) assertTrue(refusal.contains(word), refusal);
    }

    @Test
    void withoutADocumentOrWithTwo() {
        says(refusal(null), "there is no document", "tidegate.document=classpath:tidegate.toml", "tidegate.enabled=false");
        says(refusal("version = 1", "tidegate.document=classpath:x.toml"), "both set");
    }

    @Test
    void aDocumentThatIsNotThereOrHasNoLanguage(@TempDir Path folder) throws Exception {
        says(refusal(null, "tidegate.document=classpath:nowhere.toml"), "nowhere.toml cannot be read", "classpath:NAME");
        Path file = Files.writeString(folder.resolve("limits.txt"), "version = 1");
        says(refusal(null, "tidegate.document=file:" + file), "what language", ".toml, .json, .yaml or .yml");
    }

    @Test
    void aWatchedDocumentIsAFile() {
        says(refusal("version = 1", "tidegate.watch=true"), "tidegate.watch is set, and there is no tidegate.document");
        says(
                refusal(null, "tidegate.watch=true", "tidegate.document=https://127.0.0.1/limits.toml"),
                "is no file", "file:/etc/shop/tidegate.toml");
    }

    @Test
    void whatTheCoreRefuses() {
        String everywhere = "[http.default]\nrules = \"login\"\nkey = \"ip\"\n";
        says(refusal("version = 1\nrules = { login = \"five a minute\" }\n" + everywhere), "login");
        says(refusal("version = 1\n[rules]\nlogin = \"5/m\"\n"), "routes");
        says(refusal("version = 1\nrule = 1"), "rule");
    }
}
