package tidegate.servlet;

import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import tidegate.Admission;
import tidegate.Header;

/** What was decided of a request: an admission for each of its paths that has a route of its own. */
final class Verdict {
    private final List<Admission> admissions = new ArrayList<>();
    private final Map<String, String> fields = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);

    /** Adds a decision, whose fields tell of those before it too. */
    void add(Admission admission) {
        admissions.add(admission);
        for (Header field : admission.getHeaders()) fields.put(field.getName(), field.getValue());
    }

    Admission last() {
        return admissions.get(admissions.size() - 1);
    }

    boolean isEmpty() {
        return admissions.isEmpty();
    }

    boolean isOfRoute(String route) {
        return admissions.stream().anyMatch(admission -> route.equals(admission.getRoute()));
    }

    /** The fields of the response, in any letters. */
    Map<String, String> fields() {
        return fields;
    }

    /** Sets the fields that are not there. */
    void tell(HttpServletResponse response) {
        if (response.isCommitted()) return;
        fields.forEach((name, value) -> {
            if (!response.containsHeader(name)) response.setHeader(name, value);
        });
    }

    /** Gives back what the document says for this status, in the background. */
    void settle(int status) {
        for (Admission admission : admissions) if (admission.getMayRefund()) settle(admission, status);
    }

    private static void settle(Admission admission, int status) {
        try {
            admission.getCharge().settle(status);
        } catch (Exception unknown) {
            throw new IllegalStateException("the response has a status that is none", unknown);
        }
    }

    /** Gives everything back, in the background: the application has never seen the request. */
    void undo() {
        for (Admission admission : admissions) admission.getCharge().undo();
    }

    /** Answers a request that may not pass: status, fields and body as the core has them. */
    void refuse(HttpServletResponse response) throws IOException {
        if (response.isCommitted()) return;
        Admission refusal = last();
        response.resetBuffer();
        response.setStatus(refusal.getStatus());
        Map<String, String> others = new LinkedHashMap<>(fields);
        // What a filter before this one varies by stays.
        String vary = others.remove("Vary");
        if (vary != null) response.addHeader("Vary", vary);
        others.forEach(response::setHeader);
        byte[] body = Bytes.of(refusal.getBody() == null ? "" : refusal.getBody());
        response.setContentLength(body.length);
        response.getOutputStream().write(body);
        response.flushBuffer();
    }
}
