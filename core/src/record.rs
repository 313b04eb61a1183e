//! A decision as plain numbers, for what cannot hold Rust's own: what crosses to other languages.

use std::time::Duration;

use crate::decision::{Decision, LimitDecision, Origin};

/// A [`Decision`] as one flat record. Times are whole milliseconds, rounded up, so that whoever waits as told does not
/// come too early.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Whether the request may pass.
    pub allowed: bool,
    /// Who decided.
    pub origin: Origin,
    /// Whether the request's id had been charged before.
    pub repeat: bool,
    /// Which limit binds: its place among [`Decision::limits`], from 0.
    pub binding: u8,
    /// The units per window of the binding limit.
    pub limit: u32,
    /// The largest cost admissible now, after this charge.
    pub remaining: u32,
    /// Milliseconds until this cost passes if nobody else comes; none when allowed, and none when it never can.
    pub retry_after_ms: Option<u64>,
    /// Milliseconds until every quota is whole; 0 when untouched, none if that never is or is not known.
    pub reset_after_ms: Option<u64>,
}

impl Decision {
    /// The decision as one flat record.
    ///
    /// ```
    /// use tidegate::Limiter;
    ///
    /// let limiter = Limiter::builder().rule("login", "1/m").build()?;
    /// limiter.check("login", "alice").wait()?;
    /// let record = limiter.check("login", "alice").wait()?.record();
    /// assert!(!record.allowed && record.limit == 1 && record.remaining == 0);
    /// assert!(record.retry_after_ms > Some(59_000) && record.retry_after_ms <= Some(60_000));
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            allowed: self.allowed(),
            origin: self.origin(),
            repeat: self.is_repeat(),
            binding: self.binding_index(),
            limit: self.limit(),
            remaining: self.remaining(),
            retry_after_ms: self.retry_after().map(milliseconds),
            reset_after_ms: self.reset_after().map(milliseconds),
        }
    }
}

impl LimitDecision<'_> {
    /// [`retry_after`](LimitDecision::retry_after) in whole milliseconds, rounded up.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after().map(milliseconds)
    }

    /// [`reset_after`](LimitDecision::reset_after) in whole milliseconds, rounded up.
    #[must_use]
    pub fn reset_after_ms(&self) -> Option<u64> {
        self.reset_after().map(milliseconds)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_rounded_up() {
        for (micros, told) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (59_999_999, 60_000)] {
            assert_eq!(milliseconds(Duration::from_micros(micros)), told, "{micros}");
        }
    }
}
