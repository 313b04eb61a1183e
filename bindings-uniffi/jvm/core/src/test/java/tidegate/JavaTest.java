package tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import tidegate.testing.FakeClock;

/** All of it as Java has it. */
class JavaTest {
    private final FakeClock clock = new FakeClock();

    @Test
    void blocks() throws InterruptedException {
        try (Limiter limiter = clock.limiter(Map.of("login", "2/m", "search", "10/s"))) {
            Decision decision = limiter.check("login", "alice");
            assertTrue(decision.getAllowed());
            assertEquals(1, decision.getRemaining());
            assertTrue(limiter.checkAll(List.of("login", "search"), "alice").getAllowed());
            Decision refused = limiter.check("login", "alice", CheckOptions.cost(1).withDeadline(Duration.ofSeconds(1)));
            assertFalse(refused.getAllowed());
            clock.advance(refused.getRetryAfterMs());
            assertTrue(limiter.acquire("login", "alice").getAllowed());
            assertTrue(limiter.acquire("login", LimitKey.of(new byte[] {1}), Duration.ofSeconds(1)).getAllowed());
            assertTrue(limiter.check("login", new byte[] {2}).getAllowed());
            assertTrue(limiter.check("login", LimitKey.parts("shop", "alice")).getAllowed());
            assertFalse(limiter.refund(refused));
            limiter.reset("login", "alice");
            assertEquals(2, limiter.peek("login", "alice", CheckOptions.DEFAULT).getRemaining());
            assertEquals(3, limiter.count("login", LimitKey.of("x"), Duration.ofMinutes(1), 3).getTotal());
            limiter.ready();
            assertTrue(limiter.metrics().startsWith("{"));
        }
    }

    @Test
    void goesOn() throws Exception {
        try (Limiter limiter = Limiter.of(Map.of("login", "2/m"))) {
            CompletableFuture<Decision> decision = limiter.checkAsync("login", "alice");
            assertEquals(1, decision.thenApply(Decision::getRemaining).get());
            assertTrue(limiter.refundAsync(decision.get().getReceipt()).get());
            limiter.resetAsync("login", LimitKey.of("alice")).thenRun(() -> {}).get();
            TidegateException error = assertThrows(TidegateException.class, () -> limiter.check("nothing", "alice"));
            assertEquals("unknown_rule", error.getCode());
        }
    }

    @Test
    void admits() throws InterruptedException {
        String document = "version: 1\nrules: {a: 1/m}\nroutes: [{prefix: /, rules: a, key: user}]";
        try (Policy policy = clock.policyOfYaml(document)) {
            Admission admission = policy.admit("GET", "/", new Told(), needs -> {
                assertTrue(needs.getUser());
                return new Told(null, List.of(), "alice".getBytes(), List.of(), List.of(), null, null);
            });
            assertEquals(AdmissionOutcome.ALLOWED, admission.getOutcome());
            admission.getCharge().close();
        }
    }
}
