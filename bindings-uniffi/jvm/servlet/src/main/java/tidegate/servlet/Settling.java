package tidegate.servlet;

import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.http.HttpServletResponse;

/** Settles a request that goes on after its filters have returned, once it is complete. */
final class Settling implements AsyncListener {
    private static final int FAILED = 500;

    private final Verdict verdict;
    private final HttpServletResponse response;
    private volatile boolean hasFailed;

    Settling(Verdict verdict, HttpServletResponse response) {
        this.verdict = verdict;
        this.response = response;
    }

    @Override
    public void onComplete(AsyncEvent event) {
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
    }

    /** It was dispatched, and goes on again: listeners are forgotten then. */
    @Override
    public void onStartAsync(AsyncEvent event) {
        hasFailed = false;
        event.getAsyncContext().addListener(this);
    }
}
