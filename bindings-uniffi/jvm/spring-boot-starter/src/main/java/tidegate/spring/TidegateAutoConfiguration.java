package tidegate.spring;

import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.core.env.Environment;
import org.springframework.core.io.ResourceLoader;
import java.util.EnumSet;
import tidegate.Limiter;
import tidegate.Policy;
import tidegate.servlet.RateLimitFilter;

/**
 * Puts the limits of a document before a service. Its beans give way to the application's own: a {@link Policy}, its
 * {@link Limiter}, and the {@link RateLimitFilter}.
 */
@AutoConfiguration
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
@ConditionalOnProperty(prefix = "tidegate", name = "enabled", matchIfMissing = true)
@EnableConfigurationProperties(TidegateProperties.class)
public class TidegateAutoConfiguration {
    private static final System.Logger LOG = System.getLogger(TidegateAutoConfiguration.class.getName());
    /** The chain of Spring Security, whatever made it. */
    private static final String SECURITY = "springSecurityFilterChain";
    /** Of Security's filter, unless {@code spring.security.filter.order} says otherwise. */
    private static final int SECURITY_ORDER = -100;

    @Bean
    @ConditionalOnMissingBean
    Policy tidegatePolicy(TidegateProperties said, ResourceLoader resources, Environment environment) {
        return Documents.policy(said, resources, environment);
    }

    /** Of the rules as they are at the start. */
    @Bean
    @ConditionalOnMissingBean
    Limiter tidegateLimiter(Policy policy) {
        return policy.limiter();
    }

    @Bean
    @ConditionalOnMissingBean
    RateLimitFilter rateLimitFilter(Policy policy, ObjectProvider<RateLimitCustomizer> customizers, Environment environment) {
        if ("framework".equalsIgnoreCase(environment.getProperty("server.forward-headers-strategy"))) {
            LOG.log(
                    System.Logger.Level.WARNING,
                    "server.forward-headers-strategy=framework believes whoever writes X-Forwarded-For, so that clients choose"
                            + " the address that limits count; write native, or none and trusted_proxies in the document");
        }
        RateLimitFilter.Builder filter = RateLimitFilter.of(policy);
        customizers.orderedStream().forEach(customizer -> customizer.customize(filter));
        return filter.build();
    }

    /** Judges requests before anything else does; where Security is there, those whose route does not need the user. */
    @Bean
    FilterRegistrationBean<?> tidegateFrontFilter(RateLimitFilter filter, TidegateProperties said, BeanFactory beans) {
        var front = beans.containsBean(SECURITY) ? filter.inFront() : filter;
        return registered(front, "tidegateFront", said.order());
    }

    /** Judges the others, behind Security. */
    @Bean
    FilterRegistrationBean<?> tidegateUserFilter(
            RateLimitFilter filter, TidegateProperties said, BeanFactory beans, Environment environment) {
        int security = environment.getProperty("spring.security.filter.order", Integer.class, SECURITY_ORDER);
        int order = said.userOrder() == null ? security + 1 : said.userOrder();
        var registered = registered(filter, "tidegateUser", order);
        registered.setEnabled(beans.containsBean(SECURITY));
        return registered;
    }

    private static FilterRegistrationBean<?> registered(RateLimitFilter filter, String name, int order) {
        var registered = new FilterRegistrationBean<>(filter);
        registered.setName(name);
        registered.setOrder(order);
        registered.setDispatcherTypes(EnumSet.copyOf(RateLimitFilter.DISPATCHER_TYPES));
        registered.setAsyncSupported(true);
        return registered;
    }
}
