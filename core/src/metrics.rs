//! What a limiter counts about itself: the counters, and the snapshot of them that users read.

mod prometheus;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use smallvec::SmallVec;

pub(crate) use self::prometheus::Page;

use crate::decision::Origin;
use crate::error::ErrorKind;

/// What a limiter has counted since it was made. A snapshot: its parts are read one after the other.
///
/// Keys are in none of it. [`prometheus`](Metrics::prometheus) writes it as text to scrape.
///
/// ```
/// use tidegate::Limiter;
///
/// let limiter = Limiter::builder().rule("login", "1/m").build()?;
/// limiter.check("login", "alice").wait()?;
/// limiter.check("login", "alice").wait()?;
/// for row in &limiter.metrics().decisions {
///     assert_eq!((&*row.rule, row.origin.name(), row.count), ("login", "store", 1)); // one allowed, and one not
/// }
/// assert!(limiter.metrics().prometheus().contains("tidegate_decisions_total"));
/// assert!(limiter.metrics().json().contains(r#"{"rule":"login","origin":"store","allowed":true,"count":1}"#));
/// # Ok::<(), tidegate::Error>(())
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Metrics {
    /// What checks and acquires were answered: a row for each rule, origin and outcome that can be, by rule. A call of
    /// several rules counts for each of them. Peeks and counts are no decisions, and of an acquire its end alone is.
    pub decisions: Vec<DecisionCount>,
    /// The errors that calls returned, and those that made a failure policy decide: every kind.
    pub errors: Vec<ErrorCount>,
    /// How often this process's memory of refusals spared a call to a server.
    pub deny_cache_hits: u64,
    /// The charges that were sent back since nobody had taken them as admitted: their answer came after the call was
    /// answered as refused, or whoever had called was gone.
    pub late_refunds: u64,
    /// The keys that the memory store keeps; none for a store elsewhere.
    pub keys: Option<usize>,
    /// The live keys that the memory store has evicted to keep its bound: each may have been admitted anew.
    pub evicted: u64,
    /// How long checks and peeks took that went to a server, from the call to its answer, in microseconds. What was
    /// not answered in time counts with its deadline; what failed without an answer, not at all.
    pub latency: Histogram,
    /// How many checks and peeks left together, a run of the script each.
    pub batch_sizes: Histogram,
    /// The servers that are known, by address.
    pub nodes: Vec<NodeMetrics>,
}

/// How often one rule was decided in one way.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecisionCount {
    /// The rule.
    pub rule: String,
    /// Who decided.
    #[serde(serialize_with = "origin")]
    pub origin: Origin,
    /// Whether the request might pass.
    pub allowed: bool,
    /// How often.
    pub count: u64,
}

/// How often calls met errors of one kind.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ErrorCount {
    /// The kind.
    #[serde(serialize_with = "kind")]
    pub kind: ErrorKind,
    /// How often.
    pub count: u64,
}

/// How often something was of which size.
#[non_exhaustive]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// The largest size of each class, without the last class, which has none.
    pub bounds: Vec<u64>,
    /// How often a size fell into each class: one more than there are bounds.
    pub counts: Vec<u64>,
    /// All sizes together.
    pub sum: u64,
}

/// One server, as this process sees it.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeMetrics {
    /// Its address, without user or password.
    pub address: String,
    /// Whether a connection to it is up.
    pub connected: bool,
    /// How its circuit breaker stands.
    pub breaker: BreakerState,
    /// How often its circuit breaker has opened.
    pub opened: u64,
}

/// How a circuit breaker stands.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// The server is asked.
    Closed,
    /// One call is on its way to see whether the server is well; nobody else asks.
    HalfOpen,
    /// The server is left alone.
    Open,
}

impl BreakerState {
    /// The state's name: `closed`, `half_open` or `open`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::HalfOpen => "half_open",
            BreakerState::Open => "open",
        }
    }
}

impl Metrics {
    /// The same as one JSON object of the same fields, with names for origins, kinds and states: for bindings.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text can be written")
    }
}

fn origin<S: serde::Serializer>(origin: &Origin, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(origin.name())
}

fn kind<S: serde::Serializer>(kind: &ErrorKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kind.code())
}

impl Histogram {
    /// How often altogether.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Where a plan's decisions are counted: its rules' rows.
pub(crate) type Rows = SmallVec<[Arc<Row>; 2]>;

/// What is counted of one rule. (The memory store counts its own decisions under its locks: an atomic counter is a
/// twentieth of such a check.)
#[derive(Debug)]
pub(crate) struct Row {
    /// Where the memory store counts it.
    pub(crate) number: u32,
    counts: [AtomicU64; 2 * Origin::ALL.len()],
}

impl Row {
    pub(crate) fn decided(&self, origin: Origin, allowed: bool, times: u64) {
        self.counts[2 * origin as usize + usize::from(allowed)].fetch_add(times, Ordering::Relaxed);
    }

    /// What was counted: the origin, whether allowed, how often.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Origin, bool, u64)> {
        Origin::ALL.iter().flat_map(|origin| {
            origin.outcomes().iter().map(|allowed| {
                let count = &self.counts[2 * *origin as usize + usize::from(*allowed)];
                (*origin, *allowed, count.load(Ordering::Relaxed))
            })
        })
    }
}

/// The counters of one limiter, and of those that have its store with other rules.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// How many rows have been made: no two have one number.
    rows: AtomicU32,
    errors: [AtomicU64; ErrorKind::ALL.len()],
    /// Calls that this process's memory of refusals answered.
    pub(crate) deny_cache_hits: AtomicU64,
}

impl Counters {
    /// A row that nothing was counted in.
    pub(crate) fn row(&self) -> Arc<Row> {
        let number = self.rows.fetch_add(1, Ordering::Relaxed);
        Arc::new(Row { number, counts: Default::default() })
    }

    pub(crate) fn failed(&self, kind: ErrorKind) {
        self.errors[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn errors(&self) -> Vec<ErrorCount> {
        let count = |kind: &ErrorKind| self.errors[*kind as usize].load(Ordering::Relaxed);
        ErrorKind::ALL.iter().map(|kind| ErrorCount { kind: *kind, count: count(kind) }).collect()
    }
}

/// A histogram that is being counted.
#[derive(Debug)]
pub(crate) struct Meter {
    bounds: &'static [u64],
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
}

/// Microseconds: the powers between a server nearby and the longest deadline.
const LATENCIES: &[u64] =
    &[100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 10_000_000];
/// Up to the most that leave together.
const BATCH_SIZES: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128];

impl Meter {
    pub(crate) fn of_latency() -> Meter {
        Meter::new(LATENCIES)
    }

    pub(crate) fn of_batch_sizes() -> Meter {
        Meter::new(BATCH_SIZES)
    }

    fn new(bounds: &'static [u64]) -> Meter {
        Meter { bounds, counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }

    pub(crate) fn add(&self, size: u64) {
        let class = self.bounds.partition_point(|bound| *bound < size);
        self.counts[class].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(size, Ordering::Relaxed);
    }

    pub(crate) fn add_time(&self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn read(&self) -> Histogram {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Histogram { bounds: self.bounds.to_vec(), counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_on_a_bound_belongs_to_the_class_below_it() {
        let meter = Meter::of_batch_sizes();
        for size in [1, 2, 3, 4, 128, 129] {
            meter.add(size);
        }
        let read = meter.read();
        assert_eq!(read.counts, [1, 1, 2, 0, 0, 0, 0, 1, 1]);
        assert_eq!((read.count(), read.sum), (6, 267));
    }
}
