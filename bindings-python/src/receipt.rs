//! Receipts, as text and bytes.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::decision::Decision;
use crate::error;

/// What one admitted check charged: give it to `refund`.
#[pyclass(frozen, eq, module = "tidegate")]
#[derive(PartialEq)]
pub(crate) struct Receipt(pub(crate) tidegate::Receipt);

#[pymethods]
impl Receipt {
    /// Reads a receipt back from what `str` or `bytes` wrote.
    #[new]
    fn new(py: Python<'_>, text: TextOrAscii) -> PyResult<Receipt> {
        text.0.parse().map(Receipt).map_err(|error| error::raised(py, &error))
    }

    /// Whether nothing was charged.
    #[getter]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The times of the charges by the store's clock, in microseconds since 1970.
    #[getter]
    fn charged_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.charged_at().collect::<Vec<u64>>())
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.to_string().as_bytes())
    }

    fn __repr__(&self) -> String {
        format!("Receipt('{}')", self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.to_string().hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (String,)) {
        (py.get_type::<Receipt>(), (self.0.to_string(),))
    }
}

struct TextOrAscii(String);

impl<'py> FromPyObject<'_, 'py> for TextOrAscii {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<TextOrAscii> {
        match given.cast::<PyBytes>() {
            Ok(bytes) => Ok(TextOrAscii(String::from_utf8_lossy(bytes.as_bytes()).into_owned())),
            Err(_) => given.extract().map(TextOrAscii),
        }
    }
}

/// A receipt, or the decision that has it.
pub(crate) struct Refundable(pub(crate) tidegate::Receipt);

impl<'py> FromPyObject<'_, 'py> for Refundable {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Refundable> {
        if let Ok(decision) = given.cast::<Decision>() {
            return decision.get().receipt(given.py()).map(|receipt| Refundable(receipt.0));
        }
        Ok(Refundable(given.cast::<Receipt>()?.get().0.clone()))
    }
}
