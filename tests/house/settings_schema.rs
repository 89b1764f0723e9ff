//! Does `cli/src/settings.schema.json` say what the code says? It is the JSON Schema of settings files, for editors, from the tables of
//! `docs/settings.md`.
//!
//! It is of Draft 4, since Taplo, the language server of TOML, knows no later one. Where it does not know what a setting may be, it
//! accepts anything: it refuses nothing that is right.

use std::fs;
use std::path::Path;

use manyhands::Schedule;
use manyhands::data::{Augmentation, DataConfig};
use manyhands::layers::LAYERS;
use manyhands::losses::LOSSES;
use manyhands::metrics::METRICS;
use manyhands::optimizers::OPTIMIZERS;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::settings_page::{Field, defaults, snake, source, structure, table_entries, tagged_config, variants};

/// Names of enums whose values are names, with the folder of their source.
const NAMES: &[(&str, &str)] = &[
    ("Activation", "src/layers"),
    ("Padding", "src/layers"),
    ("Padding1D", "src/layers"),
    ("MergeMode", "src/layers"),
    ("Interpolation", "src/layers"),
    ("Initializer", "src/layers"),
    ("TargetKind", "src/data/csv"),
    ("NumberScale", "src/data/csv"),
    ("Missing", "src"),
    ("LabelMode", "src"),
    ("Unreadable", "src/data/images"),
    ("FlipMode", "src/data/augment"),
    ("FillMode", "src/data/augment"),
    ("GradientCompression", "engine/src"),
    ("BatchStatistics", "engine/src"),
    ("NonFinite", "src/trainer"),
    ("Reduction", "src/losses"),
];

/// Short names of Keras, beside the writings of each name.
const SHORT: &[(&str, &str)] = &[
    ("MeanSquaredError", "mse"),
    ("MeanAbsoluteError", "mae"),
    ("KLDivergence", "kld"),
    ("silu", "swish"),
    ("hard_silu", "hard_swish"),
    ("accuracy", "acc"),
    ("mean_absolute_error", "mae"),
    ("root_mean_squared_error", "rmse"),
];

/// A name in the writings that people use: as it is, in lower case, with underscores.
fn writings(name: &str) -> Vec<String> {
    let short = SHORT.iter().filter(|(long, _)| *long == name).map(|(_, short)| (*short).to_owned());
    let mut all: Vec<String> = [name.to_owned(), name.to_lowercase(), snake(name)].into_iter().chain(short).collect();
    let mut known = std::collections::BTreeSet::new();
    all.retain(|name| known.insert(name.clone()));
    all
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Value {
    json!({ "enum": names.into_iter().flat_map(writings).collect::<Vec<_>>() })
}

fn whole_numbers() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

/// One of them, or a list.
fn one_or_many(item: &Value) -> Value {
    json!({ "anyOf": [item, { "type": "array", "items": item }] })
}

/// What a setting of a type may be; anything, for a type that is not known here.
fn of_type(kind: &str) -> Value {
    if let Some(inner) = kind.strip_prefix("Option<").and_then(|rest| rest.strip_suffix('>')) {
        return of_type(inner);
    }
    if let Some(inner) = kind.strip_prefix("Vec<").and_then(|rest| rest.strip_suffix('>')) {
        return json!({ "type": "array", "items": of_type(inner) });
    }
    let named = NAMES.iter().find(|(name, _)| *name == kind);
    match kind {
        "usize" | "u64" | "u32" => whole_numbers(),
        "i32" => json!({ "type": "integer" }),
        "f32" | "f64" => json!({ "type": "number" }),
        "bool" => json!({ "type": "boolean" }),
        "String" | "PathBuf" | "char" | "SplitMode" | "MemoryLimits" => json!({ "type": "string" }),
        "Factor" => one_or_many(&json!({ "type": "number" })),
        "[f32; 2]" => json!({ "type": "array", "items": { "type": "number" } }),
        "Augmentation" => {
            let changes = tagged::<Augmentation>("src/data/augment", "Augmentation", str::to_owned);
            kinds(&changes, &Map::new(), true)
        }
        "[usize; 2]" | "Shape" => one_or_many(&whole_numbers()),
        "Validation" => json!({ "anyOf": [{ "enum": ["test", "none"] }, { "type": "number" }] }),
        "BTreeMap<String, f32>" => json!({ "type": "object", "additionalProperties": { "type": "number" } }),
        "ModeSetting" => json!({ "enum": ["auto", "min", "max"] }),
        "Metrics" => json!({ "type": "array", "items": one_or_many(&json!({ "$ref": "#/definitions/metric" })) }),
        "EarlyStoppingTable" => {
            object(&fields_of("cli/src/settings/early_stopping.rs", "EarlyStoppingTable"), &["monitor", "patience"])
        }
        _ => match named {
            Some((name, folder)) => {
                let source = source(folder);
                let all = variants(&source, name);
                let names =
                    names(all.iter().map(|(name, ..)| snake(name)).collect::<Vec<_>>().iter().map(String::as_str));
                // A name with settings is the only key of a table.
                json!({ "anyOf": [names, { "type": "object", "minProperties": 1 }] })
            }
            None => json!({}),
        },
    }
}

fn fields_of(file: &str, name: &str) -> Vec<Field> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    structure(&text, name).fields
}

fn described(field: &Field) -> Value {
    let mut schema = of_type(&field.kind);
    if let Some(schema) = schema.as_object_mut().filter(|_| !field.doc.is_empty()) {
        schema.insert("description".into(), field.doc.clone().into());
    }
    schema
}

/// A table of these fields and no others.
fn object(fields: &[Field], required: &[&str]) -> Value {
    let properties: Map<String, Value> = fields.iter().map(|field| (field.name.clone(), described(field))).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// A kind, with its settings, the keys that must be given, and keys that all kinds of its table share.
struct Kind {
    name: String,
    doc: String,
    fields: Vec<Field>,
    /// Keys that its source does not show, such as those of a struct inside.
    more: Vec<String>,
    required: Vec<String>,
}

/// One of several kinds, by `type`.
fn kinds(kinds: &[Kind], shared: &Map<String, Value>, may_be_named: bool) -> Value {
    let mut any: Vec<Value> = Vec::new();
    for Kind { name, doc, fields, more, required } in kinds {
        let mut schema = object(fields, &[]);
        let properties = schema["properties"].as_object_mut().unwrap();
        for key in more.iter().filter(|key| *key != "type") {
            properties.entry(key.clone()).or_insert_with(|| json!({}));
        }
        properties.insert("type".into(), names([name.as_str()]));
        properties.extend(shared.clone());
        let required: Vec<&str> = ["type"].into_iter().chain(required.iter().map(String::as_str)).collect();
        schema["required"] = json!(required);
        schema["title"] = name.clone().into();
        schema["description"] = doc.clone().into();
        any.push(schema);
    }
    if may_be_named {
        let bare = kinds.iter().filter(|kind| kind.required.is_empty()).map(|kind| kind.name.as_str());
        any.push(names(bare));
    }
    json!({ "anyOf": any })
}

/// The kinds of a table of entries.
fn entries(folder: &str, config: impl Fn(&str, Value) -> Result<Value, String>) -> Vec<Kind> {
    let all = table_entries(folder).into_iter().map(|(name, item)| {
        let values = defaults(&item.fields, |value| config(&name, value));
        let more = values.all.keys().cloned().collect();
        Kind { name, doc: item.doc, fields: item.fields, more, required: values.given.keys().cloned().collect() }
    });
    all.collect()
}

fn tagged<T: Serialize + DeserializeOwned>(folder: &str, name: &str, rename: fn(&str) -> String) -> Vec<Kind> {
    let all = tagged_config::<T>(&source(folder), name, rename).into_iter().map(|(name, item, values)| {
        let more = values.all.keys().cloned().collect();
        Kind { name, doc: item.doc, fields: item.fields, more, required: values.given.keys().cloned().collect() }
    });
    all.collect()
}

fn unknown(kind: &str) -> String {
    format!("no `{kind}`")
}

fn layers() -> Value {
    let own = entries("src/layers", |kind, value| {
        let entry = LAYERS.iter().find(|entry| entry.kind == kind).ok_or_else(|| unknown(kind))?;
        (entry.from_config)(value).map(|layer| layer.config()).map_err(|error| error.to_string())
    });
    let shared = json!({
        "name": { "type": "string", "description": "Its name; made from its type if not given." },
        "inputs": { "type": "array", "items": { "type": "string" }, "description": "Names of the layers that it reads; by default the layer before it." },
        "trainable": { "type": "boolean", "description": "Whether training may change it; by default true." },
    });
    let mut layers = kinds(&own, shared.as_object().unwrap(), false);
    let any = layers["anyOf"].as_array_mut().unwrap();
    for layer in &mut *any {
        layer["patternProperties"] = json!({ "_regularizer$": {} });
    }
    let mut reuse = shared;
    reuse["reuse"] = json!({ "type": "string", "description": "The layer that is used again, with its weights." });
    any.push(json!({ "type": "object", "title": "reuse", "properties": reuse, "required": ["reuse"], "additionalProperties": false }));
    layers
}

fn losses() -> Value {
    let own = entries("src/losses", |kind, value| {
        let entry = LOSSES.iter().find(|entry| entry.kind == kind).ok_or_else(|| unknown(kind))?;
        let loss = (entry.from_config)(value).map_err(|error| error.to_string())?;
        Ok(loss.config().iter().map(|(name, value)| (name.to_owned(), value.clone())).collect())
    });
    kinds(&own, &Map::new(), true)
}

fn optimizers() -> Value {
    let own = entries("src/optimizers", |kind, value| {
        let entry = OPTIMIZERS.iter().find(|entry| entry.kind == kind).ok_or_else(|| unknown(kind))?;
        let optimizer = (entry.from_config)(value).map_err(|error| error.to_string())?;
        Ok(optimizer.config().iter().map(|(name, value)| (name.to_owned(), value.clone())).collect())
    });
    let shared = json!({
        "clipnorm": { "type": "number", "description": "Norm to which the gradient of each parameter is scaled down where it is larger." },
        "clipvalue": { "type": "number", "description": "Value that no value of a gradient exceeds." },
        "use_ema": { "type": "boolean", "description": "Keeps an exponential moving average of the weights." },
        "ema_momentum": { "type": "number", "description": "Part of the average that stays in each step." },
        "ema_overwrite_frequency": whole_numbers(),
        "exclude_from_weight_decay": { "type": "array", "items": { "type": "string" }, "description": "Parameters without weight decay: names such as `dense/bias`, or their last parts, such as `bias`." },
    });
    kinds(&own, shared.as_object().unwrap(), true)
}

/// A name, or a table with the name as its only key.
fn metrics() -> Value {
    let by_row = variants(&source("src/metrics"), "Metric");
    let by_row = by_row.iter().filter(|(name, _, inner)| inner.as_ref() != Some(name)).map(|(name, ..)| snake(name));
    let all: Vec<String> = by_row.chain(METRICS.iter().map(|entry| entry.kind.to_owned())).collect();
    let tables: Map<String, Value> =
        all.iter().flat_map(|name| writings(name)).map(|name| (name, json!({ "type": "object" }))).collect();
    let table = json!({ "type": "object", "properties": tables, "additionalProperties": false, "minProperties": 1, "maxProperties": 1 });
    json!({ "anyOf": [names(all.iter().map(String::as_str)), table] })
}

fn model() -> Value {
    let shape = one_or_many(&whole_numbers());
    let layer = json!({ "$ref": "#/definitions/layer" });
    let input = json!({
        "type": "object", "required": ["name", "shape"], "additionalProperties": false,
        "properties": { "name": { "type": "string" }, "shape": shape },
    });
    let mut fields = object(&fields_of("cli/src/settings.rs", "ModelTable"), &["layers"]);
    fields["properties"]["inputs"]["items"] = input;
    fields["properties"]["layers"]["items"] = layer;
    json!({ "anyOf": [{ "type": "string", "description": "A model file to start from." }, fields] })
}

fn schema() -> Value {
    let data = tagged::<DataConfig>("src/data/formats", "DataConfig", snake);
    let schedule = tagged::<Schedule>("src/optimizers", "Schedule", str::to_owned);
    json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "title": "Settings of manyhands",
        "description": "A run as a file: `manyhands train run.toml`. This file is written from the code by `tests/house`.",
        "type": "object",
        "required": ["data", "model"],
        "additionalProperties": false,
        "properties": {
            "data": kinds(&data, &Map::new(), true),
            "model": model(),
            "loss": { "$ref": "#/definitions/loss" },
            "losses": { "type": "array", "items": { "$ref": "#/definitions/loss" } },
            "optimizer": optimizers(),
            "schedule": kinds(&schedule, &Map::new(), true),
            "training": object(&fields_of("cli/src/settings.rs", "TrainingTable"), &[]),
        },
        "definitions": { "layer": layers(), "loss": losses(), "metric": metrics() },
    })
}

/// `UPDATE=1 cargo test --test house` writes it again.
#[test]
fn the_schema_of_settings_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cli/src/settings.schema.json");
    let text = serde_json::to_string(&schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    assert!(
        written == text,
        "cli/src/settings.schema.json is not what the code says: run `UPDATE=1 cargo test --test house`"
    );
}
