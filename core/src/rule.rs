//! Rules and limits. A [`Rule`] that exists is valid: its numbers were judged when it was made (law 12).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::key::{self, Suffix};

/// How a limit counts. The README's table says which to choose; the definitions and bounds stand here.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Algorithm {
    /// Exact and auditable: one entry per unit with the request's id and time. No window of length W holds more than L.
    SlidingWindowLog,
    /// The decisions of the log, bit for bit, from a compact state. The default.
    #[default]
    SlidingWindow,
    /// Capacity `burst`, refilled continuously with L units per W: in any interval t at most burst + t*L/W.
    TokenBucket,
    /// Two counters weighted by the fraction of the previous window still inside: small, approximate, up to 2L-1.
    SlidingWindowCounter,
    /// One counter per window of the clock: up to 2L across a boundary.
    FixedWindow,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: &'static [Algorithm] = &[
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindow,
        Algorithm::TokenBucket,
        Algorithm::SlidingWindowCounter,
        Algorithm::FixedWindow,
    ];

    /// The algorithm's name, as documents, stored keys and files have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::SlidingWindowLog => "sliding_window_log",
            Algorithm::SlidingWindow => "sliding_window",
            Algorithm::TokenBucket => "token_bucket",
            Algorithm::SlidingWindowCounter => "sliding_window_counter",
            Algorithm::FixedWindow => "fixed_window",
        }
    }

    /// The algorithm of a name, or of the alias `gcra` for `token_bucket`.
    ///
    /// # Errors
    /// `invalid_rule` for any other name.
    pub fn parse(name: &str) -> Result<Algorithm> {
        if name == "gcra" {
            return Ok(Algorithm::TokenBucket);
        }
        Algorithm::ALL.iter().copied().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            invalid(format!(
                "unknown algorithm {name:?}; write one of {}, or gcra for token_bucket",
                Algorithm::names()
            ))
        })
    }

    /// All names, for errors.
    pub(crate) fn names() -> String {
        Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect::<Vec<_>>().join(", ")
    }

    /// Whether every charge is one entry whose death frees its units, at a time known beforehand.
    pub(crate) const fn is_exact_window(self) -> bool {
        matches!(self, Algorithm::SlidingWindowLog | Algorithm::SlidingWindow)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a rule answers when its store fails. Of several rules in one call deny comes over local over allow.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// Let the request pass. The default; said once in the log at start.
    #[default]
    Allow,
    /// Refuse the request.
    Deny,
    /// Decide in this process, with each limit and burst divided by `share`: the number of processes that serve the
    /// rule, at least 1. A limit above 0 stays at least 1.
    Local {
        /// How many processes share the limits.
        share: u32,
    },
}

/// One limit: `quota` units per `window`. [`Rule::new`] judges its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub(crate) algorithm: Algorithm,
    pub(crate) quota: u64,
    pub(crate) window: Duration,
    pub(crate) burst: Option<u64>,
    pub(crate) precision: Option<Duration>,
    pub(crate) name: Option<String>,
    pub(crate) enforce: bool,
}

impl Limit {
    /// `quota` units per `window` by the default algorithm, [`Algorithm::SlidingWindow`].
    #[must_use]
    pub fn new(quota: u64, window: Duration) -> Limit {
        Limit {
            algorithm: Algorithm::default(),
            quota,
            window,
            burst: None,
            precision: None,
            name: None,
            enforce: true,
        }
    }

    /// The same limit by another algorithm.
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> Limit {
        self.algorithm = algorithm;
        self
    }

    /// The units that a token bucket admits at once; the quota unless said.
    #[must_use]
    pub fn burst(mut self, burst: u64) -> Limit {
        self.burst = Some(burst);
        self
    }

    /// Rounds the times of a sliding window up to a grid, so that its state has at most window/precision + 1 entries.
    #[must_use]
    pub fn precision(mut self, precision: Duration) -> Limit {
        self.precision = Some(precision);
        self
    }

    /// Names the limit, and so gives it a state of its own beside another of the same algorithm and window.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Limit {
        self.name = Some(name.into());
        self
    }

    /// Whether the limit blocks. One that does not is charged when all that block pass, and reported (shadow).
    #[must_use]
    pub fn enforce(mut self, enforce: bool) -> Limit {
        self.enforce = enforce;
        self
    }
}

/// A named policy: one or more limits on one key, and what to do when the store fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    name: Arc<str>,
    limits: Vec<Arc<BoundLimit>>,
    on_error: OnError,
}

impl Rule {
    /// A rule of these limits.
    ///
    /// # Errors
    /// `invalid_rule` if a number is out of its range, or two limits would share a stored key.
    pub fn new(name: impl Into<String>, limits: impl IntoIterator<Item = Limit>) -> Result<Rule> {
        let name = name.into();
        check_name("rule", &name)?;
        let mut bound: Vec<Arc<BoundLimit>> = Vec::new();
        for limit in limits {
            let limit = BoundLimit::new(&name, &limit).map_err(|error| error.within(format!("rule {name:?}")))?;
            if let Some(twin) = bound.iter().find(|other| other.suffix == limit.suffix) {
                return Err(invalid(format!(
                    "rule {name:?}: two limits by {} with a window of {} ms would share one state; give one a name, as in \
                     \"5/s named small\"",
                    twin.algorithm, twin.window_ms
                )));
            }
            bound.push(Arc::new(limit));
        }
        if bound.is_empty() || bound.len() > MAX_LIMITS {
            return Err(invalid(format!("rule {name:?}: write 1 to {MAX_LIMITS} limits, such as \"100/m\"")));
        }
        Ok(Rule { name: name.into(), limits: bound, on_error: OnError::default() })
    }

    /// A rule from text, in the dialects that people type: `"100/m"`, `"10/5m"`, `"100/minute"`,
    /// `"100 per 5 minutes; 1000/h"`, `"5/s burst 20"`. `docs/rules.md` has them all.
    ///
    /// # Errors
    /// `invalid_rule`, saying what to write instead.
    pub fn parse(name: impl Into<String>, limits: &str) -> Result<Rule> {
        Rule::new(name, crate::rates::parse(limits)?)
    }

    /// The same rule with another answer for when the store fails.
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Rule {
        self.on_error = on_error;
        self
    }

    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn limits(&self) -> &[Arc<BoundLimit>] {
        &self.limits
    }

    pub(crate) fn failure_policy(&self) -> OnError {
        self.on_error
    }
}

/// The most limits that one rule may have.
const MAX_LIMITS: usize = 32;
/// The largest quota, burst and cost. Totals stay below 2^24, which the state of a sliding window counts in.
pub(crate) const MAX_UNITS: u64 = 10_000_000;
const MAX_WINDOW: Duration = Duration::from_secs(366 * 86_400);
/// A whole bucket must be refilled within this; so times stay far below 2^53 microseconds.
const MAX_REFILL: Duration = Duration::from_secs(70 * 31_556_952);

/// A limit as its rule has it: judged, in whole microseconds, with the end of its stored key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoundLimit {
    pub(crate) algorithm: Algorithm,
    pub(crate) quota: u32,
    /// Of a token bucket; otherwise the quota.
    pub(crate) burst: u32,
    pub(crate) window: u64,
    pub(crate) window_ms: u64,
    /// 0 where there is none.
    pub(crate) precision: u64,
    pub(crate) enforce: bool,
    pub(crate) rule: String,
    pub(crate) name: Option<String>,
    /// `:<rule>:<algorithm>:<window>`, and `:<name>` if named.
    pub(crate) suffix: Suffix,
    /// The same for `count`.
    pub(crate) count_suffix: Suffix,
    /// The milliseconds for which a key outlives its meaning (law 8).
    pub(crate) slack: u64,
}

impl BoundLimit {
    fn new(rule: &str, limit: &Limit) -> Result<BoundLimit> {
        let quota = judged("limit", limit.quota)?;
        let window_ms = judged_window(limit.window)?;
        let burst = match (limit.burst, limit.algorithm) {
            (None, _) => quota,
            (Some(burst), Algorithm::TokenBucket) => judged("burst", burst)?,
            (Some(_), other) => {
                return Err(invalid(format!(
                    "burst is of token_bucket alone, and this is {other}; leave burst out, or write token_bucket"
                )));
            }
        };
        let precision = match (limit.precision, limit.algorithm) {
            (None, _) => 0,
            (Some(precision), Algorithm::SlidingWindow) => judged_precision(precision, window_ms)?,
            (Some(_), other) => {
                return Err(invalid(format!(
                    "precision is of sliding_window alone, and this is {other}; leave precision out, or write sliding_window"
                )));
            }
        };
        if let Some(name) = &limit.name {
            check_name("limit", name)?;
        }
        let refills = u128::from(burst) * u128::from(window_ms) <= u128::from(quota) * MAX_REFILL.as_millis();
        if limit.algorithm == Algorithm::TokenBucket && quota > 0 && burst > 0 && !refills {
            return Err(invalid(format!(
                "a bucket of {burst} at {quota} per {window_ms} ms would take more than 70 years to fill; \
                 write a smaller burst or a faster rate"
            )));
        }
        let name = limit.name.as_deref();
        Ok(BoundLimit {
            algorithm: limit.algorithm,
            quota,
            burst,
            window: window_ms * 1000,
            window_ms,
            precision,
            enforce: limit.enforce,
            rule: rule.to_owned(),
            name: limit.name.clone(),
            suffix: Suffix::new(rule, limit.algorithm.name(), window_ms, name),
            count_suffix: Suffix::new(rule, "count", window_ms, None),
            slack: key::slack(window_ms),
        })
    }

    /// The same limit for one of `share` processes that know nothing of each other.
    pub(crate) fn shared(&self, share: u32) -> BoundLimit {
        let part = |units: u32| (units / share.max(1)).max(units.min(1));
        BoundLimit { quota: part(self.quota), burst: part(self.burst), ..self.clone() }
    }

    /// Refuses everything, and is meant (law 12).
    pub(crate) fn denies_all(&self) -> bool {
        self.quota == 0 || self.burst == 0
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRule, message)
}

fn judged(what: &str, units: u64) -> Result<u32> {
    match u32::try_from(units) {
        Ok(judged) if units <= MAX_UNITS => Ok(judged),
        _ => Err(invalid(format!("{what} {units} is too large; write 0 to {MAX_UNITS}"))),
    }
}

/// A window in whole milliseconds.
pub(crate) fn judged_window(window: Duration) -> Result<u64> {
    if window < Duration::from_millis(1) || window > MAX_WINDOW || !window.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(invalid(format!(
            "window {window:?} is out of range; write whole milliseconds from 1 ms to 366 days"
        )));
    }
    Ok(u64::try_from(window.as_millis()).unwrap_or(u64::MAX))
}

fn judged_precision(precision: Duration, window_ms: u64) -> Result<u64> {
    let whole = precision.subsec_nanos().is_multiple_of(1_000_000);
    match u64::try_from(precision.as_millis()) {
        Ok(millis) if whole && (1..=window_ms).contains(&millis) => Ok(millis * 1000),
        _ => Err(invalid(format!(
            "precision {precision:?} is out of range; write whole milliseconds from 1 ms to the window"
        ))),
    }
}

fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > key::MAX_NAME {
        return Err(invalid(format!(
            "a {what} name has 1 to {} bytes, and {name:?} has {}",
            key::MAX_NAME,
            name.len()
        )));
    }
    Ok(())
}
