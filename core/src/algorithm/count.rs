//! Counting for adapters: unconditional, and so no decision. The window begins with the first hit.

/// What `count` found: the total, the time left in microseconds, and when the window began (all 0 where there is none).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) total: u64,
    pub(crate) left: u64,
    pub(crate) start: u64,
}

/// How much to add, or to take back of the window that began at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Add(u32),
    TakeBack { units: u32, start: u64 },
}

#[derive(Debug, Default)]
pub(crate) struct Count {
    start: u64,
    total: u64,
}

impl Count {
    /// Whether the window is over, and the state means nothing any more.
    pub(crate) fn is_over(&self, window: u64, now: u64) -> bool {
        now >= self.start + window
    }

    /// Begins a window.
    pub(crate) fn begin(units: u32, now: u64) -> Count {
        Count { start: now, total: units.into() }
    }

    /// Counts within a window that is not over.
    pub(crate) fn step(&mut self, step: Step) {
        match step {
            Step::Add(units) => self.total += u64::from(units),
            Step::TakeBack { units, start } if start == self.start => {
                self.total = self.total.saturating_sub(units.into());
            }
            Step::TakeBack { .. } => {}
        }
    }

    pub(crate) fn tally(&self, window: u64, now: u64) -> Tally {
        Tally { total: self.total, left: self.start + window - now, start: self.start }
    }
}
