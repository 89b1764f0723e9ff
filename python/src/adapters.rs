//! Lists the adapters.

use manyhands::adapters::{Info, choose, list};
use pyo3::prelude::*;

use crate::errors::detached;

/// The adapters that a choice names.
pub(crate) fn chosen(choice: &str) -> manyhands::Result<Vec<Info>> {
    choose(&list(), choice)
}

/// Index, name, kind and backend of an adapter, as Python gets them.
pub(crate) type Described = (usize, String, String, String);

/// An adapter as Python gets it.
pub(crate) fn described(info: &Info) -> Described {
    let kind = serde_json::to_value(info.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    (info.index, info.name.clone(), kind.unwrap_or_default(), info.backend.clone())
}

/// Index, name, kind and backend of every adapter of the machine, or of those that a choice names.
#[pyfunction]
#[pyo3(signature = (choice=None))]
pub(crate) fn adapters(py: Python<'_>, choice: Option<&str>) -> PyResult<Vec<Described>> {
    let infos = detached(py, || choice.map_or_else(|| Ok(list()), chosen))?;
    Ok(infos.iter().map(described).collect())
}
