//! Images in one file, or a few: MNIST, CIFAR-10 and their like.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DataConfig, DataFormat, Inputs, both};
use crate::Result;
use crate::data::Aside;
use crate::data::{DataPair, cifar, idx};
use crate::schema::{Format, Schema};

/// A folder with MNIST's four files, or files of its kind ([`idx::open_folder`]).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IdxConfig {
    /// The folder.
    pub folder: PathBuf,
}

/// IDX files by name ([`idx::open_pair`]).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IdxFilesConfig {
    /// Training images.
    pub train_images: PathBuf,
    /// Their labels.
    pub train_labels: PathBuf,
    /// Test images.
    pub test_images: Option<PathBuf>,
    /// Their labels.
    pub test_labels: Option<PathBuf>,
}

/// The folder of CIFAR-10's binary version ([`cifar::open`]).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CifarConfig {
    /// The folder.
    pub folder: PathBuf,
}

impl DataFormat for IdxConfig {
    fn open(&self, _: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        DataPair::of(idx::open_folder(&self.folder)?)
    }

    fn open_inputs(&self, path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
        open_images(path, trained)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.folder]
    }
}

impl DataFormat for IdxFilesConfig {
    fn open(&self, _: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        let train = idx::open_pair(&self.train_images, &self.train_labels)?;
        let test = both(self.test_images.as_deref(), self.test_labels.as_deref(), ["test_images", "test_labels"])?;
        DataPair::of((train, test.map(|(images, labels)| idx::open_pair(images, labels)).transpose()?))
    }

    fn open_inputs(&self, path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
        open_images(path, trained)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        let Self { train_images, train_labels, test_images, test_labels } = self;
        [train_images, train_labels].into_iter().chain(test_images).chain(test_labels).collect()
    }
}

impl DataFormat for CifarConfig {
    fn open(&self, _: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        DataPair::of(cifar::open(&self.folder)?)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.folder]
    }
}

fn open_images(path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
    let trained = trained.cloned().unwrap_or_default();
    Ok(Some(Inputs { dataset: Arc::new(idx::open_images(path)?), trained, names: None }))
}

/// A folder at a path, if a model was trained on such images.
pub(super) fn of_schema(trained: &Schema, path: &Path) -> Result<Option<DataConfig>> {
    let folder = path.to_path_buf();
    Ok(match trained.format {
        Format::Idx => Some(DataConfig::Idx(IdxConfig { folder })),
        Format::Cifar10 => Some(DataConfig::Cifar10(CifarConfig { folder })),
        _ => None,
    })
}
