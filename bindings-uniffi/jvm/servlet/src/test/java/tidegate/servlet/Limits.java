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
        // Or Policy.watch(..), which reads the file again when it changes.
        Policy policy = Policy.ofFile(Path.of(context.getInitParameter("limits")));
        RateLimitFilter filter = RateLimitFilter.of(policy)
                .user(request -> (String) request.getAttribute("user")) // unless said, the name of getUserPrincipal()
                .value("units", request -> request.getHeader("Units"))
                .answer("is_staff", request -> request.isUserInRole("staff"))
                .build();
        FilterRegistration.Dynamic limits = context.addFilter("limits", filter);
        limits.setAsyncSupported(true);
        // Behind those that are declared, such as one that says who the user is.
        limits.addMappingForUrlPatterns(EnumSet.copyOf(RateLimitFilter.DISPATCHER_TYPES), true, "/*");
    }
}
