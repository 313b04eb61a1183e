//! A clock that tests set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use tidegate::http::Policy;
use tidegate::{Builder, Document};

/// A clock that stands still until it is set, in microseconds since 1970.
#[pyclass(frozen, subclass, module = "tidegate._tidegate")]
pub(crate) struct Clock {
    micros: Arc<AtomicU64>,
    /// Whether it is for servers too, in builds that test Tidegate itself.
    #[cfg(feature = "testing")]
    for_servers: bool,
}

#[pymethods]
impl Clock {
    #[new]
    #[pyo3(signature = (micros, for_servers = false))]
    fn new(micros: u64, for_servers: bool) -> Clock {
        let _ = for_servers;
        Clock {
            micros: Arc::new(AtomicU64::new(micros)),
            #[cfg(feature = "testing")]
            for_servers,
        }
    }

    #[getter]
    fn micros(&self) -> u64 {
        self.micros.load(Ordering::SeqCst)
    }

    #[setter]
    fn set_micros(&self, micros: u64) {
        self.micros.store(micros, Ordering::SeqCst);
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
