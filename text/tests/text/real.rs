//! Two real models, SmolLM2-135M as a GGUF file and `MiniLM` as a folder, are read as gguf and transformers read them.

use std::path::{Path, PathBuf};
use std::process::Command;

use manyhands_text::architecture::{Activation, Family, Positions, RotaryScaling};
use manyhands_text::chat::Ending;
use manyhands_text::{ChatTemplate, Encoding, ModelFiles, Tokenizer};
use serde_json::Value;

use super::{golden, models, tokens};

/// The folder with the models, which are fetched where they are missing.
fn fetched() -> PathBuf {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let output = Command::new(root.join("scripts/fetch-text-models")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    root.join(String::from_utf8(output.stdout).unwrap().trim())
}

fn golden_of(name: &str) -> Value {
    let golden: Value = serde_json::from_slice(&std::fs::read(golden::path("real.json")).unwrap()).unwrap();
    golden[name].clone()
}

#[test]
#[ignore = "fetches 175 MB"]
fn smollm2_is_read_from_its_gguf_file() {
    let model = ModelFiles::open(&fetched().join("smollm2.gguf")).unwrap();
    let network = model.architecture();
    assert_eq!((network.family, network.blocks, network.width, network.inner), (Family::Llama, 30, 576, 1536));
    assert_eq!((network.heads, network.key_heads, network.head_width, network.vocabulary), (9, 3, 64, 49_152));
    assert_eq!(network.position, Positions::Rotary { base: 100_000.0, scaling: RotaryScaling::None });
    assert!(network.tied_output && network.activation == Activation::Silu);
    let (mut weights, mut packed) = (0, 0);
    for tensor in model.tensors().map(Result::unwrap) {
        weights += tensor.len();
        packed += usize::from(tensor.encoding == Encoding::Q4_1);
    }
    assert_eq!((weights, packed), (134_515_008, 210));
    let golden = golden_of("smollm2");
    for (name, known) in golden["tensors"].as_object().unwrap() {
        models::check_tensor(&model.tensor(name).unwrap(), known, "SmolLM2");
    }
    let tokenizer = Tokenizer::of(&model).unwrap();
    tokens::check(&tokenizer, &golden["tokens"], "SmolLM2");
    let template = ChatTemplate::of(&model, &tokenizer).unwrap().unwrap();
    let messages = [serde_json::from_str(r#"{"role": "user", "content": "Hi"}"#).unwrap()];
    let text = template.render(&messages, None, Ending::Answer).unwrap();
    assert!(text.starts_with("<|im_start|>system\nYou are a helpful AI assistant named SmolLM"), "{text}");
    assert!(text.ends_with("<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"), "{text}");
}

#[test]
#[ignore = "fetches 175 MB"]
fn minilm_is_read_from_its_folder() {
    let model = ModelFiles::open(&fetched().join("minilm")).unwrap();
    let golden = golden_of("minilm");
    models::check_tensors(&model, &golden, "MiniLM");
    assert_eq!(model.architecture().positions, 512);
    tokens::check(&Tokenizer::of(&model).unwrap(), &golden["tokens"], "MiniLM");
}
