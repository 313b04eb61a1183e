package tidegate.servlet;

import jakarta.servlet.http.HttpServletRequest;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.security.Principal;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.function.Predicate;
import tidegate.Charge;
import tidegate.HeaderLine;
import tidegate.Needs;
import tidegate.Told;
import tidegate.Value;

/** What the application tells of a request. */
final class Application {
    private static final Logger LOG = System.getLogger(RateLimitFilter.class.getName());

    private final Function<HttpServletRequest, String> peer;
    private final Function<HttpServletRequest, String> user;
    private final Map<String, Function<HttpServletRequest, String>> values;
    private final Map<String, Predicate<HttpServletRequest>> answers;
    private final Set<String> missing = ConcurrentHashMap.newKeySet();

    Application(RateLimitFilter.Builder said) {
        peer = said.peer;
        user = said.user;
        values = Map.copyOf(new HashMap<>(said.values));
        answers = Map.copyOf(new HashMap<>(said.answers));
    }

    /** The name of whoever is logged in, as the container or Spring Security knows it. */
    static String principal(HttpServletRequest request) {
        Principal principal = request.getUserPrincipal();
        return principal == null ? null : principal.getName();
    }

    /** What every route may need, which asks nobody. */
    Told told(HttpServletRequest request, List<String> headers, Charge after) {
        List<HeaderLine> lines = new ArrayList<>();
        for (String name : headers) {
            for (var line = request.getHeaders(name); line != null && line.hasMoreElements(); ) {
                lines.add(new HeaderLine(name, Bytes.ofLine(line.nextElement())));
            }
        }
        String address = peer.apply(request);
        boolean isKnown = address != null && !address.isEmpty();
        return new Told(isKnown ? address : null, lines, null, List.of(), List.of(), null, after);
    }

    /** The same with what a route needs to be asked for. */
    Told asked(HttpServletRequest request, Told told, Needs needs) {
        String name = needs.getUser() ? user.apply(request) : null;
        byte[] who = name == null ? null : Bytes.of(name);
        return new Told(
                told.getPeer(), told.getHeaders(), who, values(request, needs), answers(request, needs), null, told.getAfter());
    }

    private List<Value> values(HttpServletRequest request, Needs needs) {
        List<Value> supplied = new ArrayList<>();
        for (String name : needs.getValues()) {
            var value = values.get(name);
            if (value == null) {
                warn(needs, "app:" + name, "value(\"" + name + "\", request -> ...)");
                continue;
            }
            String text = value.apply(request);
            if (text != null) supplied.add(new Value(name, Bytes.of(text)));
        }
        return supplied;
    }

    private List<String> answers(HttpServletRequest request, Needs needs) {
        List<String> yes = new ArrayList<>();
        for (String question : needs.getAnswers()) {
            var answer = answers.get(question);
            if (answer == null) {
                warn(needs, "an answer to " + question, "answer(\"" + question + "\", request -> ...)");
            } else if (answer.test(request)) {
                yes.add(question);
            }
        }
        return yes;
    }

    /** Once for each: their rules do not hold as they were meant. */
    private void warn(Needs needs, String what, String call) {
        if (missing.add(what)) {
            LOG.log(Level.WARNING, "route {0} needs {1}, and the filter has no {2}", needs.getRoute(), what, call);
        }
    }
}
