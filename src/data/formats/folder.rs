//! Folders of images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DataConfig, DataFormat, Inputs};
use crate::data::Aside;
use crate::data::images::{self, ImageFiles, ImageFolder, ImageSettings, Unreadable};
use crate::data::{Channels, DataPair, Dataset, LabelMode};
use crate::schema::{Format, Schema};
use crate::{Error, Result};

/// Folders of images; the fields are those of [`ImageSettings`].
///
/// ```toml
/// type = "image_folder"
/// train = "flowers"                  # flowers/rose/1.jpg, flowers/tulip/1.jpg, …
/// height = 128
/// width = 128
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FolderConfig {
    /// Folder of the training images.
    pub train: PathBuf,
    /// Folder of the test images.
    pub test: Option<PathBuf>,
    /// Height that images get.
    pub height: usize,
    /// Width that images get.
    pub width: usize,
    /// Number of channels: 1 or 3.
    #[serde(default)]
    pub channels: Channels,
    /// Targets: `int`, or `categorical` for `CategoricalCrossentropy` and `MixUp`.
    #[serde(default)]
    pub label_mode: LabelMode,
    /// Treatment of unreadable images: `error` (the default) or `skip` ([`Unreadable`]).
    #[serde(default)]
    pub unreadable: Unreadable,
}

impl FolderConfig {
    fn settings(&self) -> ImageSettings {
        let &Self { height, width, channels, label_mode, unreadable, .. } = self;
        ImageSettings { height, width, channels, label_mode, unreadable }
    }
}

impl DataFormat for FolderConfig {
    /// With the classes of the schema, or else with those of the training images.
    fn open(&self, trained: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        let classes = trained.map_or(&[][..], |trained| trained.classes(0));
        let with = |path: &Path, classes: &[String]| ImageFolder::open_with_classes(path, self.settings(), classes);
        let train = if classes.is_empty() {
            ImageFolder::open(&self.train, self.settings())
        } else {
            with(&self.train, classes)
        }?;
        let test = self.test.as_deref().map(|test| with(test, train.classes())).transpose()?;
        DataPair::of((train, test))
    }

    fn open_inputs(&self, path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
        let settings = self.settings();
        let images = match self.unreadable {
            // A row for each file, so that an unreadable file does not stop the others.
            Unreadable::Error => ImageFiles::open_all(path, settings)?,
            Unreadable::Skip => ImageFiles::open(path, settings)?,
        };
        let trained = match trained {
            Some(trained) => trained.clone(),
            None => Schema::with_classes(images.schema().format, images::class_names(&self.train)?),
        };
        let names = Some(images.names());
        Ok(Some(Inputs { dataset: Arc::new(images), trained, names }))
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        [&mut self.train].into_iter().chain(&mut self.test).collect()
    }
}

/// A folder at a path, read as the images that a model was trained on.
pub(super) fn of_schema(trained: &Schema, path: &Path) -> Result<Option<DataConfig>> {
    let Format::ImageFolder { height, width, channels, label_mode } = trained.format else { return Ok(None) };
    let channels = Channels::try_from(channels).map_err(|problem| {
        Error::data("the model's images", problem, "the model file is damaged, or of a newer version")
    })?;
    let (test, unreadable) = (None, Unreadable::Error);
    let train = path.to_path_buf();
    Ok(Some(DataConfig::ImageFolder(FolderConfig { train, test, height, width, channels, label_mode, unreadable })))
}
