//! Who decides a check: this process, where it can, or the store's servers, or the failure policy.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::{Inner, Store, ended};
use crate::completion::{Completions, Outcome, Submission, Then, Waiter};
use crate::decision::{Decision, Reply};
use crate::error::Result;
use crate::fork;
use crate::io;
use crate::plan::Call;
use crate::store::redis::{Answer, RedisStore, Remote};
use crate::trace::Span;

impl Inner {
    /// Decides without waiting, where state lives in this process or a refusal is remembered; else tells whom to ask.
    #[inline(always)]
    pub(super) fn decide_here(&self, call: Call) -> Result<Decision, (&Remote, Call)> {
        match &self.store {
            Store::Memory(store) => {
                let reply = store.decide(&call);
                Ok(Decision::from_store(call, reply))
            }
            Store::Redis(remote) => match remembered(remote, &call) {
                Some(reply) => Ok(self.recall(call, reply)),
                None => Err((remote, call)),
            },
        }
    }

    /// The decision where a refusal is remembered, and nothing else: no server is asked.
    pub(super) fn decide_from_cache(&self, call: Call) -> Option<Decision> {
        let Store::Redis(remote) = &self.store else { return None };
        let reply = remembered(remote, &call)?;
        let span = Span::check(&call);
        let decision = self.recall(call, reply);
        span.decided(&decision);
        Some(decision)
    }

    /// The decision that a remembered refusal is, counted.
    fn recall(&self, call: Call, reply: Reply) -> Decision {
        self.counters.deny_cache_hits.fetch_add(1, Ordering::Relaxed);
        let counts = call.counts;
        let decision = Decision::from_cache(call, reply);
        if counts {
            decision.count();
        }
        decision
    }

    /// Decides, by the store or by the rule's failure policy.
    pub(super) async fn decide(&self, call: Call) -> Decision {
        let span = Span::check(&call);
        let decide = async {
            match self.decide_here(call) {
                Ok(decision) => decision,
                Err((remote, call)) => ask(remote, call).await,
            }
        };
        let decision = span.follow(decide).await;
        span.decided(&decision);
        decision
    }

    /// Decides what was not known at once.
    pub(super) async fn decide_remotely(&self, call: Call) -> Decision {
        match &self.store {
            Store::Memory(store) => {
                let reply = store.decide(&call);
                Decision::from_store(call, reply)
            }
            Store::Redis(remote) => ask(remote, call).await,
        }
    }
}

/// The refusal that this process remembers of a call.
fn remembered(remote: &Remote, call: &Call) -> Option<Reply> {
    remote.store().ok()?.remembered(call)
}

/// Asks the store's servers; where they fail, the rule's failure policy decides.
async fn ask(remote: &Remote, call: Call) -> Decision {
    let begun = remote.store().map_err(Answer::Failed).and_then(|store| Ok((store, store.decide(&call)?)));
    let (store, answer) = match begun {
        Ok(begun) => begun,
        Err(answer) => return conclude(call, answer),
    };
    let (call, answer) = Awaited::new(store, call, answer).answer().await;
    let answer = match (answer, remote.store()) {
        (Some(answer), _) => answer,
        (None, Ok(store)) => store.fall_back(&call, ended()),
        (None, Err(error)) => Answer::Failed(error),
    };
    conclude(call, answer)
}

/// An answer on its way. Whoever sends it learns that nobody waits any more; where it had been sent by then, what it charged
/// is given back here.
struct Awaited {
    store: Arc<RedisStore>,
    /// None once it is answered.
    call: Option<Call>,
    answer: oneshot::Receiver<Answer>,
    generation: u64,
}

impl Awaited {
    fn new(store: &Arc<RedisStore>, call: Call, answer: oneshot::Receiver<Answer>) -> Awaited {
        Awaited { store: Arc::clone(store), call: Some(call), answer, generation: fork::generation() }
    }

    async fn answer(mut self) -> (Call, Option<Answer>) {
        let answer = io::owed(&mut self.answer).await;
        (self.call.take().expect("it is answered once"), answer)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        // In a child that was forked meanwhile it is the parent's.
        let Some(call) = self.call.take().filter(|_| self.generation == fork::generation()) else { return };
        self.answer.close();
        if let Ok(Answer::Store(reply)) = self.answer.try_recv() {
            Arc::clone(&self.store).reclaim(call, reply);
        }
    }
}

/// Asks the store's servers for an event loop, unless the answer is there at once: then it is the decision that is
/// returned, and what would have become of it.
pub(super) fn submit(
    remote: &Remote,
    call: Call,
    span: &Span,
    to: &Completions,
    ticket: u64,
    then: Then,
) -> Option<(Decision, Then)> {
    let mut then = Some(then);
    let waiter = || {
        let then = then.take().unwrap_or_else(|| Box::new(Outcome::Decision));
        Waiter::Queue(to.ticket(ticket, Some(Submission { call: call.clone(), span: span.clone(), then })))
    };
    let begun = remote.store().map_err(Answer::Failed).and_then(|store| store.begin(&call, waiter));
    begun.err().map(|answer| conclude(call, answer)).zip(then)
}

/// The decision that an answer is, counted.
pub(crate) fn conclude(call: Call, answer: Answer) -> Decision {
    let counts = call.counts;
    let decision = match answer {
        Answer::Store(reply) => Decision::from_store(call, reply),
        Answer::Local(reply, failure) => Decision::from_local(call, reply, failure),
        Answer::Failed(failure) => Decision::from_policy(call, failure),
    };
    decision.count_failure();
    if counts {
        decision.count();
    }
    decision
}

/// Apart from the calls that are decided in this process, and need none of its room.
#[inline(never)]
pub(super) fn ask_and_wait(remote: &Remote, call: Call) -> Decision {
    crate::blocking::wait(ask(remote, call))
}
