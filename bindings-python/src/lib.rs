//! `tidegate._tidegate`: what Python calls of the core. Nothing is judged here; each file carries one thing over the
//! border. No other thread ever calls Python: results come through queues that Python's own threads drain.

mod args;
mod clock;
mod decision;
mod error;
mod limiter;
mod logging;
mod queue;
mod receipt;

use pyo3::prelude::*;

#[pymodule]
fn _tidegate(module: &Bound<'_, PyModule>) -> PyResult<()> {
    logging::install();
    error::add_classes(module)?;
    module.add_class::<clock::Clock>()?;
    module.add_class::<decision::Decision>()?;
    module.add_class::<decision::LimitDecision>()?;
    module.add_class::<limiter::Core>()?;
    module.add_class::<queue::Queue>()?;
    module.add_class::<queue::Acquiring>()?;
    module.add_class::<receipt::Receipt>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    // Whether servers take a test's clock: never in a released wheel.
    module.add("TESTING", cfg!(feature = "testing"))
}
