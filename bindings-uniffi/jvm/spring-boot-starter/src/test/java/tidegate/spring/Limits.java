package tidegate.spring;

import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration
class Limits {
    @Bean
    RateLimitCustomizer asks() {
        return filter -> filter
                .user(request -> request.getHeader("Test-User")) // unless said, the name of the principal
                .value("tenant", request -> request.getServerName())
                .answer("is_staff", request -> request.isUserInRole("staff"));
    }
}
