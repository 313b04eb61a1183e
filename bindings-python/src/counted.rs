//! Plain counters, for adapters that serve as another limiter's store.

use pyo3::prelude::*;

/// What a count found.
#[pyclass(frozen, eq, module = "tidegate")]
#[derive(PartialEq)]
pub(crate) struct Counted(pub(crate) tidegate::Counted);

#[pymethods]
impl Counted {
    /// The total in the window.
    #[getter]
    fn total(&self) -> u64 {
        self.0.total
    }

    /// Seconds left of the window; 0 where there is none.
    #[getter]
    fn left(&self) -> f64 {
        self.0.left.as_secs_f64()
    }

    /// When the window began by the store's clock, in microseconds since 1970; 0 where there is none.
    #[getter]
    fn start(&self) -> u64 {
        self.0.start
    }

    fn __repr__(&self) -> String {
        format!("Counted(total={}, left={:?}, start={})", self.0.total, self.0.left.as_secs_f64(), self.0.start)
    }
}
