//! `tidegate._tidegate`: what Python calls of the core. Nothing is judged here; each file carries one thing over the
//! border. No other thread ever calls Python: results come through queues that Python's own threads drain.
//!
//! More than the few hundred lines that a binding should have: each call is there for threads and for loops, with the
//! keywords that Python's users read in signatures, and decisions, receipts, admissions and errors are classes that can
//! be compared, pickled and told apart.

#![allow(clippy::needless_pass_by_value, reason = "what Python gives comes by value")]

mod args;
mod clock;
mod counted;
mod decision;
mod error;
mod limiter;
mod logging;
mod policy;
mod queue;
mod receipt;

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

#[pymodule]
fn _tidegate(module: &Bound<'_, PyModule>) -> PyResult<()> {
    refuse_other_interpreters(module.py())?;
    tidegate::lines::keep();
    error::add_classes(module)?;
    module.add_class::<clock::Clock>()?;
    module.add_class::<counted::Counted>()?;
    module.add_class::<decision::Decision>()?;
    module.add_class::<decision::LimitDecision>()?;
    module.add_class::<limiter::Core>()?;
    module.add_class::<policy::Admission>()?;
    module.add_class::<policy::PolicyCore>()?;
    module.add_class::<policy::Request>()?;
    module.add_class::<queue::Queue>()?;
    module.add_class::<queue::Acquiring>()?;
    module.add_class::<receipt::Receipt>()?;
    module.add_function(wrap_pyfunction!(schema, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    // Whether servers take a test's clock: never in a released wheel.
    module.add("TESTING", cfg!(feature = "testing"))
}

/// The JSON Schema of documents.
#[pyfunction]
fn schema() -> String {
    tidegate::Document::schema().to_string()
}

/// Classes and their members are the process's, and must not be shared by interpreters. pyo3 says so to none older than
/// 3.12.
fn refuse_other_interpreters(py: Python<'_>) -> PyResult<()> {
    static FIRST: AtomicUsize = AtomicUsize::new(0);
    // Each interpreter has builtins of its own.
    let this = py.import("builtins")?.as_ptr().addr();
    match FIRST.compare_exchange(0, this, Ordering::AcqRel, Ordering::Acquire) {
        Err(first) if first != this => Err(PyImportError::new_err(
            "tidegate is in use by another interpreter of this process, and does not support subinterpreters; use \
             threads or processes",
        )),
        _ => Ok(()),
    }
}
