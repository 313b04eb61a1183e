//! The snapshot as Prometheus text. Written here, since the client crate leaves quotes in labels as they are, and the
//! rules' names are the users' own.

use std::fmt::Write as _;

use super::{BreakerState, Histogram, Metrics};

impl Metrics {
    /// The text that Prometheus scrapes (`text/plain; version=0.0.4`): every name begins with `tidegate_`, times are in
    /// seconds, and no label holds a key. One limiter's text is one page: two on a page would say everything twice.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut page = Page::default();
        page.family("decisions_total", "counter", "Checks and acquires by rule, origin and outcome.");
        for row in &self.decisions {
            let outcome = if row.allowed { "allowed" } else { "refused" };
            page.sample(
                "decisions_total",
                &[("rule", &row.rule), ("origin", row.origin.name()), ("outcome", outcome)],
                row.count,
            );
        }
        page.family("errors_total", "counter", "Errors returned, or answered by a failure policy, by kind.");
        for error in &self.errors {
            page.sample("errors_total", &[("kind", error.kind.code())], error.count);
        }
        page.single(
            "deny_cache_hits_total",
            "counter",
            "Refusals answered from this process's memory.",
            self.deny_cache_hits,
        );
        page.single(
            "late_refunds_total",
            "counter",
            "Charges sent back since nobody had taken them as admitted.",
            self.late_refunds,
        );
        if let Some(keys) = self.keys {
            page.single("memory_keys", "gauge", "Keys that the memory store keeps.", keys as u64);
            page.single(
                "memory_evicted_total",
                "counter",
                "Live keys that the memory store evicted to keep its bound.",
                self.evicted,
            );
        } else {
            page.histogram(
                "store_latency_seconds",
                "From a check or peek to its server's answer.",
                &self.latency,
                seconds,
            );
            page.histogram("batch_size", "Checks and peeks that left together.", &self.batch_sizes, |size| {
                size.to_string()
            });
            self.nodes(&mut page);
        }
        page.text
    }

    fn nodes(&self, page: &mut Page) {
        page.family("node_connected", "gauge", "Whether a connection to the server is up.");
        for node in &self.nodes {
            page.sample("node_connected", &[("node", &node.address)], node.connected.into());
        }
        page.family("breaker_state", "gauge", "1 for the state that the server's circuit breaker is in.");
        for node in &self.nodes {
            for state in [BreakerState::Closed, BreakerState::HalfOpen, BreakerState::Open] {
                let labels = [("node", &*node.address), ("state", state.name())];
                page.sample("breaker_state", &labels, (node.breaker == state).into());
            }
        }
        page.family("breaker_opened_total", "counter", "How often the server's circuit breaker has opened.");
        for node in &self.nodes {
            page.sample("breaker_opened_total", &[("node", &node.address)], node.opened);
        }
    }
}

/// The text in the making.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) text: String,
}

impl Page {
    /// A page that goes on below what is there.
    pub(crate) fn after(text: String) -> Page {
        Page { text }
    }

    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP tidegate_{name} {help}\n# TYPE tidegate_{name} {kind}");
    }

    pub(crate) fn single(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.line(name, labels, &value.to_string());
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram, unit: fn(u64) -> String) {
        self.family(name, "histogram", help);
        let (bucket, mut below) = (format!("{name}_bucket"), 0);
        let bounds = histogram.bounds.iter().map(|bound| unit(*bound)).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&histogram.counts) {
            below += count;
            self.sample(&bucket, &[("le", &bound)], below);
        }
        self.line(&format!("{name}_sum"), &[], &unit(histogram.sum));
        self.sample(&format!("{name}_count"), &[], below);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "tidegate_{name}{labels} {value}");
    }
}

/// Whole microseconds as seconds, to the digit.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{DecisionCount, ErrorCount, Meter, NodeMetrics};
    use crate::{ErrorKind, Origin};

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let (latency, batch_sizes) = (Meter::of_latency(), Meter::of_batch_sizes());
        latency.add(250);
        latency.add(20_000_000);
        batch_sizes.add(3);
        let rule = "a\"b\\c\nd".to_owned();
        let metrics = Metrics {
            decisions: vec![DecisionCount { rule, origin: Origin::DenyCache, allowed: false, count: 7 }],
            errors: vec![ErrorCount { kind: ErrorKind::Timeout, count: 2 }],
            deny_cache_hits: 7,
            late_refunds: 1,
            keys: None,
            evicted: 0,
            latency: latency.read(),
            batch_sizes: batch_sizes.read(),
            nodes: vec![NodeMetrics {
                address: "[::1]:7000".into(),
                connected: true,
                breaker: BreakerState::Open,
                opened: 4,
            }],
        };
        let text = metrics.prometheus();
        for line in [
            r#"tidegate_decisions_total{rule="a\"b\\c\nd",origin="deny_cache",outcome="refused"} 7"#,
            r#"tidegate_errors_total{kind="timeout"} 2"#,
            "tidegate_deny_cache_hits_total 7",
            "tidegate_late_refunds_total 1",
            r#"tidegate_store_latency_seconds_bucket{le="0.0001"} 0"#,
            r#"tidegate_store_latency_seconds_bucket{le="0.00025"} 1"#,
            r#"tidegate_store_latency_seconds_bucket{le="10"} 1"#,
            r#"tidegate_store_latency_seconds_bucket{le="+Inf"} 2"#,
            "tidegate_store_latency_seconds_sum 20.00025",
            "tidegate_store_latency_seconds_count 2",
            r#"tidegate_batch_size_bucket{le="4"} 1"#,
            r#"tidegate_node_connected{node="[::1]:7000"} 1"#,
            r#"tidegate_breaker_state{node="[::1]:7000",state="closed"} 0"#,
            r#"tidegate_breaker_state{node="[::1]:7000",state="open"} 1"#,
            r#"tidegate_breaker_opened_total{node="[::1]:7000"} 4"#,
            "# TYPE tidegate_store_latency_seconds histogram",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("memory_keys"), "there is no memory store");
    }

    #[test]
    fn seconds_are_exact() {
        let read = [0, 1, 100, 1_000_000, 1_500_000, 10_000_000].map(seconds);
        assert_eq!(read, ["0", "0.000001", "0.0001", "1", "1.5", "10"]);
    }
}
