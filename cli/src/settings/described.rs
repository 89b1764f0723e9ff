//! The JSON Schema of settings files, derived from the types that read them. From it come the schema for editors,
//! `cli/src/settings.schema.json`, and the page `docs/settings.md`: `UPDATE=1 cargo test -p manyhands-cli described` writes both.

mod editors;
mod page;

use std::fs;
use std::path::Path;

use manyhands::Metric;
use manyhands::model::described_layers;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::model::ModelTable;
use super::{SettingsFile, TrainingTable};

/// A file that is compared with what the code says, or written.
fn check_file(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    let help = "run `UPDATE=1 cargo test -p manyhands-cli described`";
    assert!(written == text, "{} is not what the code says: {help}", path.display());
}

/// The schema of a type, without references.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    T::json_schema(&mut settings.into_generator()).to_value()
}

/// A layer of the table, or a further use of one.
#[derive(JsonSchema)]
#[schemars(schema_with = "described_layers")]
pub struct AnyLayer;

/// `model`.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "described alone")]
pub enum PathOrTable {
    /// A model file to start from.
    Path(String),
    Table(Box<ModelTable>),
}

/// An item of `metrics`: of the one output, or those of an output.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "described alone")]
pub enum OneOrEach {
    One(Metric),
    Each(Vec<Metric>),
}

/// `validation`.
pub fn validation(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "enum": ["test", "none"] }, { "type": "number", "minimum": 0, "maximum": 1 }] })
}

/// `class_weight`.
pub fn class_weight(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "enum": ["balanced"] }, { "type": "object", "additionalProperties": { "type": "number" } }] })
}

/// Whether a default depends on the machine, so that the schema does not tell it.
pub fn is_of_machine(_: &usize) -> bool {
    true
}

#[test]
fn the_schema_for_editors_is_that_of_the_code() {
    let schema = editors::schema(schema_of::<SettingsFile>());
    check_file("src/settings.schema.json", &(schema.to_string() + "\n"));
}

#[test]
fn the_page_of_settings_is_that_of_the_code() {
    check_file("../docs/settings.md", &page::page());
}

/// A flag of `train` that has the name of a setting begins with the same sentence. `adapters` is one of several commands.
#[test]
fn flags_are_told_as_the_settings_are() {
    let training = schema_of::<TrainingTable>();
    let command = <crate::Arguments as clap::CommandFactory>::command();
    let train = command.find_subcommand("train").unwrap();
    let mut told = Vec::new();
    for flag in train.get_arguments().filter(|flag| flag.get_id() != "adapters") {
        let Some(setting) = training["properties"].get(flag.get_id().as_str()) else { continue };
        let setting = page::first_paragraph(setting["description"].as_str().unwrap());
        let sentence = setting.split(". ").next().unwrap().trim_end_matches('.');
        let help = flag.get_help().unwrap().to_string();
        assert!(help.starts_with(sentence), "`--{}`: `{help}` does not begin with `{sentence}`", flag.get_id());
        told.push(flag.get_id().to_string());
    }
    assert_eq!(told, ["memory", "split", "epochs", "batch_size", "seed", "run"]);
}
