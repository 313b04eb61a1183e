//! The circuit breaker of one node: after some failures in a row it is not asked for a while, then by one call.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::metrics::BreakerState;

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Bounds {
    /// The failures in a row with which it opens.
    pub(crate) failures: u32,
    /// How long it stays open at first; doubled with each probe that fails, give or take a quarter.
    pub(crate) wait: Duration,
    pub(crate) max_wait: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { failures: 5, wait: Duration::from_millis(100), max_wait: Duration::from_secs(1) }
    }
}

impl Bounds {
    /// # Errors
    /// What to write instead.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if !(1..=1_000).contains(&self.failures) {
            return Err("the breaker's failures are out of range; write 1 to 1,000");
        }
        if self.wait < Duration::from_millis(1) || self.wait > self.max_wait || self.max_wait > Duration::from_secs(60)
        {
            return Err("the breaker's waits are out of range; write 1 ms to 1 minute, and a wait up to max_wait");
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct Breaker {
    /// Whom it guards: a server's address.
    pub(crate) of: String,
    bounds: Bounds,
    /// Whether there is anything in the state: while all goes well nobody takes the lock.
    troubled: AtomicBool,
    /// How often it has opened.
    opened: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    why: Error,
    wait: Duration,
    until: Instant,
    /// One call is on its way to see whether the node is well.
    probing: bool,
}

/// What a breaker went through with an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    Opened,
    Closed,
}

impl Breaker {
    pub(crate) fn new(of: String, bounds: Bounds) -> Breaker {
        let (troubled, opened) = (AtomicBool::new(false), AtomicU64::new(0));
        Breaker { of, bounds, troubled, opened, state: Mutex::default() }
    }

    /// Whether a call may be sent.
    ///
    /// # Errors
    /// Why the node is not asked now.
    pub(crate) fn admit(&self, now: Instant) -> Result<(), Error> {
        if !self.troubled.load(Ordering::Acquire) {
            return Ok(());
        }
        match &mut self.state().open {
            Some(open) if now < open.until => Err(open.why.clone()),
            Some(open) => {
                // One that hears nothing is not waited for longer than another would be put off.
                (open.probing, open.until) = (true, now + self.bounds.max_wait);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Whether the last answer was a failure.
    pub(crate) fn is_troubled(&self) -> bool {
        self.troubled.load(Ordering::Acquire)
    }

    /// How it stands, and how often it has opened.
    pub(crate) fn read(&self) -> (BreakerState, u64) {
        let state = match &self.state().open {
            None => BreakerState::Closed,
            Some(open) if open.probing => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
        };
        (state, self.opened.load(Ordering::Relaxed))
    }

    /// The node has answered.
    pub(crate) fn succeeded(&self) -> Change {
        if !self.troubled.load(Ordering::Acquire) {
            return Change::None;
        }
        let mut state = self.state();
        let was_open = std::mem::take(&mut *state).open.is_some();
        self.troubled.store(false, Ordering::Release);
        if was_open { Change::Closed } else { Change::None }
    }

    /// The node has not answered, or is not ready.
    pub(crate) fn failed(&self, why: &Error, now: Instant) -> Change {
        let mut state = self.state();
        self.troubled.store(true, Ordering::Release);
        state.failures = state.failures.saturating_add(1);
        let wait = match &state.open {
            // What was sent before it opened says nothing new.
            Some(open) if !open.probing => return Change::None,
            Some(open) => (open.wait * 2).min(self.bounds.max_wait),
            None if state.failures < self.bounds.failures => return Change::None,
            None => self.bounds.wait,
        };
        let change = if state.open.is_none() { Change::Opened } else { Change::None };
        self.opened.fetch_add(u64::from(change == Change::Opened), Ordering::Relaxed);
        let why = Error::new(ErrorKind::StoreUnavailable, format!("the circuit is open: {}", why.message()));
        state.open = Some(Open { why, wait, until: now + jittered(wait), probing: false });
        change
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Three to five quarters of a wait, so that many processes do not come back at once.
fn jittered(wait: Duration) -> Duration {
    wait * fastrand::u32(75..=125) / 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn why() -> Error {
        Error::new(ErrorKind::Timeout, "no answer")
    }

    fn opened(breaker: &Breaker, now: Instant) {
        for _ in 1..Bounds::default().failures {
            assert_eq!(breaker.failed(&why(), now), Change::None);
            assert!(breaker.admit(now).is_ok());
        }
        assert_eq!(breaker.failed(&why(), now), Change::Opened);
    }

    #[test]
    fn opens_after_failures_in_a_row_and_closes_with_the_first_success() {
        let (breaker, now) = (Breaker::new("here".into(), Bounds::default()), clock::instant());
        for _ in 0..3 {
            for _ in 1..Bounds::default().failures {
                assert_eq!(breaker.failed(&why(), now), Change::None);
            }
            assert_eq!(breaker.succeeded(), Change::None, "not in a row");
        }
        opened(&breaker, now);
        let error = breaker.admit(now).expect_err("it is open");
        assert_eq!(error.message(), "the circuit is open: no answer");
        assert!(breaker.is_troubled());
        assert_eq!(breaker.succeeded(), Change::Closed);
        assert!(breaker.admit(now).is_ok() && !breaker.is_troubled());
    }

    #[test]
    fn one_call_probes_and_waits_double_up_to_their_bound() {
        let (breaker, mut now) = (Breaker::new("here".into(), Bounds::default()), clock::instant());
        opened(&breaker, now);
        let mut wait = Bounds::default().wait;
        for _ in 0..6 {
            assert!(breaker.admit(now + wait * 74 / 100).is_err(), "before its time");
            now += wait * 126 / 100;
            assert!(breaker.admit(now).is_ok(), "the probe");
            assert!(breaker.admit(now).is_err(), "and nobody else");
            assert_eq!(breaker.failed(&why(), now), Change::None);
            wait = (wait * 2).min(Bounds::default().max_wait);
        }
    }

    #[test]
    fn a_probe_that_hears_nothing_gives_way_to_another() {
        let (breaker, now) = (Breaker::new("here".into(), Bounds::default()), clock::instant());
        opened(&breaker, now);
        let probed = now + Bounds::default().wait * 126 / 100;
        assert!(breaker.admit(probed).is_ok(), "the probe");
        assert!(breaker.admit(probed + Bounds::default().max_wait / 2).is_err(), "it is waited for");
        assert!(breaker.admit(probed + Bounds::default().max_wait).is_ok(), "another");
    }

    #[test]
    fn what_was_under_way_does_not_put_a_probe_off() {
        let (breaker, now) = (Breaker::new("here".into(), Bounds::default()), clock::instant());
        opened(&breaker, now);
        let later = now + Bounds::default().wait * 126 / 100;
        (0..100).for_each(|_| assert_eq!(breaker.failed(&why(), later), Change::None));
        assert!(breaker.admit(later).is_ok());
    }
}
