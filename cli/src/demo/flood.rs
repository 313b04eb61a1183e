//! Many requests from a few threads at once, and what came of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use tidegate::{Decision, Error, Origin};

use crate::failure::Failure;
use crate::progress::Progress;
use crate::words;

pub(super) const THREADS: usize = 8;
/// After so many calls that the store failed, the rest would tell nothing.
const GIVE_UP_AFTER: u64 = 50;

/// What one request was answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    origin: Origin,
    failure: Option<Error>,
}

impl Answer {
    pub(super) fn is_of_store(&self) -> bool {
        self.origin == Origin::Store
    }
}

impl From<&Decision> for Answer {
    fn from(decision: &Decision) -> Answer {
        Answer { allowed: decision.allowed(), origin: decision.origin(), failure: decision.failure().cloned() }
    }
}

/// Makes the requests `0..count`, as fast as the threads can; the answers come with their numbers, in no order.
pub(super) fn flood(
    count: usize,
    progress: &Progress,
    ask: impl Fn(usize) -> tidegate::Result<Decision> + Sync,
) -> Result<Vec<(usize, Answer)>, Failure> {
    let (next, failed) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = || {
        let mut answers = Vec::new();
        while failed.load(Ordering::Relaxed) < GIVE_UP_AFTER {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let answer = Answer::from(&ask(number)?);
            failed.fetch_add(u64::from(answer.failure.is_some()), Ordering::Relaxed);
            answers.push((number, answer));
            progress.advance(1);
        }
        Ok::<_, Error>(answers)
    };
    let mut answers = Vec::with_capacity(count);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| {
            answers.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            Ok::<_, Failure>(())
        })
    })?;
    match answers.iter().find_map(|(_, answer)| answer.failure.clone()) {
        Some(error) if failed.into_inner() >= GIVE_UP_AFTER => {
            let asked = words::count(answers.len() as u64);
            let place = format!("gave up after {GIVE_UP_AFTER} failures in {asked} calls");
            Err(Failure::from(error).rephrased(|message| format!("{place}: {message}")))
        }
        _ => Ok(answers),
    }
}

/// How many were admitted and refused, by who decided: what the store did not decide is never mixed with what it did.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) store: Outcome,
    pub(super) others: BTreeMap<&'static str, Outcome>,
    /// Why the failure policy decided, the first time that it did.
    pub(super) failure: Option<Error>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) admitted: u64,
    pub(super) refused: u64,
}

impl Tally {
    pub(super) fn add(&mut self, answer: &Answer) {
        let outcome = match answer.origin {
            Origin::Store => &mut self.store,
            other => self.others.entry(other.name()).or_default(),
        };
        outcome.admitted += u64::from(answer.allowed);
        outcome.refused += u64::from(!answer.allowed);
        if self.failure.is_none() {
            self.failure.clone_from(&answer.failure);
        }
    }
}

impl<'a> FromIterator<&'a Answer> for Tally {
    fn from_iter<I: IntoIterator<Item = &'a Answer>>(answers: I) -> Tally {
        let mut tally = Tally::default();
        answers.into_iter().for_each(|answer| tally.add(answer));
        tally
    }
}

#[cfg(test)]
mod tests {
    use tidegate::{Limiter, OnError, Rule};

    use super::*;

    /// A limiter whose store cannot be reached: nothing listens on port 1.
    fn failing(on_error: OnError) -> Limiter {
        let rule = Rule::parse("crowd", "5/s").expect("a rule").on_error(on_error);
        Limiter::builder().rules([rule]).url("redis://127.0.0.1:1").build().expect("a limiter")
    }

    #[test]
    fn what_the_store_did_not_decide_is_counted_apart() {
        for (on_error, name, admitted) in [(OnError::Allow, "open", 9), (OnError::Deny, "closed", 0)] {
            let limiter = failing(on_error);
            let answers = flood(9, &Progress::new("asking", None), |_| limiter.check("crowd", "alice").wait());
            let answers = answers.unwrap_or_else(|failure| panic!("{failure:?}"));
            let tally: Tally = answers.iter().map(|(_, answer)| answer).collect();
            assert_eq!(tally.store, Outcome::default());
            assert_eq!(tally.others.get(name), Some(&Outcome { admitted, refused: 9 - admitted }));
            assert!(tally.failure.is_some());
        }
    }

    #[test]
    fn a_store_that_keeps_failing_ends_the_flood() {
        let limiter = failing(OnError::Allow);
        let ended = flood(100_000, &Progress::new("asking", None), |_| limiter.check("crowd", "alice").wait());
        let Err(Failure::Told { message, .. }) = ended else { panic!("{ended:?}") };
        assert!(message.starts_with("gave up after 50 failures in "), "{message}");
    }
}
