package tidegate.servlet;

import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpServletResponseWrapper;
import java.io.IOException;
import java.util.Map;
import java.util.Objects;

/** A response with the fields of an admission, which stay when it is reset; what the application sets itself comes before. */
final class LimitedResponse extends HttpServletResponseWrapper {
    private final Map<String, String> fields;

    LimitedResponse(HttpServletResponse response, Map<String, String> fields) {
        super(response);
        this.fields = fields;
        // Also over those of a filter before this one, of which these tell too.
        if (!isCommitted()) fields.forEach(super::setHeader);
    }

    @Override
    public void reset() {
        super.reset();
        fields.forEach(super::setHeader);
    }

    /** The first that an application adds is instead of ours. */
    @Override
    public void addHeader(String name, String value) {
        String ours = fields.get(name);
        if (ours != null && Objects.equals(ours, getHeader(name))) setHeader(name, value);
        else super.addHeader(name, value);
    }

    @Override
    public void sendError(int status) throws IOException {
        super.sendError(status);
        again();
    }

    @Override
    public void sendError(int status, String message) throws IOException {
        super.sendError(status, message);
        again();
    }

    /** Containers may have taken them off with the body. */
    private void again() {
        if (isCommitted()) return;
        fields.forEach((name, value) -> {
            if (!containsHeader(name)) super.setHeader(name, value);
        });
    }
}
