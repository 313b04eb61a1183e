//! Refusals that a binding may repeat by itself, where to ask this process's memory of them costs more than to decide.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Limiter, Store};
use crate::decision::{Decision, Origin};
use crate::error::Result;

impl Limiter {
    /// How long a refusal may be repeated to the same check, one of the same rules, key, cost and limits, without asking
    /// again: from before that check set out, and while [`refusals_ended`](Limiter::refusals_ended) stays as it was then.
    /// None where it may not: where it is none of the store's, or this process is not to remember it either.
    ///
    /// For bindings that pay dearly for each call. What is repeated is counted by [`repeated`](Limiter::repeated).
    #[must_use]
    pub fn may_repeat(&self, refusal: &Decision) -> Option<Duration> {
        let Store::Redis(remote) = &self.inner.store else { return None };
        if refusal.origin() != Origin::Store {
            return None;
        }
        let hold = remote.opened()?.holds(refusal)?;
        (!hold.is_zero()).then_some(hold)
    }

    /// A number that moves whenever this process has done what may end a refusal: a reset, a refund, or a check that found
    /// it over. None where nothing is remembered, as in memory.
    #[must_use]
    pub fn refusals_ended(&self) -> Option<Arc<AtomicU64>> {
        let Store::Redis(remote) = &self.inner.store else { return None };
        remote.store().ok().map(|store| store.refusals_ended())
    }

    /// Counts refusals of a check of these rules that were repeated.
    ///
    /// # Errors
    /// `unknown_rule`, and `invalid_request` for rules that cannot be meant together.
    pub fn repeated<'a>(&self, rules: impl IntoIterator<Item = &'a str>, times: u64) -> Result<()> {
        let rules: Vec<String> = rules.into_iter().map(str::to_owned).collect();
        let plan = self.inner.plan(&rules, None)?;
        plan.rows.iter().for_each(|row| row.decided(Origin::DenyCache, false, times));
        self.inner.counters.deny_cache_hits.fetch_add(times, Ordering::Relaxed);
        Ok(())
    }
}
