//! Checks on their way to one node. What queues while others are in flight leaves together, as one run of the script:
//! no timer, no delay. A lone check leaves at once.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use redis::{Cmd, Value};
use tokio::runtime::Handle;

use super::failure::{Failure, unavailable};
use super::job::Job;
use super::node::{Link, Node};
use super::relay::{self, Reader};
use super::script;
use super::{LATE, RedisStore, SILENCE, is_halfway, timeout};
use crate::blocking;
use crate::clock;
use crate::completion;
use crate::io::{self, BEAT};
use crate::trace::Span;

/// The most checks that leave together: more gain little, and a server runs nothing else meanwhile.
const MOST_TOGETHER: usize = 128;
/// The most limits that are decided together, unless one call has more.
const HEAVIEST: usize = 256;
/// The most runs of the script in flight to one node: one that the server works on, and one on the way.
const MOST_IN_FLIGHT: usize = 2;
/// So many checks are worth a run of the script of their own, beside another.
const FEW: usize = 4;

/// What waits to leave for one node.
#[derive(Default)]
pub(super) struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// How many tasks carry jobs away, each with one run of the script in flight.
    carriers: usize,
    /// How many of them are on their way to their first.
    coming: usize,
}

impl State {
    /// Whose relay all that has queued may leave by. A loop reads many; the I/O thread one, where it has nothing else.
    fn reader(&self) -> Option<Reader> {
        let reader = self.jobs.front()?.reader();
        let may_leave = match &reader {
            Reader::IoThread => self.carriers == 0 && self.jobs.len() == 1,
            Reader::Loop(event_loop) => self.jobs.iter().all(|job| job.is_of(event_loop)),
        };
        may_leave.then_some(reader)
    }
}

/// In how many parts so many set out. Where nothing is in flight, many do in two: while the server works on one, the other is
/// on its way.
pub(super) fn parts(jobs: usize, is_idle: bool) -> usize {
    if is_idle { jobs.div_ceil(FEW).clamp(1, MOST_IN_FLIGHT) } else { 1 }
}

/// Takes what leaves together, of a part so large.
pub(super) fn take(jobs: &mut VecDeque<Job>, part: usize) -> Vec<Job> {
    let mut weight = 0;
    let fits = |job: &&Job| {
        weight += job.weight();
        weight <= HEAVIEST
    };
    let count = jobs.iter().take(part.min(MOST_TOGETHER)).take_while(fits).count().max(1);
    jobs.drain(..count.min(jobs.len())).collect()
}

impl Queue {
    /// Queues a job, and sees to it that somebody carries it away. Called on any thread.
    pub(super) fn push(&self, node: &Arc<Node>, job: Job, handle: &Handle) {
        self.state().jobs.push_back(job);
        if !Together::waits_for(node) {
            self.have_carried(node, handle);
        }
    }

    /// Sees to it that what has queued is carried away.
    fn have_carried(&self, node: &Arc<Node>, handle: &Handle) {
        let mut state = self.state();
        if !blocking::takes_errand()
            && let Some(up) = node.up_now()
            && let Some(reader) = state.reader()
        {
            // Whoever asks can send. Who blocks for it has the lane for that.
            let jobs = std::mem::take(&mut state.jobs);
            drop(state);
            let left = relay::send(node, up, &reader, jobs);
            state = self.state();
            // Where nothing is left, its room is.
            let later = std::mem::replace(&mut state.jobs, left);
            state.jobs.extend(later);
        }
        let idle = MOST_IN_FLIGHT - state.carriers;
        let parts = parts(state.jobs.len(), idle == MOST_IN_FLIGHT);
        let needed = parts.min(idle).min(state.jobs.len());
        state.carriers += needed;
        state.coming += needed;
        drop(state);
        (0..needed).for_each(|_| drop(handle.spawn(carry(Arc::clone(node)))));
    }

    /// The next to leave together; with none left the carrier is dismissed.
    fn take(&self, is_first: bool) -> Option<Vec<Job>> {
        let mut state = self.state();
        // Those who come as well get their part.
        let part = state.jobs.len().div_ceil(state.coming.max(1));
        state.coming -= usize::from(is_first);
        if state.jobs.is_empty() {
            state.carriers -= 1;
            return None;
        }
        Some(take(&mut state.jobs, part))
    }

    /// Whether nothing waits here, and nothing that was here is in flight.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.carriers == 0 && state.jobs.is_empty()
    }

    /// Answers what has waited here to its deadline; it is not sent any more.
    fn expire(&self, now: Instant) {
        let mut state = self.state();
        if !state.jobs.iter().any(|job| job.is_due(now)) {
            return;
        }
        let (mut due, waiting): (VecDeque<Job>, _) =
            std::mem::take(&mut state.jobs).into_iter().partition(|job| job.is_due(now));
        state.jobs = waiting;
        drop(state);
        due.iter_mut().for_each(Job::expire);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}

thread_local! {
    /// The nodes for which this thread has queued what is to leave together.
    static TOGETHER: RefCell<Option<Vec<Arc<Node>>>> = const { RefCell::new(None) };
}

/// While there is one, what this thread queues is not carried away: the I/O thread would be woken for the first of many,
/// and take that alone.
pub(crate) struct Together(());

impl Together {
    /// None if there is one already, which is the one that counts.
    pub(crate) fn begin() -> Option<Together> {
        let begin = |nodes: &RefCell<Option<_>>| match &mut *nodes.borrow_mut() {
            Some(_) => None,
            none => {
                *none = Some(Vec::new());
                Some(Together(()))
            }
        };
        // There is none any more where the thread ends.
        TOGETHER.try_with(begin).unwrap_or_default()
    }

    /// Whether a node's queue is to be left for a while.
    fn waits_for(node: &Arc<Node>) -> bool {
        let waits_for = |nodes: &RefCell<Option<Vec<_>>>| {
            let mut nodes = nodes.borrow_mut();
            let Some(nodes) = &mut *nodes else { return false };
            if !nodes.iter().any(|other| Arc::ptr_eq(other, node)) {
                nodes.push(Arc::clone(node));
            }
            true
        };
        TOGETHER.try_with(waits_for).unwrap_or(false)
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        let nodes = TOGETHER.try_with(RefCell::take).ok().flatten().unwrap_or_default();
        // The jobs were queued with this handle at hand.
        let Ok(handle) = io::handle() else { return };
        nodes.iter().for_each(|node| node.queue.have_carried(node, handle));
    }
}

/// Carries batches away until the queue is empty.
async fn carry(node: Arc<Node>) {
    let mut is_first = true;
    while let Some(mut jobs) = node.queue.take(std::mem::take(&mut is_first)) {
        drop_due(&mut jobs);
        let Some(first) = jobs.first() else { continue };
        match node.up() {
            Some(link) if jobs.len() == 1 || node.takes_batches(link.cluster) => {
                let (store, number) = (Arc::clone(&first.store), link.number);
                let span = Span::batch(&node.address, jobs.len());
                let batch = Batch { store, node: Arc::clone(&node), link, jobs };
                let sent = tokio::spawn(span.follow(batch.send()));
                if tokio::time::timeout(SILENCE, sent).await.is_err() {
                    node.drop_link(number);
                }
            }
            // Each by itself is a pipeline all the same: the connection writes together what is there.
            _ => jobs.into_iter().for_each(send_alone),
        }
    }
}

/// Answers the jobs that are at their deadline and have not run: they are not sent any more.
fn drop_due(jobs: &mut Vec<Job>) {
    let now = clock::instant();
    jobs.iter_mut().filter(|job| job.is_due(now)).for_each(Job::expire);
    jobs.retain(Job::is_awaited);
}

pub(super) fn send_alone(job: Job) {
    tokio::spawn(job.alone());
}

/// Jobs that leave together for one node, over one connection.
struct Batch {
    store: Arc<RedisStore>,
    node: Arc<Node>,
    link: Link,
    jobs: Vec<Job>,
}

/// Sends jobs again of which the server did not know the script: with it, which it keeps.
pub(super) async fn teach(node: Arc<Node>, mut jobs: Vec<Job>) {
    drop_due(&mut jobs);
    let store = jobs.first().map(|job| Arc::clone(&job.store));
    match store.zip(node.up()) {
        Some((store, link)) if jobs.len() > 1 && node.takes_batches(link.cluster) => {
            store.meters.batch_sizes.add(jobs.len() as u64);
            let mut batch = Batch { store, node, link, jobs };
            let outcome = batch.run(false).await;
            conclude(&batch.store, &batch.node, batch.jobs, outcome);
        }
        _ => jobs.into_iter().for_each(send_alone),
    }
}

impl Batch {
    async fn send(mut self) {
        self.store.meters.batch_sizes.add(self.jobs.len() as u64);
        let outcome = match self.run(true).await {
            Err(Failure::UnknownScript) => {
                drop_due(&mut self.jobs);
                if self.jobs.is_empty() {
                    return;
                }
                self.run(false).await
            }
            outcome => outcome,
        };
        conclude(&self.store, &self.node, self.jobs, outcome);
    }

    /// One run of the script. Meanwhile whatever reaches its deadline, here or in the queue, is answered.
    async fn run(&mut self, known: bool) -> Result<Value, Failure> {
        let (node, link, beats) = (Arc::clone(&self.node), self.link.clone(), Arc::clone(&self.store.beats));
        let command = command(&self.jobs, self.link.cluster, known);
        let mut reply = std::pin::pin!(node.send(link, &command, false));
        let begun = clock::instant();
        let (silent, give_up) = (begun + SILENCE, begun + LATE);
        loop {
            let now = clock::instant();
            let next = self.jobs.iter().filter(|job| job.is_awaited()).map(|job| job.deadline).min();
            let wait = async {
                match next {
                    // Nobody waits here, and its carrier sees to the queue again.
                    None if now > silent => tokio::time::sleep_until(give_up.into()).await,
                    Some(next) if next < now + BEAT => tokio::time::sleep_until(next.into()).await,
                    _ => beats.next().await,
                }
            };
            tokio::select! {
                biased;
                outcome = reply.as_mut() => return outcome,
                () = wait => {}
            }
            let now = clock::instant();
            self.jobs.iter_mut().filter(|job| job.is_due(now)).for_each(Job::expire);
            node.queue.expire(now);
            if now >= give_up {
                return Err(Failure::Lost(timeout()));
            }
        }
    }
}

/// One run of the script for jobs of one store.
pub(super) fn command(jobs: &[Job], is_cluster: bool, is_known: bool) -> Cmd {
    let store = &jobs[0].store;
    if let [job] = jobs {
        return store.command(is_known, &job.request);
    }
    let (script, time) = store.script(is_cluster);
    // The first key routes the call; a server that is alone needs none.
    let mut command = script.batch(is_known, is_cluster, jobs.iter().map(|job| &job.request));
    if let Some(time) = time {
        command.arg(&time[..]);
    }
    command
}

/// Does what there is to do after a run of the script for some jobs. On the I/O thread.
pub(super) fn conclude(store: &Arc<RedisStore>, node: &Arc<Node>, mut jobs: Vec<Job>, outcome: Result<Value, Failure>) {
    let now = clock::instant();
    // A loop that waits for several of them is woken for all.
    let _rung_once = completion::Rings::begin();
    match outcome {
        Ok(Value::Array(replies)) if replies.len() == jobs.len() => {
            for (job, reply) in jobs.into_iter().zip(replies) {
                settle(node, job, reply, now);
            }
        }
        Ok(reply) => match (jobs.pop(), jobs.is_empty()) {
            (Some(job), true) => settle(node, job, reply, now),
            (job, _) => {
                jobs.into_iter().chain(job).for_each(|job| job.settle(Err(script::garbled()), now));
            }
        },
        // It did not run. Where some key lives elsewhere, each finds its own way.
        Err(Failure::Moved(_) | Failure::Ask(_)) => {
            store.topology.refresh();
            jobs.into_iter().for_each(send_alone);
        }
        Err(Failure::Refused(error)) if is_halfway(&error) => jobs.into_iter().for_each(send_alone),
        Err(Failure::Refused(error)) if is_of_slots(error.message()) => {
            node.stop_batches();
            jobs.into_iter().for_each(send_alone);
        }
        Err(Failure::UnknownScript) => {
            jobs.into_iter().for_each(|job| job.settle(Err(unavailable("the server forgets the script")), now));
        }
        Err(Failure::Refused(error)) => jobs.into_iter().for_each(|job| job.settle(Err(error.clone()), now)),
        Err(Failure::Lost(error)) => {
            for job in jobs {
                if job.is_repeatable() { send_alone(job) } else { job.settle(Err(error.clone()), now) }
            }
        }
    }
}

/// What the script said to one of a batch.
fn settle(node: &Node, job: Job, reply: Value, now: Instant) {
    match reply {
        Value::BulkString(reply) => {
            let refusal = script::refusal(&reply);
            if refusal.is_some_and(is_of_slots) {
                node.stop_batches();
            }
            // Nothing of it was written: the first key of a check is read first.
            if refusal.is_some_and(|words| is_of_slots(words) || words.contains("non local key")) {
                return send_alone(job);
            }
            let reply = script::decision(&reply, &job.call);
            job.settle(reply, now);
        }
        _ => job.settle(Err(script::garbled()), now),
    }
}

/// Whether a server does not run a script over the keys of several slots.
fn is_of_slots(words: &str) -> bool {
    words.contains("same slot") || words.contains("shebang")
}
