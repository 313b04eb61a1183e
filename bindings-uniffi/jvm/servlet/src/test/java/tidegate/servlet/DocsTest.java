package tidegate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumSet;
import javax.xml.parsers.DocumentBuilderFactory;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.w3c.dom.Document;
import org.w3c.dom.NodeList;
import org.xml.sax.InputSource;

/** What docs/servlet.md shows works. */
class DocsTest {
    @TempDir
    private Path folder;

    private Path document() throws Exception {
        return Files.writeString(folder.resolve("tidegate.toml"), Page.of("servlet.md").snippets("toml").get(0));
    }

    @Test
    void theFilterInCode() throws Exception {
        assertTrue(Page.isCutFrom(Page.of("servlet.md").snippets("java").get(0), "tidegate/servlet/Limits.java"));
        Filter login = (request, response, chain) -> {
            request.setAttribute("user", ((jakarta.servlet.http.HttpServletRequest) request).getHeader("Test-User"));
            chain.doFilter(request, response);
        };
        try (Jetty jetty = new Jetty("/").filter(login)) {
            jetty.context.setInitParameter("limits", document().toString());
            jetty.context.addServletContainerInitializer(new Limits());
            Http http = jetty.servlet("/", (request, response) -> {}).start();
            for (int i = 0; i < 5; i++) assertEquals(200, http.post("/login").status());
            assertEquals(429, http.post("/login").status());
            assertEquals("60", http.get("/api/a", "Test-User: anna", "Units: 40").remaining());
            assertEquals(403, http.get("/api/a", "Units: 1").status());
        }
    }

    @Test
    void theFilterInAWebXml() throws Exception {
        String text = "<web-app>" + Page.of("servlet.md").snippets("xml").get(1) + "</web-app>";
        Document xml = DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(new InputSource(new StringReader(text)));
        FilterHolder holder = new FilterHolder();
        holder.setClassName(text(xml, "filter-class", 0));
        holder.setAsyncSupported(Boolean.parseBoolean(text(xml, "async-supported", 0)));
        NodeList parameters = xml.getElementsByTagName("init-param");
        for (int i = 0; i < parameters.getLength(); i++) {
            holder.setInitParameter(text(xml, "param-name", i), text(xml, "param-value", i));
        }
        assertEquals("/etc/shop/tidegate.toml", holder.getInitParameter("document"));
        String withoutCosts = Files.readString(document()).replace("cost = \"app:units\"\n", "");
        holder.setInitParameter("document", Files.writeString(folder.resolve("plain.toml"), withoutCosts).toString());

        EnumSet<DispatcherType> types = EnumSet.noneOf(DispatcherType.class);
        NodeList dispatchers = xml.getElementsByTagName("dispatcher");
        for (int i = 0; i < dispatchers.getLength(); i++) {
            types.add(DispatcherType.valueOf(dispatchers.item(i).getTextContent()));
        }
        assertEquals(EnumSet.copyOf(RateLimitFilter.DISPATCHER_TYPES), types);
        try (Jetty jetty = new Jetty("/")) {
            jetty.context.addFilter(holder, text(xml, "url-pattern", 0), types);
            Http http = jetty.servlet("/", (request, response) -> {}).start();
            assertEquals("4", http.post("/login").remaining());
            assertEquals(403, http.get("/api/a").status());
        }
    }

    private static String text(Document xml, String element, int at) {
        return xml.getElementsByTagName(element).item(at).getTextContent();
    }

    @Test
    void theDependencyIsThisModule() throws Exception {
        String pom = Files.readString(Path.of("pom.xml"));
        String dependency = Page.of("servlet.md").snippets("xml").get(0);
        for (String line : dependency.lines().filter(line -> line.contains("Id>") || line.contains("version>")).toList()) {
            assertTrue(pom.contains(line.trim()), line);
        }
    }
}
