package tidegate.spring;

import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;

/** Says what is wrong with the properties, without a stack trace. */
final class Misconfigured extends AbstractFailureAnalyzer<MisconfiguredException> {
    @Override
    protected FailureAnalysis analyze(Throwable root, MisconfiguredException cause) {
        return new FailureAnalysis(cause.getMessage(), cause.action(), cause);
    }
}
