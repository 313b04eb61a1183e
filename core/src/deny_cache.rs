//! Refusals that this process remembers, so that a flood on a limited key costs no network.
//!
//! An entry answers the same limits, key and cost alone, for as long as the refusal is sure to hold if nobody resets,
//! refunds or raises anything elsewhere: at most `max`, from before the request was sent. What this process resets or
//! refunds drops the key's entries, and answers that were under way meanwhile are not remembered.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::clock;
use crate::decision::{Decision, Reply};
use crate::key::Subject;
use crate::plan::{Action, Call, Plan};
use crate::request_id;

const SHARDS: usize = 16;
/// The most entries of a shard; the oldest goes first.
const MOST: usize = 4_096;

#[derive(Debug)]
pub(crate) struct DenyCache {
    max: Duration,
    hasher: DefaultHashBuilder,
    shards: [Mutex<Shard>; SHARDS],
    /// Moves with everything that may end a refusal.
    epoch: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Shard {
    table: HashTable<Entry>,
    /// The entries as they came: hash and number.
    order: VecDeque<(u64, u64)>,
    number: u64,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    number: u64,
    /// Kept alive, so that no other plan has its address.
    plan: Arc<Plan>,
    subject: Subject,
    cost: u32,
    asked: Instant,
    until: Instant,
    reply: Reply,
}

/// When a call set out: before anything that may come of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetOut {
    pub(crate) at: Instant,
    epoch: u64,
}

impl DenyCache {
    pub(crate) fn new(max: Duration) -> DenyCache {
        let epoch = Arc::default();
        DenyCache { max, hasher: DefaultHashBuilder::default(), shards: Default::default(), epoch }
    }

    /// How long a refusal is remembered.
    pub(crate) fn holds(&self, refusal: &Decision) -> Option<Duration> {
        refusal.holds(self.max)
    }

    /// What moves with everything that may end a refusal.
    pub(crate) fn epoch(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.epoch)
    }

    pub(crate) fn set_out(&self, at: Instant) -> SetOut {
        SetOut { at, epoch: self.epoch.load(Ordering::Acquire) }
    }

    /// The refusal that is remembered, as it stands now.
    pub(crate) fn answer(&self, call: &Call) -> Option<Reply> {
        // A peek tells how things stand, and asks.
        if call.action != Action::Check || !self.knows(call) {
            return None;
        }
        let (hash, shard) = self.shard(&call.subject);
        let entry = shard.table.find(hash, |entry| entry.is_of(call))?;
        let now = clock::instant();
        if now >= entry.until {
            return None;
        }
        let mut reply = entry.reply.clone();
        reply.age(u64::try_from(now.saturating_duration_since(entry.asked).as_micros()).unwrap_or(u64::MAX));
        Some(reply)
    }

    /// Remembers a refusal, which a peek may have found too, unless something may have ended it since the call set out.
    pub(crate) fn remember(&self, call: &Call, reply: &Reply, set_out: SetOut) {
        if reply.allowed || !call.plan.enforces || !self.knows(call) {
            return;
        }
        let wait = reply.retry_after(&call.plan).map_or(self.max, |wait| self.max.min(Duration::from_micros(wait)));
        let (hash, mut shard) = self.shard(&call.subject);
        // Under the lock: whoever forgets moves the epoch first, and then waits for this.
        if self.epoch.load(Ordering::Acquire) != set_out.epoch {
            return;
        }
        if let Ok(old) = shard.table.find_entry(hash, |entry| entry.is_of(call)) {
            old.remove();
        }
        shard.make_room(set_out.at);
        shard.number += 1;
        let number = shard.number;
        let (plan, subject, reply) = (Arc::clone(&call.plan), call.subject.clone(), reply.clone());
        let (asked, until) = (set_out.at, set_out.at + wait);
        let entry = Entry { hash, number, plan, subject, cost: call.cost, asked, until, reply };
        shard.table.insert_unique(hash, entry, |entry| entry.hash);
        shard.order.push_back((hash, number));
    }

    /// Drops what is remembered of a key.
    pub(crate) fn forget(&self, subject: &Subject) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        let (hash, mut shard) = self.shard(subject);
        while let Ok(entry) = shard.table.find_entry(hash, |entry| entry.subject == *subject) {
            entry.remove();
        }
    }

    /// The same where anything is remembered; else other refusals may be remembered meanwhile.
    pub(crate) fn forget_if_known(&self, subject: &Subject) {
        let (hash, shard) = self.shard(subject);
        let known = shard.table.find(hash, |entry| entry.subject == *subject).is_some();
        drop(shard);
        if known {
            self.forget(subject);
        }
    }

    /// Whether a refusal of the call says anything of the next: an id may have been seen by then, and pass.
    fn knows(&self, call: &Call) -> bool {
        !self.max.is_zero() && !request_id::is_given(&call.id)
    }

    fn shard(&self, subject: &Subject) -> (u64, MutexGuard<'_, Shard>) {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(subject.as_bytes());
        let hash = hasher.finish();
        let index = usize::try_from(hash >> 32).unwrap_or(0) % SHARDS;
        (hash, self.shards[index].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shard {
    /// Lets go of the oldest entries: of those whose time is over, two at a time, and of any where there are too many.
    fn make_room(&mut self, now: Instant) {
        for _ in 0..2 {
            let Some((hash, number)) = self.order.front().copied() else { return };
            let entry = self.table.find_entry(hash, |entry| entry.number == number);
            match entry {
                Ok(entry) if entry.get().until > now && self.order.len() < MOST => return,
                Ok(entry) => drop(entry.remove()),
                Err(_) => {}
            }
            self.order.pop_front();
        }
    }
}

impl Entry {
    fn is_of(&self, call: &Call) -> bool {
        Arc::ptr_eq(&self.plan, &call.plan) && self.cost == call.cost && self.subject == call.subject
    }
}
