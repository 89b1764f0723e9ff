//! Arrays of NumPy.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{DataConfig, DataFormat, Inputs, both};
use crate::Result;
use crate::data::csv::Aside;
use crate::data::{DataPair, numpy};
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
    /// Name of the inputs to train on; `x_train` or `x` if not given.
    pub x_train: Option<String>,
    /// Name of their targets; `y_train` or `y` if not given.
    pub y_train: Option<String>,
    /// Name of the inputs to test with; `x_test`, if there is one, if not given.
    pub x_test: Option<String>,
    /// Name of their targets; `y_test`, if there is one, if not given.
    pub y_test: Option<String>,
}

impl DataFormat for NpyConfig {
    fn open(&self, _: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        let test = both(self.x_test.as_deref(), self.y_test.as_deref(), ["x_test", "y_test"])?;
        let test = test.map(|(x, y)| numpy::open_pair(x, y)).transpose()?;
        DataPair::new(numpy::open_pair(&self.x_train, &self.y_train)?, test)
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
    fn open(&self, _: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        let Self { file, x_train, y_train, x_test, y_test } = self;
        numpy::open_npz(file, [x_train, y_train, x_test, y_test].map(Option::as_deref))
    }

    fn open_inputs(&self, path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
        open_array(path, trained)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.file]
    }
}

fn open_array(path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
    let trained = trained.cloned().unwrap_or_default();
    Ok(Some(Inputs { dataset: numpy::open_inputs(path)?, trained, names: None }))
}

/// A file at a path, if a model was trained on arrays.
pub(super) fn of_schema(trained: &Schema, path: &Path) -> Result<Option<DataConfig>> {
    let config = || NpzConfig { file: path.to_path_buf(), x_train: None, y_train: None, x_test: None, y_test: None };
    Ok(matches!(trained.format, Format::Numpy).then(|| DataConfig::Npz(config())))
}
