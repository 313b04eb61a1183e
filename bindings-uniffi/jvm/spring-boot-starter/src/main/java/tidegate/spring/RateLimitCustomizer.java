package tidegate.spring;

import tidegate.servlet.RateLimitFilter;

/** A bean that tells the filter what it asks the application: who the user is, values, answers. */
@FunctionalInterface
public interface RateLimitCustomizer {
    /** Called once for each such bean, before the filter is made. */
    void customize(RateLimitFilter.Builder filter);
}
