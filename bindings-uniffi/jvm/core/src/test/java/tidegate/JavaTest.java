package tidegate;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
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
        String document = "version: 1\nrules: {a: 1/m}\nroutes: [{prefix: /, rules: a, key: user, without_identity: refuse}]";
        try (Policy policy = clock.policyOfYaml(document)) {
            Admission admission = policy.admit("GET", "/", new Told(), needs -> {
                assertTrue(needs.getUser());
                return new Told().withUser("alice");
            });
            assertEquals(AdmissionOutcome.ALLOWED, admission.getOutcome());
            admission.getCharge().settle(200);
            assertFalse(admission.getCharge().settleAndWait(200));
            TidegateException error = assertThrows(TidegateException.class, () -> admission.getCharge().settle(-1));
            assertEquals("invalid_request", error.getCode());
            assertEquals("-1 is no status; write 100 to 599", error.getMessage());
            admission.getCharge().close();
            error = assertThrows(TidegateException.class, () -> admission.getCharge().settle(200));
            assertEquals("the charge is closed; close it after this call", error.getMessage());
        }
    }

    @Test
    void tells() {
        Told told = new Told().withPeer("192.0.2.1").withHeader("A", "\u00ff").withHeader("A", "\u20ac").withUser("alice")
            .withValue("tenant", "shop").withValue("units", 3).withAnswer("is_staff").withRoute("login").withAfter(null);
        assertEquals("192.0.2.1", told.getPeer());
        assertArrayEquals(new byte[] {(byte) 0xff}, told.getHeaders().get(0).getValue());
        assertArrayEquals("\u20ac".getBytes(UTF_8), told.getHeaders().get(1).getValue());
        assertArrayEquals("alice".getBytes(UTF_8), told.getUser());
        assertArrayEquals("shop".getBytes(UTF_8), told.getValues().get(0).getValue());
        assertArrayEquals("3".getBytes(UTF_8), told.getValues().get(1).getValue());
        assertEquals(List.of("is_staff"), told.getAnswers());
        assertEquals("login", told.getRoute());
        assertNull(told.getAfter());
        assertNull(told.withUser((String) null).getUser());
    }
}
