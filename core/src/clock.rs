//! The only place that reads a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where a memory store takes its time from.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    System(quanta::Clock),
    #[cfg(feature = "testing")]
    Given(std::sync::Arc<std::sync::atomic::AtomicU64>),
}

/// A look at the system's clock, and the processor's counter then: for a moment, the counter alone tells the time, in
/// a third of what the system takes.
#[derive(Debug, Default)]
pub(crate) struct Look {
    micros: u64,
    counter: u64,
}

/// How long a look may be used, in nanoseconds: also the longest that a step of the system's clock is not noticed.
const MOMENT: u64 = 1_000_000;

impl Clock {
    /// Microseconds since 1970.
    #[inline(always)]
    pub(crate) fn now(&self, look: &mut Look) -> u64 {
        match self {
            Clock::System(counter) => look.now(counter),
            #[cfg(feature = "testing")]
            Clock::Given(micros) => micros.load(std::sync::atomic::Ordering::SeqCst),
        }
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::System(quanta::Clock::new())
    }
}

impl Look {
    #[inline(always)]
    fn now(&mut self, clock: &quanta::Clock) -> u64 {
        let counter = clock.raw();
        // A counter that has gone back, as after a machine's sleep, says nothing.
        if self.micros > 0 && counter >= self.counter {
            let passed = clock.delta_as_nanos(self.counter, counter);
            if passed < MOMENT {
                return self.micros + passed / 1_000;
            }
        }
        self.again(counter)
    }

    #[cold]
    fn again(&mut self, counter: u64) -> u64 {
        *self = Look { micros: system(), counter };
        self.micros
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the place")]
fn system() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A point of the monotonic clock, for deadlines.
#[allow(clippy::disallowed_methods, reason = "this is the place")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// A point of the monotonic clock ahead, and of the farthest that it surely holds if it is asked for more.
pub(crate) fn after(wait: Duration) -> Instant {
    instant() + wait.min(Duration::from_secs(100 * 365 * 86_400))
}
