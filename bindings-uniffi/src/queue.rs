//! The completion queue: many calls cross at once, and so do their answers. One thread waits for all.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::http::{self, Policy};
use tidegate::{Completed as Done, Completions, Limiter, Outcome, Submitted};

use crate::args::duration;
use crate::call::{Answer, Ask, Call, Completed};
use crate::error::{TidegateError, invalid};
use crate::limiter::{Result, acquiring, check, count, refund, reset};
use crate::policy::{Needs, request};

/// Where answers come that were not known at once.
#[derive(Debug, uniffi::Object)]
pub struct Queue {
    completions: Completions,
    bell: Arc<Bell>,
    under_way: Mutex<UnderWay>,
}

/// What calls that are under way need when they are answered, by their tickets.
#[derive(Debug, Default)]
struct UnderWay {
    /// Acquires, which can be called off.
    acquires: HashMap<u64, Submitted>,
    /// Whose refusals may be repeated.
    checks: HashMap<u64, Limiter>,
}

#[derive(Debug, Default)]
struct Bell {
    state: Mutex<Rung>,
    rings: Condvar,
}

/// Whether something has come, or somebody is to be woken all the same.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Rung {
    has_come: bool,
    is_woken: bool,
}

impl Bell {
    fn ring(&self, mark: impl FnOnce(&mut Rung)) {
        mark(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.rings.notify_one();
    }

    /// Why the wait has ended; neither where its time is over.
    fn wait(&self, most: Duration) -> Rung {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.rings.wait_timeout_while(state, most, |state| *state == Rung::default());
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

#[uniffi::export]
impl Queue {
    #[uniffi::constructor]
    #[allow(clippy::new_without_default, reason = "UniFFI has constructors only")]
    pub fn new() -> Arc<Queue> {
        let bell = Arc::new(Bell::default());
        let ringer = Arc::clone(&bell);
        let completions = Completions::new(move || ringer.ring(|rung| rung.has_come = true));
        Arc::new(Queue { completions, bell, under_way: Mutex::default() })
    }

    /// Blocks until something has come, for so many milliseconds at the most, and takes it.
    pub fn wait(&self, most_ms: i64) -> Result<Vec<Completed>> {
        let (most, mut drained) = (duration(most_ms)?, Vec::new());
        self.completions.drain(&mut drained);
        while drained.is_empty() {
            let rung = self.bell.wait(most);
            self.completions.drain(&mut drained);
            // It may have rung for what an earlier call has taken: then it goes on.
            if rung.is_woken || !rung.has_come {
                break;
            }
        }
        let limiters: Vec<Option<Limiter>> = {
            let mut under_way = self.under_way();
            let known = |done: &Done| {
                under_way.acquires.remove(&done.ticket);
                under_way.checks.remove(&done.ticket)
            };
            drained.iter().map(known).collect()
        };
        // Others submit meanwhile.
        Ok(drained.into_iter().zip(&limiters).map(|(done, limiter)| Completed::of(done, limiter.as_ref())).collect())
    }

    /// Wakes whoever waits.
    pub fn wake(&self) {
        self.bell.ring(|rung| rung.is_woken = true);
    }

    /// Gives an acquire up: what it charges is given back. Its ticket comes all the same.
    pub fn call_off(&self, ticket: i64) {
        if let Some(acquire) = self.under_way().acquires.get(&ticket.cast_unsigned()) {
            acquire.call_off();
        }
    }
}

impl Queue {
    /// Submits calls of a limiter. Tells those that are answered at once.
    pub(crate) fn submit(&self, limiter: Result<Limiter>, calls: Vec<Call>) -> Vec<Completed> {
        self.together(limiter, calls, |limiter, ticket, ask| self.ask(limiter, ticket, ask))
    }

    /// The same of a policy.
    pub(crate) fn admit(&self, policy: Result<Policy>, calls: Vec<Call>) -> Vec<Completed> {
        self.together(policy, calls, |policy, ticket, ask| self.ask_to_admit(policy, ticket, ask))
    }

    fn together<T>(
        &self,
        of: Result<T>,
        calls: Vec<Call>,
        submit: impl Fn(&T, u64, Ask) -> Result<Option<Answer>>,
    ) -> Vec<Completed> {
        let of = match of {
            Ok(of) => of,
            Err(error) => {
                let failed = |call: Call| Completed { ticket: call.ticket, answer: Answer::failed(error.clone()) };
                return calls.into_iter().map(failed).collect();
            }
        };
        let answer = |call: Call| {
            let answer = submit(&of, call.ticket.cast_unsigned(), call.ask)
                .unwrap_or_else(|error| Some(Answer::failed(error)))?;
            Some(Completed { ticket: call.ticket, answer })
        };
        Completions::together(|| calls.into_iter().filter_map(answer).collect())
    }

    fn ask(&self, limiter: &Limiter, ticket: u64, ask: Ask) -> Result<Option<Answer>> {
        let to = &self.completions;
        match ask {
            Ask::Check { rules, key, options } => {
                // Known before it is under way: it may be answered at once.
                self.under_way().checks.insert(ticket, limiter.clone());
                let decided = check(limiter, false, &rules, key, options)
                    .and_then(|check| check.submit(to, ticket).map_err(TidegateError::from));
                if !matches!(decided, Ok(None)) {
                    self.under_way().checks.remove(&ticket);
                }
                let answer = |decision| Answer::of(Ok(Outcome::Decision(decision)), Some(limiter));
                return Ok(decided?.map(answer));
            }
            Ask::Peek { rules, key, options } => {
                let decided = check(limiter, true, &rules, key, options)?.submit(to, ticket)?;
                return Ok(decided.map(|decision| Answer::of(Ok(Outcome::Decision(decision)), None)));
            }
            Ask::Acquire { rule, key, options, timeout_ms } => {
                let acquire = acquiring(limiter, &rule, key, options, timeout_ms)?;
                // Under the lock: its answer may come at once, and is told only when this is known.
                let mut under_way = self.under_way();
                let submitted = acquire.submit(to, ticket)?;
                under_way.acquires.insert(ticket, submitted);
            }
            Ask::Refund { receipt } => match refund(limiter, &receipt)? {
                None => return Ok(Some(Answer::Refunded { is_so: false })),
                Some(pending) => pending.submit(to, ticket)?,
            },
            Ask::Reset { rule, key, limits } => reset(limiter, &rule, key, limits).submit(to, ticket)?,
            Ask::Count { rule, key, window_ms, add } => {
                count(limiter, &rule, key, window_ms, add, None)?.submit(to, ticket)?;
            }
            Ask::TakeBack { rule, key, window_ms, units, start } => {
                count(limiter, &rule, key, window_ms, units, Some(start))?.submit(to, ticket)?;
            }
            Ask::Ready { timeout_ms } => limiter.ready(duration(timeout_ms)?).submit(to, ticket)?,
            Ask::Admit { .. } => return Err(invalid("a limiter admits no requests; ask a policy")),
        }
        Ok(None)
    }

    fn ask_to_admit(&self, policy: &Policy, ticket: u64, ask: Ask) -> Result<Option<Answer>> {
        let to = &self.completions;
        match ask {
            Ask::Admit { method, path, told, asked } => {
                let request: http::Request = request(policy, &method, &path, told)?;
                if !asked {
                    let needs = Needs::of(&request);
                    if needs.asks() {
                        return Ok(Some(Answer::Needing { needs }));
                    }
                }
                let admitted = request.submit(to, ticket)?;
                Ok(admitted.map(|admission| Answer::of(Ok(Outcome::Admission(admission)), None)))
            }
            Ask::Ready { timeout_ms } => {
                policy.ready(duration(timeout_ms)?).submit(to, ticket)?;
                Ok(None)
            }
            _ => Err(invalid("a policy admits requests; ask its limiter for anything else")),
        }
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
