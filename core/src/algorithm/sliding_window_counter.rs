//! Two counters, the one of the window before weighted by the fraction of it that is still inside (Cloudflare, 2017).
//! Small and approximate: up to 2L-1 units in a window of W, and it may refuse early.

use super::{Charged, Verdict, rounded_up, scaled};
use crate::receipt::Charge;
use crate::rule::BoundLimit;

#[derive(Debug, Default)]
pub(crate) struct State {
    last: u64,
    current: u32,
    previous: u32,
}

impl State {
    pub(super) fn judge(&self, limit: &BoundLimit, cost: u32, now: u64) -> Verdict {
        let (window, quota) = (limit.window, limit.quota);
        let State { last: time, current, previous } = self.at(window, now);
        let (offset, lag) = (time % window, time - now);
        let share = rounded_up(scaled(previous.into(), window - offset, window));
        let room = i64::from(quota) - i64::from(current) - i64::try_from(share).unwrap_or(i64::MAX);
        let retry_after = (i64::from(cost) > room && cost <= quota).then(|| {
            // The share of the window before must shrink to what this window leaves; where this window alone is too
            // full, its own share in the next one must.
            let (windows, spare, shrinking) = match (quota - cost).checked_sub(current) {
                Some(spare) => (1, spare, previous),
                None => (2, quota - cost, current),
            };
            windows * window - scaled(spare.into(), window, shrinking.into()).0 - offset + lag
        });
        Verdict::new(cost, room, retry_after)
    }

    pub(super) fn reset_after(&self, limit: &BoundLimit, now: u64) -> u64 {
        let State { last: time, current, previous } = self.at(limit.window, now);
        let windows = if current > 0 { 2 } else { u64::from(previous > 0) };
        if windows > 0 { windows * limit.window - time % limit.window + time - now } else { 0 }
    }

    pub(super) fn is_empty(&self, _now: u64) -> bool {
        self.current == 0 && self.previous == 0
    }

    pub(super) fn charge(&mut self, limit: &BoundLimit, cost: u32, now: u64) -> Charged {
        *self = self.at(limit.window, now);
        self.current += cost;
        Charged { at: self.last, ..Charged::default() }
    }

    /// Out of the window of the charge, while that still weighs: until the end of the next.
    pub(super) fn refund(&mut self, charge: &Charge, _rate: u32, now: u64) -> u32 {
        let window_of = |time: u64| time / charge.window;
        if window_of(now.max(self.last)) > window_of(charge.at) + 1 {
            return 0;
        }
        let counter = match window_of(self.last).checked_sub(window_of(charge.at)) {
            Some(0) => &mut self.current,
            Some(1) => &mut self.previous,
            _ => return 0,
        };
        let units = charge.units.min(*counter);
        *counter -= units;
        units
    }

    /// Both counters as they stand in the window of the decision time.
    fn at(&self, window: u64, now: u64) -> State {
        let time = now.max(self.last);
        let (current, previous) = match time / window - self.last / window {
            0 => (self.current, self.previous),
            1 => (0, self.current),
            _ => (0, 0),
        };
        State { last: time, current, previous }
    }
}
