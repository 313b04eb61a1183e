//! The decisions of the log from entries of (time, units): no window of length W holds more than L units.
//!
//! With a precision p, times are rounded up to a grid of p and merged: on the same entries it refuses whatever exact
//! refuses and admits less than p later.

use std::collections::VecDeque;

use super::{Charged, Outcome};
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
    pub(super) fn judge(&self, limit: &BoundLimit, cost: u32, now: u64) -> Outcome {
        let dead = self.dead(limit.window, now);
        let (Some(first), Some(last)) = (self.entries.get(dead), self.entries.back()) else {
            return super::untouched(limit, cost);
        };
        let live = last.end().wrapping_sub(first.before);
        let room = i64::from(limit.quota) - i64::from(live);
        let need = i64::from(cost) - room;
        let retry_after = (need > 0 && cost <= limit.quota)
            .then(|| self.freeing(dead, u32::try_from(need).unwrap_or(u32::MAX)) + limit.window - now);
        Outcome::new(cost, room, retry_after, last.time + limit.window - now)
    }

    pub(super) fn charge(&mut self, limit: &BoundLimit, cost: u32, now: u64) -> Charged {
        let dead = self.dead(limit.window, now);
        let stamp = if limit.precision > 0 { now.next_multiple_of(limit.precision) } else { now };
        let stamp = self.entries.back().map_or(stamp, |last| stamp.max(last.time));
        self.entries.drain(..dead);
        match self.entries.back_mut() {
            Some(last) if last.time == stamp => last.units += cost,
            last => {
                let before = last.map_or(0, |last| last.end());
                self.entries.push_back(Entry { time: stamp, before, units: cost });
            }
        }
        Charged { at: stamp, reset_after: stamp + limit.window - now, ..Charged::default() }
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

    /// How many entries are dead: few, as each charge drops them, so the search begins at the front.
    fn dead(&self, window: u64, now: u64) -> usize {
        let is_dead = |entry: &Entry| entry.time + window <= now;
        match self.entries.front() {
            Some(first) if is_dead(first) => self.entries.partition_point(is_dead),
            _ => 0,
        }
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
