//! What core logs, told to JavaScript when it comes by.

use napi_derive::napi;

/// A line: `error`, `warn`, `info`, `debug` or `trace`, who says it, and what.
#[napi(object)]
pub struct Line {
    pub level: String,
    pub target: String,
    pub text: String,
}

/// Takes what has been logged since.
#[napi]
pub fn take_log() -> Vec<Line> {
    let line = |line: tidegate::lines::Line| Line {
        level: line.level.as_str().to_ascii_lowercase(),
        target: line.target,
        text: line.text,
    };
    tidegate::lines::take().into_iter().map(line).collect()
}
