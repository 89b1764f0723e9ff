//! Each model has the network and the tensors that transformers finds in it, from its folder and from its GGUF file.

use std::path::Path;

use manyhands_text::architecture::{Architecture, Positions, RotaryScaling};
use manyhands_text::{Encoding, ModelFiles, Tensor};

use serde_json::Value;

use super::golden;

fn open(name: &str) -> ModelFiles {
    ModelFiles::open(&golden::path(name)).unwrap()
}

/// The sum of `summed` in `scripts/text_golden.py`: any change of the order changes it.
fn sum(values: &[f32]) -> f64 {
    values.iter().zip((1..=97).cycle()).map(|(value, factor)| f64::from(*value) * f64::from(factor)).sum()
}

/// Compares a tensor with its golden shape and sum.
pub fn check_tensor(tensor: &Tensor, golden: &Value, name: &str) {
    assert_eq!(serde_json::json!(tensor.shape), golden["shape"], "{name}: {}", tensor.name);
    let (sum, known) = (sum(&tensor.values()), golden["sum"].as_f64().unwrap());
    assert!((sum - known).abs() <= 1e-9 * known.abs().max(1.0), "{name}: {}: {sum} is not {known}", tensor.name);
}

/// Compares all tensors of a model with their golden shapes and sums.
pub fn check_tensors(model: &ModelFiles, golden: &Value, name: &str) {
    let golden = golden["tensors"].as_object().unwrap();
    let tensors: Vec<Tensor> = model.tensors().map(Result::unwrap).collect();
    assert_eq!(tensors.len(), golden.len(), "{name}");
    assert!(model.shapes().eq(tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice()))));
    for tensor in tensors {
        check_tensor(&tensor, &golden[&tensor.name], name);
        assert_eq!(model.tensor(&tensor.name).unwrap(), tensor);
    }
}

#[test]
fn folders_have_the_tensors_of_transformers() {
    for name in golden::FOLDERS {
        check_tensors(&open(name), &golden::of(name), name);
    }
}

/// The GGUF file has the folder's numbers, since both keep 16 bits: the converter's permutation of `llama` is undone.
#[test]
fn gguf_files_have_the_tensors_of_their_folders() {
    for name in golden::GGUF_FILES {
        let (file, folder) = (open(&format!("{name}.gguf")), open(name));
        let stored = file.gguf().unwrap();
        assert!(stored.tensors().values().any(|tensor| tensor.encoding == Encoding::F16), "{name}");
        assert!(file.shapes().eq(folder.shapes()));
        for (one, other) in file.tensors().zip(folder.tensors()) {
            let (one, other) = (one.unwrap(), other.unwrap());
            // F16 keeps fewer of the smallest numbers than BF16.
            let is_near = one.values().iter().zip(other.values()).all(|(one, other)| (one - other).abs() <= 1e-7);
            assert!(is_near, "{name}: {}", one.name);
        }
    }
}

/// The converter of llama.cpp leaves out the pooler.
#[test]
fn bert_is_read_from_a_gguf_file() {
    let (file, folder) = (open("bert.gguf"), open("bert"));
    let epsilon = folder.architecture().epsilon;
    assert_eq!(&Architecture { epsilon, ..file.architecture().clone() }, folder.architecture());
    assert_eq!(file.shapes().count() + 2, folder.shapes().count());
    for tensor in file.tensors().map(Result::unwrap) {
        let values = folder.tensor(&tensor.name).unwrap().values();
        let is_near = tensor.values().iter().zip(values).all(|(one, other)| (one - other).abs() <= 1e-3);
        assert!(is_near, "{}", tensor.name);
    }
    let error = manyhands_text::Tokenizer::of(&file).unwrap_err().to_string();
    assert!(
        error.contains(
            "needs `gpt2`, a byte-level BPE, or `llama`, SentencePiece, under `tokenizer.ggml.model`, but has `bert`"
        ),
        "{error}"
    );
}

#[test]
fn folder_and_gguf_file_describe_one_network() {
    for name in golden::GGUF_FILES {
        let [file, folder] = [format!("{name}.gguf"), name.to_owned()].map(|name| open(&name).architecture().clone());
        let position = folder.position.clone();
        assert!((file.epsilon - folder.epsilon).abs() < 1e-12);
        assert_eq!(Architecture { position, epsilon: folder.epsilon, ..file }, folder, "{name}");
    }
    let llama = open("llama.gguf");
    let Positions::Rotary { base, scaling } = &llama.architecture().position else { panic!("llama rotates") };
    assert!(*base == 500_000.0 && matches!(scaling, RotaryScaling::Factors(factors) if factors.len() == 4));
}

#[test]
fn rotary_frequencies_are_those_of_transformers() {
    let files = golden::GGUF_FILES.map(|name| format!("{name}.gguf"));
    for name in golden::FOLDERS.into_iter().chain(files.iter().map(String::as_str)) {
        let golden = &golden::of(name.trim_end_matches(".gguf"))["inverse_frequencies"];
        let frequencies = open(name).architecture().rotary_frequencies();
        let golden = if golden.is_null() { Vec::new() } else { golden::numbers(golden) };
        assert_eq!(frequencies.len(), golden.len(), "{name}");
        for (frequency, golden) in frequencies.iter().zip(golden) {
            assert!((frequency - golden).abs() <= 2e-7 * golden, "{name}: {frequency} is not {golden}");
        }
    }
}

#[test]
fn windows_and_biases_are_those_of_the_family() {
    let of = |name: &str| open(name).architecture().clone();
    assert_eq!(of("mistral").windows, [Some(16); 2]);
    assert_eq!(of("qwen2").windows, [None, Some(16)]);
    assert_eq!(of("qwen3").windows, [None; 2]);
    assert_eq!(of("gemma3").windows, [Some(6), None, Some(6)]);
    assert!(of("qwen2").biases.query_key_value && !of("qwen2").biases.attention_output);
    assert!(of("smollm").biases.attention_output && !of("smollm").biases.feed_forward);
    assert!(of("qwen3").query_key_norm && of("qwen3").head_width == 16 && of("qwen3").tied_output);
    assert!(!of("bert").causal && of("bert").token_types == 2);
}

#[test]
fn kernels_turn_into_the_order_of_keras() {
    let tensor = Tensor::from_values("blocks.0.feed_forward.up.kernel", [2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(tensor.in_keras_order(), (vec![3, 2], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
    let table = Tensor::from_values("embedding.embeddings", [2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(table.in_keras_order(), (vec![2, 3], table.values()));
}

/// A copy of a folder whose tensors have other names.
fn renamed(name: &str, rename: impl Fn(&str) -> String) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(golden::path(name).join("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let renamed = tensors.iter().map(|(name, tensor)| (rename(name), tensor));
    safetensors::serialize_to_file(renamed, None, &folder.path().join("model.safetensors")).unwrap();
    std::fs::copy(golden::path(name).join("config.json"), folder.path().join("config.json")).unwrap();
    folder
}

/// `LlamaModel` and `GPT2Model` save without the prefix of the whole model, `BertForMaskedLM` with one.
#[test]
fn tensors_are_found_with_and_without_a_prefix() {
    for (name, folder) in [
        ("llama", renamed("llama", |name| name.replace("model.", ""))),
        ("gpt2", renamed("gpt2", |name| name.replace("transformer.", ""))),
        ("bert", renamed("bert", |name| format!("bert.{name}"))),
    ] {
        check_tensors(&ModelFiles::open(folder.path()).unwrap(), &golden::of(name), name);
    }
}

/// Before transformers 5, `rope_theta` and `rope_scaling` were apart.
#[test]
fn older_settings_mean_the_same() {
    let text = std::fs::read_to_string(golden::path("llama/config.json")).unwrap();
    let read =
        |config: &Value| Architecture::from_config(std::path::Path::new("config.json"), &config.to_string()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let usual = read(&config);
    let mut scaling = config.as_object_mut().unwrap().remove("rope_parameters").unwrap();
    config["rope_theta"] = scaling.as_object_mut().unwrap().remove("rope_theta").unwrap();
    config["rope_scaling"] = scaling;
    assert_eq!(read(&config), usual);
    config["rope_scaling"] = serde_json::json!({"type": "linear", "factor": 2.0});
    let linear = read(&config);
    // `convert_rope_params_to_dict` of transformers 5 takes the older one of both.
    config["rope_parameters"] = serde_json::json!({"rope_type": "linear", "factor": 4.0, "rope_theta": 7.0});
    assert_eq!(read(&config), linear);
    config.as_object_mut().unwrap().remove("rope_parameters");
    config["rope_scaling"] = Value::Null;
    let plain = read(&config).rotary_frequencies();
    assert!(linear.rotary_frequencies().iter().zip(plain).all(|(one, other)| *one == other / 2.0));
}

/// Gemma 3 as transformers 4 wrote it: windows by a pattern, and both bases of rotary positions beside each other.
#[test]
fn older_settings_of_gemma_mean_the_same() {
    let text = std::fs::read_to_string(golden::path("gemma3/config.json")).unwrap();
    let read = |config: &Value| Architecture::from_config(std::path::Path::new("config.json"), &config.to_string());
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let usual = read(&config).unwrap();
    let older = config.as_object_mut().unwrap();
    older.retain(|key, _| !["rope_parameters", "layer_types", "_sliding_window_pattern"].contains(&key.as_str()));
    older.extend([
        ("sliding_window_pattern".to_owned(), 2.into()),
        ("rope_theta".to_owned(), 1e6.into()),
        ("rope_local_base_freq".to_owned(), 1e4.into()),
        ("rope_scaling".to_owned(), serde_json::json!({"rope_type": "linear", "factor": 8.0})),
    ]);
    assert_eq!(read(&config).unwrap(), usual);
    for (key, value) in [
        ("query_pre_attn_scalar", serde_json::json!(8)),
        ("final_logit_softcapping", serde_json::json!(30.0)),
        ("use_bidirectional_attention", serde_json::json!(true)),
    ] {
        let mut other = config.clone();
        other[key] = value;
        let refused = read(&other).unwrap_err().to_string();
        assert!(refused.contains(&format!("sets `{key}` to")), "{refused}");
    }
}

/// Settings that are not there, and those that are null, as the classes of transformers 5.24 have them.
#[test]
fn settings_have_the_defaults_of_transformers() {
    let settings = |family: &str, more: Value| {
        let mut all = serde_json::json!({
            "model_type": family, "vocab_size": 320, "hidden_size": 256, "intermediate_size": 32, "num_hidden_layers": 30,
            "num_attention_heads": 64, "max_position_embeddings": 128,
        });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Architecture::from_config(Path::new("config.json"), &all.to_string())
    };
    // Heads of keys, the window, and the first block that has it.
    for (family, more, key_heads, window) in [
        ("llama", serde_json::json!({}), 64, None),
        ("llama", serde_json::json!({"num_key_value_heads": null}), 64, None),
        ("mistral", serde_json::json!({}), 8, Some((4096, 0))),
        ("mistral", serde_json::json!({"sliding_window": null}), 8, None),
        ("mistral", serde_json::json!({"sliding_window": 5, "num_key_value_heads": 2}), 2, Some((5, 0))),
        ("qwen2", serde_json::json!({}), 32, None),
        ("qwen2", serde_json::json!({"num_key_value_heads": null, "sliding_window": 5}), 64, None),
        ("qwen2", serde_json::json!({"use_sliding_window": true}), 32, Some((4096, 28))),
        ("qwen3", serde_json::json!({"use_sliding_window": true, "max_window_layers": 3}), 32, Some((4096, 3))),
        ("qwen3", serde_json::json!({"use_sliding_window": true, "sliding_window": null}), 32, None),
    ] {
        let architecture = settings(family, more.clone()).unwrap();
        let first = architecture.windows.iter().position(Option::is_some);
        assert_eq!(architecture.key_heads, key_heads, "{family} {more}");
        assert_eq!(architecture.window().zip(first), window, "{family} {more}");
        assert!(architecture.windows[first.unwrap_or(30)..].iter().all(Option::is_some), "{family} {more}");
    }
    let error = settings("gemma3_text", serde_json::json!({"sliding_window": null})).unwrap_err().to_string();
    assert!(error.contains("sets `sliding_window` to null"), "{error}");
    // transformers leaves these kinds out, which the model was not trained for.
    let kinds: Vec<&str> = (0..30).map(|block| ["sliding_attention", "full_attention"][block % 2]).collect();
    let error = settings("mistral", serde_json::json!({"layer_types": kinds})).unwrap_err().to_string();
    assert!(error.contains("sets `layer_types` to \"full_attention\""), "{error}");
}
