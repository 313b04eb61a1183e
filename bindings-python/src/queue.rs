//! One completion queue of one event loop. The loop watches a pipe, into which core's I/O thread writes a byte when
//! something comes to the empty queue; then the loop's own thread drains it.

use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList};
use pyo3::{IntoPyObjectExt as _, intern};
use tidegate::{Completed, Completions, Outcome, Submitted};

use crate::counted::Counted;
use crate::decision::Decision;
use crate::limiter::entries;
use crate::policy::Admission;
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

    /// Takes the bytes that woke the loop, and what has come. `calls` has a future and a limiter for each ticket: the future
    /// is resolved, and the ticket taken out. Returns the decisions that nobody waits for any more, each after its limiter,
    /// to be given back. To be called on the loop's thread when there is something to read.
    fn drain<'py>(&self, py: Python<'py>, calls: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyList>> {
        // First the bytes, then the queue: what comes in between wakes once more.
        let _ = (&*self.reader).read(&mut [0; 64])?;
        let (mut completed, unclaimed) = (Vec::new(), PyList::empty(py));
        self.completions.drain(&mut completed);
        for Completed { ticket, result, .. } in completed {
            let Some(call) = calls.get_item(ticket)? else { continue };
            calls.del_item(ticket)?;
            let (future, limiter): (Bound<'py, PyAny>, Bound<'py, PyAny>) = call.extract()?;
            // Of a task that is cancelled, the future is done before the task comes to give it up.
            if future.is_none() || future.call_method0(intern!(py, "done"))?.is_truthy()? {
                match result {
                    Ok(Outcome::Decision(decision)) => unclaimed.append((limiter, Decision::from(decision)))?,
                    Ok(Outcome::Admission(admission)) => admission.undo().detach(),
                    _ => {}
                }
                continue;
            }
            match result {
                Ok(outcome) => future.call_method1(intern!(py, "set_result"), (answer(py, outcome)?,))?,
                Err(error) => {
                    let error = error::raised(py, &error).into_value(py);
                    future.call_method1(intern!(py, "set_exception"), (error,))?
                }
            };
        }
        logging::flush(py);
        Ok(unclaimed)
    }
}

fn answer(py: Python<'_>, outcome: Outcome) -> PyResult<Bound<'_, PyAny>> {
    match outcome {
        Outcome::Decision(decision) => Decision::from(decision).into_bound_py_any(py),
        Outcome::Refunded(refunded) => Ok(PyBool::new(py, refunded).to_owned().into_any()),
        Outcome::Admission(admission) => Admission(admission).into_bound_py_any(py),
        Outcome::Counted(counted) => Counted(counted).into_bound_py_any(py),
        Outcome::Log(log) => entries(log).into_bound_py_any(py),
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
