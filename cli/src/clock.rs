//! Real time, for the demo alone: how long something took, and waiting for a boundary of the server's clock.
#![allow(
    clippy::disallowed_methods,
    reason = "no decision depends on it; a boundary in real time can only be waited for"
)]

use std::time::{Duration, Instant};

/// What some work returns, and how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// Waits; the demo never does so for longer than one of its windows.
pub(crate) fn wait(time: Duration) {
    std::thread::sleep(time);
}
