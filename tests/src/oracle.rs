//! What a decision means, said a second time and as naively as it can be: the model that every store is tested against.
//!
//! Nothing here is clever, so that a mistake of the real thing is not made twice. A limit is the list of all charges
//! ever made on it. What is used now is added up from that list, and a wait is not computed at all: it is searched for,
//! by asking at which microsecond a check would pass. Times are whole microseconds. Amounts are whole window-ths of a
//! unit (one unit of a window of W is W of them), and so every rate, deficit and weight is a whole number: with 10^7
//! units and windows of 2^45 us at most, far below 2^127.
//!
//! ```
//! use tidegate_tests::oracle::{Algorithm, Oracle, Spec};
//!
//! let rule = [Spec::new(Algorithm::SlidingWindow, 2, 1_000)];
//! let mut alice = Oracle::new();
//! assert!(alice.check(&rule, 2, None, 5_000).allowed);
//! let refused = alice.check(&rule, 1, None, 5_600);
//! assert_eq!((refused.allowed, refused.retry_after), (false, Some(400)));
//! ```

mod count;
mod history;
mod laws;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use count::Counted;
use count::Counts;
use history::{Charged, History};
pub use laws::{bucket_bound_holds, no_window_exceeds};

/// How a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// Every charge weighs fully until the window after it is over.
    SlidingWindowLog,
    /// The same; with a precision, charges are dated up to the next instant of a grid.
    SlidingWindow,
    /// A deficit that drains at quota per window.
    TokenBucket,
    /// This window's units, and those of the window before by the fraction of it that is still inside.
    SlidingWindowCounter,
    /// This window's units.
    FixedWindow,
}

/// One limit as a call asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// How it counts.
    pub algorithm: Algorithm,
    /// Units per window.
    pub quota: u64,
    /// Units that a token bucket admits at once. Without meaning to the others.
    pub burst: u64,
    /// In microseconds.
    pub window: u64,
    /// The grid of a sliding window in microseconds; 0 for none.
    pub precision: u64,
    /// What sets limits of the same algorithm and window apart: the rule, and the limit's own name if it has one.
    pub name: String,
    /// Whether it blocks; a shadow limit does not.
    pub enforce: bool,
}

impl Spec {
    /// An enforced limit without a name or precision, its burst the quota. Change the rest with `..Spec::new(..)`.
    #[must_use]
    pub fn new(algorithm: Algorithm, quota: u64, window: u64) -> Spec {
        Spec { algorithm, quota, burst: quota, window, precision: 0, name: String::new(), enforce: true }
    }

    /// What its charges are kept under: quota, burst and precision may change without starting anew (law 9).
    fn identity(&self) -> Identity {
        (self.algorithm, self.window, self.name.clone())
    }
}

type Identity = (Algorithm, u64, String);

/// How one limit stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether this limit lets the cost pass, whatever the others say.
    pub allowed: bool,
    /// The largest cost admissible now.
    pub remaining: u64,
    /// Until the cost passes if nobody else comes; none when it passes now, or never.
    pub retry_after: Option<u64>,
    /// Until the quota is whole; none for limit 0.
    pub reset_after: Option<u64>,
}

/// The answer to a check or a peek: the figures of the whole, and of each limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the request may pass.
    pub allowed: bool,
    /// Whether its id was seen before, so that nothing was charged.
    pub repeated: bool,
    /// The least of the limits that count.
    pub remaining: u64,
    /// The longest wait among the limits that refuse.
    pub retry_after: Option<u64>,
    /// The longest of the limits that count.
    pub reset_after: Option<u64>,
    /// Which limit decides, by its place in the call.
    pub binding: usize,
    /// Each limit's own figures, in the order of the call.
    pub limits: Vec<Outcome>,
    /// What [`Oracle::refund`] takes; empty when nothing was charged.
    pub receipt: Receipt,
}

/// What one call charged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Receipt(Vec<(Identity, Charged)>);

impl Receipt {
    /// Whether nothing was charged: the call was refused, a repeat or a peek.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// All that is known of one key: the charges of each limit, the counts, and the receipts that were spent.
#[derive(Debug, Default)]
pub struct Oracle {
    histories: BTreeMap<Identity, History>,
    counts: Counts,
    charges: u64,
    spent: BTreeSet<u64>,
}

impl Oracle {
    /// A key that nobody has used.
    #[must_use]
    pub fn new() -> Oracle {
        Oracle::default()
    }

    /// Decides, and charges what it admits. `id` is the application's, for the logs of the call.
    pub fn check(&mut self, specs: &[Spec], cost: u64, id: Option<&[u8]>, now: u64) -> Verdict {
        let mut verdict = self.judge(specs, cost, id, now);
        if !verdict.allowed || verdict.repeated {
            return verdict;
        }
        for (spec, outcome) in specs.iter().zip(&mut verdict.limits) {
            // All that are enforced pass; a shadow limit is charged when it passes too.
            if outcome.allowed {
                self.charges += 1;
                let history = self.histories.entry(spec.identity()).or_default();
                let charged = history.charge(spec, cost, id, now, self.charges);
                verdict.receipt.0.push((spec.identity(), charged));
                *outcome = Outcome { allowed: true, retry_after: None, ..history.outcome(spec, cost, now) };
            }
        }
        verdict.summed_up(specs)
    }

    /// What [`check`](Oracle::check) would say now, uncharged.
    #[must_use]
    pub fn peek(&self, specs: &[Spec], cost: u64, now: u64) -> Verdict {
        self.judge(specs, cost, None, now)
    }

    /// Takes back what the receipt's charges still weigh, and says whether that was anything. `asked` are the limits
    /// as they are configured at the time of the refund.
    pub fn refund(&mut self, receipt: &Receipt, asked: &[Spec], now: u64) -> bool {
        let mut refunded = false;
        for (identity, charged) in &receipt.0 {
            let quota = asked.iter().filter(|spec| spec.identity() == *identity).map(|spec| spec.quota).max();
            let unspent = self.spent.insert(charged.serial);
            if let Some(history) = self.histories.get_mut(identity).filter(|_| unspent) {
                let &(algorithm, window, _) = identity;
                refunded |= history.refund(algorithm, window, quota.unwrap_or(0), charged, now);
            }
        }
        refunded
    }

    /// Forgets the limits, and the counts of their names and windows.
    pub fn reset(&mut self, specs: &[Spec]) {
        for spec in specs {
            self.histories.remove(&spec.identity());
            self.counts.reset(&spec.name, spec.window);
        }
    }

    /// Adds `n` to the count of a name and window. One below 0 belongs to the window that began at `start`.
    pub fn count(&mut self, name: &str, window: u64, n: i64, start: Option<u64>, now: u64) -> Counted {
        self.counts.count(name, window, n, start, now)
    }

    /// The charges of a limit that were not refunded, as (time, units): what law 1 is about. Of a bucket's charge
    /// that was refunded in part, the whole units that were kept.
    #[must_use]
    pub fn kept(&self, spec: &Spec) -> Vec<(u64, u64)> {
        self.histories.get(&spec.identity()).map(|history| history.kept(spec.window)).unwrap_or_default()
    }

    fn judge(&self, specs: &[Spec], cost: u64, id: Option<&[u8]>, now: u64) -> Verdict {
        assert!(!specs.is_empty() && cost > 0, "a call has limits and a cost, and the store never sees another");
        let identities: BTreeSet<_> = specs.iter().map(Spec::identity).collect();
        assert_eq!(identities.len(), specs.len(), "no call names one state twice; it is refused at the door");

        let untouched = History::default();
        let history = |spec: &Spec| self.histories.get(&spec.identity()).unwrap_or(&untouched);
        let repeated = id.is_some_and(|id| specs.iter().any(|spec| history(spec).holds(spec, id, now)));
        let outcome = |spec: &Spec| {
            let outcome = history(spec).outcome(spec, cost, now);
            if repeated { Outcome { allowed: true, retry_after: None, ..outcome } } else { outcome }
        };
        Verdict::of(specs, specs.iter().map(outcome).collect(), repeated)
    }
}

impl Verdict {
    fn of(specs: &[Spec], limits: Vec<Outcome>, repeated: bool) -> Verdict {
        let verdict = Verdict {
            allowed: true,
            repeated,
            remaining: 0,
            retry_after: None,
            reset_after: None,
            binding: 0,
            limits,
            receipt: Receipt::default(),
        };
        verdict.summed_up(specs)
    }

    /// The figures of the whole, from those of the limits: "Of several limits" in the contract, clause by clause.
    fn summed_up(mut self, specs: &[Spec]) -> Verdict {
        let enforced: Vec<usize> = (0..specs.len()).filter(|&place| specs[place].enforce).collect();
        let refusing: Vec<usize> = enforced.iter().copied().filter(|&place| !self.limits[place].allowed).collect();
        let counting = if enforced.is_empty() { (0..specs.len()).collect() } else { enforced };
        let (remaining, least) = counting
            .iter()
            .map(|&place| (self.limits[place].remaining, place))
            .min()
            .expect("a call has at least one limit");

        self.allowed = refusing.is_empty();
        self.remaining = remaining;
        self.retry_after = longest(refusing.iter().map(|&place| self.limits[place].retry_after));
        self.reset_after = longest(counting.iter().map(|&place| self.limits[place].reset_after));
        let as_long_as_the_longest = |&place: &usize| self.limits[place].retry_after == self.retry_after;
        self.binding = refusing.into_iter().find(as_long_as_the_longest).unwrap_or(least);
        self
    }
}

/// The longest of some times, of which none is longer than any; none, too, where there are no times.
fn longest(mut times: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let first = times.next()??;
    times.try_fold(first, |longest, time| Some(longest.max(time?)))
}
