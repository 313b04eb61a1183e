//! The only place that reads a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where a memory store takes its time from.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    System(quanta::Clock),
    /// The system's, asked each time: it is there at once. The first counter of a process has to be measured, which
    /// takes up to 200 ms, and nothing on the I/O thread can wait for that.
    Asked,
    /// That of somebody who tests.
    Given(std::sync::Arc<std::sync::atomic::AtomicU64>),
}

/// A look at the system's clock, and the processor's counter then: for a moment, the counter alone tells the time, in
/// a third of what the system takes.
#[derive(Debug, Default)]
pub(crate) struct Look {
    micros: u64,
    counter: u64,
}

/// What stored times stay below: the year 2112.
pub(crate) const FARTHEST: u64 = (1 << 52) - 1;
/// How long a look may be used, in nanoseconds: also the longest that a step of the system's clock is not noticed.
const MOMENT: u64 = 1_000_000;
/// How far apart time and counter may have been read, in nanoseconds: by so much the counter's time may lag.
const TOGETHER: u64 = 10_000;

impl Clock {
    /// Microseconds since 1970.
    #[inline(always)]
    pub(crate) fn now(&self, look: &mut Look) -> u64 {
        match self {
            Clock::System(counter) => look.now(counter),
            Clock::Asked => system(),
            Clock::Given(micros) => micros.load(std::sync::atomic::Ordering::SeqCst).min(FARTHEST),
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
        match self.told(counter, |from, to| clock.delta_as_nanos(from, to)) {
            Some(micros) => micros,
            None => self.again(clock),
        }
    }

    /// The time by the counter alone, while the look is good.
    #[inline(always)]
    fn told(&self, counter: u64, nanoseconds: impl Fn(u64, u64) -> u64) -> Option<u64> {
        // A counter that has gone back, as after a machine's sleep, says nothing.
        if self.micros == 0 || counter < self.counter {
            return None;
        }
        let passed = nanoseconds(self.counter, counter);
        (passed < MOMENT).then(|| self.micros + passed / 1_000)
    }

    #[cold]
    fn again(&mut self, clock: &quanta::Clock) -> u64 {
        let (before, micros, after) = (clock.raw(), system(), clock.raw());
        // Were the thread stopped in between, the two would not belong together.
        let together = clock.delta_as_nanos(before, after) < TOGETHER;
        *self = if together { Look { micros, counter: after } } else { Look::default() };
        micros
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_tells_the_time_for_a_moment_after_a_look() {
        // A counter that counts thirds of nanoseconds.
        let nanoseconds = |from: u64, to: u64| (to - from) / 3;
        let look = Look { micros: 5_000_000, counter: 9_000 };
        let told = |counter| look.told(counter, nanoseconds);
        assert_eq!(told(9_000), Some(5_000_000));
        assert_eq!(told(9_000 + 2_999), Some(5_000_000));
        assert_eq!(told(9_000 + 3_000), Some(5_000_001));
        assert_eq!(told(9_000 + 3 * MOMENT - 1), Some(5_000_999));
        assert_eq!(told(9_000 + 3 * MOMENT), None, "the moment is over");
        assert_eq!(told(8_999), None, "it has gone back");
        assert_eq!(Look::default().told(0, nanoseconds), None, "there was no look");
    }

    #[test]
    fn the_clock_keeps_to_the_systems() {
        let (clock, mut look) = (Clock::default(), Look::default());
        for _ in 0..100_000 {
            let (before, now, after) = (system(), clock.now(&mut look), system());
            // The counter's rate was measured, and not for long.
            let apart = 2 * TOGETHER / 1_000;
            assert!(now + apart >= before && now <= after + apart, "{before} {now} {after}");
        }
    }
}
