//! What core logs, told to Python's `logging` when one of Python's own threads comes by.

use log::Level;
use pyo3::prelude::*;
use tidegate::lines;

/// Tells Python's logging what has been logged since.
#[inline]
pub(crate) fn flush(py: Python<'_>) {
    if lines::waiting() {
        tell(py);
    }
}

#[cold]
fn tell(py: Python<'_>) {
    for line in lines::take() {
        let number = match line.level {
            Level::Error => 40,
            Level::Warn => 30,
            Level::Info => 20,
            Level::Debug | Level::Trace => 10,
        };
        let name = line.target.replace("::", ".");
        let told = py.import("logging").and_then(|logging| {
            logging.call_method1("getLogger", (name,))?.call_method1("log", (number, "%s", line.text)).map(drop)
        });
        if let Err(error) = told {
            error.write_unraisable(py, None);
        }
    }
}
