//! The policy: a request goes in by its parts, an admission comes out.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tidegate::http;

use crate::args::{Bytes, Line, Lossy, Seconds, Supplied};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::limiter::{Core, read, submitted, wait};
use crate::logging;
use crate::queue::Queue;

/// What `Policy` is made of.
#[pyclass(frozen, subclass, module = "tidegate._tidegate")]
pub(crate) struct PolicyCore {
    /// None once closed. Held for moments only, and by threads that are attached.
    policy: RwLock<Option<http::Policy>>,
}

#[pymethods]
impl PolicyCore {
    /// Of a document, or beside another policy; or of a file that is watched.
    #[new]
    #[pyo3(signature = (document, format, clock = None, beside = None))]
    fn new(
        py: Python<'_>,
        document: &Bound<'_, PyAny>,
        format: &str,
        clock: Option<&Clock>,
        beside: Option<&PolicyCore>,
    ) -> PyResult<PolicyCore> {
        let policy = match (format, beside) {
            ("watched", _) => http::Policy::watch(document.extract::<PathBuf>()?),
            (_, Some(other)) => {
                let other = other.policy()?;
                read(document, format)?.and_then(|document| other.beside(&document))
            }
            (_, None) => read(document, format)?.and_then(|document| match clock {
                None => http::Policy::new(&document),
                Some(clock) => clock.policy(&document),
            }),
        };
        logging::flush(py);
        submitted(py, policy).map(|policy| PolicyCore { policy: RwLock::new(Some(policy)) })
    }

    fn _reload(&self, py: Python<'_>, document: &Bound<'_, PyAny>, format: &str) -> PyResult<()> {
        let (policy, document) = (self.policy()?, read(document, format)?);
        let done = py.detach(|| document.and_then(|document| policy.reload(&document)));
        logging::flush(py);
        submitted(py, done)
    }

    fn _limiter(&self) -> PyResult<Core> {
        Ok(Core::of(self.policy()?.limiter()))
    }

    /// A request, by its method and its path on the wire: that chooses its route.
    fn request(&self, method: Lossy, path: Lossy) -> PyResult<Request> {
        Ok(Request(self.policy()?.request(&method.0, &path.0)))
    }

    /// A request whose route is named.
    fn named(&self, py: Python<'_>, method: Lossy, route: &str) -> PyResult<Request> {
        submitted(py, self.policy()?.named(&method.0, route)).map(Request)
    }

    /// Decides whether a request may pass, and charges it.
    #[pyo3(
        signature = (request, *, peer=None, headers=None, user=None, values=None, answers=None, after=None),
        text_signature = "($self, request, *, peer=None, headers=(), user=None, values=None, answers=(), after=None)"
    )]
    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn admit(
        &self,
        py: Python<'_>,
        request: &Request,
        peer: Option<Lossy>,
        headers: Option<&Bound<'_, PyAny>>,
        user: Option<Bytes>,
        values: Option<&Bound<'_, PyDict>>,
        answers: Option<&Bound<'_, PyAny>>,
        after: Option<&Admission>,
    ) -> PyResult<Admission> {
        self.policy()?;
        let mut pending = request.told(peer, headers, user, values, answers, after)?.admit();
        // What memory knows is here already: to let go of the interpreter would take longer than it took.
        let done = match pending.wait_for(Duration::ZERO) {
            Some(done) => submitted(py, done),
            None => wait(py, pending),
        };
        logging::flush(py);
        done.map(Admission)
    }

    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn _submit(
        &self,
        py: Python<'_>,
        queue: &Queue,
        ticket: u64,
        request: &Request,
        peer: Option<Lossy>,
        headers: Option<&Bound<'_, PyAny>>,
        user: Option<Bytes>,
        values: Option<&Bound<'_, PyDict>>,
        answers: Option<&Bound<'_, PyAny>>,
        after: Option<&Admission>,
    ) -> PyResult<Option<Admission>> {
        self.policy()?;
        let request = request.told(peer, headers, user, values, answers, after)?;
        let done = submitted(py, request.submit(&queue.completions, ticket));
        logging::flush(py);
        Ok(done?.map(Admission))
    }

    #[pyo3(signature = (timeout=Seconds::FIVE), text_signature = "($self, timeout=5.0)")]
    fn ready(&self, py: Python<'_>, timeout: Seconds) -> PyResult<()> {
        wait(py, self.policy()?.ready(timeout.0))
    }

    /// What has been counted, as JSON.
    fn _metrics(&self) -> PyResult<String> {
        Ok(self.policy()?.metrics().json())
    }

    /// What has been counted, as Prometheus scrapes it.
    fn prometheus(&self) -> PyResult<String> {
        Ok(self.policy()?.metrics().prometheus())
    }

    /// The names of its routes, in their order.
    #[getter]
    fn routes(&self) -> PyResult<Vec<String>> {
        let mut routes: Vec<String> = self.policy()?.metrics().requests.into_iter().map(|row| row.route).collect();
        routes.dedup();
        Ok(routes)
    }

    /// The request headers that any route needs, in lower case.
    #[getter]
    fn needs_headers(&self) -> PyResult<Vec<String>> {
        Ok(self.policy()?.needs_headers())
    }

    fn close(&self) {
        drop(self.policy.write().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl PolicyCore {
    fn policy(&self) -> PyResult<http::Policy> {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        policy.clone().ok_or_else(|| PyRuntimeError::new_err("the policy is closed; make another"))
    }
}

/// A request, and what its route needs to be told of it.
#[pyclass(frozen, module = "tidegate")]
pub(crate) struct Request(http::Request);

#[pymethods]
impl Request {
    /// The name of its route; None if it has none.
    #[getter]
    fn route(&self) -> Option<&str> {
        self.0.route()
    }

    /// Whether its rules need the user.
    #[getter]
    fn needs_user(&self) -> bool {
        self.0.needs_user()
    }

    /// The request headers that its rules need, in lower case, and `accept`.
    #[getter]
    fn needs_headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.needs_headers().collect::<Vec<_>>())
    }

    /// The names of what its keys and costs need to be supplied with.
    #[getter]
    fn needs_values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.needs_values().collect::<Vec<_>>())
    }

    /// The questions that may exempt it.
    #[getter]
    fn needs_answers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.needs_answers().collect::<Vec<_>>())
    }

    /// The client's address: the peer's, or what trusted proxies say; None if it is not known.
    #[pyo3(
        signature = (peer=None, headers=None),
        text_signature = "($self, peer=None, headers=())"
    )]
    fn client_address(&self, peer: Option<Lossy>, headers: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
        let request = self.told(peer, headers, None, None, None, None)?;
        Ok(request.client_address().map(|address| address.to_string()))
    }

    /// The client's address as it stands in keys: IPv6 by its prefix.
    #[pyo3(
        signature = (peer=None, headers=None),
        text_signature = "($self, peer=None, headers=())"
    )]
    fn client_key(&self, peer: Option<Lossy>, headers: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
        Ok(self.told(peer, headers, None, None, None, None)?.client_key())
    }

    fn __repr__(&self) -> String {
        format!("<Request of route {:?}>", self.0.route().unwrap_or("-"))
    }
}

impl Request {
    fn told(
        &self,
        peer: Option<Lossy>,
        headers: Option<&Bound<'_, PyAny>>,
        user: Option<Bytes>,
        values: Option<&Bound<'_, PyDict>>,
        answers: Option<&Bound<'_, PyAny>>,
        after: Option<&Admission>,
    ) -> PyResult<http::Request> {
        let mut request = self.0.clone();
        if let Some(Lossy(peer)) = peer {
            request = request.peer(peer.as_str());
        }
        if let Some(headers) = headers {
            for line in headers.try_iter()? {
                let (name, value): (Line, Line) = line?.extract()?;
                // A name beyond UTF-8 is none that a rule has.
                if let Ok(name) = std::str::from_utf8(&name.0) {
                    request = request.header(name, value.0);
                }
            }
        }
        if let Some(Bytes(user)) = user {
            request = request.user(user);
        }
        for (name, value) in values.into_iter().flatten() {
            request = request.value(&name.extract::<String>()?, value.extract::<Supplied>()?.0);
        }
        if let Some(answers) = answers {
            for question in answers.try_iter()? {
                request = request.answer_yes(&question?.extract::<String>()?);
            }
        }
        if let Some(before) = after {
            request = request.after(&before.0);
        }
        Ok(request)
    }
}

/// Whether a request may pass, and what its response is to have. True if it may.
#[pyclass(frozen, module = "tidegate")]
pub(crate) struct Admission(pub(crate) http::Admission);

#[pymethods]
impl Admission {
    /// Whether the request may pass.
    #[getter]
    fn allowed(&self) -> bool {
        self.0.allowed()
    }

    /// `allowed`, `refused`, `unavailable`, `no_identity`, `exempt`, `unlimited` or `invalid`; in a shadow route what
    /// would have become of it.
    #[getter]
    fn outcome(&self) -> &'static str {
        self.0.outcome().name()
    }

    /// Whether its route only reports.
    #[getter]
    fn is_shadow(&self) -> bool {
        self.0.is_shadow()
    }

    /// The name of its route; None if it has none.
    #[getter]
    fn route(&self) -> Option<&str> {
        self.0.route()
    }

    /// The status to answer with: 429, 503 or 403; None where the request may pass.
    #[getter]
    fn status(&self) -> Option<u16> {
        self.0.status()
    }

    /// The fields that the response is to have, of a refusal or of what the application answers.
    #[getter]
    fn headers(&self) -> Vec<(&'static str, &str)> {
        self.0.headers().iter().map(|(name, value)| (*name, &**value)).collect()
    }

    /// The body of a refusal; its type is among the headers.
    #[getter]
    fn body(&self) -> Option<&str> {
        self.0.body()
    }

    /// A decision for each key, those of an admission before this one first.
    #[getter]
    fn decisions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.decisions().iter().cloned().map(Decision::from).collect::<Vec<_>>())
    }

    /// Gives the charge back where the route's `refund_status` has the response's status: in the background, or with
    /// `wait`, which tells whether anything was. Once; later calls do nothing.
    #[pyo3(signature = (status, *, wait=false))]
    fn settle(&self, py: Python<'_>, status: u16, wait: bool) -> PyResult<Option<bool>> {
        let pending = self.0.settle(status);
        if wait {
            return crate::limiter::wait(py, pending).map(Some);
        }
        pending.detach();
        Ok(None)
    }

    /// Gives back all that it charged, in the background: for a request that nobody answers any more.
    fn undo(&self) {
        self.0.undo().detach();
    }

    fn __bool__(&self) -> bool {
        self.0.allowed()
    }

    fn __repr__(&self) -> String {
        format!("<Admission: {} by route {:?}>", self.0.outcome().name(), self.0.route().unwrap_or("-"))
    }
}
