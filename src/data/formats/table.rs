//! Tables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DataConfig, DataFormat, Inputs, check_regular};
use crate::data::csv::{
    self, Column, ColumnKind, CsvSettings, InputColumns, MAX_CATEGORIES, NumberScale, OneOrMany, OutputColumns,
    TargetKind,
};
use crate::data::{Aside, DataPair, Dataset};
use crate::schema::{Format, Missing, Schema, few};
use crate::{Error, Result};

/// Tables; the fields are those of [`CsvSettings`].
///
/// One input and one output take `target` and `target_kind`; all other columns are the input. Several are named as the
/// model's inputs and outputs are:
///
/// ```toml
/// type = "csv"
/// train = "houses.csv"
/// inputs = [
///   { name = "place", columns = ["north", "east"] },
///   { name = "house", columns = ["area", "rooms"] },
/// ]
/// outputs = [
///   { name = "price", target = "price", target_kind = "values" },
///   { name = "kind", target = "kind", target_kind = "classes" },
/// ]
/// ```
///
/// Strings, missing fields and dates need no setting: see [`csv`](crate::data::csv).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TableConfig {
    /// Training table.
    pub train: PathBuf,
    /// Test table.
    pub test: Option<PathBuf>,
    /// Target column, or several, of the one output.
    pub target: Option<OneOrMany<Column>>,
    /// `classes` or `values`.
    pub target_kind: Option<TargetKind>,
    /// Columns of each input; by default all otherwise unused columns are the one input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputColumns>,
    /// Target columns of each output, in place of `target`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputColumns>,
    /// Columns that are no input.
    #[serde(default)]
    pub ignore: Vec<Column>,
    /// Column of the sample weights.
    pub sample_weight: Option<Column>,
    /// Whether there is a header; detected by default.
    pub header: Option<bool>,
    /// Character between fields; detected by default.
    pub delimiter: Option<char>,
    /// Decimal sign, `.` or `,`; detected by default.
    pub decimal: Option<char>,
    /// Kinds of input columns whose own is not meant: `{ class = "category", day = "%d/%m/%Y" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<String, ColumnKind>,
    /// Scale of the columns of numbers.
    #[serde(default)]
    pub numbers: NumberScale,
    /// Treatment of missing fields.
    #[serde(default)]
    pub missing: Missing,
    /// Fields that are missing ones beside the empty field; by default `NA`, `NaN`, `null`, `?` and their like.
    pub missing_values: Option<Vec<String>>,
    /// Most categories of a column: rarer ones count as none of them.
    #[serde(default = "max_categories")]
    pub max_categories: usize,
    /// Places of the inputs that an `Embedding` reads: [`DataConfig::for_embeddings`](super::DataConfig::for_embeddings).
    #[serde(skip)]
    embedded: Vec<usize>,
}

fn max_categories() -> usize {
    MAX_CATEGORIES
}

impl TableConfig {
    fn settings(&self) -> Result<CsvSettings> {
        let outputs = match (&self.target, self.target_kind, &self.outputs[..]) {
            (Some(target), Some(target_kind), []) => {
                vec![OutputColumns { name: None, target: target.clone(), target_kind }]
            }
            (None, None, [_, ..]) => self.outputs.clone(),
            _ => {
                return Err(Error::setting(
                    "`[data]`",
                    "needs either `target` and `target_kind`, or `outputs`",
                    "one output: `target = \"species\"` and `target_kind = \"classes\"`; several: `[[data.outputs]]` with \
                     `name`, `target` and `target_kind`",
                ));
            }
        };
        Ok(CsvSettings {
            inputs: self.inputs.clone(),
            outputs,
            ignore: self.ignore.clone(),
            sample_weight: self.sample_weight.clone(),
            header: self.header,
            delimiter: self.delimiter,
            decimal: self.decimal,
            kinds: self.kinds.clone(),
            numbers: self.numbers,
            missing: self.missing,
            missing_values: self.missing_values.clone(),
            max_categories: self.max_categories,
            embedded: self.embedded.clone(),
        })
    }

    /// Settings of a table that was read before.
    fn of_settings(train: PathBuf, settings: CsvSettings) -> Self {
        let CsvSettings { inputs, outputs, ignore, sample_weight, header, delimiter, decimal, .. } = settings;
        let CsvSettings { kinds, numbers, missing, missing_values, max_categories, .. } = settings;
        Self {
            train,
            test: None,
            target: None,
            target_kind: None,
            inputs,
            outputs,
            ignore,
            sample_weight,
            header,
            delimiter,
            decimal,
            kinds,
            numbers,
            missing,
            missing_values,
            max_categories,
            embedded: Vec::new(),
        }
    }
}

impl DataFormat for TableConfig {
    fn open(&self, trained: Option<&Schema>, aside: Option<Aside>) -> Result<DataPair> {
        let settings = self.settings()?;
        let like = |path: &Path, schema: &Schema| Ok(csv::open_like(path, &settings, schema)?.dataset);
        if let Some(trained) = trained.filter(|trained| is_table(trained)) {
            let test = self.test.as_deref().map(|test| like(test, trained)).transpose()?;
            return DataPair::of((like(&self.train, trained)?, test));
        }
        check_regular(self)?;
        let train = csv::open_aside(&self.train, &settings, aside)?.dataset;
        let schema = train.schema();
        let test = self.test.as_deref().map(|test| like(test, &schema)).transpose()?;
        DataPair::of((train, test))
    }

    fn open_inputs(&self, path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
        let settings = self.settings()?;
        let trained = match trained.filter(|trained| is_table(trained)) {
            Some(trained) => trained.clone(),
            None => csv::open(&self.train, &settings)?.dataset.schema(),
        };
        let dataset = Arc::new(csv::open_inputs(path, &settings, &trained)?);
        Ok(Some(Inputs { dataset, trained, names: None }))
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        [&mut self.train].into_iter().chain(&mut self.test).collect()
    }

    fn embed(&mut self, names: &[String]) {
        let is_embedded = |input: &InputColumns| names.contains(&input.name);
        self.embedded = match &self.inputs[..] {
            [] => names.first().map(|_| 0).into_iter().collect(),
            inputs => (0..inputs.len()).filter(|place| is_embedded(&inputs[*place])).collect(),
        };
    }

    fn order(&mut self, inputs: &[&str], outputs: &[&str]) -> Result<()> {
        for (kind, names, of_model) in [
            ("input", self.inputs.iter().map(|input| Some(&input.name)).collect::<Vec<_>>(), inputs),
            ("output", self.outputs.iter().map(|output| output.name.as_ref()).collect(), outputs),
        ] {
            let is_known = |name: &String| of_model.contains(&name.as_str());
            if let Some(name) = names.into_iter().flatten().find(|name| !is_known(name)) {
                return Err(Error::setting(
                    format!("`[data]`, {kind} `{name}`,"),
                    format!("needs to be an {kind} of the model, but the model has {}", few(of_model)),
                    format!("name each {kind} as the model does"),
                ));
            }
        }
        let place = |names: &[&str], name: Option<&str>| names.iter().position(|known| Some(*known) == name);
        self.inputs.sort_by_key(|input| place(inputs, Some(&input.name)));
        self.outputs.sort_by_key(|output| place(outputs, output.name.as_deref()));
        Ok(())
    }
}

/// A table at a path, read as the one that a model was trained on.
pub(super) fn of_schema(trained: &Schema, path: &Path) -> Result<Option<DataConfig>> {
    let settings = CsvSettings::of_schema(trained);
    Ok(settings.map(|settings| DataConfig::Csv(TableConfig::of_settings(path.to_path_buf(), settings))))
}

fn is_table(trained: &Schema) -> bool {
    matches!(trained.format, Format::Csv { .. })
}
