//! Data that need no file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{DataConfig, DataFormat};
use crate::Result;
use crate::data::Aside;
use crate::data::{DataPair, Synthetic, digits};
use crate::schema::{Format, Schema};

/// The [`digits`] that are part of the crate.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DigitsConfig {}

/// Made-up data ([`Synthetic`]).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SyntheticConfig {
    /// Shape of a row.
    pub shape: Vec<usize>,
    /// Number of classes.
    pub classes: usize,
    /// Training rows.
    pub rows: usize,
    /// Test rows.
    #[serde(default)]
    pub test_rows: usize,
    /// Seed of the rule and the rows.
    #[serde(default)]
    pub seed: u64,
}

impl DataFormat for DigitsConfig {
    fn open(&self, _: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        DataPair::of((digits::train()?, Some(digits::test()?)))
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }
}

impl DataFormat for SyntheticConfig {
    fn open(&self, _: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        let &Self { ref shape, classes, rows, test_rows, seed } = self;
        let part = |rows| Synthetic::new(shape.clone(), classes, rows, seed);
        let test = (test_rows > 0).then(|| part(rows..rows.saturating_add(test_rows))).transpose()?;
        DataPair::of((part(0..rows)?, test))
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }
}

/// The digits, if a model was trained on them.
pub(super) fn of_schema(trained: &Schema, _: &Path) -> Result<Option<DataConfig>> {
    Ok(matches!(trained.format, Format::Digits).then_some(DataConfig::Digits(DigitsConfig {})))
}
