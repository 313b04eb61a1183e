//! What calls are given, from Python's types into core's. Core judges it.

use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString, PyTuple};
use tidegate::{Acquire, Check, Limiter};

use crate::error::invalid_request;

/// Text or bytes, as bytes.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Bytes> {
        if let Ok(text) = given.cast::<PyString>() {
            return match text.to_cow() {
                Ok(text) => Ok(Bytes(text.as_bytes().to_vec())),
                Err(_) => Err(invalid_request(
                    given.py(),
                    "the text has a lone surrogate, which UTF-8 cannot write; decode it with errors=\"replace\", or \
                     pass bytes",
                )),
            };
        }
        given.cast::<PyBytes>().map(|bytes| Bytes(bytes.as_bytes().to_vec())).map_err(|_| {
            let kind = given.get_type().name().map(|name| name.to_string()).unwrap_or_default();
            PyTypeError::new_err(format!(
                "{kind} is neither str nor bytes; pass str(...) of it, or a tuple of parts as a key"
            ))
        })
    }
}

/// Text that a client wrote, which nothing may fail on: what UTF-8 cannot write is replaced.
pub(crate) struct Lossy(pub(crate) String);

impl<'py> FromPyObject<'_, 'py> for Lossy {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Lossy> {
        Ok(Lossy(given.cast::<PyString>()?.to_string_lossy().into_owned()))
    }
}

/// A part of a header line: bytes, or text as WSGI has it, which is Latin-1.
pub(crate) struct Line(pub(crate) Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Line {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Line> {
        let Ok(text) = given.cast::<PyString>() else { return given.extract::<Bytes>().map(|bytes| Line(bytes.0)) };
        let text = text.to_string_lossy();
        let latin: Option<Vec<u8>> = text.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect();
        Ok(Line(latin.unwrap_or_else(|| text.as_bytes().to_vec())))
    }
}

/// What an application supplies: text, bytes, or a whole number.
pub(crate) struct Supplied(pub(crate) Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Supplied {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Supplied> {
        if given.is_instance_of::<PyInt>() {
            return Ok(Supplied(given.str()?.to_string().into_bytes()));
        }
        given.extract::<Bytes>().map(|bytes| Supplied(bytes.0))
    }
}

/// Who is limited: text, bytes, or a tuple of them.
pub(crate) struct Key(tidegate::Key);

impl<'py> FromPyObject<'_, 'py> for Key {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Key> {
        if let Ok(parts) = given.cast::<PyTuple>() {
            let parts = parts.iter().map(|part| part.extract::<Bytes>().map(|part| part.0));
            return Ok(Key(tidegate::Key::parts(parts.collect::<PyResult<Vec<_>>>()?)));
        }
        Ok(Key(tidegate::Key::from(&given.extract::<Bytes>()?.0)))
    }
}

/// The name of one rule, or the names of several.
pub(crate) enum Rules {
    One(String),
    Several(Vec<String>),
}

impl<'py> FromPyObject<'_, 'py> for Rules {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Rules> {
        if given.is_instance_of::<PyString>() {
            return Ok(Rules::One(given.extract()?));
        }
        let names = given.try_iter()?.map(|name| name?.extract());
        Ok(Rules::Several(names.collect::<PyResult<_>>()?))
    }
}

/// A whole number, whatever core makes of it.
#[derive(Clone, Copy)]
pub(crate) struct Cost(u64);

impl Cost {
    pub(crate) const ONE: Cost = Cost(1);
}

impl<'py> FromPyObject<'_, 'py> for Cost {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Cost> {
        let whole = given.cast::<PyInt>().ok().and_then(|number| number.extract().ok());
        whole.map(Cost).ok_or_else(|| {
            let message = format!("the cost {} is out of range; write a whole number from 1", &*given);
            invalid_request(given.py(), message)
        })
    }
}

/// Seconds, whole or not.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

impl Seconds {
    pub(crate) const FIVE: Seconds = Seconds(Duration::from_secs(5));
    pub(crate) const TEN: Seconds = Seconds(Duration::from_secs(10));
}

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Seconds> {
        let seconds: f64 = given.extract()?;
        let message = || format!("{seconds} is no time; write seconds, such as 0.1");
        Duration::try_from_secs_f64(seconds).map(Seconds).map_err(|_| invalid_request(given.py(), message()))
    }
}

/// A call as it was asked for.
pub(crate) struct Asked {
    pub(crate) rules: Rules,
    pub(crate) key: Key,
    pub(crate) cost: Cost,
    pub(crate) limits: Option<String>,
    pub(crate) request_id: Option<RequestId>,
    pub(crate) deadline: Option<Seconds>,
}

/// What the application calls a request.
pub(crate) struct RequestId(Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for RequestId {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<RequestId> {
        given.extract::<Bytes>().map(|id| RequestId(id.0))
    }
}

impl Asked {
    pub(crate) fn check(self, limiter: &Limiter) -> Check<'_> {
        let check = match &self.rules {
            Rules::One(rule) => limiter.check(rule, self.key.0),
            Rules::Several(rules) => limiter.check_all(rules.iter().map(String::as_str), self.key.0),
        };
        with_options(check, self.cost, self.limits, self.request_id, self.deadline)
    }

    pub(crate) fn peek(self, limiter: &Limiter) -> Check<'_> {
        let check = match &self.rules {
            Rules::One(rule) => limiter.peek(rule, self.key.0),
            Rules::Several(rules) => limiter.peek_all(rules.iter().map(String::as_str), self.key.0),
        };
        with_options(check, self.cost, self.limits, self.request_id, self.deadline)
    }
}

fn with_options(
    check: Check<'_>,
    cost: Cost,
    limits: Option<String>,
    request_id: Option<RequestId>,
    deadline: Option<Seconds>,
) -> Check<'_> {
    let mut check = check.cost(cost.0);
    if let Some(limits) = limits {
        check = check.limits(limits);
    }
    if let Some(RequestId(id)) = request_id {
        check = check.request_id(id);
    }
    if let Some(Seconds(deadline)) = deadline {
        check = check.deadline(deadline);
    }
    check
}

/// An acquire as it was asked for, of one rule.
pub(crate) struct Awaited {
    pub(crate) rule: String,
    pub(crate) key: Key,
    pub(crate) cost: Cost,
    pub(crate) limits: Option<String>,
    pub(crate) deadline: Option<Seconds>,
    pub(crate) timeout: Seconds,
}

impl Awaited {
    pub(crate) fn acquire(self, limiter: &Limiter) -> Acquire<'_> {
        let mut acquire = limiter.acquire(&self.rule, self.key.0).timeout(self.timeout.0).cost(self.cost.0);
        if let Some(limits) = self.limits {
            acquire = acquire.limits(limits);
        }
        if let Some(Seconds(deadline)) = self.deadline {
            acquire = acquire.deadline(deadline);
        }
        acquire
    }
}

impl From<Key> for tidegate::Key {
    fn from(key: Key) -> tidegate::Key {
        key.0
    }
}
