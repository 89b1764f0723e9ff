//! The schema as editors need it: of Draft 4, since Taplo, the language server of TOML, knows no later one, and with all writings
//! of a name.

use manyhands_engine::names::known;
use serde_json::{Map, Value, json};

use super::page::{first_paragraph, shorten, snake};

/// Short names of Keras.
const SHORT: [&str; 7] = ["acc", "hard_swish", "kld", "mae", "mse", "rmse", "swish"];

/// Names that serde knows beside those of the schema.
const ALIASES: &[(&str, &str)] = &[("whitespace", "words"), ("character", "characters")];

/// Settings whose tables can be written as the name of their type alone.
const NAMED: [&str; 6] = ["data", "loss", "losses", "optimizer", "schedule", "augment"];

/// A name in the writings that people use: as it is, in lower case, with underscores, and short.
fn writings(name: &str) -> Vec<String> {
    let short = SHORT.into_iter().filter(|short| known(short, &[name]).is_some());
    let aliases = ALIASES.iter().filter(|(known, _)| *known == name).map(|(_, alias)| *alias);
    let mut all: Vec<String> = Vec::new();
    let names = [name.to_owned(), name.to_lowercase(), snake(name)];
    for name in names.into_iter().chain(short.chain(aliases).map(str::to_owned)) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn in_all_writings(names: &[Value]) -> Value {
    names.iter().filter_map(Value::as_str).flat_map(writings).collect::<Vec<_>>().into()
}

/// The whole schema.
pub fn schema(mut settings: Value) -> Value {
    rewrite(&mut settings);
    settings["$schema"] = "http://json-schema.org/draft-04/schema#".into();
    settings["title"] = "Settings of manyhands".into();
    let description = "A run as a file: `manyhands train run.toml`. This file is written from the code, by a test of `manyhands-cli`.";
    settings["description"] = description.into();
    settings
}

/// Brings a schema and all within it into this form.
fn rewrite(schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    for key in ["properties", "patternProperties"] {
        if let Some(Value::Object(each)) = schema.get_mut(key) {
            each.iter_mut().for_each(|(name, value)| rewrite_setting(name, value));
        }
    }
    for key in ["items", "additionalProperties"] {
        schema.get_mut(key).into_iter().for_each(rewrite);
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        schema.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(rewrite);
    }
    // A name, which has other writings, may be one of several things.
    if let Some(each) = schema.remove("oneOf") {
        schema.insert("anyOf".into(), each);
    }
    schema.remove("format");
    rewrite_names(schema);
    rewrite_only_key(schema);
    leave_out_null(schema);
    take_one_for_both(schema);
    rewrite_texts(schema);
}

/// Like [`rewrite`], of a setting: a table of one of several types may be the name of its type alone.
fn rewrite_setting(name: &str, schema: &mut Value) {
    rewrite(schema);
    if !NAMED.contains(&name) {
        return;
    }
    let kinds = if schema["type"] == "array" { &mut schema["items"] } else { schema };
    let needs_type_alone = |kind: &&Value| kind["required"].as_array().is_some_and(|required| required.len() == 1);
    let alone = kinds["anyOf"].as_array().into_iter().flatten().filter(needs_type_alone);
    let names: Vec<Value> =
        alone.filter_map(|kind| kind["properties"]["type"]["enum"].as_array()).flatten().cloned().collect();
    if let Some(any) = kinds["anyOf"].as_array_mut() {
        any.push(json!({ "enum": names }));
    }
}

/// Names in all their writings, and one list of all that a setting may be.
fn rewrite_names(schema: &mut Map<String, Value>) {
    let names = match (schema.remove("const"), schema.get("enum")) {
        (Some(name), _) => Some(in_all_writings(&[name])),
        (None, Some(Value::Array(names))) => Some(in_all_writings(names)),
        _ => None,
    };
    if let Some(names) = names {
        schema.insert("enum".into(), names);
        schema.remove("type");
    }
    let Some(Value::Array(any)) = schema.get_mut("anyOf") else { return };
    let (names, others): (Vec<Value>, Vec<Value>) = any.drain(..).partition(|it| it.get("enum").is_some());
    let all: Vec<Value> = names.iter().filter_map(|it| it["enum"].as_array()).flatten().cloned().collect();
    if others.is_empty() {
        schema.remove("anyOf");
        schema.insert("enum".into(), all.into());
        return;
    }
    *any = others;
    if !all.is_empty() {
        any.push(json!({ "enum": all }));
    }
}

/// A name that is the only key of a table with its settings, in all its writings.
fn rewrite_only_key(schema: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) =
        schema.get("properties").filter(|_| !schema.contains_key("additionalProperties"))
    else {
        return;
    };
    let (1, Some((name, settings))) = (properties.len(), properties.iter().next()) else { return };
    if schema.get("required") != Some(&json!([name])) || settings["type"] != "object" {
        return;
    }
    let all: Map<String, Value> = writings(name).into_iter().map(|name| (name, settings.clone())).collect();
    schema.remove("required");
    schema.insert("properties".into(), all.into());
    schema.insert("additionalProperties".into(), false.into());
    schema.insert("minProperties".into(), 1.into());
    schema.insert("maxProperties".into(), 1.into());
}

/// TOML has no null: what may be null may be left out.
fn leave_out_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        let only = types.first().cloned().filter(|_| types.len() == 1);
        only.into_iter().for_each(|only| drop(schema.insert("type".into(), only)));
    }
    let Some(Value::Array(any)) = schema.get_mut("anyOf") else { return };
    any.retain(|value| value["type"] != "null");
    if let [Value::Object(only)] = &any[..] {
        let only = only.clone();
        schema.remove("anyOf");
        for (key, value) in only {
            schema.entry(key).or_insert(value);
        }
    }
}

/// Pairs of whole numbers, as in sizes of images: one number counts for both.
fn take_one_for_both(schema: &mut Map<String, Value>) {
    let is_pair = schema.get("minItems") == Some(&json!(2)) && schema.get("maxItems") == Some(&json!(2));
    let Some(items) = schema.get("items").filter(|items| is_pair && is_of_whole_numbers(items)).cloned() else {
        return;
    };
    let list = json!({ "type": "array", "items": items });
    schema.retain(|key, _| ["description", "default", "title"].contains(&&**key));
    schema.insert("anyOf".into(), json!([{ "type": "integer", "minimum": 0 }, list]));
}

fn is_of_whole_numbers(schema: &Value) -> bool {
    schema["type"] == "integer" || schema["anyOf"].as_array().is_some_and(|any| any.iter().any(is_of_whole_numbers))
}

/// Texts in one paragraph, and floats as people write them.
fn rewrite_texts(schema: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = first_paragraph(text);
    }
    match schema.get_mut("default") {
        Some(Value::Null) => drop(schema.remove("default")),
        Some(default) => shorten(default),
        None => {}
    }
}
