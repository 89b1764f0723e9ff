//! Two real models, SmolLM2-135M as a GGUF file and `MiniLM` as a folder, are read and computed as gguf and transformers do.

use manyhands::Predictor;
use manyhands::data::{InMemory, Vocabulary};
use manyhands_engine::adapters::Info;
use manyhands_text::architecture::{Activation, Family, Positions, RotaryScaling};
use manyhands_text::chat::Ending;
use manyhands_text::generate::{Cached, NextToken as _};
use manyhands_text::network::{self, Output};
use manyhands_text::tokenizer::Around;
use manyhands_text::{ChatTemplate, Encoding, ModelFiles, Tokenizer};
use ndarray::{Array2, Axis};
use serde_json::Value;

use super::outputs::assert_close;
use super::text_models::fetched;
use super::{generated, golden, models, tokens};

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

/// Rows of one length with 0 behind shorter ones, and which of their places hold tokens.
fn padded(rows: &[Vec<u32>]) -> [Array2<f32>; 2] {
    let length = rows.iter().map(Vec::len).max().unwrap();
    let at = |row: usize, at: usize| rows[row].get(at).copied();
    #[allow(clippy::cast_precision_loss, reason = "vocabularies are far below 2^24 tokens")]
    let ids = Array2::from_shape_fn((rows.len(), length), |(row, place)| at(row, place).unwrap_or(0) as f32);
    let mask =
        Array2::from_shape_fn((rows.len(), length), |(row, place)| f32::from(u8::from(at(row, place).is_some())));
    [ids, mask]
}

fn ids(known: &Value) -> Vec<Vec<u32>> {
    known.as_array().unwrap().iter().map(|known| generated::tokens(&known["ids"])).collect()
}

#[test]
#[ignore = "fetches 175 MB"]
fn smollm2_gives_the_logits_of_transformers() {
    let files = ModelFiles::open(&fetched().join("smollm2.gguf")).unwrap();
    let known = &golden_of("smollm2")["prompts"];
    let rows = ids(known);
    assert_eq!(rows.len(), 20);
    let [tokens, _] = padded(&rows);
    let model = network::build(&files, tokens.ncols(), Output::Logits).unwrap();
    let data = InMemory::without_targets(tokens).unwrap();
    let outputs = Predictor::new(model).adapters("cpu").unwrap().predict(data, 4).unwrap().remove(0);
    let mut cached = Cached::open(&files, None, 32, Info::cpu()).unwrap();
    for ((row, outputs), known) in rows.iter().zip(outputs.outer_iter()).zip(known.as_array().unwrap()) {
        let text = known["text"].as_str().unwrap();
        let last = outputs.index_axis(Axis(0), row.len() - 1);
        let known_part = golden::numbers(&known["every_64th"]);
        let part = |logits: &mut dyn Iterator<Item = f32>| logits.step_by(64).collect::<Vec<_>>();
        assert_close(text, part(&mut last.iter().copied()), &known_part, 1e-4);
        assert_close(text, part(&mut cached.logits(row).unwrap().into_iter()), &known_part, 1e-4);
        let largest = outputs.outer_iter().take(row.len());
        let largest = largest.map(|logits| logits.iter().copied().fold(f32::MIN, f32::max));
        assert_close(text, largest, &golden::numbers(&known["largest"]), 1e-4);
    }
}

#[test]
#[ignore = "fetches 175 MB"]
fn smollm2_writes_what_transformers_writes() {
    let files = ModelFiles::open(&fetched().join("smollm2.gguf")).unwrap();
    let tokenizer = Tokenizer::of(&files).unwrap();
    let mut cached = Cached::open(&files, None, 80, Info::cpu()).unwrap();
    for known in golden_of("smollm2")["written"].as_array().unwrap() {
        let text = known["text"].as_str().unwrap();
        let prompt = tokenizer.encode(text, Around::Added).unwrap().ids;
        assert_eq!(generated::greedy(&mut cached, &prompt, 50), generated::tokens(&known["greedy"]), "{text}");
    }
}

#[test]
#[ignore = "fetches 175 MB"]
fn minilm_gives_the_vectors_of_transformers() {
    let files = ModelFiles::open(&fetched().join("minilm")).unwrap();
    let known = &golden_of("minilm")["vectors"];
    let [tokens, mask] = padded(&ids(known));
    let types = Array2::zeros(tokens.dim());
    let model = network::build(&files, tokens.ncols(), Output::MeanVector).unwrap();
    let data = InMemory::without_targets(tokens).unwrap().with_input(types).unwrap().with_input(mask).unwrap();
    let vectors = Predictor::new(model).adapters("cpu").unwrap().predict(data, 4).unwrap().remove(0);
    for (vector, known) in vectors.outer_iter().zip(known.as_array().unwrap()) {
        let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        let golden = golden::numbers(&known["vector"]);
        for (value, golden) in vector.iter().zip(&golden) {
            let off = (f64::from(value / norm) - golden).abs();
            assert!(off <= 1e-5, "{}: off by {off}", known["text"]);
        }
        assert_eq!(vector.len(), golden.len());
    }
}

/// Word pieces of a model file, and a classifier's tokens, are those by which the golden vectors were computed.
#[test]
#[ignore = "fetches 175 MB"]
fn minilm_divides_texts_as_transformers() {
    let vocabulary = Vocabulary::word_pieces(&fetched().join("minilm/tokenizer.json")).unwrap();
    for known in golden_of("minilm")["vectors"].as_array().unwrap() {
        let ids = golden::numbers(&known["ids"]);
        let own = vocabulary.encode_padded(known["text"].as_str().unwrap(), ids.len());
        assert!(own.iter().copied().map(f64::from).eq(ids), "{}", known["text"]);
    }
}
