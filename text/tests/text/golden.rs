//! Golden values of `scripts/text_golden.py`.

use std::path::PathBuf;

use serde_json::Value;

/// Models of each family, as folders.
pub const FOLDERS: [&str; 8] = ["llama", "smollm", "mistral", "qwen2", "qwen3", "gemma3", "gpt2", "bert"];
/// Models of which there is a GGUF file, too.
pub const GGUF_FILES: [&str; 3] = ["llama", "qwen3", "gpt2"];

/// Path of a file or folder with golden values.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).join(name)
}

/// Golden values of a model.
pub fn of(model: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path(model).join("golden.json")).unwrap()).unwrap()
}

/// A list of numbers.
pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}
