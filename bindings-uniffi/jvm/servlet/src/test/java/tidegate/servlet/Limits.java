package tidegate.servlet;

import jakarta.servlet.FilterRegistration;
import jakarta.servlet.ServletContainerInitializer;
import jakarta.servlet.ServletContext;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.Set;
import tidegate.Policy;

/** Limits before everything that a service has. */
public class Limits implements ServletContainerInitializer {
    @Override
    public void onStartup(Set<Class<?>> none, ServletContext context) {
        Policy policy = Policy.ofFile(Path.of(context.getInitParameter("limits"))); // or Policy.watch(..): read again when it changes
        RateLimitFilter filter = RateLimitFilter.of(policy)
                .user(request -> (String) request.getAttribute("user")) // unless said, the name of getUserPrincipal()
                .value("units", request -> request.getHeader("Units"))
                .answer("is_staff", request -> request.isUserInRole("staff"))
                .build();
        FilterRegistration.Dynamic limits = context.addFilter("limits", filter);
        limits.setAsyncSupported(true);
        limits.addMappingForUrlPatterns(EnumSet.copyOf(RateLimitFilter.DISPATCHER_TYPES), true, "/*"); // behind those that are there
    }
}
