//! The limiter: each call once for threads, which wait, and once for event loops, which are answered through a queue.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::{Begun, Document, Format, Limiter, LogEntry, Pending};

use crate::args::{Asked, Awaited, Cost, Key, RequestId, Rules, Seconds};
use crate::clock::Clock;
use crate::counted::Counted;
use crate::decision::Decision;
use crate::queue::{Acquiring, Queue};
use crate::receipt::Refundable;
use crate::{error, logging};

/// How long a thread waits before it looks after signals.
const SLICE: Duration = Duration::from_millis(50);

/// What `Limiter` and `AsyncLimiter` share.
#[pyclass(frozen, subclass, module = "tidegate._tidegate")]
pub(crate) struct Core {
    /// None once closed. Held for moments only, and by threads that are attached: a fork, which is made by such a thread,
    /// never finds it locked.
    limiter: RwLock<Option<Limiter>>,
}

#[pymethods]
impl Core {
    #[new]
    #[pyo3(signature = (document, format, clock = None))]
    fn new(py: Python<'_>, document: &Bound<'_, PyAny>, format: &str, clock: Option<&Clock>) -> PyResult<Core> {
        // That of a policy, which Python's class is to wrap.
        if let Ok(core) = document.cast::<Core>() {
            return Ok(Core::of(core.get().open(py)?));
        }
        let document = read(document, format)?.map_err(|error| error::raised(py, &error))?;
        let mut builder = Limiter::builder().document(&document);
        if let Some(clock) = clock {
            builder = clock.given_to(builder);
        }
        let limiter = builder.build();
        logging::flush(py);
        limiter.map(|limiter| Core { limiter: RwLock::new(Some(limiter)) }).map_err(|error| error::raised(py, &error))
    }

    #[pyo3(
        signature = (rule, key, *, cost=Cost::ONE, limits=None, request_id=None, deadline=None),
        text_signature = "($self, rule, key, *, cost=1, limits=None, request_id=None, deadline=None)"
    )]
    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn check(
        &self,
        py: Python<'_>,
        rule: Rules,
        key: Key,
        cost: Cost,
        limits: Option<String>,
        request_id: Option<RequestId>,
        deadline: Option<Seconds>,
    ) -> PyResult<Decision> {
        let asked = Asked { rules: rule, key, cost, limits, request_id, deadline };
        decided(py, asked.check(&self.open(py)?).begin())
    }

    #[pyo3(
        signature = (rule, key, *, cost=Cost::ONE, limits=None, request_id=None, deadline=None),
        text_signature = "($self, rule, key, *, cost=1, limits=None, request_id=None, deadline=None)"
    )]
    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn peek(
        &self,
        py: Python<'_>,
        rule: Rules,
        key: Key,
        cost: Cost,
        limits: Option<String>,
        request_id: Option<RequestId>,
        deadline: Option<Seconds>,
    ) -> PyResult<Decision> {
        let asked = Asked { rules: rule, key, cost, limits, request_id, deadline };
        decided(py, asked.peek(&self.open(py)?).begin())
    }

    #[pyo3(
        signature = (rule, key, *, cost=Cost::ONE, limits=None, deadline=None, timeout=Seconds::TEN),
        text_signature = "($self, rule, key, *, cost=1, limits=None, deadline=None, timeout=10.0)"
    )]
    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn acquire(
        &self,
        py: Python<'_>,
        rule: String,
        key: Key,
        cost: Cost,
        limits: Option<String>,
        deadline: Option<Seconds>,
        timeout: Seconds,
    ) -> PyResult<Decision> {
        let awaited = Awaited { rule, key, cost, limits, deadline, timeout };
        wait(py, awaited.acquire(&self.open(py)?).into_future()).map(Decision::from)
    }

    fn refund(&self, py: Python<'_>, receipt: Refundable) -> PyResult<bool> {
        wait(py, self.open(py)?.refund(&receipt.0))
    }

    #[pyo3(signature = (rule, key, *, limits=None))]
    fn reset(&self, py: Python<'_>, rule: &str, key: Key, limits: Option<&str>) -> PyResult<()> {
        wait(py, reset(&self.open(py)?, rule, key, limits))
    }

    /// Adds to a plain counter of a rule and key whose window begins with the first hit; 0 only looks.
    #[pyo3(signature = (rule, key, window, add=0))]
    fn count(&self, py: Python<'_>, rule: &str, key: Key, window: Seconds, add: u64) -> PyResult<Counted> {
        wait(py, self.open(py)?.count(rule, key, window.0).add(add)).map(Counted)
    }

    /// Takes units back from the window that began at `start`: never below 0, and nothing in another window.
    fn take_back(
        &self,
        py: Python<'_>,
        rule: &str,
        key: Key,
        window: Seconds,
        units: u64,
        start: u64,
    ) -> PyResult<Counted> {
        wait(py, self.open(py)?.count(rule, key, window.0).take_back(units, start)).map(Counted)
    }

    /// The requests in a sliding_window_log, as (microseconds since 1970, units).
    #[pyo3(signature = (rule, key, *, limits=None))]
    fn log(&self, py: Python<'_>, rule: &str, key: Key, limits: Option<&str>) -> PyResult<Vec<(u64, u32)>> {
        Ok(entries(wait(py, log(&self.open(py)?, rule, key, limits))?))
    }

    #[pyo3(signature = (timeout=Seconds::FIVE), text_signature = "($self, timeout=5.0)")]
    fn ready(&self, py: Python<'_>, timeout: Seconds) -> PyResult<()> {
        wait(py, self.open(py)?.ready(timeout.0))
    }

    /// What has been counted, as JSON.
    fn _metrics(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.open(py)?.metrics().json())
    }

    /// What has been counted, as Prometheus scrapes it.
    fn prometheus(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.open(py)?.metrics().prometheus())
    }

    #[getter]
    fn rules(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.open(py)?.rules().map(str::to_owned).collect())
    }

    fn close(&self) {
        drop(self.limiter.write().unwrap_or_else(PoisonError::into_inner).take());
    }

    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn _submit_check(
        &self,
        py: Python<'_>,
        queue: &Queue,
        ticket: u64,
        rule: Rules,
        key: Key,
        cost: Cost,
        limits: Option<String>,
        request_id: Option<RequestId>,
        deadline: Option<Seconds>,
    ) -> PyResult<Option<Decision>> {
        let asked = Asked { rules: rule, key, cost, limits, request_id, deadline };
        let decision = submitted(py, asked.check(&self.open(py)?).submit(&queue.completions, ticket))?;
        Ok(decision.map(Decision::from))
    }

    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn _submit_peek(
        &self,
        py: Python<'_>,
        queue: &Queue,
        ticket: u64,
        rule: Rules,
        key: Key,
        cost: Cost,
        limits: Option<String>,
        request_id: Option<RequestId>,
        deadline: Option<Seconds>,
    ) -> PyResult<Option<Decision>> {
        let asked = Asked { rules: rule, key, cost, limits, request_id, deadline };
        let decision = submitted(py, asked.peek(&self.open(py)?).submit(&queue.completions, ticket))?;
        Ok(decision.map(Decision::from))
    }

    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn _submit_acquire(
        &self,
        py: Python<'_>,
        queue: &Queue,
        ticket: u64,
        rule: String,
        key: Key,
        cost: Cost,
        limits: Option<String>,
        deadline: Option<Seconds>,
        timeout: Seconds,
    ) -> PyResult<Acquiring> {
        let awaited = Awaited { rule, key, cost, limits, deadline, timeout };
        let submitted = awaited.acquire(&self.open(py)?).submit(&queue.completions, ticket);
        submitted.map(Acquiring).map_err(|error| error::raised(py, &error))
    }

    fn _submit_refund(&self, py: Python<'_>, queue: &Queue, ticket: u64, receipt: Refundable) -> PyResult<()> {
        submitted(py, self.open(py)?.refund(&receipt.0).submit(&queue.completions, ticket))
    }

    fn _submit_reset(
        &self,
        py: Python<'_>,
        queue: &Queue,
        ticket: u64,
        rule: &str,
        key: Key,
        limits: Option<&str>,
    ) -> PyResult<()> {
        submitted(py, reset(&self.open(py)?, rule, key, limits).submit(&queue.completions, ticket))
    }

    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn _submit_count(
        &self,
        py: Python<'_>,
        queue: &Queue,
        ticket: u64,
        rule: &str,
        key: Key,
        window: Seconds,
        add: u64,
    ) -> PyResult<()> {
        submitted(py, self.open(py)?.count(rule, key, window.0).add(add).submit(&queue.completions, ticket))
    }

    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn _submit_take_back(
        &self,
        py: Python<'_>,
        queue: &Queue,
        ticket: u64,
        rule: &str,
        key: Key,
        window: Seconds,
        units: u64,
        start: u64,
    ) -> PyResult<()> {
        let count = self.open(py)?.count(rule, key, window.0);
        submitted(py, count.take_back(units, start).submit(&queue.completions, ticket))
    }

    fn _submit_log(
        &self,
        py: Python<'_>,
        queue: &Queue,
        ticket: u64,
        rule: &str,
        key: Key,
        limits: Option<&str>,
    ) -> PyResult<()> {
        submitted(py, log(&self.open(py)?, rule, key, limits).submit(&queue.completions, ticket))
    }

    fn _submit_ready(&self, py: Python<'_>, queue: &Queue, ticket: u64, timeout: Seconds) -> PyResult<()> {
        submitted(py, self.open(py)?.ready(timeout.0).submit(&queue.completions, ticket))
    }

    /// Gives back what a decision charged that nobody took; nothing if it charged nothing. The ticket is nobody's.
    fn _give_back(&self, py: Python<'_>, queue: &Queue, ticket: u64, decision: &Decision) -> PyResult<()> {
        match (decision.charge(), self.open(py)) {
            (Some(charge), Ok(limiter)) => submitted(py, limiter.refund(&charge).submit(&queue.completions, ticket)),
            _ => Ok(()),
        }
    }
}

impl Core {
    pub(crate) fn of(limiter: Limiter) -> Core {
        Core { limiter: RwLock::new(Some(limiter)) }
    }

    fn open(&self, _py: Python<'_>) -> PyResult<Limiter> {
        let limiter = self.limiter.read().unwrap_or_else(PoisonError::into_inner);
        limiter.clone().ok_or_else(|| PyRuntimeError::new_err("the limiter is closed; make another"))
    }
}

/// A document from its text, or from the file that a path names.
pub(crate) fn read(document: &Bound<'_, PyAny>, format: &str) -> PyResult<tidegate::Result<Document>> {
    let format = match format {
        "path" => return Ok(Document::read(document.extract::<PathBuf>()?)),
        "toml" => Format::Toml,
        "yaml" => Format::Yaml,
        _ => Format::Json,
    };
    Ok(Document::parse(&document.extract::<String>()?, format))
}

fn reset(limiter: &Limiter, rule: &str, key: Key, limits: Option<&str>) -> Pending<()> {
    match limits {
        None => limiter.reset(rule, key),
        Some(limits) => limiter.reset_with_limits(rule, key, limits),
    }
}

fn log(limiter: &Limiter, rule: &str, key: Key, limits: Option<&str>) -> Pending<Vec<LogEntry>> {
    match limits {
        None => limiter.log(rule, key),
        Some(limits) => limiter.log_with_limits(rule, key, limits),
    }
}

/// Of each request when it was, and its units.
pub(crate) fn entries(log: Vec<LogEntry>) -> Vec<(u64, u32)> {
    log.into_iter().map(|entry| (entry.at, entry.units)).collect()
}

/// A decision that memory knows is here already: to let go of the interpreter would take longer than it took.
fn decided(py: Python<'_>, begun: tidegate::Result<Begun>) -> PyResult<Decision> {
    match begun.map_err(|error| error::raised(py, &error))? {
        Begun::Decided(decision) => Ok(decision.into()),
        Begun::Pending(pending) => wait(py, pending).map(Decision::from),
    }
}

/// Waits on this thread while others may run; a signal such as Ctrl-C ends it, and calls the call off.
pub(crate) fn wait<T: Send>(py: Python<'_>, mut pending: Pending<T>) -> PyResult<T> {
    loop {
        let result = py.detach(|| pending.wait_for(SLICE));
        logging::flush(py);
        match result {
            Some(result) => return result.map_err(|error| error::raised(py, &error)),
            None => py.check_signals()?,
        }
    }
}

pub(crate) fn submitted<T>(py: Python<'_>, result: tidegate::Result<T>) -> PyResult<T> {
    result.map_err(|error| error::raised(py, &error))
}
