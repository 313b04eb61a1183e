//! One shard: a table of states with a bound. What is whole goes first, then what will be whole first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashTable;

use crate::algorithm::State;
use crate::clock::Look;
use crate::key::{Subject, Suffix};
use crate::metrics::Rows;

/// Fewer states than this are not worth the look. (A clock that jumps ahead lets states look whole and be swept; when it
/// steps back those begin anew: one further quota for each jump, as law 7 allows.)
const WORTH_SWEEPING: usize = 64;

/// What is kept about one key: two neighbouring cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Slot {
    subject: Subject,
    suffix: Suffix,
    hash: u64,
    pub(super) state: State,
    /// When the state stops to matter, in microseconds since 1970.
    whole_at: u64,
    /// Which of the slot's tenants this is, so that the queue's old places are known as such.
    generation: u32,
}

/// A slot and its tenant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
pub(super) struct Shard {
    /// Places in `slots`.
    table: HashTable<u32>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    generation: u32,
    /// When each slot is thought to be whole, which is never later than it is: charges put it off, and whatever brings it
    /// nearer queues the slot anew.
    queue: BinaryHeap<Reverse<(u64, u32, u32)>>,
    bound: usize,
    forced_out: u64,
    /// How often each rule was decided here: refused, and allowed, rule by rule.
    pub(super) decided: Vec<u64>,
    /// The shard's own, under its lock.
    pub(super) look: Look,
}

impl Shard {
    pub(super) fn new(bound: usize) -> Shard {
        Shard {
            table: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            generation: 0,
            queue: BinaryHeap::new(),
            bound,
            forced_out: 0,
            decided: Vec::new(),
            look: Look::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// How many live states the bound has forced out.
    pub(super) fn forced_out(&self) -> u64 {
        self.forced_out
    }

    /// Counts a decision of several rules, or the first one of a rule.
    #[inline(never)]
    pub(super) fn note(&mut self, rows: &Rows, allowed: bool) {
        for row in rows {
            let place = 2 * row.number as usize;
            if self.decided.len() < place + 2 {
                self.decided.resize(place + 2, 0);
            }
            self.decided[place + usize::from(allowed)] += 1;
        }
    }

    pub(super) fn counts(&self, row: usize) -> [u64; 2] {
        self.decided.get(2 * row..2 * row + 2).map_or([0; 2], |counts| [counts[0], counts[1]])
    }

    pub(super) fn find(&mut self, hash: u64, subject: &Subject, suffix: &Suffix) -> Option<&mut Slot> {
        self.place(hash, subject, suffix).and_then(|place| self.at(place))
    }

    /// Where a state is kept.
    #[inline(always)]
    pub(super) fn place(&self, hash: u64, subject: &Subject, suffix: &Suffix) -> Option<Place> {
        let index = *self.table.find(mixed(hash, suffix), |index| is(&self.slots, *index, subject, suffix))?;
        let generation = self.slots[index as usize].as_ref()?.generation;
        Some(Place { index, generation })
    }

    /// The state at a place, unless it has gone since.
    #[inline(always)]
    pub(super) fn at(&mut self, place: Place) -> Option<&mut Slot> {
        self.slots[place.index as usize].as_mut().filter(|slot| slot.generation == place.generation)
    }

    /// Puts a state where none was, and makes room for it first.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        subject: &Subject,
        suffix: &Suffix,
        state: State,
        whole_at: u64,
        now: u64,
    ) {
        self.sweep(now);
        while self.table.len() >= self.bound && self.force_out(now) {}
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // The bound keeps places far below 2^32.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.generation = self.generation.wrapping_add(1);
        let hash = mixed(hash, suffix);
        let generation = self.generation;
        let (subject, suffix) = (subject.clone(), suffix.clone());
        self.slots[place as usize] = Some(Slot { subject, suffix, hash, state, whole_at, generation });
        let slots = &self.slots;
        self.table.insert_unique(hash, place, |place| slots[*place as usize].as_ref().map_or(0, |slot| slot.hash));
        self.queue.push(Reverse((whole_at, place, generation)));
    }

    /// Queues a place that will be whole sooner than was thought.
    #[cold]
    pub(super) fn hasten(&mut self, place: Place, whole_at: u64) {
        self.queue.push(Reverse((whole_at, place.index, place.generation)));
        self.tidy();
    }

    pub(super) fn remove(&mut self, hash: u64, subject: &Subject, suffix: &Suffix) {
        let slots = &self.slots;
        if let Ok(entry) = self.table.find_entry(mixed(hash, suffix), |place| is(slots, *place, subject, suffix)) {
            let place = entry.remove().0;
            self.slots[place as usize] = None;
            self.free.push(place);
        }
        self.tidy();
    }

    /// Places that mean nothing any more stay in the queue until their time; many of them are not worth keeping.
    fn tidy(&mut self) {
        if self.queue.len() > 2 * self.table.len() + 64 {
            let live = self.slots.iter().enumerate().filter_map(|(index, slot)| {
                let slot = slot.as_ref()?;
                Some(Reverse((slot.whole_at, u32::try_from(index).unwrap_or(u32::MAX), slot.generation)))
            });
            self.queue = live.collect();
        }
    }

    /// Removes what is whole, two at a time, twice as fast as anything comes in; few states are left alone.
    fn sweep(&mut self, now: u64) {
        if self.table.len() < WORTH_SWEEPING {
            return;
        }
        for _ in 0..2 {
            match self.queue.peek() {
                Some(Reverse((whole_at, _, _))) if *whole_at <= now => self.drop_first(now, false),
                _ => return,
            };
        }
    }

    /// Makes room for one: by what is whole, else by what will be whole first. False if there is nothing to remove.
    fn force_out(&mut self, now: u64) -> bool {
        while !self.queue.is_empty() {
            if self.drop_first(now, true) {
                return true;
            }
        }
        false
    }

    /// Takes the first of the queue: removes it if its time has come, or `force`; else queues it again for its real
    /// time. Whether a slot was removed.
    fn drop_first(&mut self, now: u64, force: bool) -> bool {
        let Some(Reverse((thought, place, generation))) = self.queue.pop() else { return false };
        let Some(slot) = self.slots[place as usize].as_ref().filter(|slot| slot.generation == generation) else {
            return false;
        };
        if slot.whole_at > now && (slot.whole_at > thought || !force) {
            self.queue.push(Reverse((slot.whole_at, place, generation)));
            return false;
        }
        self.forced_out += u64::from(slot.whole_at > now);
        if let Ok(entry) = self.table.find_entry(slot.hash, |other| *other == place) {
            entry.remove();
        }
        self.slots[place as usize] = None;
        self.free.push(place);
        true
    }
}

impl Slot {
    /// Notes when the state will be whole, and tells whether that is sooner than was thought.
    pub(super) fn is_whole_sooner(&mut self, whole_at: u64) -> bool {
        whole_at < std::mem::replace(&mut self.whole_at, whole_at)
    }
}

fn is(slots: &[Option<Slot>], place: u32, subject: &Subject, suffix: &Suffix) -> bool {
    slots[place as usize].as_ref().is_some_and(|slot| slot.subject == *subject && slot.suffix == *suffix)
}

/// The subject's hash is keyed, so that strangers cannot choose collisions.
fn mixed(hash: u64, suffix: &Suffix) -> u64 {
    hash ^ suffix.hash()
}
