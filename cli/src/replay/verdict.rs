//! What one rule would have decided.

use std::time::Duration;

use tidegate::{Result, Rule, Simulation};

use super::history::History;
use crate::progress::Progress;

#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// By the number of the key.
    denied_to: Vec<u32>,
}

/// How many keys one simulation gets, far below the number from which its store would have to forget live ones, even
/// with as many limits as a rule may have. Keys know nothing of each other, so they can be decided in groups.
const GROUP: u32 = 20_000;
/// How many decisions the progress bar takes at a time.
const STRIDE: u64 = 4_096;

impl Verdict {
    pub(super) fn of(history: &History, rule: &Rule, progress: &Progress) -> Result<Verdict> {
        let mut verdict = Verdict { allowed: 0, denied: 0, denied_to: vec![0; history.keys()] };
        let keys = u32::try_from(history.keys()).unwrap_or(u32::MAX);
        for first in (0..keys).step_by(GROUP as usize) {
            verdict.decide(history, first..first.saturating_add(GROUP), &Simulation::new(rule)?, progress)?;
        }
        Ok(verdict)
    }

    fn decide(
        &mut self,
        history: &History,
        keys: std::ops::Range<u32>,
        simulation: &Simulation,
        progress: &Progress,
    ) -> Result<()> {
        for request in history.in_order().iter().filter(|request| keys.contains(&request.key)) {
            let at = Duration::from_secs(request.at.into());
            if simulation.check(history.key(request.key), 1, at)?.allowed() {
                self.allowed += 1;
            } else {
                self.denied += 1;
                self.denied_to[request.key as usize] += 1;
            }
            if (self.allowed + self.denied).is_multiple_of(STRIDE) {
                progress.advance(STRIDE);
            }
        }
        Ok(())
    }

    /// The keys that were refused most, and how often; those refused equally often in the order of the log.
    pub(super) fn most_denied(&self, most: usize) -> Vec<(u32, u32)> {
        let mut denied: Vec<_> = (0..).zip(&self.denied_to).filter(|(_, times)| **times > 0).collect();
        denied.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
        denied.into_iter().take(most).map(|(key, times)| (key, *times)).collect()
    }
}
