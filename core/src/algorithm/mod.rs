//! The algorithms, pure: a state, a limit, a cost and a time make an outcome. No clock, no I/O, no async.
//!
//! Times are microseconds since 1970. `judge` and `reset_after` read, `charge` writes, and is called only for what
//! `judge` admitted.

mod count;
mod fixed_window;
mod sliding_window;
mod sliding_window_counter;
mod sliding_window_log;
mod token_bucket;

pub(crate) use count::{Count, Step, Tally};
pub(crate) use sliding_window_log::Logged;

use crate::receipt::Charge;
use crate::rule::{Algorithm, BoundLimit};

/// How one limit stands, before a charge or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) allowed: bool,
    /// The largest cost admissible now.
    pub(crate) remaining: u32,
    /// Microseconds to the first tick at which the cost passes; none if allowed or never.
    pub(crate) retry_after: Micros,
    /// Microseconds until the quota is whole; none if it never is.
    pub(crate) reset_after: Micros,
}

/// An `Option<u64>` in half its room: decisions are moved a few times on their way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Micros(u64);

impl std::fmt::Debug for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

impl Micros {
    pub(crate) const NONE: Micros = Micros(u64::MAX);

    pub(crate) fn get(self) -> Option<u64> {
        (self != Micros::NONE).then_some(self.0)
    }
}

impl From<Option<u64>> for Micros {
    fn from(micros: Option<u64>) -> Micros {
        micros.map_or(Micros::NONE, Micros)
    }
}

impl Outcome {
    /// How a limit of 0 stands for everybody.
    pub(crate) const NEVER: Outcome =
        Outcome { allowed: false, remaining: 0, retry_after: Micros::NONE, reset_after: Micros::NONE };

    /// How a limit stands once it was judged, and `charged` units of it were taken.
    pub(crate) fn new(verdict: Verdict, charged: u32, reset_after: u64) -> Outcome {
        let Verdict { allowed, remaining, retry_after } = verdict;
        Outcome { allowed, remaining: remaining - charged, retry_after, reset_after: Micros(reset_after) }
    }
}

/// What one limit says to a cost, before anything is charged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    remaining: u32,
    retry_after: Micros,
}

impl Verdict {
    /// What a limit of 0 says to everybody.
    pub(crate) const NEVER: Verdict = Verdict { allowed: false, remaining: 0, retry_after: Micros::NONE };

    fn new(cost: u32, room: i64, retry_after: Option<u64>) -> Verdict {
        let allowed = i64::from(cost) <= room;
        let retry_after = if allowed { Micros::NONE } else { retry_after.into() };
        Verdict { allowed, remaining: u32::try_from(room).unwrap_or(0), retry_after }
    }

    /// What a limit says that nobody has used yet.
    pub(crate) fn untouched(limit: &BoundLimit, cost: u32) -> Verdict {
        Verdict::new(cost, limit.burst.into(), None)
    }
}

/// What a charge wrote: when, and for the bucket the deficit before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Charged {
    pub(crate) at: u64,
    pub(crate) before: u32,
    /// Window-ths of a unit, on top of the whole ones: any number of them.
    pub(crate) before_parts: u64,
}

/// What one limit keeps about one key.
#[derive(Debug)]
pub(crate) enum State {
    /// Apart, as it is the largest by far.
    SlidingWindowLog(Box<sliding_window_log::State>),
    SlidingWindow(sliding_window::State),
    TokenBucket(token_bucket::State),
    SlidingWindowCounter(sliding_window_counter::State),
    FixedWindow(fixed_window::State),
    Count(Count),
}

macro_rules! each {
    ($state:expr, $inner:ident => $body:expr, $count:pat => $otherwise:expr) => {
        match $state {
            State::SlidingWindowLog($inner) => $body,
            State::SlidingWindow($inner) => $body,
            State::TokenBucket($inner) => $body,
            State::SlidingWindowCounter($inner) => $body,
            State::FixedWindow($inner) => $body,
            $count => $otherwise,
        }
    };
}

impl State {
    pub(crate) fn new(algorithm: Algorithm) -> State {
        match algorithm {
            Algorithm::SlidingWindowLog => State::SlidingWindowLog(Box::default()),
            Algorithm::SlidingWindow => State::SlidingWindow(sliding_window::State::default()),
            Algorithm::TokenBucket => State::TokenBucket(token_bucket::State::default()),
            Algorithm::SlidingWindowCounter => State::SlidingWindowCounter(sliding_window_counter::State::default()),
            Algorithm::FixedWindow => State::FixedWindow(fixed_window::State::default()),
        }
    }

    #[inline(always)]
    pub(crate) fn judge(&self, limit: &BoundLimit, cost: u32, now: u64) -> Verdict {
        each!(self, state => state.judge(limit, cost, now), State::Count(_) => Verdict::NEVER)
    }

    /// Microseconds until the quota is whole if nobody else comes.
    #[inline(always)]
    pub(crate) fn reset_after(&self, limit: &BoundLimit, now: u64) -> u64 {
        each!(self, state => state.reset_after(limit, now), State::Count(_) => 0)
    }

    pub(crate) fn charge(&mut self, limit: &BoundLimit, cost: u32, now: u64, id: &[u8]) -> Charged {
        match self {
            State::SlidingWindowLog(state) => state.charge(limit, cost, now, id),
            State::SlidingWindow(state) => state.charge(limit, cost, now),
            State::TokenBucket(state) => state.charge(limit, cost, now),
            State::SlidingWindowCounter(state) => state.charge(limit, cost, now),
            State::FixedWindow(state) => state.charge(limit, cost, now),
            State::Count(_) => Charged::default(),
        }
    }

    /// Whether a refund has left nothing, whatever the limit.
    pub(crate) fn is_empty(&self, now: u64) -> bool {
        each!(self, state => state.is_empty(now), State::Count(_) => false)
    }

    /// The units given back; `rate` is the asked one.
    pub(crate) fn refund(&mut self, charge: &Charge, rate: u32, now: u64) -> u32 {
        each!(self, state => state.refund(charge, rate, now), State::Count(_) => 0)
    }

    /// Whether an application's id is still live here.
    pub(crate) fn has_seen(&self, limit: &BoundLimit, id: &[u8], now: u64) -> bool {
        matches!(self, State::SlidingWindowLog(log) if log.has_seen(limit, id, now))
    }
}

/// `a * b / c` rounded down, with a remainder flag, in the narrowest arithmetic that holds it.
fn scaled(a: u64, b: u64, c: u64) -> (u64, bool) {
    quotient(u128::from(a) * u128::from(b), c)
}

/// `a / b` rounded down, and whether anything was left over.
fn quotient(a: u128, b: u64) -> (u64, bool) {
    match u64::try_from(a) {
        // Division is slow, and most of the time nothing is missing, or less than one is left.
        Ok(a) if a < b => (0, a > 0),
        Ok(a) => (a / b, a % b > 0),
        Err(_) => {
            let b = u128::from(b);
            (u64::try_from(a / b).unwrap_or(u64::MAX), !a.is_multiple_of(b))
        }
    }
}

fn rounded_up((whole, rest): (u64, bool)) -> u64 {
    whole + u64::from(rest)
}
