//! Decisions: the one record that is mirrored. A decision keeps core's own, and tells of it what is asked; one that was
//! pickled keeps what it told.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tidegate::ErrorKind;

use crate::error;
use crate::receipt::Receipt;

#[pyclass(frozen, module = "tidegate")]
pub(crate) struct Decision(Source);

enum Source {
    Core(tidegate::Decision),
    Told(Box<Told>),
}

/// All that a decision tells.
#[derive(Clone, PartialEq, FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
struct Told {
    figures: Figures,
    limits: Vec<LimitDecision>,
    receipt: String,
    /// The code and the message.
    failure: Option<(String, String)>,
}

#[derive(Clone, PartialEq, FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
struct Figures {
    allowed: bool,
    origin: String,
    repeat: bool,
    binding: usize,
    limit: u32,
    remaining: u32,
    retry_after_ms: Option<u64>,
    reset_after_ms: Option<u64>,
}

impl From<tidegate::Decision> for Decision {
    fn from(decision: tidegate::Decision) -> Decision {
        Decision(Source::Core(decision))
    }
}

/// A figure, of either source.
macro_rules! figure {
    ($decision:expr, $name:ident) => {
        match &$decision.0 {
            Source::Core(decision) => decision.record().$name,
            Source::Told(told) => told.figures.$name,
        }
    };
}

#[pymethods]
impl Decision {
    /// Whether the request may pass. A decision is true if it may.
    #[getter]
    fn allowed(&self) -> bool {
        match &self.0 {
            Source::Core(decision) => decision.allowed(),
            Source::Told(told) => told.figures.allowed,
        }
    }

    /// The units per window of the limit that binds.
    #[getter]
    fn limit(&self) -> u32 {
        figure!(self, limit)
    }

    /// The largest cost admissible now, after this charge.
    #[getter]
    fn remaining(&self) -> u32 {
        figure!(self, remaining)
    }

    /// Seconds until this cost passes if nobody else comes; None when allowed, and None when it never can.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        figure!(self, retry_after_ms).map(seconds)
    }

    /// The same in whole milliseconds, rounded up.
    #[getter]
    fn retry_after_ms(&self) -> Option<u64> {
        figure!(self, retry_after_ms)
    }

    /// Seconds until every quota is whole; None if that never is or is not known.
    #[getter]
    fn reset_after(&self) -> Option<f64> {
        figure!(self, reset_after_ms).map(seconds)
    }

    /// The same in whole milliseconds, rounded up.
    #[getter]
    fn reset_after_ms(&self) -> Option<u64> {
        figure!(self, reset_after_ms)
    }

    /// Whether the request's id had been charged before: allowed, and nothing charged again.
    #[getter]
    fn repeat(&self) -> bool {
        figure!(self, repeat)
    }

    /// Who decided: `store`, `deny_cache`, `local`, `open` or `closed`.
    #[getter]
    fn origin(&self) -> &str {
        match &self.0 {
            Source::Core(decision) => decision.origin().name(),
            Source::Told(told) => &told.figures.origin,
        }
    }

    /// Every limit with its own figures, in the order written.
    #[getter]
    fn limits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.told_limits())
    }

    /// The limit that binds: the refusing one with the longest wait, or when allowed the one with the least remaining.
    #[getter]
    fn binding(&self) -> LimitDecision {
        match &self.0 {
            Source::Core(decision) => LimitDecision::from(&decision.binding()),
            Source::Told(told) => told.limits[told.figures.binding].clone(),
        }
    }

    /// Why the failure policy decided, as the exception that other calls would have raised; None if it did not.
    #[getter]
    fn failure(&self, py: Python<'_>) -> Option<PyErr> {
        match &self.0 {
            Source::Core(decision) => decision.failure().map(|failure| error::raised(py, failure)),
            Source::Told(told) => told.failure.as_ref().map(|(code, message)| {
                let kind = ErrorKind::ALL.iter().find(|kind| kind.code() == code);
                error::of_kind(py, *kind.unwrap_or(&ErrorKind::StoreUnavailable), message.clone())
            }),
        }
    }

    /// What was charged, for `refund`. Empty if nothing was.
    #[getter]
    pub(crate) fn receipt(&self, py: Python<'_>) -> PyResult<Receipt> {
        match &self.0 {
            Source::Core(decision) => Ok(Receipt(decision.receipt())),
            Source::Told(told) => told.receipt.parse().map(Receipt).map_err(|error| error::raised(py, &error)),
        }
    }

    fn __bool__(&self) -> bool {
        self.allowed()
    }

    fn __eq__(&self, other: &Decision) -> bool {
        self.told() == other.told()
    }

    fn __repr__(&self) -> String {
        let (allowed, binding) = (if self.allowed() { "allowed" } else { "refused" }, self.binding());
        let (rule, remaining, limit) = (binding.rule, self.remaining(), self.limit());
        let mut text =
            format!("<Decision {allowed} by {}: {rule}, {remaining} remaining, limit {limit}", self.origin());
        if let Some(wait) = self.retry_after() {
            text += &format!(", retry after {wait} s");
        }
        if let Some((code, message)) = self.told().failure {
            text += &format!(", {code}: {message}");
        }
        text + ">"
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        Ok((py.get_type::<Decision>().getattr("_restored")?, (self.told().into_pyobject(py)?,)))
    }

    #[staticmethod]
    fn _restored(told: Told) -> Decision {
        Decision(Source::Told(Box::new(told)))
    }
}

impl Decision {
    /// What it has charged, if it has.
    pub(crate) fn charge(&self) -> Option<tidegate::Receipt> {
        match &self.0 {
            Source::Core(decision) => Some(decision.receipt()).filter(|receipt| !receipt.is_empty()),
            Source::Told(_) => None,
        }
    }

    fn told_limits(&self) -> Vec<LimitDecision> {
        match &self.0 {
            Source::Core(decision) => decision.limits().map(|limit| LimitDecision::from(&limit)).collect(),
            Source::Told(told) => told.limits.clone(),
        }
    }

    fn told(&self) -> Told {
        let decision = match &self.0 {
            Source::Core(decision) => decision,
            Source::Told(told) => return (**told).clone(),
        };
        let record = decision.record();
        let figures = Figures {
            allowed: record.allowed,
            origin: record.origin.name().to_owned(),
            repeat: record.repeat,
            binding: record.binding.into(),
            limit: record.limit,
            remaining: record.remaining,
            retry_after_ms: record.retry_after_ms,
            reset_after_ms: record.reset_after_ms,
        };
        let failure = decision.failure().map(|failure| (failure.code().to_owned(), failure.message().to_owned()));
        Told { figures, limits: self.told_limits(), receipt: decision.receipt().to_string(), failure }
    }
}

/// How one limit of a decision stands.
#[pyclass(frozen, eq, get_all, from_py_object, module = "tidegate")]
#[derive(Clone, PartialEq)]
pub(crate) struct LimitDecision {
    /// The rule that the limit belongs to.
    rule: String,
    /// The limit's name, if it was given one.
    name: Option<String>,
    /// How it counts.
    algorithm: String,
    /// Units per window.
    limit: u32,
    /// The window in milliseconds.
    window_ms: u64,
    /// The units that a token bucket admits at once; the limit for the other algorithms.
    burst: u32,
    /// The grid to which a sliding window rounds its times up, in milliseconds; None if they are exact.
    precision_ms: Option<u64>,
    /// Whether it blocks; a shadow limit only reports.
    enforced: bool,
    /// Whether this limit alone would let the request pass.
    allowed: bool,
    /// The largest cost admissible now.
    remaining: u32,
    /// Milliseconds until this cost passes, rounded up; None when it does, and None when it never can.
    retry_after_ms: Option<u64>,
    /// Milliseconds until the quota is whole, rounded up; None if it never is.
    reset_after_ms: Option<u64>,
}

/// What pickling keeps, and how it is read back: the compiler sees that no field is left out.
macro_rules! fields {
    ($($name:ident),+) => {
        const FIELDS: &[&str] = &[$(stringify!($name)),+];

        fn restored(fields: &Bound<'_, PyDict>) -> PyResult<LimitDecision> {
            Ok(LimitDecision { $($name: fields.as_any().get_item(stringify!($name))?.extract()?),+ })
        }
    };
}

fields!(
    rule,
    name,
    algorithm,
    limit,
    window_ms,
    burst,
    precision_ms,
    enforced,
    allowed,
    remaining,
    retry_after_ms,
    reset_after_ms
);

#[pymethods]
impl LimitDecision {
    /// The window in seconds.
    #[getter]
    fn window(&self) -> f64 {
        seconds(self.window_ms)
    }

    /// Seconds until this cost passes; None when it does, and None when it never can.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.retry_after_ms.map(seconds)
    }

    /// Seconds until the quota is whole; None if it never is.
    #[getter]
    fn reset_after(&self) -> Option<f64> {
        self.reset_after_ms.map(seconds)
    }

    fn __repr__(&self) -> String {
        let allowed = if self.allowed { "allows" } else { "refuses" };
        let (rule, limit, window, algorithm) = (&self.rule, self.limit, self.window(), &self.algorithm);
        format!("<LimitDecision {rule} {limit} per {window} s {algorithm} {allowed}: {} remaining>", self.remaining)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        let fields = PyDict::new(slf.py());
        for name in FIELDS {
            fields.set_item(name, slf.getattr(name)?)?;
        }
        Ok((slf.get_type().getattr("_restored")?, (fields,)))
    }

    #[staticmethod]
    fn _restored(fields: &Bound<'_, PyDict>) -> PyResult<LimitDecision> {
        restored(fields)
    }
}

impl From<&tidegate::LimitDecision<'_>> for LimitDecision {
    fn from(limit: &tidegate::LimitDecision<'_>) -> LimitDecision {
        LimitDecision {
            rule: limit.rule().to_owned(),
            name: limit.name().map(str::to_owned),
            algorithm: limit.algorithm().name().to_owned(),
            limit: limit.limit(),
            window_ms: whole_milliseconds(limit.window()),
            burst: limit.burst(),
            precision_ms: limit.precision().map(whole_milliseconds),
            enforced: limit.enforced(),
            allowed: limit.allowed(),
            remaining: limit.remaining(),
            retry_after_ms: limit.retry_after_ms(),
            reset_after_ms: limit.reset_after_ms(),
        }
    }
}

fn seconds(milliseconds: u64) -> f64 {
    Duration::from_millis(milliseconds).as_secs_f64()
}

/// Of what is written in whole milliseconds.
fn whole_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
