//! Arrays of NumPy, and tensors of PyTorch.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{DataConfig, DataFormat, Inputs, both};
use crate::Result;
use crate::data::Aside;
use crate::data::{DataPair, numpy, safetensors};
use crate::schema::{Format, Schema};

/// Arrays of NumPy, a file each ([`numpy`](crate::data::numpy)).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NpyConfig {
    /// Inputs to train on.
    pub x_train: PathBuf,
    /// Their targets.
    pub y_train: PathBuf,
    /// Inputs to test with.
    pub x_test: Option<PathBuf>,
    /// Their targets.
    pub y_test: Option<PathBuf>,
}

/// Arrays of NumPy in one file, such as Keras' `mnist.npz` ([`numpy`](crate::data::numpy)).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NpzConfig {
    /// The file.
    pub file: PathBuf,
    /// Name of the inputs to train on; `x_train` or `x` if not given. Further inputs have `_2`, `_3` and so on behind this name.
    pub x_train: Option<String>,
    /// Name of their targets; `y_train` or `y` if not given.
    pub y_train: Option<String>,
    /// Name of the inputs to test with; `x_test`, if there is one, if not given.
    pub x_test: Option<String>,
    /// Name of their targets; `y_test`, if there is one, if not given.
    pub y_test: Option<String>,
}

/// Tensors in one file, as PyTorch's `safetensors.torch.save_file` writes them ([`safetensors`](crate::data::safetensors)).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SafetensorsConfig {
    /// The file.
    pub file: PathBuf,
    /// Name of the inputs to train on; `x_train` or `x` if not given. Further inputs have `_2`, `_3` and so on behind this name.
    pub x_train: Option<String>,
    /// Name of their targets; `y_train` or `y` if not given.
    pub y_train: Option<String>,
    /// Name of the inputs to test with; `x_test`, if there is one, if not given.
    pub x_test: Option<String>,
    /// Name of their targets; `y_test`, if there is one, if not given.
    pub y_test: Option<String>,
}

impl DataFormat for NpyConfig {
    fn open(&self, trained: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        let test = both(self.x_test.as_deref(), self.y_test.as_deref(), ["x_test", "y_test"])?;
        let test = test.map(|(x, y)| numpy::open_pair(x, y)).transpose()?;
        let pair = DataPair::new(numpy::open_pair(&self.x_train, &self.y_train)?, test)?;
        alike(pair, [&self.x_train, self.x_test.as_ref().unwrap_or(&self.x_train)], trained)
    }

    fn open_inputs(&self, path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
        open_array(path, trained)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        let Self { x_train, y_train, x_test, y_test } = self;
        [x_train, y_train].into_iter().chain(x_test).chain(y_test).collect()
    }
}

impl DataFormat for NpzConfig {
    fn open(&self, trained: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        let Self { file, x_train, y_train, x_test, y_test } = self;
        let pair = numpy::open_npz(file, [x_train, y_train, x_test, y_test].map(Option::as_deref))?;
        alike(pair, [file, file], trained)
    }

    fn open_inputs(&self, path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
        open_array(path, trained)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.file]
    }
}

impl DataFormat for SafetensorsConfig {
    fn open(&self, trained: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        let Self { file, x_train, y_train, x_test, y_test } = self;
        let pair = safetensors::open(file, [x_train, y_train, x_test, y_test].map(Option::as_deref))?;
        alike(pair, [file, file], trained)
    }

    fn open_inputs(&self, path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
        open_array(path, trained)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.file]
    }
}

/// The pair, from the files of its inputs, if images are bytes in all data or in none: in those of training, too.
fn alike(pair: DataPair, files: [&PathBuf; 2], trained: Option<&Schema>) -> Result<DataPair> {
    let own = pair.train.schema();
    let trained = trained.unwrap_or(&own);
    numpy::check_like(files[0], trained, pair.train.as_ref())?;
    if let Some(test) = &pair.test {
        [trained, &own].into_iter().try_for_each(|schema| numpy::check_like(files[1], schema, test.as_ref()))?;
    }
    Ok(pair)
}

fn is_safetensors(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("safetensors"))
}

/// A file of any of these formats, by its extension: a model that was trained on one of them takes the others, too.
fn open_array(path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
    let dataset = if is_safetensors(path) { safetensors::open_inputs(path)? } else { numpy::open_inputs(path)? };
    let trained = trained.cloned().unwrap_or_default();
    numpy::check_like(path, &trained, dataset.as_ref())?;
    Ok(Some(Inputs { dataset, trained, names: None }))
}

/// A file at a path, if a model was trained on arrays.
pub(super) fn of_schema(trained: &Schema, path: &Path) -> Result<Option<DataConfig>> {
    if !matches!(trained.format, Format::Numpy { .. }) {
        return Ok(None);
    }
    let (file, [x_train, y_train, x_test, y_test]) = (path.to_path_buf(), [None, None, None, None]);
    Ok(Some(if is_safetensors(path) {
        DataConfig::Safetensors(SafetensorsConfig { file, x_train, y_train, x_test, y_test })
    } else {
        DataConfig::Npz(NpzConfig { file, x_train, y_train, x_test, y_test })
    }))
}
