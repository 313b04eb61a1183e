//! Requests with several keys: none is charged where another refuses.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::policy::State;
use crate::clock;
use crate::decision::{Decision, Origin};
use crate::error::Result;
use crate::key::Key;
use crate::limiter::{Check, Pending};
use crate::plan::Plan;
use crate::receipt::Receipt;

/// A key, and the rules that are decided on it together.
pub(super) struct Asked {
    pub(super) key: Key,
    pub(super) plan: Arc<Plan>,
}

impl Asked {
    pub(super) fn check<'a>(&'a self, state: &'a State, cost: u64) -> Check<'a> {
        state.limiter.check_planned(&self.plan, self.key.clone()).cost(cost)
    }

    fn peek<'a>(&'a self, state: &'a State, cost: u64) -> Check<'a> {
        state.limiter.peek_planned(&self.plan, self.key.clone()).cost(cost)
    }
}

/// The least that a step gets.
const LEAST_DEADLINE: Duration = Duration::from_millis(1);

/// Remembered refusals first; then all are peeked at, and only if all would pass, all are charged. What was charged is
/// given back if one refuses after all.
pub(super) async fn decide(state: &Arc<State>, asked: &[Asked], cost: u64) -> Result<Vec<Decision>> {
    // All of them: the longest wait of those that are known is the client's.
    let remembered: Vec<Decision> = asked.iter().filter_map(|one| one.check(state, cost).remembered()).collect();
    if !remembered.is_empty() {
        return Ok(remembered);
    }
    // Both steps together have the deadline of one call. Half of it is for the second whatever the first took: a node
    // that does not answer must not make others look as if they did not.
    let (deadline, began) = (state.limiter.deadline(), clock::instant());
    let half = (deadline / 2).max(LEAST_DEADLINE);
    let peeks = asked.iter().map(|one| one.peek(state, cost).deadline(half).into_future()).collect();
    let peeked = all(peeks).await.into_iter().collect::<Result<Vec<_>>>()?;
    if peeked.iter().any(|decision| !decision.allowed()) {
        // Peeks are not counted, but these decide.
        peeked.iter().filter(|decision| !decision.allowed()).for_each(Decision::count);
        return Ok(peeked);
    }
    let left = deadline.saturating_sub(clock::instant() - began).max(half);
    charge(state, asked, cost, left, peeked).await
}

async fn charge(
    state: &Arc<State>,
    asked: &[Asked],
    cost: u64,
    deadline: Duration,
    mut decisions: Vec<Decision>,
) -> Result<Vec<Decision>> {
    // Whom the store has just failed for, the failure policy has let pass: that is not asked again.
    let failed = |decision: &Decision| decision.origin() == Origin::Open;
    decisions.iter().filter(|decision| failed(decision)).for_each(Decision::count);
    let places: Vec<usize> = (0..asked.len()).filter(|place| !failed(&decisions[*place])).collect();
    let calls = places.iter().map(|place| asked[*place].check(state, cost).deadline(deadline).into_future()).collect();
    let charged = Charges { state: Arc::clone(state), answers: Vec::new(), calls }.all().await?;
    let refuses = charged.iter().any(|decision| !decision.allowed());
    if refuses {
        give_back(state, charged.iter());
    }
    for (place, decision) in places.into_iter().zip(charged) {
        // What was given back stands as it did before.
        if !refuses || !decision.allowed() {
            decisions[place] = decision;
        }
    }
    Ok(decisions)
}

/// Charges under way. If nobody waits for them any more, those that were made are given back; those that are made later
/// the store gives back itself.
struct Charges {
    state: Arc<State>,
    calls: Vec<Pending<Decision>>,
    answers: Vec<Option<Result<Decision>>>,
}

impl Charges {
    async fn all(mut self) -> Result<Vec<Decision>> {
        poll_fn(|context| poll_all(&mut self.calls, &mut self.answers, context)).await;
        if self.answers.iter().flatten().all(Result::is_ok) {
            return std::mem::take(&mut self.answers).into_iter().flatten().collect();
        }
        // The others are given back with it.
        let error = self.answers.iter().flatten().find_map(|answer| answer.as_ref().err().cloned());
        error.map_or_else(|| Ok(Vec::new()), Err)
    }
}

impl Drop for Charges {
    fn drop(&mut self) {
        give_back(&self.state, self.answers.iter().flatten().flatten());
    }
}

/// Gives charges back, without waiting for it: the answer is known, and has a deadline.
fn give_back<'a>(state: &Arc<State>, decisions: impl Iterator<Item = &'a Decision>) {
    let receipts = receipts(decisions);
    if receipts.is_empty() {
        return;
    }
    let state = Arc::clone(state);
    let work = async move {
        let refunds = receipts.iter().map(|receipt| state.limiter.refund(receipt)).collect();
        all(refunds).await.iter().for_each(|refunded| state.totals.returned(refunded.is_ok()));
        Ok(())
    };
    Pending::new(work).detach();
}

/// What was charged.
pub(super) fn receipts<'a>(decisions: impl Iterator<Item = &'a Decision>) -> Vec<Receipt> {
    decisions.map(Decision::receipt).filter(|receipt| !receipt.is_empty()).collect()
}

/// Runs calls at once, and waits for all of them.
pub(super) async fn all<T>(mut calls: Vec<Pending<T>>) -> Vec<Result<T>> {
    let mut answers = Vec::new();
    poll_fn(|context| poll_all(&mut calls, &mut answers, context)).await;
    answers.into_iter().flatten().collect()
}

fn poll_all<T>(calls: &mut [Pending<T>], answers: &mut Vec<Option<Result<T>>>, context: &mut Context<'_>) -> Poll<()> {
    answers.resize_with(calls.len(), || None);
    for (call, answer) in calls.iter_mut().zip(answers.iter_mut()) {
        if answer.is_none()
            && let Poll::Ready(ready) = Pin::new(call).poll(context)
        {
            *answer = Some(ready);
        }
    }
    if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
}
