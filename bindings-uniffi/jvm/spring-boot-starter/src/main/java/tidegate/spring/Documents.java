package tidegate.spring;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.springframework.core.env.Environment;
import org.springframework.core.io.Resource;
import org.springframework.core.io.ResourceLoader;
import org.springframework.util.StringUtils;
import tidegate.Policy;

/** Finds the document that properties name. */
final class Documents {
    private Documents() {}

    /**
     * @throws MisconfiguredException where there is no document, or two
     * @throws tidegate.TidegateException for what a document cannot say, with what to write instead
     */
    static Policy policy(TidegateProperties said, ResourceLoader resources, Environment environment) {
        boolean hasLocation = StringUtils.hasText(said.document());
        boolean hasText = StringUtils.hasText(said.toml());
        if (hasLocation == hasText) {
            throw new MisconfiguredException(
                    hasText ? "tidegate.document and tidegate.toml are both set" : "there is no document of limits",
                    "Write tidegate.document=classpath:tidegate.toml and the document there, or the document itself as"
                            + " tidegate.toml; tidegate.enabled=false does without limits.");
        }
        if (said.watch()) return watched(said, resources);
        if (hasText) return Policy.ofToml(said.toml());
        Resource resource = resources.getResource(said.document());
        return ofText(said.document(), environment.resolveRequiredPlaceholders(text(said, resource)));
    }

    private static Policy watched(TidegateProperties said, ResourceLoader resources) {
        String action = "Write tidegate.document=file:/etc/shop/tidegate.toml, or leave tidegate.watch out.";
        if (!StringUtils.hasText(said.document())) {
            throw new MisconfiguredException("tidegate.watch is set, and there is no tidegate.document", action);
        }
        Resource resource = resources.getResource(said.document());
        if (!resource.isFile()) {
            throw new MisconfiguredException(
                    "tidegate.watch is set, and tidegate.document=" + said.document() + " is no file", action);
        }
        try {
            return Policy.watch(resource.getFile().toPath());
        } catch (IOException unreadable) {
            throw unreadable(said, unreadable);
        }
    }

    private static Policy ofText(String location, String text) {
        String suffix = StringUtils.getFilenameExtension(location);
        return switch (suffix == null ? "" : suffix) {
            case "toml" -> Policy.ofToml(text);
            case "json" -> Policy.ofJson(text);
            case "yaml", "yml" -> Policy.ofYaml(text);
            default -> throw new MisconfiguredException(
                    "tidegate.document=" + location + " does not say what language it is in",
                    "Give it a name that ends in .toml, .json, .yaml or .yml.");
        };
    }

    private static String text(TidegateProperties said, Resource resource) {
        try {
            return resource.getContentAsString(StandardCharsets.UTF_8);
        } catch (IOException unreadable) {
            throw unreadable(said, unreadable);
        }
    }

    private static MisconfiguredException unreadable(TidegateProperties said, IOException why) {
        return new MisconfiguredException(
                "tidegate.document=" + said.document() + " cannot be read: " + why.getMessage(),
                "Write where it is: classpath:NAME for a resource of the service, file:/PATH for a file.");
    }
}
