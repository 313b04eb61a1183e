//! One limit: all charges ever made on it, and what they weigh at a time.

use super::{Algorithm, Outcome, Spec};

/// Amounts in window-ths of a unit.
type Parts = u128;

/// Later than any wait: a whole bucket is refilled within 70 years, and no clock is further off than that.
const FOREVER: u64 = 1 << 62;

/// The charges on one limit, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct History {
    charges: Vec<Charge>,
    /// What refunds gave back to a bucket.
    credits: Vec<Credit>,
}

#[derive(Debug)]
struct Charge {
    serial: u64,
    /// The time under which it is kept.
    at: u64,
    units: u64,
    /// The limit that was asked for.
    quota: u64,
    /// The application's id.
    id: Option<Vec<u8>>,
    /// Whether a later charge found it dead: the clock may step back, it stays dead.
    dropped: bool,
    refunded: bool,
}

#[derive(Debug)]
struct Credit {
    /// How many charges had been made.
    after: usize,
    /// The charge it was given for.
    serial: u64,
    parts: Parts,
}

/// What a receipt knows of one charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Charged {
    pub(super) serial: u64,
    at: u64,
    units: u64,
    quota: u64,
    /// A bucket's deficit before it.
    deficit: Parts,
}

impl History {
    /// How the limit stands, uncharged.
    pub(super) fn outcome(&self, spec: &Spec, cost: u64, now: u64) -> Outcome {
        let capacity = capacity(spec);
        let passes = |time| self.passes(spec, cost, time);
        let whole = |time| self.used(spec, time) == 0;
        let remaining = capacity.saturating_sub(self.used(spec, now)) / Parts::from(spec.window);
        Outcome {
            allowed: passes(now),
            remaining: u64::try_from(remaining).expect("a capacity is a whole number of units"),
            retry_after: if passes(now) { None } else { wait_until(now, passes) },
            reset_after: if capacity == 0 { None } else { wait_until(now, whole) },
        }
    }

    /// Records a charge that was admitted.
    pub(super) fn charge(&mut self, spec: &Spec, cost: u64, id: Option<&[u8]>, now: u64, serial: u64) -> Charged {
        for charge in &mut self.charges {
            charge.dropped |= is_exact(spec.algorithm) && !charge.is_live(spec.window, now);
        }
        let charged = Charged {
            serial,
            at: self.stamp(spec, now),
            units: cost,
            quota: spec.quota,
            deficit: if spec.algorithm == Algorithm::TokenBucket { self.used(spec, now) } else { 0 },
        };
        let (id, quota, at) = (id.map(<[u8]>::to_vec), spec.quota, charged.at);
        self.charges.push(Charge { serial, at, units: cost, quota, id, dropped: false, refunded: false });
        charged
    }

    /// Takes back what a charge still weighs; `quota` is the limit asked for now. Whether that was anything.
    pub(super) fn refund(
        &mut self,
        algorithm: Algorithm,
        window: u64,
        quota: u64,
        charged: &Charged,
        now: u64,
    ) -> bool {
        if algorithm == Algorithm::TokenBucket {
            return self.refund_bucket(window, quota, charged, now);
        }
        let present = self.moment(algorithm, now);
        let found = self.charges.iter_mut().find(|charge| charge.serial == charged.serial && !charge.refunded);
        found.is_some_and(|charge| {
            charge.refunded = match algorithm {
                Algorithm::FixedWindow => charge.at / window == present / window,
                Algorithm::SlidingWindowCounter => charge.at / window + 1 >= present / window,
                _ => charge.is_live(window, now),
            };
            charge.refunded
        })
    }

    /// `max(0, min(deficit, c - max(0, rate*(now - t) - d)))`, the rate the fastest of receipt, store and call.
    fn refund_bucket(&mut self, window: u64, quota: u64, charged: &Charged, now: u64) -> bool {
        let Some(stored) = self.charges.last().map(|charge| charge.quota) else { return false };
        let present = self.moment(Algorithm::TokenBucket, now);
        let fastest = quota.max(stored).max(charged.quota);
        let drained = Parts::from(fastest) * Parts::from(present.saturating_sub(charged.at));
        let drained_of_it = drained.saturating_sub(charged.deficit);
        let left_of_it = units(charged.units, window).saturating_sub(drained_of_it);
        let parts = left_of_it.min(self.deficit(window, quota, present));
        self.credits.push(Credit { after: self.charges.len(), serial: charged.serial, parts });
        parts > 0
    }

    /// Whether a log still has a charge of this id.
    pub(super) fn holds(&self, spec: &Spec, id: &[u8], now: u64) -> bool {
        let same = |charge: &&Charge| charge.id.as_deref() == Some(id);
        spec.algorithm == Algorithm::SlidingWindowLog
            && self.charges.iter().filter(same).any(|charge| charge.is_live(spec.window, now))
    }

    /// The charges that were kept, as (time, units).
    pub(super) fn kept(&self, window: u64) -> Vec<(u64, u64)> {
        let given_back = |serial| -> Parts {
            self.credits.iter().filter(|credit| credit.serial == serial).map(|credit| credit.parts).sum()
        };
        let kept_units = |charge: &Charge| {
            let parts = units(charge.units, window).saturating_sub(given_back(charge.serial));
            u64::try_from(parts / Parts::from(window)).expect("no more than was charged")
        };
        let kept = self.charges.iter().filter(|charge| !charge.refunded);
        kept.map(|charge| (charge.at, kept_units(charge))).filter(|&(_, units)| units > 0).collect()
    }

    fn passes(&self, spec: &Spec, cost: u64, time: u64) -> bool {
        self.used(spec, time) + units(cost, spec.window) <= capacity(spec)
    }

    /// What is taken of the capacity when the clock says `now`.
    fn used(&self, spec: &Spec, now: u64) -> Parts {
        let window = spec.window;
        let present = self.moment(spec.algorithm, now);
        let (index, offset) = (present / window, present % window);
        match spec.algorithm {
            Algorithm::SlidingWindowLog | Algorithm::SlidingWindow => {
                let live = self.charges.iter().filter(|charge| charge.is_live(window, now));
                live.map(|charge| units(charge.units, window)).sum()
            }
            Algorithm::TokenBucket => self.deficit(window, spec.quota, present),
            Algorithm::SlidingWindowCounter => {
                let before = index.checked_sub(1).map_or(0, |before| self.units_in(before, window));
                units(self.units_in(index, window), window) + Parts::from(before) * Parts::from(window - offset)
            }
            Algorithm::FixedWindow => units(self.units_in(index, window), window),
        }
    }

    /// A bucket's deficit, from its first charge on: what drained between two charges drained at the faster of the
    /// rates that the earlier left behind and the later asked for.
    fn deficit(&self, window: u64, asked: u64, present: u64) -> Parts {
        let mut deficit = 0;
        for (place, charge) in self.charges.iter().enumerate() {
            let credits = self.credits.iter().filter(|credit| credit.after == place + 1);
            let (until, next) = self.charges.get(place + 1).map_or((present, asked), |next| (next.at, next.quota));
            deficit += units(charge.units, window);
            deficit -= credits.map(|credit| credit.parts).sum::<Parts>();
            let drained = Parts::from(charge.quota.max(next)) * Parts::from(until - charge.at);
            deficit = deficit.saturating_sub(drained);
        }
        deficit
    }

    /// The units charged in one window of the clock.
    fn units_in(&self, index: u64, window: u64) -> u64 {
        let inside = |charge: &&Charge| charge.at / window == index && !charge.refunded;
        self.charges.iter().filter(inside).map(|charge| charge.units).sum()
    }

    /// The decision time: `now`, and for all but the exact windows never before the last charge.
    fn moment(&self, algorithm: Algorithm, now: u64) -> u64 {
        let last = self.charges.last().filter(|_| !is_exact(algorithm));
        last.map_or(now, |charge| charge.at.max(now))
    }

    /// The time under which a charge is kept: rounded up to the grid, and never before the newest entry.
    fn stamp(&self, spec: &Spec, now: u64) -> u64 {
        if !is_exact(spec.algorithm) {
            return self.moment(spec.algorithm, now);
        }
        let newest = self.charges.iter().filter(|charge| charge.is_kept()).map(|charge| charge.at).max();
        now.next_multiple_of(spec.precision.max(1)).max(newest.unwrap_or(0))
    }
}

impl Charge {
    fn is_kept(&self) -> bool {
        !self.dropped && !self.refunded
    }

    fn is_live(&self, window: u64, now: u64) -> bool {
        self.is_kept() && self.at + window > now
    }
}

fn is_exact(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::SlidingWindowLog | Algorithm::SlidingWindow)
}

fn units(units: u64, window: u64) -> Parts {
    Parts::from(units) * Parts::from(window)
}

/// What may be taken at once; nothing if limit or burst is 0, whatever the other is.
fn capacity(spec: &Spec) -> Parts {
    match spec.algorithm {
        Algorithm::TokenBucket if spec.quota == 0 => 0,
        Algorithm::TokenBucket => units(spec.burst, spec.window),
        _ => units(spec.quota, spec.window),
    }
}

/// How long until something holds that, once it holds, holds for ever; none if it never does. By halves, from below.
fn wait_until(now: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    if !holds(now + FOREVER) {
        return None;
    }
    let (mut least, mut most) = (0, FOREVER);
    while least < most {
        let middle = least + (most - least) / 2;
        if holds(now + middle) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    Some(least)
}
