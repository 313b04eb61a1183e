//! An exception class of each of core's kinds.

use std::ffi::CString;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use tidegate::{Error, ErrorKind};

/// In the order of `ErrorKind::ALL`.
static CLASSES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();
static BASE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

const ABOUT: &str = "What goes wrong in Tidegate. `code` is the stable name of its kind, the same in every language.";

pub(crate) fn add_classes(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let base = BASE.get_or_try_init(py, || class(py, "TidegateError", ABOUT, &py.get_type::<PyException>(), None))?;
    let classes = CLASSES.get_or_try_init(py, || {
        let made = ErrorKind::ALL.iter().map(|kind| {
            let doc = format!("An error of kind `{}`.", kind.code());
            class(py, &name(*kind), &doc, base.bind(py), Some(kind.code()))
        });
        made.collect::<PyResult<Vec<_>>>()
    })?;
    for (class, kind) in classes.iter().zip(ErrorKind::ALL) {
        module.add(name(*kind), class)?;
    }
    let codes: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
    module.add("ERROR_CODES", codes)?;
    module.add("TidegateError", base)
}

fn class(py: Python<'_>, name: &str, doc: &str, base: &Bound<'_, PyType>, code: Option<&str>) -> PyResult<Py<PyType>> {
    let members = PyDict::new(py);
    members.set_item("code", code.unwrap_or_default())?;
    let (name, doc) = (CString::new(format!("tidegate.{name}"))?, CString::new(doc)?);
    // pyo3 lets go of the dictionary that it is given before it is used, so this one is kept until the class is made.
    let lent = members.clone().into_any().unbind();
    let class = PyErr::new_type(py, &name, Some(&doc), Some(base), Some(lent));
    drop(members);
    class
}

/// `invalid_rule` is `InvalidRule`.
fn name(kind: ErrorKind) -> String {
    let words = kind.code().split('_');
    words.map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

/// What Python raises for an error of core's.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    of_kind(py, error.kind(), error.message().to_owned())
}

pub(crate) fn of_kind(py: Python<'_>, kind: ErrorKind, message: String) -> PyErr {
    let place = ErrorKind::ALL.iter().position(|one| *one == kind).unwrap_or_default();
    match CLASSES.get(py) {
        Some(classes) => PyErr::from_type(classes[place].bind(py).clone(), (message,)),
        None => PyException::new_err((message,)),
    }
}

pub(crate) fn invalid_request(py: Python<'_>, message: impl Into<String>) -> PyErr {
    of_kind(py, ErrorKind::InvalidRequest, message.into())
}
