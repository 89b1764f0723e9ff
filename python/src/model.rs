//! Models from JSON.

use manyhands::internals::layers::LAYERS;
use manyhands::layers::Activation;
use manyhands::{Error, Model, ModelConfig};
use pyo3::prelude::*;

use crate::errors::{detached, exception};

/// Reads what Python has written as JSON.
pub(crate) fn read<T: serde::de::DeserializeOwned>(py: Python<'_>, what: &str, json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| {
        let help = "this package and its native module may be of two versions: install it again";
        exception(py, &Error::setting(what, format!("can't be read: {error}"), help))
    })
}

/// Builds a model from its architecture.
pub(crate) fn build(py: Python<'_>, json: &str) -> PyResult<Model> {
    let config: ModelConfig = read(py, "the model", json)?;
    detached(py, || config.build(0))
}

/// The names under which layers stand in a model's architecture.
#[pyfunction]
pub(crate) fn layer_kinds() -> Vec<&'static str> {
    LAYERS.iter().map(|entry| entry.kind).collect()
}

/// Is there an activation function of this name?
#[pyfunction]
pub(crate) fn has_activation(name: &str) -> bool {
    serde_json::from_value::<Activation>(name.into()).is_ok()
}

/// Builds a model to find what is wrong with it; gives name and shape of each weight.
#[pyfunction]
pub(crate) fn check_model(py: Python<'_>, json: &str) -> PyResult<Vec<(String, Vec<usize>)>> {
    let model = build(py, json)?;
    Ok(model.tensors().map(|(name, shape, _)| (name.to_owned(), shape.to_vec())).collect())
}
