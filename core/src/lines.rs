//! What this crate logs, kept for a language that cannot be called from any thread: for bindings.
//!
//! It is written on any thread, and stays here until one of the language's own threads comes by and takes it: the I/O
//! thread must neither call that language nor wait for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{Level, LevelFilter, Log, Metadata, Record};

/// The most lines that are kept; later ones are dropped.
const MOST: usize = 1_000;

static KEEPER: Keeper = Keeper::new();

/// A line, as it was logged.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// How grave it is.
    pub level: Level,
    /// Who says it: `tidegate`, or a part of it.
    pub target: String,
    /// What it says.
    pub text: String,
}

struct Keeper {
    waits: AtomicBool,
    lines: Mutex<Vec<Line>>,
}

impl Keeper {
    const fn new() -> Keeper {
        Keeper { waits: AtomicBool::new(false), lines: Mutex::new(Vec::new()) }
    }

    #[inline]
    fn waiting(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    fn take(&self) -> Vec<Line> {
        self.waits.store(false, Ordering::Release);
        self.lines.try_lock().map(|mut lines| std::mem::take(&mut *lines)).unwrap_or_default()
    }
}

impl Log for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tidegate")
    }

    fn log(&self, record: &Record<'_>) {
        // In a forked child the lock may be held for ever: nobody waits for it.
        if let (true, Ok(mut lines)) = (self.enabled(record.metadata()), self.lines.try_lock())
            && lines.len() < MOST
        {
            let target = record.target().to_owned();
            lines.push(Line { level: record.level(), target, text: record.args().to_string() });
            // Told once it can be taken: whoever came for it while it is locked would not come again.
            drop(lines);
            self.waits.store(true, Ordering::Release);
        }
    }

    fn flush(&self) {}
}

/// Keeps what is logged from now on, at `info` and above. Nothing where the process has another logger.
pub fn keep() {
    if log::set_logger(&KEEPER).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Whether there is anything to take.
#[inline]
#[must_use]
pub fn waiting() -> bool {
    KEEPER.waiting()
}

/// Takes what has been logged since, the oldest first.
#[must_use]
pub fn take() -> Vec<Line> {
    KEEPER.take()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_line_that_somebody_comes_for_while_it_is_written_is_not_forgotten() {
        for _ in 0..500 {
            let keeper = Keeper::new();
            let mut taken = 0;
            thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    keeper
                        .log(&Record::builder().level(Level::Warn).target("tidegate").args(format_args!("x")).build());
                });
                while !writer.is_finished() {
                    if keeper.waiting() {
                        taken += keeper.take().len();
                    }
                }
            });
            if keeper.waiting() {
                taken += keeper.take().len();
            }
            assert_eq!(taken, 1);
        }
    }
}
