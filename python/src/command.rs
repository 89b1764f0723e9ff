//! The command `manyhands`, for a program of the Python package.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command that arguments name, the first of which is the program's name; gives the exit status.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> i32 {
    py.detach(|| manyhands_cli::run(arguments))
}
