//! The decisions of the log from entries of (time, units): no window of length W holds more than L units.
//!
//! With a precision p, times are rounded up to a grid of p and merged: on the same entries it refuses whatever exact
//! refuses and admits less than p later.

use std::collections::VecDeque;

use super::{Charged, Verdict};
use crate::receipt::Charge;
use crate::rule::BoundLimit;

#[derive(Debug, Default)]
pub(crate) struct State {
    entries: VecDeque<Entry>,
}

/// Units charged at one moment, and the units ever charged before it, modulo 2^32: live totals stay below 2^24.
#[derive(Debug, Clone, Copy)]
struct Entry {
    time: u64,
    before: u32,
    units: u32,
}

impl Entry {
    fn end(&self) -> u32 {
        self.before.wrapping_add(self.units)
    }
}

impl State {
    pub(super) fn judge(&self, limit: &BoundLimit, cost: u32, now: u64) -> Verdict {
        let dead = self.dead(limit.window, now);
        let (Some(first), Some(last)) = (self.entries.get(dead), self.entries.back()) else {
            return Verdict::untouched(limit, cost);
        };
        let live = last.end().wrapping_sub(first.before);
        let room = i64::from(limit.quota) - i64::from(live);
        let need = i64::from(cost) - room;
        let retry_after = (need > 0 && cost <= limit.quota)
            .then(|| self.freeing(dead, u32::try_from(need).unwrap_or(u32::MAX)) + limit.window - now);
        Verdict::new(cost, room, retry_after)
    }

    pub(super) fn reset_after(&self, limit: &BoundLimit, now: u64) -> u64 {
        self.entries.back().map_or(0, |last| (last.time + limit.window).saturating_sub(now))
    }

    pub(super) fn is_empty(&self, _now: u64) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn charge(&mut self, limit: &BoundLimit, cost: u32, now: u64) -> Charged {
        let dead = self.dead(limit.window, now);
        let stamp = if limit.precision > 0 { now.next_multiple_of(limit.precision) } else { now };
        let stamp = self.entries.back().map_or(stamp, |last| stamp.max(last.time));
        if dead > 0 {
            self.entries.drain(..dead);
        }
        match self.entries.back_mut() {
            Some(last) if last.time == stamp => last.units += cost,
            last => {
                let before = last.map_or(0, |last| last.end());
                self.entries.push_back(Entry { time: stamp, before, units: cost });
            }
        }
        Charged { at: stamp, ..Charged::default() }
    }

    /// The units leave the moment of their charge, if it is still live.
    pub(super) fn refund(&mut self, charge: &Charge, _rate: u32, now: u64) -> u32 {
        let index = self.entries.partition_point(|entry| entry.time < charge.at);
        let Some(entry) = self.entries.get_mut(index) else { return 0 };
        if entry.time != charge.at || charge.at + charge.window <= now {
            return 0;
        }
        let units = charge.units.min(entry.units);
        entry.units -= units;
        let empty = entry.units == 0;
        for later in self.entries.range_mut(index + 1..) {
            later.before = later.before.wrapping_sub(units);
        }
        if empty {
            self.entries.remove(index);
        }
        units
    }

    /// How many entries are dead: few, as each charge drops them, so the search begins at the front and doubles its
    /// steps.
    fn dead(&self, window: u64, now: u64) -> usize {
        let is_dead = |index: usize| self.entries.get(index).is_some_and(|entry| entry.time + window <= now);
        let (mut dead, mut step) = (0, 1);
        while is_dead(dead + step - 1) {
            dead += step;
            step *= 2;
        }
        while step > 1 {
            step /= 2;
            if is_dead(dead + step - 1) {
                dead += step;
            }
        }
        dead
    }

    /// The time of the entry with whose death `need` units are free: the last that begins below them.
    fn freeing(&self, dead: usize, need: u32) -> u64 {
        let base = self.entries[dead].before;
        let beyond = self.entries.partition_point(|entry| {
            // Entries before `dead` wrap around to large numbers; they are below all the same.
            entry.time < self.entries[dead].time || entry.before.wrapping_sub(base) < need
        });
        self.entries[beyond - 1].time
    }
}
