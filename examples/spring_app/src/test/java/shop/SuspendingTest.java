package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Map;
import kotlin.coroutines.Continuation;
import kotlin.coroutines.EmptyCoroutineContext;
import kotlinx.coroutines.BuildersKt;
import kotlinx.coroutines.TimeoutKt;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import tidegate.CheckOptions;
import tidegate.Decision;
import tidegate.Limiter;
import tidegate.SuspendingLimiter;
import tidegate.TidegateException;

/** Coroutines of the version that Spring Boot manages, which is older than the one that Tidegate is made with. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SuspendingTest {
    private interface Suspending {
        Object call(Continuation<? super Object> then);
    }

    /** What it comes to; null where it takes longer than this. */
    private static Object run(long milliseconds, Suspending work) throws InterruptedException {
        return BuildersKt.<Object>runBlocking(EmptyCoroutineContext.INSTANCE, (scope, then) ->
                TimeoutKt.<Object>withTimeoutOrNull(milliseconds, (inTime, inner) -> work.call(inner), then));
    }

    @Test
    void answersFailsAndLeavesItsLine() throws InterruptedException {
        try (Limiter limiter = Limiter.of(Map.of("login", "1/m"))) {
            SuspendingLimiter suspending = limiter.suspending();
            Object passed = run(30_000, then -> suspending.check("login", "alice", CheckOptions.DEFAULT, then));
            assertTrue(((Decision) passed).getAllowed());
            assertNull(run(50, then ->
                    suspending.acquire("login", "alice", Duration.ofMinutes(2), CheckOptions.DEFAULT, then)));
            TidegateException error = assertThrows(TidegateException.class, () ->
                    run(30_000, then -> suspending.check("logn", "alice", CheckOptions.DEFAULT, then)));
            assertEquals("unknown_rule", error.getCode());
        }
    }
}
