//! What this crate logs, kept for a language that cannot be called from any thread: for bindings.
//!
//! It is written on any thread, and stays here until one of the language's own threads comes by and takes it: the I/O
//! thread must neither call that language nor wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use log::{Level, LevelFilter, Log, Metadata, Record};

/// The most lines that are kept; later ones are dropped.
const MOST: usize = 1_000;

/// How often the lock is asked for.
const ATTEMPTS: usize = 1_000;

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

    /// Others hold it for a moment only; but in a forked child it may be held for ever, and then nobody waits for it.
    fn lock(&self) -> Option<MutexGuard<'_, Vec<Line>>> {
        let attempt = |_| self.lines.try_lock().inspect_err(|_| thread::yield_now()).ok();
        (0..ATTEMPTS).find_map(attempt)
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
        if self.enabled(record.metadata())
            && let Some(mut lines) = self.lock()
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
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn lines_of_several_threads_are_all_kept() {
        for _ in 0..100 {
            let (keeper, together) = (Keeper::new(), Barrier::new(4));
            let write = || {
                together.wait();
                for _ in 0..200 {
                    keeper
                        .log(&Record::builder().level(Level::Warn).target("tidegate").args(format_args!("x")).build());
                }
            };
            thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(write))));
            assert_eq!(keeper.take().len(), 800);
        }
    }

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
