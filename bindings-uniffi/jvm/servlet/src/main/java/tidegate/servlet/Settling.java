package tidegate.servlet;

import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;

/** Settles a request that goes on after its filters have returned, once it is complete. */
final class Settling implements AsyncListener {
    private static final int FAILED = 500;
    private static final int MOST_CAUSES = 16;

    private final Verdict verdict;
    private final HttpServletResponse response;
    private volatile boolean hasFailed;
    private volatile boolean isGone;

    Settling(Verdict verdict, HttpServletResponse response) {
        this.verdict = verdict;
        this.response = response;
    }

    @Override
    public void onComplete(AsyncEvent event) {
        if (isGone) return;
        int status = response.getStatus();
        verdict.settle(hasFailed && status < 400 ? FAILED : status);
    }

    /** The container, or a listener of the application, answers; then it is complete. */
    @Override
    public void onTimeout(AsyncEvent event) {
        hasFailed = true;
    }

    @Override
    public void onError(AsyncEvent event) {
        hasFailed = true;
        isGone = isGone(event.getThrowable());
    }

    /**
     * Whether a client may have gone away: containers throw an {@link IOException} then, and frameworks put it into their own.
     * Who could have his charge back by hanging up would never be refused.
     */
    static boolean isGone(Throwable failed) {
        int depth = 0;
        for (Throwable cause = failed; cause != null && depth < MOST_CAUSES; cause = cause.getCause(), depth++) {
            if (cause instanceof IOException) return true;
        }
        return false;
    }

    /** It was dispatched, and goes on again: listeners are forgotten then. */
    @Override
    public void onStartAsync(AsyncEvent event) {
        hasFailed = false;
        event.getAsyncContext().addListener(this);
    }
}
