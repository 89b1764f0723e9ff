//! Errors of the crate as exceptions of `manyhands_ml.errors`.

use manyhands::{Error, ErrorKind};
use pyo3::prelude::*;

/// Name of an error's class in Python.
fn class(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Model | ErrorKind::Checkpoint => "ModelError",
        ErrorKind::Data | ErrorKind::File => "DataError",
        ErrorKind::Setting => "SettingError",
        ErrorKind::Adapter | ErrorKind::AdapterLost | ErrorKind::OutOfMemory | ErrorKind::Unsupported => "AdapterError",
        ErrorKind::NonFinite => "NonFiniteError",
        _ => "ManyhandsError",
    }
}

/// The exception of an error, with its text.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let raised = py
        .import("manyhands_ml.errors")
        .and_then(|module| module.getattr(class(error)))
        .and_then(|class| class.call1((error.to_string(),)));
    raised.map_or_else(|error| error, PyErr::from_value)
}

/// Runs what may take long without the interpreter's lock.
pub(crate) fn detached<T: Send>(py: Python<'_>, run: impl FnOnce() -> manyhands::Result<T> + Send) -> PyResult<T> {
    py.detach(run).map_err(|error| exception(py, &error))
}
