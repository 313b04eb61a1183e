//! One completion queue of one event loop. The loop watches a pipe, into which core's I/O thread writes a byte when
//! something comes to the empty queue; then the loop's own thread drains it.

use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList};
use pyo3::{IntoPyObjectExt as _, intern};
use tidegate::{Completed, Completions, Outcome, Submitted};

use crate::decision::Decision;
use crate::{error, logging};

#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Queue {
    pub(crate) completions: Completions,
    reader: Arc<PipeReader>,
}

#[pymethods]
impl Queue {
    #[new]
    fn new() -> PyResult<Queue> {
        let (reader, writer) = std::io::pipe()?;
        let reader = Arc::new(reader);
        // Whoever writes keeps the other end open too, so that no write meets a broken pipe.
        let kept = Arc::clone(&reader);
        let completions = Completions::new(move || {
            let _ = &kept;
            // It holds at most a few bytes: it is never full. If it cannot be written to, nobody reads it.
            let _ = (&writer).write(&[1]);
        });
        Ok(Queue { completions, reader })
    }

    /// What the loop watches.
    fn fileno(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    /// Takes the bytes that woke the loop, and resolves the futures of the tickets that have come. To be called when
    /// there is something to read, on the loop's thread. Returns the tickets without a future, and what they came to.
    fn drain<'py>(&self, py: Python<'py>, futures: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyList>> {
        // First the bytes, then the queue: what comes in between wakes once more.
        let _ = (&*self.reader).read(&mut [0; 64])?;
        let (mut completed, left) = (Vec::new(), PyList::empty(py));
        self.completions.drain(&mut completed);
        for Completed { ticket, result, .. } in completed {
            let future = futures.get_item(ticket)?;
            let value = match result {
                Ok(outcome) => Ok(answer(py, outcome)?),
                Err(error) => Err(error::raised(py, &error)),
            };
            match future {
                Some(future) => {
                    futures.del_item(ticket)?;
                    resolve(&future, value)?;
                }
                None => left.append((ticket, value.unwrap_or_else(|_| py.None().into_bound(py))))?,
            }
        }
        logging::flush(py);
        Ok(left)
    }
}

/// Whoever gives up a future takes it out of the dictionary; but a loop that ends cancels futures before their owners
/// come to that.
fn resolve<'py>(future: &Bound<'py, PyAny>, value: PyResult<Bound<'py, PyAny>>) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    match value {
        Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
    };
    Ok(())
}

fn answer(py: Python<'_>, outcome: Outcome) -> PyResult<Bound<'_, PyAny>> {
    match outcome {
        Outcome::Decision(decision) => Decision::from(decision).into_bound_py_any(py),
        Outcome::Refunded(refunded) => Ok(PyBool::new(py, refunded).to_owned().into_any()),
        _ => Ok(py.None().into_bound(py)),
    }
}

/// An acquire on its way.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Acquiring(pub(crate) Submitted);

#[pymethods]
impl Acquiring {
    /// Gives it up: its place in line is free, and what it charges is given back.
    fn call_off(&self) {
        self.0.call_off();
    }
}
