//! Models of one layer whose inputs are tables: one row of a table for each row of a batch, to be read and to get a
//! gradient.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stands outside the engine: it panics")]

use std::sync::Arc;

use manyhands::Shape;
use manyhands::model::{InputConfig, LayerConfig, ModelConfig};
use serde_json::{Map, Value, json};

/// Settings of a layer, as they stand in a file.
pub type Settings = Map<String, Value>;

/// Settings written as TOML.
pub fn settings(toml: &str) -> Settings {
    toml::from_str(toml).unwrap()
}

/// The input of a model of tables: row `i` has a 1 at `i` and is 0 elsewhere.
pub fn rows(rows: usize) -> Arc<[f32]> {
    (0..rows * rows).map(|at| if at / rows == at % rows { 1.0 } else { 0.0 }).collect()
}

fn node(name: &str, kind: &str, inputs: &[String], settings: Settings) -> LayerConfig {
    let (name, kind) = (Some(name.to_owned()), Some(kind.to_owned()));
    LayerConfig { name, kind, inputs: Some(inputs.to_vec()), settings, ..LayerConfig::default() }
}

/// The layers on tables `in0`, `in1`, … (`in0/kernel [rows, ...shape]`), for batches of up to `rows` rows. The first of
/// the layers is called `it`; others follow it.
pub fn config(layers: &[(&str, Settings)], inputs: &[Vec<usize>], rows: usize) -> ModelConfig {
    let mut nodes = Vec::new();
    let mut names = Vec::new();
    for (idx, shape) in inputs.iter().enumerate() {
        let table = format!("in{idx}");
        let len: usize = shape.iter().product();
        let dense = Map::from_iter([("units".to_owned(), json!(len)), ("use_bias".to_owned(), json!(false))]);
        nodes.push(node(&table, "Dense", &["row".into()], dense));
        let shaped = format!("shaped{idx}");
        nodes.push(node(&shaped, "Reshape", &[table], Map::from_iter([("target_shape".to_owned(), json!(shape))])));
        names.push(shaped);
    }
    nodes.extend(chain(layers, names));
    let inputs = vec![InputConfig { name: "row".into(), shape: Shape::new([rows]) }];
    ModelConfig { input: None, inputs, layers: nodes, outputs: Vec::new() }
}

/// The layers on plain inputs `in0`, `in1`, ….
pub fn bare(layers: &[(&str, Settings)], inputs: &[Vec<usize>]) -> ModelConfig {
    let names: Vec<String> = (0..inputs.len()).map(|idx| format!("in{idx}")).collect();
    let inputs = names.iter().zip(inputs).map(|(name, shape)| {
        let (name, shape) = (name.clone(), Shape::new(shape.clone()));
        InputConfig { name, shape }
    });
    ModelConfig { input: None, inputs: inputs.collect(), layers: chain(layers, names), outputs: Vec::new() }
}

fn chain(layers: &[(&str, Settings)], mut inputs: Vec<String>) -> Vec<LayerConfig> {
    let named = |(idx, (kind, settings)): (usize, &(&str, Settings))| {
        let name = if idx == 0 { "it".to_owned() } else { format!("it{idx}") };
        node(&name, kind, &std::mem::replace(&mut inputs, vec![name.clone()]), settings.clone())
    };
    layers.iter().enumerate().map(named).collect()
}
