//! Texts are written as transformers writes them: `generation` and `outputs` in `scripts/text_golden.py`.

use std::path::Path;

use manyhands::Predictor;
use manyhands::data::InMemory;
use manyhands_engine::adapters::Info;
use manyhands_text::adapter::Adapter;
use manyhands_text::generate::{Cached, Ended, Generation, NextToken, Rows, Sampling, generate};
use manyhands_text::network::{self, Output};
use manyhands_text::{ModelFiles, Tokenizer};
use serde_json::{Value, json};

use super::golden;
use super::outputs::{CAUSAL, LENGTH, assert_close, outputs, rows};

fn generation() -> Value {
    serde_json::from_slice(&std::fs::read(golden::path("generation.json")).unwrap()).unwrap()
}

fn files(name: &str) -> ModelFiles {
    ModelFiles::open(&golden::path(name)).unwrap()
}

pub fn tokens(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

fn cached(name: &str, room: usize) -> Cached {
    Cached::open(&files(name), None, room, Info::cpu()).unwrap()
}

fn whole(name: &str) -> Rows {
    let model = network::build(&files(name), LENGTH, Output::Logits).unwrap();
    Rows::new(model, Info::cpu(), Vec::new()).unwrap()
}

/// The likeliest tokens behind others, with those.
pub fn greedy(model: &mut dyn NextToken, prompt: &[u32], count: usize) -> Vec<u32> {
    let settings =
        Generation { max_tokens: count, sampling: Sampling::GREEDY, seed: 0, ends: Vec::new(), stops: Vec::new() };
    let as_text = |_: &[u32]| Ok(String::new());
    let written = generate(model, &as_text, prompt, &settings, &mut |_| Ok(())).unwrap();
    assert_eq!(written.ended, Ended::MaxTokens);
    [prompt, &written.tokens].concat()
}

#[test]
fn greedy_texts_are_those_of_transformers() {
    let golden = outputs();
    for name in CAUSAL {
        let known = tokens(&golden[name]["greedy"]);
        assert_eq!(greedy(&mut whole(name), &known[..6], 10), known, "{name}");
        assert_eq!(greedy(&mut cached(name, LENGTH), &known[..6], 10), known, "{name} with kept keys");
    }
}

/// Kept keys change nothing: whatever part of the text is read at once, in windows of any length.
#[test]
fn kept_keys_give_the_logits_of_the_whole_text() {
    let golden = outputs();
    for name in CAUSAL {
        let text = tokens(&golden[name]["ids"][0]);
        let mut whole = whole(name);
        for room in [16, 64] {
            let mut cached = cached(name, room);
            for length in [9, 10, 11, 16, 3, 1, 2] {
                let (known, logits) = (whole.logits(&text[..length]).unwrap(), cached.logits(&text[..length]).unwrap());
                let known: Vec<f64> = known.into_iter().map(f64::from).collect();
                assert_close(&format!("{name}, {length} tokens, room for {room}"), logits, &known, 2e-6);
            }
        }
    }
}

#[test]
fn probabilities_are_those_of_transformers() {
    let golden = generation();
    for known in golden["warped"].as_array().unwrap() {
        let top_k = known["top_k"].as_u64().and_then(|top_k| usize::try_from(top_k).ok()).filter(|top_k| *top_k > 0);
        let (temperature, top_p) = (known["temperature"].as_f64().unwrap(), known["top_p"].as_f64().unwrap());
        let sampling = Sampling { temperature, top_k, top_p };
        for (logits, known) in rows(&golden["logits"]).outer_iter().zip(known["probabilities"].as_array().unwrap()) {
            let known = golden::numbers(known);
            let found = sampling.probabilities(logits.as_slice().unwrap());
            for (token, (found, known)) in found.iter().zip(&known).enumerate() {
                assert_eq!(*found == 0.0, *known == 0.0, "{sampling:?}, token {token}");
                assert!((found - known).abs() <= 1e-6, "{sampling:?}, token {token}: {found} is not {known}");
            }
        }
    }
}

#[test]
fn an_adapter_changes_what_peft_changes() {
    for (folder, known) in generation()["adapters"].as_object().unwrap() {
        let files = files(known["model"].as_str().unwrap());
        let adapter = Adapter::read(&golden::path(folder), files.architecture()).unwrap();
        let mut model = network::build(&files, LENGTH, Output::Logits).unwrap();
        let plain = model.n_parameters();
        adapter.merge(&mut model).unwrap();
        assert_eq!(model.n_parameters(), plain);
        let data = InMemory::without_targets(rows(&known["ids"])).unwrap();
        let logits = Predictor::new(model).adapters("cpu").unwrap().predict(data, 2).unwrap().remove(0);
        for (row, known) in logits.outer_iter().zip(known["logits"].as_array().unwrap()) {
            let last = row.index_axis(ndarray::Axis(0), LENGTH - 1);
            assert_close(folder, last.iter().copied(), &golden::numbers(&known["last"]), 1e-5);
        }
        let mut cached = Cached::open(&files, Some(&adapter), LENGTH, Info::cpu()).unwrap();
        let logits = cached.logits(&tokens(&known["ids"][0])).unwrap();
        assert_close(folder, logits, &golden::numbers(&known["logits"][0]["last"]), 1e-5);
    }
}

/// The golden adapter with other settings.
fn adapter_with(change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (golden, copy) = (golden::path("adapter"), folder.path());
    std::fs::copy(golden.join("adapter_model.safetensors"), copy.join("adapter_model.safetensors")).unwrap();
    let mut settings = serde_json::from_slice(&std::fs::read(golden.join("adapter_config.json")).unwrap()).unwrap();
    change(&mut settings);
    std::fs::write(copy.join("adapter_config.json"), settings.to_string()).unwrap();
    folder
}

fn refused(folder: &Path, model: &str) -> String {
    let error = Adapter::read(folder, files(model).architecture()).unwrap_err().to_string();
    assert!(error.contains("help: "), "{error}");
    error
}

#[test]
fn an_adapter_that_is_not_understood_is_refused() {
    for (name, value) in [
        ("use_dora", json!(true)),
        ("bias", json!("all")),
        ("modules_to_save", json!(["lm_head"])),
        ("rank_pattern", json!({"q_proj": 4})),
        ("alpha_pattern", json!({"q_proj": 4})),
        ("init_lora_weights", json!("pissa")),
        ("trainable_token_indices", json!([1])),
        ("lora_bias", json!(true)),
        ("a_setting_of_tomorrow", json!(3)),
    ] {
        let folder = adapter_with(|settings| settings[name] = value);
        let error = refused(folder.path(), "llama");
        assert!(error.contains(&format!("has the setting `{name}`")), "{error}");
    }
    for (name, value, problem) in [
        ("peft_type", json!("IA3"), "needs `peft_type` LORA, but has \"IA3\""),
        ("r", json!(0), "needs `r`, a whole number from 1 up"),
        ("r", json!(3), "of the shape [3, 32], but has [2, 32]"),
        ("lora_alpha", Value::Null, "needs `lora_alpha`, a number"),
    ] {
        let folder = adapter_with(|settings| settings[name] = value);
        let error = refused(folder.path(), "llama");
        assert!(error.contains(problem), "{error}");
    }
    assert!(refused(&golden::path("adapter"), "gpt2").contains("which changes no kernel of this model"));
    let folder = adapter_with(|_| ());
    let path = folder.path().join("adapter_model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let mut tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap().tensors();
    tensors.push(("base_model.model.lm_head.lora_A.weight".into(), tensors[0].1.clone()));
    safetensors::serialize_to_file(tensors, None, &path).unwrap();
    let error = refused(folder.path(), "llama");
    assert!(
        error.contains("`base_model.model.lm_head.lora_A.weight`") && error.contains("`model.merge_and_unload()`"),
        "{error}"
    );
    std::fs::write(folder.path().join("adapter_config.json"), "[").unwrap();
    assert!(refused(folder.path(), "llama").contains("needs to be a JSON object"));
    std::fs::remove_file(folder.path().join("adapter_model.safetensors")).unwrap();
    std::fs::remove_file(folder.path().join("adapter_config.json")).unwrap();
    assert!(refused(folder.path(), "llama").contains("lacks `adapter_config.json`"));
}

/// A file of factors may end anywhere.
#[test]
fn a_damaged_adapter_is_refused() {
    let folder = adapter_with(|_| ());
    let path = folder.path().join("adapter_model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    for len in (0..bytes.len()).step_by(37) {
        std::fs::write(&path, &bytes[..len]).unwrap();
        refused(folder.path(), "llama");
    }
}

#[test]
fn a_text_ends_at_a_token_a_stop_or_the_last_position() {
    let files = files("llama");
    let tokenizer = Tokenizer::of(&files).unwrap();
    let as_text = |ids: &[u32]| tokenizer.text(ids);
    let plain = Generation { max_tokens: 40, sampling: Sampling::GREEDY, seed: 0, ends: Vec::new(), stops: Vec::new() };
    let prompt = tokenizer.encode("Hello", manyhands_text::tokenizer::Around::None).unwrap().ids;
    let write = |settings: &Generation, room: usize| {
        let mut cached = Cached::open(&files, None, room, Info::cpu()).unwrap();
        let mut shown = String::new();
        let written = generate(&mut cached, &as_text, &prompt, settings, &mut |piece| {
            shown.push_str(piece);
            Ok(())
        });
        let written = written.unwrap();
        assert_eq!(shown, written.text);
        written
    };
    let all = write(&plain, 64);
    assert_eq!((all.tokens.len(), all.ended), (40, Ended::MaxTokens));
    let full = write(&plain, 16);
    // The last token that is written needs no place.
    assert_eq!((full.tokens.len() + prompt.len(), full.ended), (17, Ended::Full));
    assert_eq!(full.tokens, all.tokens[..full.tokens.len()]);
    let place = all.tokens.iter().position(|token| *token == all.tokens[7]).unwrap();
    let ended = write(&Generation { ends: vec![all.tokens[7]], ..plain.clone() }, 64);
    assert_eq!((&ended.tokens[..], ended.ended), (&all.tokens[..place], Ended::Token));
    let stop: String = all.text.chars().skip(9).take(4).collect();
    let stopped = write(&Generation { stops: vec![stop.clone()], ..plain.clone() }, 64);
    assert_eq!((stopped.text.as_str(), stopped.ended), (&all.text[..all.text.find(&stop).unwrap()], Ended::Stop));
    let drawn = Generation { sampling: Sampling { temperature: 1.0, ..Sampling::GREEDY }, ..plain };
    assert_eq!(write(&drawn, 64), write(&drawn, 64));
    assert_ne!(write(&drawn, 64).tokens, write(&Generation { seed: 1, ..drawn }, 64).tokens);
}

#[test]
fn prompts_that_cant_be_read_are_refused() {
    let plain = Generation { max_tokens: 4, sampling: Sampling::GREEDY, seed: 0, ends: Vec::new(), stops: Vec::new() };
    let refused = |prompt: &[u32]| {
        let as_text = |_: &[u32]| Ok(String::new());
        generate(&mut cached("llama", 16), &as_text, prompt, &plain, &mut |_| Ok(())).unwrap_err().to_string()
    };
    assert!(refused(&[]).contains("the prompt needs at least one token"));
    assert!(refused(&[1; 17]).contains("the prompt needs at most 16 tokens"));
}
