package tidegate.servlet;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.FilterConfig;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.function.Predicate;
import tidegate.Admission;
import tidegate.Policy;

/**
 * Limits requests by the routes of a policy's document, which choose the rules, whose they are, and what a refusal looks like.
 *
 * <p>A request is judged once, however often it is forwarded or dispatched. One that may not pass is answered here. What
 * passes has the fields that tell how its limits stand, and its {@link Admission} in the request's attribute
 * {@link #ADMISSION}; its status settles what was charged, also where it goes on asynchronously. A thread waits for a decision
 * no longer than the document's {@code deadline}.
 *
 * <p>Register it with {@code asyncSupported}, for all paths, and for the {@link #DISPATCHER_TYPES}. A filter that says who the
 * user is stands before it.
 */
public final class RateLimitFilter implements Filter {
    /** The request's attribute that has its {@link Admission}. */
    public static final String ADMISSION = "tidegate.admission";

    /** What it is to be registered for. On error pages it sets again the fields that containers take off. */
    public static final List<DispatcherType> DISPATCHER_TYPES =
            List.of(DispatcherType.REQUEST, DispatcherType.FORWARD, DispatcherType.ASYNC, DispatcherType.ERROR);

    private static final String VERDICT = "tidegate.verdict";
    private static final int FAILED = 500;
    private static final AtomicInteger COUNT = new AtomicInteger();

    private final boolean isInFront;
    private Judge judge;
    private Policy own;

    /**
     * A filter of a {@code web.xml}, with the parameters {@code document}, the path of a file, and {@code watch}, which may be
     * {@code true}: then the file is read again when it changes. In code write {@link #of}.
     */
    public RateLimitFilter() {
        isInFront = false;
    }

    private RateLimitFilter(Judge judge, boolean isInFront) {
        this.judge = judge;
        this.isInFront = isInFront;
    }

    /** A filter of this policy, which stays the caller's to close. */
    public static Builder of(Policy policy) {
        return new Builder(policy);
    }

    /** What was decided of a request last; nothing where no filter has judged it. */
    public static Optional<Admission> admissionOf(ServletRequest request) {
        return Optional.ofNullable((Admission) request.getAttribute(ADMISSION));
    }

    /**
     * A filter that stands in front of authentication, while this one stands behind it. It judges the requests whose route
     * does not need the user, such as logins, which authentication answers itself, and leaves the others to this one.
     */
    public RateLimitFilter inFront() {
        if (judge == null) throw new IllegalStateException("it has no policy; make it with RateLimitFilter.of(policy)");
        return new RateLimitFilter(judge, true);
    }

    @Override
    public void init(FilterConfig config) throws ServletException {
        if (judge != null) return;
        String document = config.getInitParameter("document");
        if (document == null) {
            String what = "the filter has no document; write <init-param> with the param-name document, and the path of a file";
            throw new ServletException(what);
        }
        boolean watches = Boolean.parseBoolean(config.getInitParameter("watch"));
        own = watches ? Policy.watch(Path.of(document)) : Policy.ofFile(Path.of(document));
        judge = new Judge(new Builder(own));
    }

    /** Closes the policy where it is of a {@code web.xml}. */
    @Override
    public void destroy() {
        if (own != null) own.close();
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        if (request instanceof HttpServletRequest asked && response instanceof HttpServletResponse answered) {
            filter(asked, answered, chain);
        } else {
            chain.doFilter(request, response);
        }
    }

    private void filter(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        Verdict before = (Verdict) request.getAttribute(VERDICT);
        DispatcherType type = request.getDispatcherType();
        if (type == DispatcherType.ERROR && before != null) before.tell(response);
        boolean isJudged = type == DispatcherType.ERROR || type == DispatcherType.INCLUDE || judge.hasJudged(request);
        Verdict verdict = isJudged ? null : judge(request, response, before);
        if (isJudged || verdict == Judge.LEFT) {
            chain.doFilter(request, response);
        } else if (verdict != null) {
            pass(request, response, chain, verdict);
        }
    }

    /** Null where the request is answered. */
    private Verdict judge(HttpServletRequest request, HttpServletResponse response, Verdict before)
            throws IOException, ServletException {
        List<String> paths;
        try {
            paths = Paths.of(request);
        } catch (IllegalArgumentException ambiguous) {
            // Nobody can say which route it has.
            response.sendError(HttpServletResponse.SC_BAD_REQUEST);
            return null;
        }
        Verdict verdict = judge.judge(request, paths, before, isInFront);
        if (verdict == Judge.LEFT) return verdict;
        request.setAttribute(ADMISSION, verdict.last());
        if (!verdict.last().getAllowed()) {
            verdict.refuse(response);
            return null;
        }
        request.setAttribute(VERDICT, verdict);
        return verdict;
    }

    private void pass(HttpServletRequest request, HttpServletResponse response, FilterChain chain, Verdict verdict)
            throws IOException, ServletException {
        try {
            chain.doFilter(request, new LimitedResponse(response, verdict.fields()));
        } catch (IOException | ServletException | RuntimeException | Error failed) {
            if (!Settling.isGone(failed)) verdict.settle(FAILED);
            throw failed;
        }
        if (request.isAsyncStarted()) request.getAsyncContext().addListener(new Settling(verdict, response));
        else verdict.settle(response.getStatus());
    }

    /** What a filter is told. */
    public static final class Builder {
        final Policy policy;
        final String mark = "tidegate.judged." + COUNT.incrementAndGet();
        Function<HttpServletRequest, String> peer = ServletRequest::getRemoteAddr;
        Function<HttpServletRequest, String> user = Application::principal;
        final Map<String, Function<HttpServletRequest, String>> values = new LinkedHashMap<>();
        final Map<String, Predicate<HttpServletRequest>> answers = new LinkedHashMap<>();

        private Builder(Policy policy) {
            this.policy = Objects.requireNonNull(policy, "there is no policy; write Policy.ofFile(path)");
        }

        /**
         * Who is connected: an address, or {@code unix} for a socket in the file system; null where it is not known. Unless
         * said, {@code getRemoteAddr()}. Whose word on the client's address is believed is for the document to say.
         */
        public Builder peer(Function<HttpServletRequest, String> peer) {
            this.peer = Objects.requireNonNull(peer);
            return this;
        }

        /**
         * Who the user is, for keys of {@code user}; null and an empty text are nobody. Asked only where a route needs it.
         * Unless said, the name of {@code getUserPrincipal()}.
         */
        public Builder user(Function<HttpServletRequest, String> user) {
            this.user = Objects.requireNonNull(user);
            return this;
        }

        /**
         * What the document calls {@code app:NAME}, in keys and costs; null where there is none. Asked only where a route needs
         * it.
         */
        public Builder value(String name, Function<HttpServletRequest, String> value) {
            values.put(Objects.requireNonNull(name), Objects.requireNonNull(value));
            return this;
        }

        /** The answer to a question of {@code exempt.app}. Asked only where a route needs it. */
        public Builder answer(String question, Predicate<HttpServletRequest> answer) {
            answers.put(Objects.requireNonNull(question), Objects.requireNonNull(answer));
            return this;
        }

        public RateLimitFilter build() {
            return new RateLimitFilter(new Judge(this), false);
        }
    }
}
