//! A clock that tests set. The servers' own clock goes on beside it, so keys are kept an hour longer: a slow machine
//! must not lose what the given clock calls alive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::RedisStore;
use super::script::{self, Script};
use crate::fork::Lazy;

/// How much longer keys are kept on a given clock, in milliseconds.
const LEASE: u64 = 3_600_000;

static ON_GIVEN_CLOCK: Lazy<Script> = Lazy::new(|| {
    // `make mutants` runs the tests on scripts that it broke, without building anything.
    let broken = std::env::var("TIDEGATE_TEST_SCRIPT").ok().and_then(|path| std::fs::read_to_string(path).ok());
    Script::new(broken.unwrap_or_else(|| tidegate_lua::SCRIPT_ON_GIVEN_CLOCK.into()))
});
static ON_GIVEN_CLOCK_ACROSS_SLOTS: Lazy<Script> = Lazy::new(|| ON_GIVEN_CLOCK.across_slots());

#[derive(Debug, Default)]
pub(super) struct GivenClock(Mutex<Option<Arc<AtomicU64>>>);

impl GivenClock {
    fn now(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|clock| clock.load(Ordering::SeqCst))
    }
}

impl RedisStore {
    /// From now on the script takes its time from here.
    pub(crate) fn set_clock(&self, clock: Arc<AtomicU64>) {
        *self.given.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock);
    }

    /// The script to run, and the time that goes behind its arguments.
    pub(super) fn script(&self, across_slots: bool) -> (&'static Script, Option<Vec<u8>>) {
        let time = self.given.now().map(|now| now.to_be_bytes()[1..].to_vec());
        let script = match (&time, across_slots) {
            (Some(_), false) => &ON_GIVEN_CLOCK,
            (Some(_), true) => &ON_GIVEN_CLOCK_ACROSS_SLOTS,
            (None, false) => &script::SCRIPT,
            (None, true) => &script::ACROSS_SLOTS,
        };
        (script, time)
    }

    /// Refusals are remembered by this machine's clock, and would outlive what a given clock calls over.
    pub(super) fn remembers(&self) -> bool {
        self.given.now().is_none()
    }

    pub(super) fn lease(&self) -> u64 {
        if self.given.now().is_some() { LEASE } else { 0 }
    }
}
