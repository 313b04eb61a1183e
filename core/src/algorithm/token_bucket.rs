//! Capacity `burst`, refilled with L units per W, continuously, in whole numbers (GCRA, ATM Forum TM 4.0, as a bucket).
//! In any interval t at most burst + t*L/W units are admitted.

use super::{Charged, Verdict, quotient, rounded_up};
use crate::receipt::Charge;
use crate::rule::BoundLimit;

/// Amounts are window-ths of a unit: exact, whatever the rate.
#[derive(Debug, Default)]
pub(crate) struct State {
    last: u64,
    /// The deficit's low 64 bits, and the others: two fields, since one of 128 would need more room for its alignment.
    low: u64,
    high: u32,
    /// Units per window that the deficit was written with.
    rate: u32,
}

impl State {
    pub(super) fn judge(&self, limit: &BoundLimit, cost: u32, now: u64) -> Verdict {
        let (time, deficit, rate) = self.at(limit.quota, now);
        let lag = time - now;
        let capacity = units(limit.burst, limit.window);
        let room = if deficit > capacity { 0 } else { quotient(capacity - deficit, limit.window).0 };
        let missing = (deficit + units(cost, limit.window)).saturating_sub(capacity);
        let retry_after = (cost <= limit.burst).then(|| rounded_up(quotient(missing, rate.into())) + lag);
        Verdict::new(cost, i64::try_from(room).unwrap_or(i64::MAX), retry_after)
    }

    pub(super) fn reset_after(&self, limit: &BoundLimit, now: u64) -> u64 {
        let (time, deficit, rate) = self.at(limit.quota, now);
        if deficit == 0 { 0 } else { rounded_up(quotient(deficit, rate.into())) + time - now }
    }

    pub(super) fn is_empty(&self, now: u64) -> bool {
        self.at(self.rate, now).1 == 0
    }

    pub(super) fn charge(&mut self, limit: &BoundLimit, cost: u32, now: u64) -> Charged {
        let (time, before, _) = self.at(limit.quota, now);
        let deficit = before + units(cost, limit.window);
        *self = State { last: time, rate: limit.quota, ..State::default() };
        self.set_deficit(deficit);
        let (before, before_parts) = divided(before, limit.window);
        Charged { at: time, before, before_parts }
    }

    /// Credits max(0, min(deficit, c - max(0, rate * (now - t) - d))) (law 5).
    pub(super) fn refund(&mut self, charge: &Charge, rate: u32, now: u64) -> u32 {
        let (time, deficit, fastest) = self.at(rate, now);
        let refilled = u128::from(time.saturating_sub(charge.at)) * u128::from(fastest.max(charge.rate));
        let before = units(charge.before, charge.window) + u128::from(charge.before_parts);
        let kept = units(charge.units, charge.window).saturating_sub(refilled.saturating_sub(before));
        let credit = kept.min(deficit);
        self.set_deficit(self.deficit() - credit);
        u32::try_from(rounded_up(quotient(credit, charge.window))).unwrap_or(u32::MAX)
    }

    /// The decision time, the deficit then, and the faster of the stored and the asked rate.
    fn at(&self, asked: u32, now: u64) -> (u64, u128, u32) {
        if self.rate == 0 {
            return (now, 0, asked);
        }
        let (time, rate) = (now.max(self.last), asked.max(self.rate));
        let refilled = u128::from(time - self.last) * u128::from(rate);
        (time, self.deficit().saturating_sub(refilled), rate)
    }

    fn deficit(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    /// At most a burst of windows: 2^24 times 2^45 and its like, far below 2^96.
    #[allow(clippy::cast_possible_truncation, reason = "it is split here")]
    fn set_deficit(&mut self, deficit: u128) {
        (self.high, self.low) = ((deficit >> 64) as u32, deficit as u64);
    }
}

fn units(units: u32, window: u64) -> u128 {
    u128::from(units) * u128::from(window)
}

/// Whole units and the window-ths left over; where 64 bits hold them, all as window-ths, and whoever needs them divides.
fn divided(amount: u128, window: u64) -> (u32, u64) {
    match u64::try_from(amount) {
        Ok(parts) => (0, parts),
        Err(_) => {
            let window = u128::from(window);
            (u32::try_from(amount / window).unwrap_or(u32::MAX), u64::try_from(amount % window).unwrap_or(u64::MAX))
        }
    }
}
