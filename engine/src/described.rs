//! JSON Schemas of settings where `derive(JsonSchema)` can't tell them: of what is read by hand, and of tables of kinds.
//!
//! Only with the feature `schema`, by which `manyhands-cli` writes `docs/settings.md` and its schema for editors.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// Makes the schema of a type.
pub type Describe = fn(&mut SchemaGenerator) -> Schema;

/// A value, or a list of such values.
pub fn one_or_many<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<T>();
    json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
}

/// A table for each kind, with `type` and the properties that all of them share.
pub fn kinds(generator: &mut SchemaGenerator, table: &[(&str, Describe)], shared: &[Schema]) -> Schema {
    let each = |(kind, describe): &(&str, Describe)| {
        let mut schema = describe(generator);
        let mut properties = properties_of(&schema).cloned().unwrap_or_default();
        properties.insert("type".into(), json!({ "const": kind }));
        shared.iter().filter_map(properties_of).for_each(|more| properties.extend(more.clone()));
        schema.insert("properties".into(), properties.into());
        let given = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let required: Vec<Value> = std::iter::once("type".into()).chain(given).collect();
        schema.insert("required".into(), required.into());
        schema.insert("title".into(), (*kind).into());
        schema
    };
    let all: Vec<Schema> = table.iter().map(each).collect();
    json_schema!({ "oneOf": all })
}

/// The properties of a table.
pub fn properties_of(schema: &Schema) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}
