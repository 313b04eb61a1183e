//! Waiters on one key and the same limits stand in line, and only the head asks the store.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use tokio::sync::{Mutex as Queue, MutexGuard, watch};

use super::Inner;
use crate::clock;
use crate::decision::Decision;
use crate::io;
use crate::plan::{Action, Call};

/// The lines of one limiter, and of those that have its store with other rules. A line lives as long as somebody stands in it.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Mutex<HashMap<String, Weak<Line>>>,
}

#[derive(Debug)]
struct Line {
    /// First come, first served: tokio's mutex is fair.
    head: Queue<()>,
    /// Until when the head is known to wait: nobody behind it comes sooner.
    until: watch::Sender<Option<Instant>>,
}

/// Waits to be admitted until a point in time, and then tells how things stand. Counted once, however often it asks.
pub(super) async fn acquire(inner: &Inner, call: Call, until: Instant) -> Decision {
    let decision = stand(inner, Call { counts: false, ..call }, until).await;
    decision.count();
    decision
}

async fn stand(inner: &Inner, call: Call, until: Instant) -> Decision {
    if can_never_fit(&call) {
        return inner.decide(call).await;
    }
    let line = inner.lines.get(Lines::default).line(&call);
    let mut known = line.until.subscribe();
    // Both live as long as the wait: a place in line that was let go of would be lost.
    let (mut turn, mut end) = (pin!(line.head.lock()), pin!(io::sleep_until(until)));
    let turn = loop {
        let wait = *known.borrow_and_update();
        if let Some(wait) = wait.filter(|wait| *wait > until) {
            return in_vain(inner, call, wait).await;
        }
        tokio::select! {
            biased;
            turn = &mut turn => break turn,
            () = &mut end => {
                return in_vain(inner, call, wait.unwrap_or(until)).await;
            }
            _ = known.changed() => {}
        }
    };
    Head { line: &line, _turn: turn }.acquire(inner, call, until).await
}

/// How things stand, for somebody who waited in vain: refused even where the cost would fit, since others come first.
async fn in_vain(inner: &Inner, call: Call, wait: Instant) -> Decision {
    let decision = inner.decide(Call { action: Action::Peek, ..call }).await;
    decision.behind_others(wait.saturating_duration_since(clock::instant()))
}

/// Who asks the store. What it knows of its wait goes with it, however it ends.
struct Head<'a> {
    line: &'a Line,
    _turn: MutexGuard<'a, ()>,
}

impl Head<'_> {
    /// Asks until admitted, or until it is known that the time will not do.
    async fn acquire(self, inner: &Inner, call: Call, until: Instant) -> Decision {
        loop {
            let decision = inner.decide(call.clone()).await;
            let Some(wait) = decision.retry_after() else { return decision };
            let next = clock::instant() + wait;
            if next > until {
                return decision;
            }
            self.line.until.send_replace(Some(next));
            io::sleep_until(next).await;
        }
    }
}

impl Drop for Head<'_> {
    fn drop(&mut self) {
        self.line.until.send_replace(None);
    }
}

impl Lines {
    fn line(&self, call: &Call) -> Arc<Line> {
        let mut lines = self.lines();
        // Lines that nobody stands in any more go when there are many of them.
        if lines.len() >= 64 && lines.len().is_power_of_two() {
            lines.retain(|_, line| line.strong_count() > 0);
        }
        let entry = lines.entry(name(call)).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let line = Arc::new(Line { head: Queue::new(()), until: watch::Sender::new(None) });
            *entry = Arc::downgrade(&line);
            line
        })
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, HashMap<String, Weak<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether some limit that blocks is smaller than the cost: no wait helps.
fn can_never_fit(call: &Call) -> bool {
    call.plan.limits.iter().any(|limit| limit.enforce && (limit.denies_all() || call.cost > limit.burst))
}

/// Who waits for the same: limits and subject. Figures too: nobody waits behind those who wait by a lower limit, as it
/// was before the rules were exchanged.
pub(super) fn name(call: &Call) -> String {
    let mut name = String::from_utf8_lossy(call.subject.as_bytes()).into_owned();
    for limit in &call.plan.limits {
        let (suffix, quota, burst, enforce) = (limit.suffix.text(), limit.quota, limit.burst, limit.enforce);
        write!(name, "{suffix}={quota},{burst},{enforce}").expect("a string takes all");
    }
    name
}
