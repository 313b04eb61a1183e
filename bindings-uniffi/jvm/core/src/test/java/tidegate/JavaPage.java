package tidegate;

import java.io.PrintStream;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import tidegate.testing.FakeClock;

/** What docs/java.md shows, in its order. */
final class JavaPage {
    private JavaPage() {}

    /** What the README shows. */
    static void readme() throws Exception {
        try (Limiter limiter = Limiter.of(Map.of("login", "5/m"))) { // a second argument, "redis://127.0.0.1:6379", shares the state
          Decision decision = limiter.check("login", "alice");
          System.out.println(decision.getAllowed() + " " + decision.getRemaining()); // true 4
        }
    }

    static void run(PrintStream out) throws Exception {
        Limiter limiter = Limiter.of(Map.of("login", "2/m", "search", "10/s burst 30; 1000/h")); // ..., "redis://..." shares it

        Decision decision = limiter.check("login", "alice");
        out.println(decision.getAllowed() + " " + decision.getRemaining()); // true 1

        limiter.check("login", "alice");
        Decision refused = limiter.check("login", "alice");
        out.println(refused.getAllowed() + " " + (refused.getRetryAfterMs() <= 60_000)); // false true

        limiter.refund(decision); // something went wrong that was not alice's fault
        out.println(limiter.check("login", "alice").getAllowed()); // true

        CompletableFuture<Boolean> allowed = limiter.checkAsync("search", "alice").thenApply(Decision::getAllowed);
        out.println(allowed.get()); // true

        CompletableFuture<Decision> turn = limiter.acquireAsync("login", "alice", Duration.ofMinutes(2));
        turn.cancel(true); // leaves its line; what a cancelled call has charged is given back

        limiter.check("search", "alice", CheckOptions.cost(4)); // counts as four
        limiter.check("search", "alice", CheckOptions.limits("100/s").withCost(2)); // a customer's own limits
        limiter.check("search", LimitKey.parts("shop", "alice")); // a tenant and a user, who stay apart
        limiter.checkAll(List.of("login", "search"), "bob"); // both are charged, or none
        out.println(limiter.peek("search", "carol").getRemaining()); // 30

        Decision mine = limiter.acquire("search", "alice", Duration.ofSeconds(5));
        out.println(mine.getAllowed()); // true

        Policy policy = Policy.ofToml("""
            version = 1
            rules.login = "5/m"
            [[routes]]
            path = "/login"
            rules = "login"
            key = "user"
            without_identity = "refuse"
            """);
        Admission admission = policy.admit("POST", "/login", new Told(),
            needs -> new Told().withPeer("203.0.113.7").withUser("alice"));
        out.println(admission.getAllowed() + " " + admission.getCharge().decisions().get(0).getRemaining()); // true 4
        admission.getCharge().settle(200); // gives back what the route's refund_status says
        admission.getCharge().close();

        try {
            limiter.check("logn", "alice");
        } catch (TidegateException error) {
            out.println(error.getCode()); // unknown_rule
        }

        FakeClock clock = new FakeClock();
        Limiter tested = clock.limiter(Map.of("login", "1/m"));
        tested.check("login", "alice");
        clock.advance(tested.check("login", "alice").getRetryAfterMs());
        out.println(tested.check("login", "alice").getAllowed()); // true

        for (AutoCloseable open : List.of(limiter, policy, tested)) open.close();
    }
}
