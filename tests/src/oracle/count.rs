//! `count`: totals for adapters, in windows that begin with their first hit.

use std::collections::BTreeMap;

/// What a count stands at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The units in the window.
    pub total: u64,
    /// Until the window ends; none where there is no window.
    pub time_left: Option<u64>,
    /// When the window began.
    pub start: Option<u64>,
}

/// The counts of one key, by name and window.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<(String, u64), Window>);

#[derive(Debug, Clone, Copy)]
struct Window {
    start: u64,
    total: u64,
}

impl Counts {
    pub(super) fn count(&mut self, name: &str, window: u64, n: i64, start: Option<u64>, now: u64) -> Counted {
        let key = (name.to_owned(), window);
        let running = self.0.get(&key).copied().filter(|running| running.start + window > now);
        let after = match running {
            Some(running) if n >= 0 => Some(Window { total: running.total + n.unsigned_abs(), ..running }),
            Some(running) if start == Some(running.start) => {
                Some(Window { total: running.total.saturating_sub(n.unsigned_abs()), ..running })
            }
            None if n > 0 => Some(Window { start: now, total: n.unsigned_abs() }),
            as_it_was => as_it_was,
        };
        if let Some(after) = after {
            self.0.insert(key, after);
        }
        Counted {
            total: after.map_or(0, |after| after.total),
            time_left: after.map(|after| after.start + window - now),
            start: after.map(|after| after.start),
        }
    }

    pub(super) fn reset(&mut self, name: &str, window: u64) {
        self.0.remove(&(name.to_owned(), window));
    }
}
