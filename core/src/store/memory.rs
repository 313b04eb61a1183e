//! The algorithms behind a sharded, bounded map: the default store, the oracle of the tests, the local fallback.
//!
//! `#[inline(always)]` on the way of a check, here and in `clock` and `decision`: without it the compiler makes calls of
//! these, and hands 50 to 160 bytes from one to the next; a check then takes a sixth longer (`make bench`).

mod shard;

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use self::shard::{Place, Shard, Slot};
use crate::algorithm::{Count, Logged, Outcome, State, Step, Tally, Verdict};
use crate::clock::Clock;
use crate::decision::{LimitReply, Reply};
use crate::key::{Subject, Suffix};
use crate::plan::{Action, Call};
use crate::receipt::Receipt;
use crate::request_id;
use crate::rule::BoundLimit;

/// Clones share their state. (The shards alone are shared, rather than the whole: so a check looks one place less up.)
#[derive(Debug, Clone)]
pub(crate) struct MemoryStore {
    shards: Arc<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    clock: Clock,
}

/// The most keys that a store keeps unless told otherwise.
pub(crate) const DEFAULT_MAX_KEYS: usize = 1_000_000;
/// Fewer keys than this a shard, and uneven shards would force out live state long before the bound.
const LEAST_IN_SHARD: usize = 4_096;
const MOST_SHARDS: usize = 64;
/// The most units of a log that are told.
const MOST_LOGGED: u32 = 1_000;

impl MemoryStore {
    pub(crate) fn new(max_keys: usize, clock: Clock) -> MemoryStore {
        // A power of two, so that a mask chooses among them.
        let count = 1 << (max_keys / LEAST_IN_SHARD).clamp(1, MOST_SHARDS).ilog2();
        let shards = (0..count).map(|_| Mutex::new(Shard::new((max_keys / count).max(1)))).collect();
        MemoryStore { shards, hasher: DefaultHashBuilder::default(), clock }
    }

    #[inline(always)]
    pub(crate) fn decide(&self, call: &Call) -> Reply {
        let (hash, mut shard) = self.shard(&call.subject);
        // Read under the lock, so that decisions on one key see time pass in their own order.
        let now = self.clock.now(&mut shard.look);
        let reply = Turn { shard: &mut shard, hash, call, now }.decide();
        if call.counts {
            match shard.decided.get_mut(call.plan.place + usize::from(reply.allowed)) {
                Some(count) => *count += 1,
                None => shard.note(&call.plan.rows, reply.allowed),
            }
        }
        reply
    }

    /// The same at a time of the caller's, for replaying what is past.
    pub(crate) fn decide_at(&self, call: &Call, now: u64) -> Reply {
        let (hash, mut shard) = self.shard(&call.subject);
        Turn { shard: &mut shard, hash, call, now }.decide()
    }

    /// Whether anything was given back. `rates` are the asked ones, charge by charge.
    pub(crate) fn refund(&self, receipt: &Receipt, rates: &[u32]) -> bool {
        let (hash, mut shard) = self.shard(&receipt.subject);
        let now = self.clock.now(&mut shard.look);
        let mut refunded = false;
        for (charge, rate) in receipt.charges.iter().zip(rates) {
            let place = shard.place(hash, &receipt.subject, &charge.suffix);
            if let Some((place, slot)) = place.and_then(|place| Some((place, shard.at(place)?))) {
                refunded |= slot.state.refund(charge, *rate, now) > 0;
                if slot.state.is_empty(now) && slot.is_whole_sooner(now) {
                    shard.hasten(place, now);
                }
            }
        }
        refunded
    }

    pub(crate) fn reset(&self, limits: &[Arc<BoundLimit>], subject: &Subject) {
        let (hash, mut shard) = self.shard(subject);
        for limit in limits {
            shard.remove(hash, subject, &limit.suffix);
            shard.remove(hash, subject, &limit.count_suffix);
        }
    }

    pub(crate) fn count(&self, suffix: &Suffix, window: u64, subject: &Subject, step: Step) -> Tally {
        let (hash, mut shard) = self.shard(subject);
        let now = self.clock.now(&mut shard.look);
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

    /// What a log keeps: time, id and units, the oldest first; the newest thousand units, as elsewhere.
    pub(crate) fn log(&self, suffix: &Suffix, subject: &Subject) -> Vec<Logged> {
        let (hash, mut shard) = self.shard(subject);
        match shard.find(hash, subject, suffix) {
            Some(Slot { state: State::SlidingWindowLog(log), .. }) => newest(log.requests(), MOST_LOGGED),
            _ => Vec::new(),
        }
    }

    /// How many keys are kept, and how many live ones the bound has forced out.
    pub(crate) fn usage(&self) -> (usize, u64) {
        let each = self.shards.iter().map(|shard| {
            let shard = shard.lock();
            (shard.len(), shard.forced_out())
        });
        each.fold((0, 0), |(keys, forced), (more, others)| (keys + more, forced + others))
    }

    /// How often a rule was decided: refused, and allowed.
    pub(crate) fn decided(&self, row: usize) -> [u64; 2] {
        let each = self.shards.iter().map(|shard| shard.lock().counts(row));
        each.fold([0, 0], |sum, more| [sum[0] + more[0], sum[1] + more[1]])
    }

    #[inline(always)]
    fn shard(&self, subject: &Subject) -> (u64, MutexGuard<'_, Shard>) {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(subject.as_bytes());
        let hash = hasher.finish();
        // The high bits choose the shard: the table inside uses the low ones.
        let index = usize::try_from(hash >> 32).unwrap_or(0) & (self.shards.len() - 1);
        (hash, self.shards[index].lock())
    }
}

/// A call's turn at its shard, under the lock.
struct Turn<'a> {
    shard: &'a mut Shard,
    hash: u64,
    call: &'a Call,
    now: u64,
}

impl Turn<'_> {
    /// Judges every limit before it charges any (law 6).
    #[inline(always)]
    fn decide(&mut self) -> Reply {
        let limits = &self.call.plan.limits;
        let repeated = request_id::is_given(&self.call.id) && self.has_seen();
        let charges = self.call.action == Action::Check && !repeated;
        // One limit is what nearly every call has: no lists for it.
        if let [limit] = limits.as_slice() {
            let judged = self.judge(limit);
            let allowed = judged.1.allowed || !limit.enforce || repeated;
            let limits = SmallVec::from_buf([self.conclude(limit, judged, charges)]);
            return Reply { allowed, repeated, limits };
        }
        let judged: SmallVec<[Judged; 4]> = limits.iter().map(|limit| self.judge(limit)).collect();
        let passes = |(limit, judged): (&Arc<BoundLimit>, &Judged)| judged.1.allowed || !limit.enforce;
        let allowed = repeated || limits.iter().zip(&judged).all(passes);
        let concluded =
            limits.iter().zip(judged).map(|(limit, judged)| self.conclude(limit, judged, charges && allowed));
        Reply { allowed, repeated, limits: concluded.collect() }
    }

    #[inline(always)]
    fn judge(&mut self, limit: &BoundLimit) -> Judged {
        let place = self.shard.place(self.hash, &self.call.subject, &limit.suffix);
        let verdict = match place.and_then(|place| self.shard.at(place)) {
            _ if limit.denies_all() => Verdict::NEVER,
            Some(slot) => slot.state.judge(limit, self.call.cost, self.now),
            None => Verdict::untouched(limit, self.call.cost),
        };
        (place, verdict)
    }

    /// Charges a limit that allows it, if told to, and tells how it stands then.
    #[inline(always)]
    fn conclude(&mut self, limit: &BoundLimit, (place, verdict): Judged, charges: bool) -> LimitReply {
        let Turn { shard, hash, call, now } = self;
        let slot = place.and_then(|place| shard.at(place));
        if !charges || !verdict.allowed {
            let outcome = match slot {
                _ if limit.denies_all() => Outcome::NEVER,
                Some(slot) => Outcome::new(verdict, 0, slot.state.reset_after(limit, *now)),
                None => Outcome::new(verdict, 0, 0),
            };
            return LimitReply { outcome, charged: None };
        }
        let (charged, reset_after) = if let Some(slot) = slot {
            let charged = slot.state.charge(limit, call.cost, *now, &call.id);
            let reset_after = slot.state.reset_after(limit, *now);
            let sooner = slot.is_whole_sooner(*now + reset_after);
            if let Some(place) = place.filter(|_| sooner) {
                shard.hasten(place, *now + reset_after);
            }
            (charged, reset_after)
        } else {
            // None was there, or another limit of this call has forced it out since.
            let mut state = State::new(limit.algorithm);
            let charged = state.charge(limit, call.cost, *now, &call.id);
            let reset_after = state.reset_after(limit, *now);
            shard.insert(*hash, &call.subject, &limit.suffix, state, *now + reset_after, *now);
            (charged, reset_after)
        };
        LimitReply { outcome: Outcome::new(verdict, call.cost, reset_after), charged: Some(charged) }
    }

    fn has_seen(&mut self) -> bool {
        let Turn { shard, hash, call, now } = self;
        call.plan.limits.iter().any(|limit| {
            !limit.denies_all()
                && shard
                    .find(*hash, &call.subject, &limit.suffix)
                    .is_some_and(|slot| slot.state.has_seen(limit, &call.id, *now))
        })
    }
}

/// The newest of some requests, up to so many units.
fn newest(mut requests: Vec<Logged>, mut units: u32) -> Vec<Logged> {
    for request in requests.iter_mut().rev() {
        request.2 = request.2.min(units);
        units -= request.2;
    }
    requests.retain(|request| request.2 > 0);
    requests
}

/// What one limit says, and where its state is kept.
type Judged = (Option<Place>, Verdict);
