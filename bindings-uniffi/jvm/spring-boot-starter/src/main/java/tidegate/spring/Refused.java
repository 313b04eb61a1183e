package tidegate.spring;

import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;
import tidegate.TidegateException;

/** Says what is wrong with the document, without a stack trace. The core says what to write instead. */
final class Refused extends AbstractFailureAnalyzer<TidegateException> {
    @Override
    protected FailureAnalysis analyze(Throwable root, TidegateException cause) {
        String action = "Correct the document that tidegate.document or tidegate.toml names.";
        return new FailureAnalysis(cause.getMessage(), action, cause);
    }
}
