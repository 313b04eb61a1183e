package tidegate.servlet;

import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import java.util.List;
import java.util.concurrent.TimeUnit;
import tidegate.Admission;
import tidegate.Charge;
import tidegate.Needs;
import tidegate.Policy;
import tidegate.TidegateException;
import tidegate.Told;

/** Decides requests by a policy. */
final class Judge {
    /** A request that is left to the filter behind authentication. */
    static final Verdict LEFT = new Verdict();

    /** A policy that has taken another document may need other headers. */
    private static final long LOOK_EVERY = TimeUnit.MILLISECONDS.toNanos(100);

    private final Policy policy;
    private final Application application;
    /** The request's attribute that says that it was judged; where it was left, it has what its route needs. */
    private final String mark;

    private volatile Headers headers;

    Judge(RateLimitFilter.Builder said) {
        policy = said.policy;
        application = new Application(said);
        mark = said.mark;
        headers = new Headers(policy.getNeedsHeaders(), System.nanoTime());
    }

    private record Headers(List<String> names, long since) {}

    boolean hasJudged(HttpServletRequest request) {
        return Boolean.TRUE.equals(request.getAttribute(mark));
    }

    /**
     * Decides a request by each of its paths.
     *
     * @param before what another filter has decided of it, or null
     * @param isInFront whether it is left where it needs the user
     * @return {@link #LEFT}, or a verdict of at least one admission: the last is a refusal if any is
     * @throws ServletException for what the application supplied and cannot be meant, such as a cost of 0, and where the
     *     thread is interrupted
     */
    Verdict judge(HttpServletRequest request, List<String> paths, Verdict before, boolean isInFront) throws ServletException {
        String method = request.getMethod();
        if (isInFront && paths.size() > 1 && paths.stream().anyMatch(path -> policy.request(method, path).getUser())) {
            return LEFT;
        }
        Verdict verdict = new Verdict();
        try {
            for (String path : paths) {
                if (!verdict.isEmpty() && !isNew(verdict, policy.request(method, path))) continue;
                Charge after = verdict.isEmpty() ? charge(before) : verdict.last().getCharge();
                Admission admission = admit(request, path, after, isInFront);
                if (!admission.getAllowed()) verdict.undo();
                verdict.add(admission);
                if (!admission.getAllowed()) break;
            }
        } catch (UserNeeded left) {
            verdict.undo();
            request.setAttribute(mark, left.needs);
            return LEFT;
        } catch (TidegateException | InterruptedException failed) {
            verdict.undo();
            if (failed instanceof InterruptedException) Thread.currentThread().interrupt();
            throw new ServletException("the request could not be judged: " + failed.getMessage(), failed);
        } catch (RuntimeException ofTheApplication) {
            verdict.undo();
            throw ofTheApplication;
        }
        request.setAttribute(mark, Boolean.TRUE);
        return verdict;
    }

    private static boolean isNew(Verdict verdict, Needs needs) {
        return needs.getRoute() != null && !verdict.isOfRoute(needs.getRoute());
    }

    private static Charge charge(Verdict before) {
        return before == null ? null : before.last().getCharge();
    }

    private Admission admit(HttpServletRequest request, String path, Charge after, boolean isInFront)
            throws InterruptedException {
        Told told = application.told(request, headers(), after);
        if (request.getAttribute(mark) instanceof Needs needs) {
            return policy.admit(request.getMethod(), path, application.asked(request, told, needs));
        }
        return policy.admit(request.getMethod(), path, told, needs -> {
            if (isInFront && needs.getUser()) throw new UserNeeded(needs);
            return application.asked(request, told, needs);
        });
    }

    private List<String> headers() {
        Headers known = headers;
        if (System.nanoTime() - known.since < LOOK_EVERY) return known.names;
        headers = new Headers(policy.getNeedsHeaders(), System.nanoTime());
        return headers.names;
    }

    /** Says that a route needs the user, where he is not known yet. */
    private static final class UserNeeded extends RuntimeException {
        private static final long serialVersionUID = 1;

        final transient Needs needs;

        UserNeeded(Needs needs) {
            super(null, null, false, false);
            this.needs = needs;
        }
    }
}
