package tidegate.spring;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.binder.MeterBinder;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import tidegate.Policy;

/** Health and meters, where the service has Actuator. */
@AutoConfiguration(after = TidegateAutoConfiguration.class)
@ConditionalOnBean(Policy.class)
public class TidegateActuatorAutoConfiguration {
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(HealthIndicator.class)
    static class OfHealth {
        @Bean
        @ConditionalOnMissingBean(name = "tidegateHealthIndicator")
        HealthIndicator tidegateHealthIndicator(Policy policy) {
            return new StoreHealth(policy);
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
