//! Exact and auditable: every unit stands with its request's id and time. No window of length W holds more than L.

use std::collections::{HashMap, VecDeque};

use super::{Charged, Verdict};
use crate::receipt::Charge;
use crate::request_id;
use crate::rule::BoundLimit;

/// A request as a log keeps it, for audits: time, marked id, units.
pub(crate) type Logged = (u64, Vec<u8>, u32);

#[derive(Debug, Default)]
pub(crate) struct State {
    requests: VecDeque<Request>,
    /// The ids that applications gave, for repeats.
    given: HashMap<Box<[u8]>, u64>,
}

#[derive(Debug)]
struct Request {
    time: u64,
    id: Box<[u8]>,
    units: u32,
    /// The units charged before it, modulo 2^32.
    before: u32,
}

impl State {
    pub(super) fn judge(&self, limit: &BoundLimit, cost: u32, now: u64) -> Verdict {
        let dead = self.dead(limit.window, now);
        let (Some(first), Some(last)) = (self.requests.get(dead), self.requests.back()) else {
            return Verdict::untouched(limit, cost);
        };
        let live = last.before.wrapping_add(last.units).wrapping_sub(first.before);
        let room = i64::from(limit.quota) - i64::from(live);
        let retry_after = (i64::from(cost) > room && cost <= limit.quota).then(|| {
            let mut need = i64::from(cost) - room;
            let freeing = self.requests.range(dead..).find(|request| {
                need -= i64::from(request.units);
                need <= 0
            });
            freeing.map_or(0, |request| request.time + limit.window - now)
        });
        Verdict::new(cost, room, retry_after)
    }

    pub(super) fn reset_after(&self, limit: &BoundLimit, now: u64) -> u64 {
        self.requests.back().map_or(0, |last| (last.time + limit.window).saturating_sub(now))
    }

    pub(super) fn is_empty(&self, _now: u64) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn charge(&mut self, limit: &BoundLimit, cost: u32, now: u64, id: &[u8]) -> Charged {
        let (time, before) =
            self.requests.back().map_or((now, 0), |last| (now.max(last.time), last.before.wrapping_add(last.units)));
        let dead = self.dead(limit.window, now);
        for request in self.requests.drain(..dead) {
            self.given.remove(&request.id);
        }
        if request_id::is_given(id) {
            self.given.insert(id.into(), time);
        }
        self.requests.push_back(Request { time, id: id.into(), units: cost, before });
        Charged { at: time, ..Charged::default() }
    }

    pub(super) fn refund(&mut self, charge: &Charge, _rate: u32, now: u64) -> u32 {
        if charge.at + charge.window <= now {
            return 0;
        }
        let from = self.requests.partition_point(|request| request.time < charge.at);
        let same = |request: &Request| request.time == charge.at && *request.id == *charge.id;
        let Some(index) = self.requests.range(from..).take_while(|request| request.time == charge.at).position(same)
        else {
            return 0;
        };
        let Some(request) = self.requests.remove(from + index) else { return 0 };
        self.given.remove(&request.id);
        for later in self.requests.range_mut(from + index..) {
            later.before = later.before.wrapping_sub(request.units);
        }
        request.units
    }

    pub(super) fn has_seen(&self, limit: &BoundLimit, id: &[u8], now: u64) -> bool {
        self.given.get(id).is_some_and(|time| time + limit.window > now)
    }

    /// Every request that is kept: its time, id and units.
    pub(crate) fn requests(&self) -> Vec<Logged> {
        self.requests.iter().map(|request| (request.time, request.id.to_vec(), request.units)).collect()
    }

    fn dead(&self, window: u64, now: u64) -> usize {
        let is_dead = |request: &Request| request.time + window <= now;
        match self.requests.front() {
            Some(first) if is_dead(first) => self.requests.partition_point(is_dead),
            _ => 0,
        }
    }
}
