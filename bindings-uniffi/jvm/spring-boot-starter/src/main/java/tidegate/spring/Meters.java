package tidegate.spring;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.springframework.boot.json.JsonParserFactory;
import tidegate.Policy;

/**
 * What a policy has counted: {@code tidegate.http.requests} by route, mode and outcome. Routes that a document has got since
 * are not among them.
 */
final class Meters implements MeterBinder {
    /** A registry reads one meter after the other: all of one reading are of one snapshot. */
    private static final long LOOK_EVERY = TimeUnit.SECONDS.toNanos(1);

    private final Policy policy;
    private Map<Row, Double> counts;
    private long since;

    Meters(Policy policy) {
        this.policy = policy;
    }

    private record Row(String route, boolean isShadow, String outcome) {}

    @Override
    public void bindTo(MeterRegistry registry) {
        for (Row row : counts().keySet()) {
            FunctionCounter.builder("tidegate.http.requests", this, meters -> meters.counts().getOrDefault(row, 0.0))
                    .description("Requests by route, mode and outcome.")
                    .tags("route", row.route, "mode", row.isShadow ? "shadow" : "enforce", "outcome", row.outcome)
                    .register(registry);
        }
    }

    private synchronized Map<Row, Double> counts() {
        if (counts == null || System.nanoTime() - since > LOOK_EVERY) {
            counts = read();
            since = System.nanoTime();
        }
        return counts;
    }

    private Map<Row, Double> read() {
        Map<Row, Double> read = new HashMap<>();
        var all = JsonParserFactory.getJsonParser().parseMap(policy.metrics());
        for (Object each : (List<?>) all.get("requests")) {
            Map<?, ?> row = (Map<?, ?>) each;
            var key = new Row((String) row.get("route"), (Boolean) row.get("is_shadow"), (String) row.get("outcome"));
            read.put(key, ((Number) row.get("count")).doubleValue());
        }
        return read;
    }
}
