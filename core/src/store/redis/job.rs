//! A check or peek on its way to a server: its one answer, and what it charged that nobody took.

use std::sync::Arc;
use std::time::Instant;

use super::relay::Reader;
use super::script::{self, Request};
use super::{Answer, Blame, LATE, RedisStore, timeout};
use crate::breaker::Breaker;
use crate::clock;
use crate::completion::{EventLoop, Waiter};
use crate::decision::Reply;
use crate::deny_cache::SetOut;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Call;

/// A call with more to do than this many units of a log leaves alone, so that nobody waits behind it.
const LIGHT: u32 = 100;

/// A check or peek on its way, and who waits for it. Its answer comes once, by its deadline.
pub(super) struct Job {
    pub(super) store: Arc<RedisStore>,
    pub(super) call: Call,
    pub(super) request: Request,
    set_out: SetOut,
    pub(super) deadline: Instant,
    /// Nobody is waiting any more once it is taken.
    waiter: Option<Waiter>,
    /// That of the node which it was meant for, or of the store where no node was known.
    breaker: Arc<Breaker>,
    /// Answered at its deadline by a policy that let it pass: a charge that comes to light later stands.
    passed: bool,
}

impl Job {
    pub(super) fn new(
        store: Arc<RedisStore>,
        call: Call,
        request: Request,
        set_out: SetOut,
        waiter: Waiter,
        breaker: Arc<Breaker>,
    ) -> Job {
        let deadline = set_out.at + call.deadline;
        Job { store, call, request, set_out, deadline, waiter: Some(waiter), breaker, passed: false }
    }

    /// Whether it is little work, as nearly all calls are.
    pub(super) fn is_light(&self) -> bool {
        self.call.plan.units_kept(self.call.cost) <= LIGHT
    }

    /// How much it adds to what leaves together.
    pub(super) fn weight(&self) -> usize {
        self.call.plan.limits.len()
    }

    /// Whether its answer is still to come.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiter.is_some()
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.is_awaited() && self.deadline <= now
    }

    /// Who reads its answer, where it is sent by who asks.
    pub(super) fn reader(&self) -> Reader {
        let queue = self.waiter.as_ref().and_then(Waiter::event_loop);
        queue.map_or(Reader::IoThread, Reader::Loop)
    }

    pub(super) fn is_of(&self, event_loop: &EventLoop) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| waiter.is_of(event_loop))
    }

    pub(super) fn is_repeatable(&self) -> bool {
        self.call.plan.is_repeatable(&self.call.id, self.call.deadline)
    }

    /// Answers it as unanswered; what comes of it is still waited for.
    pub(super) fn expire(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        self.store.failed(&self.breaker, &timeout());
        self.store.meters.latency.add_time(self.call.deadline);
        let answer = self.store.fall_back(&self.call, timeout());
        let passes = answer.passes(&self.call);
        self.passed = waiter.send(answer).is_ok() && passes;
    }

    /// Tells the outcome. What it charged and nobody took as admitted is given back, once (law 14).
    pub(super) fn settle(mut self, answer: Result<Reply>, now: Instant) {
        match &answer {
            // One that was answered at its deadline has been counted: the node was too slow, whatever it says now.
            _ if self.waiter.is_none() => {}
            Err(error) if is_of_node(error) => self.store.failed(&self.breaker, error),
            _ => {
                self.store.meters.latency.add_time(now - self.set_out.at);
                self.store.succeeded(&self.breaker);
            }
        }
        if let Ok(reply) = &answer {
            self.store.denied.remember(&self.call, reply, self.set_out);
            if reply.allowed && self.call.plan.at_call {
                // It may have raised what others were refused by.
                self.store.denied.forget_if_known(&self.call.subject);
            }
        }
        let unclaimed = match (self.waiter.take(), answer) {
            (Some(waiter), Ok(reply)) => match waiter.send(Answer::Store(reply)) {
                Err(Answer::Store(reply)) => Some(reply),
                _ => None,
            },
            (Some(waiter), Err(error)) => {
                let _ = waiter.send(self.store.fall_back(&self.call, error));
                None
            }
            (None, answer) => answer.ok().filter(|_| !self.passed),
        };
        if let Some(reply) = unclaimed {
            self.store.reclaim(self.call, reply);
        }
    }

    /// Sends it by itself, along redirects, and waits for what comes of it.
    pub(super) async fn alone(mut self) {
        let (store, repeatable) = (Arc::clone(&self.store), self.is_repeatable());
        let request = std::mem::take(&mut self.request);
        let blame = Blame::on(&self.breaker);
        let mut work = std::pin::pin!(store.run(request, self.deadline, repeatable, Some(&blame)));
        let answer = match tokio::time::timeout_at(self.deadline.into(), work.as_mut()).await {
            Ok(answer) => answer,
            Err(_) => {
                self.breaker = blame.whom();
                self.expire();
                tokio::time::timeout(LATE, work).await.unwrap_or_else(|_| Err(timeout()))
            }
        };
        self.breaker = blame.whom();
        if answer.is_ok() {
            store.meters.batch_sizes.add(1);
        }
        let reply = answer.and_then(|reply| script::decision(&reply, &self.call));
        self.settle(reply, clock::instant());
    }
}

/// Whether an error says that a node is not well, rather than that it does not like the call.
fn is_of_node(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StoreUnavailable | ErrorKind::Timeout | ErrorKind::UnsupportedServer)
}
