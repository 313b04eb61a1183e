//! A clock that tests set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::http;

use crate::args::{Source, signed, whole};
use crate::limiter::Result;

/// A clock that stands still until it is set, in microseconds since 1970.
#[derive(Debug, uniffi::Object)]
pub struct Clock {
    micros: Arc<AtomicU64>,
    /// Whether it is for servers too, in builds that test Tidegate itself.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "servers have none in other builds"))]
    for_servers: bool,
}

#[uniffi::export]
impl Clock {
    #[uniffi::constructor(default(for_servers = false))]
    pub fn new(micros: i64, for_servers: bool) -> Result<Arc<Clock>> {
        Ok(Arc::new(Clock { micros: Arc::new(AtomicU64::new(whole(micros, "time")?)), for_servers }))
    }

    /// What it shows.
    pub fn micros(&self) -> i64 {
        signed(self.micros.load(Ordering::SeqCst))
    }

    /// Sets it.
    pub fn set(&self, micros: i64) -> Result<()> {
        self.micros.store(whole(micros, "time")?, Ordering::SeqCst);
        Ok(())
    }
}

impl Clock {
    pub(crate) fn limiter(&self, source: &Source) -> tidegate::Result<tidegate::Limiter> {
        let builder = source.builder()?;
        #[cfg(feature = "testing")]
        if self.for_servers {
            return builder.clock(&self.micros).build();
        }
        builder.in_memory_at(&self.micros).build()
    }

    pub(crate) fn policy(&self, source: &Source) -> tidegate::Result<http::Policy> {
        let document = source.document()?;
        #[cfg(feature = "testing")]
        if self.for_servers {
            return http::Policy::with_clock(&document, &self.micros);
        }
        http::Policy::in_memory_at(&document, &self.micros)
    }
}
