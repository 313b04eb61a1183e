//! The only place that reads a clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where a memory store takes its time from.
#[derive(Debug, Clone, Default)]
pub(crate) enum Clock {
    #[default]
    System,
    #[cfg(feature = "testing")]
    Given(std::sync::Arc<std::sync::atomic::AtomicU64>),
}

impl Clock {
    /// Microseconds since 1970.
    #[allow(clippy::disallowed_methods, reason = "this is the place")]
    pub(crate) fn now(&self) -> u64 {
        match self {
            Clock::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
            }
            #[cfg(feature = "testing")]
            Clock::Given(micros) => micros.load(std::sync::atomic::Ordering::SeqCst),
        }
    }
}

/// A point of the monotonic clock, for deadlines.
#[allow(clippy::disallowed_methods, reason = "this is the place")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// A point of the monotonic clock ahead, and of the farthest that it surely holds if it is asked for more.
pub(crate) fn after(wait: std::time::Duration) -> Instant {
    instant() + wait.min(std::time::Duration::from_secs(100 * 365 * 86_400))
}
