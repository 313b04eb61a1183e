//! One counter per window; windows are multiples of W of the clock. Up to 2L units pass across a boundary.

use super::{Charged, Verdict};
use crate::receipt::Charge;
use crate::rule::BoundLimit;

#[derive(Debug, Default)]
pub(crate) struct State {
    last: u64,
    used: u32,
}

impl State {
    pub(super) fn judge(&self, limit: &BoundLimit, cost: u32, now: u64) -> Verdict {
        let (_, start, used) = self.at(limit.window, now);
        let left = start + limit.window - now;
        let room = i64::from(limit.quota) - i64::from(used);
        Verdict::new(cost, room, (cost <= limit.quota).then_some(left))
    }

    pub(super) fn reset_after(&self, limit: &BoundLimit, now: u64) -> u64 {
        let (_, start, used) = self.at(limit.window, now);
        if used > 0 { start + limit.window - now } else { 0 }
    }

    pub(super) fn is_empty(&self, _now: u64) -> bool {
        self.used == 0
    }

    pub(super) fn charge(&mut self, limit: &BoundLimit, cost: u32, now: u64) -> Charged {
        let (time, _, used) = self.at(limit.window, now);
        *self = State { last: time, used: used + cost };
        Charged { at: time, ..Charged::default() }
    }

    pub(super) fn refund(&mut self, charge: &Charge, _rate: u32, now: u64) -> u32 {
        let (_, start, used) = self.at(charge.window, now);
        if !(start..start + charge.window).contains(&charge.at) {
            return 0;
        }
        // None where the last charge was in an earlier window: that one's count stands, should the clock step back to it.
        let units = charge.units.min(used);
        if units > 0 {
            self.used = used - units;
        }
        units
    }

    /// The decision time, the start of its window, and the units used in it.
    fn at(&self, window: u64, now: u64) -> (u64, u64, u32) {
        let time = now.max(self.last);
        let start = time - time % window;
        (time, start, if self.last < start { 0 } else { self.used })
    }
}
