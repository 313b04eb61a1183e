//! The algorithms behind a sharded, bounded map: the default store, the oracle of the tests, the local fallback.

mod shard;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ahash::RandomState;
use smallvec::SmallVec;

use self::shard::{Place, Shard, Slot};
use crate::algorithm::{self, Charged, Count, Logged, State, Step, Tally};
use crate::clock::Clock;
use crate::decision::{LimitReply, Reply};
use crate::key::{Subject, Suffix};
use crate::plan::{Action, Call};
use crate::receipt::Receipt;
use crate::request_id;
use crate::rule::BoundLimit;

#[derive(Debug)]
pub(crate) struct MemoryStore {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    clock: Clock,
}

/// The most keys that a store keeps unless told otherwise.
pub(crate) const DEFAULT_MAX_KEYS: usize = 1_000_000;
/// Fewer keys than this a shard, and uneven shards would force out live state long before the bound.
const LEAST_IN_SHARD: usize = 4_096;
const MOST_SHARDS: usize = 64;

impl MemoryStore {
    pub(crate) fn new(max_keys: usize, clock: Clock) -> MemoryStore {
        let count = (max_keys / LEAST_IN_SHARD).clamp(1, MOST_SHARDS);
        let shards = (0..count).map(|_| Mutex::new(Shard::new((max_keys / count).max(1)))).collect();
        MemoryStore { shards, hasher: RandomState::new(), clock }
    }

    pub(crate) fn decide(&self, call: &Call) -> Reply {
        let (hash, mut shard) = self.shard(&call.subject);
        // Read under the lock, so that decisions on one key see time pass in their own order.
        let now = self.clock.now();
        decide(&mut shard, hash, call, now)
    }

    /// The same at a time of the caller's, for replaying what is past.
    pub(crate) fn decide_at(&self, call: &Call, now: u64) -> Reply {
        let (hash, mut shard) = self.shard(&call.subject);
        decide(&mut shard, hash, call, now)
    }

    /// Whether anything was given back. `rates` are the asked ones, charge by charge.
    pub(crate) fn refund(&self, receipt: &Receipt, rates: &[u32]) -> bool {
        let (hash, mut shard) = self.shard(&receipt.subject);
        let now = self.clock.now();
        let mut refunded = false;
        for (charge, rate) in receipt.charges.iter().zip(rates) {
            if let Some(slot) = shard.find(hash, &receipt.subject, &charge.suffix) {
                refunded |= slot.state.refund(charge, *rate, now) > 0;
            }
        }
        refunded
    }

    pub(crate) fn reset(&self, limits: &[std::sync::Arc<BoundLimit>], subject: &Subject) {
        let (hash, mut shard) = self.shard(subject);
        for limit in limits {
            shard.remove(hash, subject, &limit.suffix);
            shard.remove(hash, subject, &limit.count_suffix);
        }
    }

    pub(crate) fn count(&self, suffix: &Suffix, window: u64, subject: &Subject, step: Step) -> Tally {
        let (hash, mut shard) = self.shard(subject);
        let now = self.clock.now();
        if let Some(Slot { state: State::Count(count), .. }) = shard.find(hash, subject, suffix)
            && !count.is_over(window, now)
        {
            count.step(step);
            return count.tally(window, now);
        }
        let (Step::Add(units @ 1..), true) = (step, window > 0) else { return Tally::default() };
        let count = Count::begin(units, now);
        let tally = count.tally(window, now);
        shard.remove(hash, subject, suffix);
        shard.insert(hash, subject, suffix, State::Count(count), now + window, now);
        tally
    }

    /// What a log keeps: time, id and units, the oldest first.
    pub(crate) fn log(&self, suffix: &Suffix, subject: &Subject) -> Vec<Logged> {
        let (hash, mut shard) = self.shard(subject);
        match shard.find(hash, subject, suffix) {
            Some(Slot { state: State::SlidingWindowLog(log), .. }) => log.requests(),
            _ => Vec::new(),
        }
    }

    /// How many keys are kept, and how many live ones the bound has forced out.
    pub(crate) fn usage(&self) -> (usize, u64) {
        let each = self.shards.iter().map(|shard| {
            let shard = lock(shard);
            (shard.len(), shard.forced_out())
        });
        each.fold((0, 0), |(keys, forced), (more, others)| (keys + more, forced + others))
    }

    fn shard(&self, subject: &Subject) -> (u64, MutexGuard<'_, Shard>) {
        let hash = self.hasher.hash_one(subject.as_bytes());
        // The high bits choose the shard: the table inside uses the low ones.
        let index = usize::try_from(hash >> 32).unwrap_or(0) % self.shards.len();
        (hash, lock(&self.shards[index]))
    }
}

/// A panic in another thread cannot leave a state half written: each is changed after all was judged.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Judges every limit before it charges any, in one shard under one lock (law 6).
fn decide(shard: &mut Shard, hash: u64, call: &Call, now: u64) -> Reply {
    let repeated = request_id::is_given(&call.id) && has_seen(shard, hash, call, now);
    let mut reply = Reply { allowed: true, repeated, limits: SmallVec::new() };
    let mut places: SmallVec<[Option<Place>; 2]> = SmallVec::new();
    for limit in &call.plan.limits {
        let place = shard.place(hash, &call.subject, &limit.suffix);
        let outcome = match place.and_then(|place| shard.at(place)) {
            _ if limit.denies_all() => algorithm::Outcome::NEVER,
            Some(slot) => slot.state.judge(limit, call.cost, now),
            None => algorithm::untouched(limit, call.cost),
        };
        reply.allowed &= outcome.allowed || !limit.enforce;
        reply.limits.push(LimitReply { outcome, charged: None });
        places.push(place);
    }
    reply.allowed |= repeated;
    if reply.allowed && !repeated && call.action == Action::Check {
        for ((limit, reply), place) in call.plan.limits.iter().zip(&mut reply.limits).zip(places) {
            if reply.outcome.allowed {
                let charged = charge(shard, hash, place, call, limit, now);
                reply.outcome = reply.outcome.charged(call.cost, &charged);
                reply.charged = Some(charged);
            }
        }
    }
    reply
}

/// Charges the state at a place, or a new one where there was none or the bound has forced it out since.
fn charge(shard: &mut Shard, hash: u64, place: Option<Place>, call: &Call, limit: &BoundLimit, now: u64) -> Charged {
    if let Some(slot) = place.and_then(|place| shard.at(place)) {
        let charged = slot.state.charge(limit, call.cost, now, &call.id);
        slot.whole_at = now + charged.reset_after;
        return charged;
    }
    let mut state = State::new(limit.algorithm);
    let charged = state.charge(limit, call.cost, now, &call.id);
    shard.insert(hash, &call.subject, &limit.suffix, state, now + charged.reset_after, now);
    charged
}

fn has_seen(shard: &mut Shard, hash: u64, call: &Call, now: u64) -> bool {
    call.plan.limits.iter().any(|limit| {
        !limit.denies_all()
            && shard
                .find(hash, &call.subject, &limit.suffix)
                .is_some_and(|slot| slot.state.has_seen(limit, &call.id, now))
    })
}
