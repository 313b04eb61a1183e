//! Capacity `burst`, refilled with L units per W, continuously, in whole numbers (GCRA, ATM Forum TM 4.0, as a bucket).
//! In any interval t at most burst + t*L/W units are admitted.

use super::{Charged, Outcome, quotient, rounded_up};
use crate::receipt::Charge;
use crate::rule::BoundLimit;

/// Amounts are window-ths of a unit: exact, whatever the rate.
#[derive(Debug, Default)]
pub(crate) struct State {
    last: u64,
    deficit: u128,
    /// Units per window that the deficit was written with.
    rate: u32,
}

impl State {
    pub(super) fn judge(&self, limit: &BoundLimit, cost: u32, now: u64) -> Outcome {
        let (time, deficit, rate) = self.at(limit.quota, now);
        let lag = time - now;
        let capacity = units(limit.burst, limit.window);
        let room = if deficit > capacity { 0 } else { quotient(capacity - deficit, limit.window).0 };
        let missing = (deficit + units(cost, limit.window)).saturating_sub(capacity);
        let retry_after = (cost <= limit.burst).then(|| rounded_up(quotient(missing, rate.into())) + lag);
        let reset_after = if deficit == 0 { 0 } else { rounded_up(quotient(deficit, rate.into())) + lag };
        Outcome::new(cost, i64::try_from(room).unwrap_or(i64::MAX), retry_after, reset_after)
    }

    pub(super) fn charge(&mut self, limit: &BoundLimit, cost: u32, now: u64) -> Charged {
        let (time, before, _) = self.at(limit.quota, now);
        *self = State { last: time, deficit: before + units(cost, limit.window), rate: limit.quota };
        let (whole, parts) = divided(before, limit.window);
        Charged {
            at: time,
            reset_after: rounded_up(quotient(self.deficit, limit.quota.into())) + time - now,
            before: u32::try_from(whole).unwrap_or(u32::MAX),
            before_parts: parts,
        }
    }

    /// Credits max(0, min(deficit, c - max(0, rate * (now - t) - d))) (law 5).
    pub(super) fn refund(&mut self, charge: &Charge, rate: u32, now: u64) -> u32 {
        let (time, deficit, fastest) = self.at(rate, now);
        let refilled = u128::from(time.saturating_sub(charge.at)) * u128::from(fastest.max(charge.rate));
        let before = units(charge.before, charge.window) + u128::from(charge.before_parts);
        let kept = units(charge.units, charge.window).saturating_sub(refilled.saturating_sub(before));
        let credit = kept.min(deficit);
        self.deficit -= credit;
        u32::try_from(rounded_up(quotient(credit, charge.window))).unwrap_or(u32::MAX)
    }

    /// The decision time, the deficit then, and the faster of the stored and the asked rate.
    fn at(&self, asked: u32, now: u64) -> (u64, u128, u32) {
        if self.rate == 0 {
            return (now, 0, asked);
        }
        let (time, rate) = (now.max(self.last), asked.max(self.rate));
        let refilled = u128::from(time - self.last) * u128::from(rate);
        (time, self.deficit.saturating_sub(refilled), rate)
    }
}

fn units(units: u32, window: u64) -> u128 {
    u128::from(units) * u128::from(window)
}

/// Whole units and the window-ths left over, in 64 bits where they suffice: wider division is slow.
fn divided(amount: u128, window: u64) -> (u64, u64) {
    match u64::try_from(amount) {
        Ok(amount) => (amount / window, amount % window),
        Err(_) => {
            let window = u128::from(window);
            (u64::try_from(amount / window).unwrap_or(u64::MAX), u64::try_from(amount % window).unwrap_or(u64::MAX))
        }
    }
}
