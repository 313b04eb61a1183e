//! What core logs, told to Python's `logging`. It is written on any thread and kept here until one of Python's own comes
//! by: core's I/O thread must not call Python, nor wait for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;

use std::sync::Mutex;

/// The most lines that are kept; later ones are dropped.
const MOST: usize = 1_000;

static LOGGER: Logger = Logger { waits: AtomicBool::new(false), lines: Mutex::new(VecDeque::new()) };

struct Logger {
    waits: AtomicBool,
    lines: Mutex<VecDeque<(Level, String, String)>>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tidegate")
    }

    fn log(&self, record: &Record<'_>) {
        // In a forked child the lock may be held for ever: nobody waits for it.
        if let (true, Ok(mut lines)) = (self.enabled(record.metadata()), self.lines.try_lock())
            && lines.len() < MOST
        {
            let name = record.target().replace("::", ".");
            lines.push_back((record.level(), name, record.args().to_string()));
            self.waits.store(true, Ordering::Release);
        }
    }

    fn flush(&self) {}
}

pub(crate) fn install() {
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Tells Python's logging what has been logged since.
#[inline]
pub(crate) fn flush(py: Python<'_>) {
    if LOGGER.waits.load(Ordering::Acquire) {
        tell(py);
    }
}

#[cold]
fn tell(py: Python<'_>) {
    LOGGER.waits.store(false, Ordering::Release);
    let lines = LOGGER.lines.try_lock().map(|mut lines| std::mem::take(&mut *lines)).unwrap_or_default();
    for (level, name, text) in lines {
        let number = match level {
            Level::Error => 40,
            Level::Warn => 30,
            Level::Info => 20,
            Level::Debug | Level::Trace => 10,
        };
        let told = py.import("logging").and_then(|logging| {
            logging.call_method1("getLogger", (name,))?.call_method1("log", (number, "%s", text)).map(drop)
        });
        if let Err(error) = told {
            error.write_unraisable(py, None);
        }
    }
}
