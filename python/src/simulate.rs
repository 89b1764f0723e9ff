//! Adapters in virtual time.

use manyhands::simulator::RigConfig;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::detached;
use crate::model::read;

/// Predicted speed of the adapters of a rig, as JSON. The rig is TOML, or JSON if it begins with a brace.
#[pyfunction]
pub(crate) fn simulate(py: Python<'_>, rig: &str) -> PyResult<String> {
    let rig: RigConfig = match rig.trim_start().starts_with('{') {
        true => read(py, "the rig", rig)?,
        false => detached(py, || RigConfig::parse(rig))?,
    };
    let report = detached(py, || manyhands::simulator::simulate(&rig))?;
    serde_json::to_string(&report).map_err(|error| PyValueError::new_err(error.to_string()))
}
