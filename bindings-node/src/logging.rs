//! What core logs, told to JavaScript. It is written on any thread and kept here until JavaScript comes by: core's I/O
//! thread must not call it, nor wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use log::{LevelFilter, Log, Metadata, Record};
use napi_derive::napi;

/// The most lines that are kept; later ones are dropped.
const MOST: usize = 1_000;

static LOGGER: Logger = Logger { waits: AtomicBool::new(false), lines: Mutex::new(Vec::new()) };

struct Logger {
    waits: AtomicBool,
    lines: Mutex<Vec<Line>>,
}

/// A line: `error`, `warn`, `info`, `debug` or `trace`, who says it, and what.
#[napi(object)]
#[derive(Clone)]
pub struct Line {
    pub level: String,
    pub target: String,
    pub text: String,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tidegate")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < MOST {
            let (level, target) = (record.level().as_str().to_ascii_lowercase(), record.target().to_owned());
            lines.push(Line { level, target, text: record.args().to_string() });
            self.waits.store(true, Ordering::Release);
        }
    }

    fn flush(&self) {}
}

pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if log::set_logger(&LOGGER).is_ok() {
            log::set_max_level(LevelFilter::Info);
        }
    });
}

/// Whether there is anything to tell.
#[inline]
pub(crate) fn waits() -> bool {
    LOGGER.waits.load(Ordering::Acquire)
}

/// Takes what has been logged since.
#[napi]
pub fn take_log() -> Vec<Line> {
    LOGGER.waits.store(false, Ordering::Release);
    std::mem::take(&mut *LOGGER.lines.lock().unwrap_or_else(PoisonError::into_inner))
}
