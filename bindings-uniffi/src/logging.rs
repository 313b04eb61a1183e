//! What core logs, for whoever comes by and takes it.

use tidegate::lines;

/// A line: `error`, `warn`, `info`, `debug` or `trace`, who says it, and what.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Line {
    /// How grave it is.
    pub level: String,
    /// Who says it.
    pub target: String,
    /// What it says.
    pub text: String,
}

/// Keeps what is logged from now on.
#[uniffi::export]
pub fn keep_log() {
    lines::keep();
}

/// Whether there is anything to take.
#[uniffi::export]
pub fn log_waits() -> bool {
    lines::waiting()
}

/// Takes what has been logged since.
#[uniffi::export]
pub fn take_log() -> Vec<Line> {
    let line = |line: lines::Line| Line {
        level: line.level.as_str().to_ascii_lowercase(),
        target: line.target,
        text: line.text,
    };
    lines::take().into_iter().map(line).collect()
}
