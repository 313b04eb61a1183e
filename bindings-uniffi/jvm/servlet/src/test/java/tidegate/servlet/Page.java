package tidegate.servlet;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A page of the documentation, and its snippets. */
public record Page(String text) {
    /** @param name such as {@code servlet.md} */
    public static Page of(String name) throws IOException {
        return new Page(Files.readString(Path.of("../../../docs", name)));
    }

    /** The snippets in a language, in their order. */
    public List<String> snippets(String language) {
        Matcher found = Pattern.compile("```" + language + "\n(.*?)```", Pattern.DOTALL).matcher(text);
        return found.results().map(result -> result.group(1)).toList();
    }

    /** Whether a snippet stands in a source of this module's tests, word by word. */
    public static boolean isCutFrom(String snippet, String source) throws IOException {
        return Files.readString(Path.of("src/test/java", source)).contains(snippet);
    }
}
