//! Models from JSON.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use manyhands::layers::Activation;
use manyhands::layers::LAYERS;
use manyhands::misread;
use manyhands::schema::{Pixels, Schema};
use manyhands::{Error, ModelConfig, presets};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{detached, exception};
use crate::trainer::Objective;

/// Reads what Python has written as JSON.
pub(crate) fn read<T: serde::de::DeserializeOwned>(py: Python<'_>, what: &str, json: &str) -> PyResult<T> {
    let help = "give what the documentation of the function names; if this is so, install the package again: it may be of two versions";
    misread::read_json(json, what, help).map_err(|error| exception(py, &error))
}

/// Builds a model from its architecture. Its weights come from elsewhere.
pub(crate) fn build(py: Python<'_>, json: &str) -> PyResult<manyhands::Model> {
    let config: ModelConfig = read(py, "the model", json)?;
    detached(py, || config.build_zeros())
}

/// A network: layers and weights.
#[pyclass(frozen, module = "manyhands_ml._native")]
pub(crate) struct Model(Mutex<manyhands::Model>);

impl Model {
    fn of(model: manyhands::Model) -> Self {
        Self(Mutex::new(model))
    }

    /// Never while the interpreter's lock is held.
    fn lock(&self) -> MutexGuard<'_, manyhands::Model> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Model {
    /// A model with initial weights, from its architecture as JSON.
    #[staticmethod]
    fn from_json(py: Python<'_>, json: &str, seed: u64) -> PyResult<Self> {
        let config: ModelConfig = read(py, "the model", json)?;
        detached(py, || config.build(seed)).map(Self::of)
    }

    /// A model with initial weights, from its architecture as TOML.
    #[staticmethod]
    fn from_toml(py: Python<'_>, text: &str, seed: u64) -> PyResult<Self> {
        let help = "it needs `input` and `layers`";
        detached(py, || misread::read::<ModelConfig>(text, "the model", help)?.build(seed)).map(Self::of)
    }

    /// A preset with initial weights, in its usual size or another.
    #[staticmethod]
    fn from_preset(
        py: Python<'_>,
        name: &str,
        input: Option<Vec<usize>>,
        outputs: Option<usize>,
        seed: u64,
    ) -> PyResult<Self> {
        let build = || {
            let preset = presets::find(name)?;
            let input = input.unwrap_or_else(|| preset.input.to_vec());
            preset.build_for(input, outputs.unwrap_or(preset.outputs), seed)
        };
        detached(py, build).map(Self::of)
    }

    /// The model of a file.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        detached(py, || manyhands::Model::load(path)).map(Self::of)
    }

    /// Writes it to a file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        detached(py, || self.lock().save(path))
    }

    /// Writes it for other programs, in the format that the file's name ends in.
    fn export(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        detached(py, || self.lock().export(path))
    }

    /// Its layers as a table.
    fn summary(&self, py: Python<'_>) -> String {
        py.detach(|| self.lock().summary())
    }

    /// Its architecture as JSON.
    fn config(&self, py: Python<'_>) -> PyResult<String> {
        let config = py.detach(|| self.lock().config());
        serde_json::to_string(&config).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Name and shape of a row of each input.
    #[getter]
    fn inputs(&self, py: Python<'_>) -> Vec<Described> {
        py.detach(|| {
            self.lock().inputs().iter().map(|input| (input.name.clone(), input.shape.axes().to_vec())).collect()
        })
    }

    /// Name and shape of a row of each output.
    #[getter]
    fn outputs(&self, py: Python<'_>) -> Vec<Described> {
        let outputs = |model: &manyhands::Model| {
            model.outputs().into_iter().map(|(name, shape)| (name.to_owned(), shape.axes().to_vec())).collect()
        };
        py.detach(|| outputs(&self.lock()))
    }

    /// Weights and statistics by name, `layer/tensor`.
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let model = py.detach(|| self.lock().clone());
        let tensors = PyDict::new(py);
        for (name, shape, values) in model.tensors() {
            tensors.set_item(name, PyArray1::from_slice(py, values).reshape(shape.to_vec())?)?;
        }
        Ok(tensors)
    }

    /// Keeps the losses and metrics of an objective in its file.
    fn set_objective(&self, py: Python<'_>, objective: &str) -> PyResult<()> {
        let objective: Objective = read(py, "the objective", objective)?;
        py.detach(|| self.lock().set_evaluation(objective.evaluation()));
        Ok(())
    }

    /// Keeps the pixels that it expects in its file.
    fn set_pixels(&self, py: Python<'_>, pixels: &str) -> PyResult<()> {
        let pixels: Pixels = read(py, "the pixels", &format!("\"{pixels}\""))?;
        py.detach(|| {
            let mut model = self.lock();
            let schema = Schema { pixels: Some(pixels), ..model.schema().clone() };
            model.set_schema(schema);
        });
        Ok(())
    }

    /// Pixels that it expects, as far as that is known.
    #[getter]
    fn pixels(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| self.lock().pixels()).map(|pixels| pixels.to_string())
    }

    /// Takes these weights and statistics; what is not named stays.
    fn set_tensors(&self, py: Python<'_>, tensors: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut model = py.detach(|| self.lock().clone());
        for (name, array) in tensors {
            let name: String = name.extract()?;
            let Some(values) = model.tensor_mut(&name) else {
                let help = "the names are the keys of `weights`";
                return Err(exception(
                    py,
                    &Error::data(format!("`{name}`"), "needs to be a tensor of the model", help),
                ));
            };
            copy_values(&array, &name, values)?;
        }
        py.detach(|| *self.lock() = model);
        Ok(())
    }
}

/// A name, and the shape of a row.
type Described = (String, Vec<usize>);

/// Copies an array over the values of a tensor.
pub(crate) fn copy_values(array: &Bound<'_, PyAny>, name: &str, values: &mut [f32]) -> PyResult<()> {
    let array = array.extract::<PyReadonlyArrayDyn<'_, f32>>()?;
    if array.len() != values.len() {
        let problem = format!("needs {} values, but got {}", values.len(), array.len());
        let error = Error::data(format!("tensor `{name}`"), problem, "give an array of the weight's shape");
        return Err(exception(array.py(), &error));
    }
    values.copy_from_slice(array.as_slice()?);
    Ok(())
}

/// The names under which layers stand in a model's architecture.
#[pyfunction]
pub(crate) fn layer_kinds() -> Vec<&'static str> {
    LAYERS.iter().map(|entry| entry.kind).collect()
}

/// Whether there is an activation function of this name.
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
