package tidegate.spring;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.time.Duration;
import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import tidegate.Policy;
import tidegate.TidegateException;

/** Health and meters, where the service has Actuator. */
@AutoConfiguration(after = TidegateAutoConfiguration.class)
@ConditionalOnBean(Policy.class)
public class TidegateActuatorAutoConfiguration {
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(HealthIndicator.class)
    static class OfHealth {
        /** How long it may take, so that a probe does not. */
        private static final Duration MOST = Duration.ofSeconds(1);

        @Bean
        @ConditionalOnMissingBean(name = "tidegateHealthIndicator")
        HealthIndicator tidegateHealthIndicator(Policy policy) {
            return () -> {
                try {
                    policy.ready(MOST);
                    return Health.up().build();
                } catch (TidegateException failed) {
                    return Health.down().withDetail("error", failed.getCode()).build();
                }
            };
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(MeterRegistry.class)
    static class OfMeters {
        @Bean
        @ConditionalOnMissingBean(name = "tidegateMeters")
        MeterBinder tidegateMeters(Policy policy) {
            return new Meters(policy);
        }
    }
}
