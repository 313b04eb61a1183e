package tidegate.spring;

import java.time.Duration;
import org.springframework.boot.actuate.health.AbstractHealthIndicator;
import org.springframework.boot.actuate.health.Health;
import tidegate.Policy;
import tidegate.TidegateException;

/** Whether the store can be used. */
final class StoreHealth extends AbstractHealthIndicator {
    /** How long it is waited for, so that a probe does not wait longer. */
    private static final Duration MOST = Duration.ofSeconds(1);

    private final Policy policy;

    StoreHealth(Policy policy) {
        super("the store of the limits cannot be asked");
        this.policy = policy;
    }

    @Override
    protected void doHealthCheck(Health.Builder health) throws InterruptedException {
        try {
            policy.ready(MOST);
            health.up();
        } catch (TidegateException failed) {
            health.down().withDetail("error", failed.getCode());
        }
    }
}
