//! A clock that tests set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use napi_derive::napi;
use tidegate::http::Policy;
use tidegate::{Builder, Document};

use crate::args::{number, whole};
use crate::error::Result;

/// A clock that stands still until it is set, in microseconds since 1970.
#[napi]
pub struct Clock {
    micros: Arc<AtomicU64>,
    /// Whether it is for servers too, in builds that test Tidegate itself.
    #[cfg(feature = "testing")]
    for_servers: bool,
}

#[napi]
impl Clock {
    #[napi(constructor)]
    pub fn new(micros: f64, for_servers: Option<bool>) -> Result<Clock> {
        let _ = for_servers;
        Ok(Clock {
            micros: Arc::new(AtomicU64::new(whole(micros, "time")?)),
            #[cfg(feature = "testing")]
            for_servers: for_servers.unwrap_or_default(),
        })
    }

    #[napi(getter)]
    pub fn micros(&self) -> f64 {
        number(self.micros.load(Ordering::SeqCst))
    }

    #[napi(setter)]
    pub fn set_micros(&self, micros: f64) -> Result<()> {
        self.micros.store(whole(micros, "time")?, Ordering::SeqCst);
        Ok(())
    }
}

impl Clock {
    pub(crate) fn given_to(&self, builder: Builder) -> Builder {
        #[cfg(feature = "testing")]
        if self.for_servers {
            return builder.clock(&self.micros);
        }
        builder.in_memory_at(&self.micros)
    }

    pub(crate) fn policy(&self, document: &Document) -> tidegate::Result<Policy> {
        #[cfg(feature = "testing")]
        if self.for_servers {
            return Policy::with_clock(document, &self.micros);
        }
        Policy::in_memory_at(document, &self.micros)
    }
}
