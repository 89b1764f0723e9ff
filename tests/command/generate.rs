//! Does `generate` write with language models of others, and with models that `train` trained on a text?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, output, outputs_of, refused, succeed, text};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../text/tests/golden")).join(name)
}

/// What `generate` prints and says, with a prompt of several words.
fn written(folder: &TempDir, model: &str, prompt: &str, flags: &str) -> (String, String) {
    outputs_of(command(folder, &format!("generate {model} {flags}")).arg(prompt))
}

fn object(folder: &TempDir, model: &str, prompt: &str, flags: &str) -> Value {
    serde_json::from_str(&written(folder, model, prompt, &format!("{flags} --json")).0).unwrap()
}

#[test]
fn a_language_model_of_others_writes() {
    let folder = tempfile::tempdir().unwrap();
    let (model, file) = (golden("llama").display().to_string(), golden("llama.gguf").display().to_string());
    let (text, notes) = written(&folder, &model, "Hello", "--raw --max-tokens 12 --temperature 0");
    assert!(notes.contains("12 tokens, ") && notes.contains("; `--max-tokens` allows more"), "{notes}");
    let whole = object(&folder, &model, "Hello", "--raw --max-tokens 12 --temperature 0");
    assert_eq!(text.trim_end_matches('\n'), whole["text"].as_str().unwrap().trim_end_matches('\n'));
    assert_eq!((whole["tokens"].as_array().unwrap().len(), &whole["ended"]), (12, &"max_tokens".into()));
    // The file has the folder's weights.
    assert_eq!(object(&folder, &file, "Hello", "--raw --max-tokens 12 --temperature 0")["tokens"], whole["tokens"]);
    let tuned = format!("--raw --max-tokens 12 --temperature 0 --adapter {}", golden("adapter").display());
    assert_ne!(object(&folder, &model, "Hello", &tuned)["tokens"], whole["tokens"]);
    let packed = golden("packed.gguf").display().to_string();
    let [floats, blocks] = ["", "--packed as-file"].map(|flags| {
        object(&folder, &packed, "Hello", &format!("--raw --max-tokens 12 --temperature 0 {flags}"))["tokens"].clone()
    });
    assert_eq!(blocks, floats);
    let drawn =
        |flags: &str| object(&folder, &model, "Hello", &format!("--raw --max-tokens 12 {flags}"))["tokens"].clone();
    assert_eq!(drawn("--temperature 1.5"), drawn("--temperature 1.5"));
    assert_ne!(drawn("--temperature 1.5"), drawn("--temperature 1.5 --seed 1"));
    assert_eq!(drawn("--temperature 1.5 --top-k 1"), whole["tokens"]);
    assert_eq!(drawn("--temperature 1.5 --top-p 1e-9"), whole["tokens"]);
}

/// transformers applies it, whatever `temperature` is.
#[test]
fn settings_of_the_model_that_are_left_out_are_told() {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(golden("llama")).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let settings = r#"{"repetition_penalty": 1.1, "min_p": 0.0, "num_beams": 1, "suppress_tokens": [], "top_k": 20}"#;
    fs::write(folder.path().join("generation_config.json"), settings).unwrap();
    let (_, told) = written(&folder, ".", "Hello", "--raw --max-tokens 2 --temperature 0 --quiet");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.contains("generation_config.json` sets `repetition_penalty` to 1.1, which transformers applies"),
        "{told}"
    );
}

#[test]
fn a_text_that_ends_before_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut line = command(&folder, &format!("generate {} --raw --max-tokens 2", golden("llama").display()));
    let refused = line.args(["Hello", "--stop", "B", "--stop", ""]).output().unwrap();
    let told = text(&refused.stderr);
    assert!(
        !refused.status.success() && told.contains("`stop` needs a text before which to end, but is empty"),
        "{told}"
    );
}

#[test]
fn a_chat_model_gets_its_template() {
    let folder = tempfile::tempdir().unwrap();
    let model = golden("smollm").display().to_string();
    let (_, notes) = written(&folder, &model, "Hello", "--max-tokens 2");
    assert!(notes.contains("the prompt is a message to a chat model; `--raw` continues it as a text"), "{notes}");
    let (_, notes) = written(&folder, &model, "Hello", "--max-tokens 2 --chat");
    assert!(!notes.contains("--raw"), "{notes}");
    let tokens = |flags: &str| object(&folder, &model, "Hello", flags)["prompt_tokens"].as_array().unwrap().len();
    assert!(tokens("--max-tokens 2") > tokens("--max-tokens 2 --raw") + 5);
}

#[test]
fn a_model_of_ones_own_texts_writes() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("texts")).unwrap();
    fs::write(folder.path().join("texts/a.txt"), "abcd ".repeat(800)).unwrap();
    succeed(&folder, "init texts");
    succeed(&folder, "train run.toml --epochs 40 --save model.safetensors");
    let write = |prompt: &str, flags: &str| written(&folder, "model.safetensors", prompt, flags);
    let (text, _) = write("abcd ab", "--temperature 0 --max-tokens 200");
    assert_eq!(text.trim_end_matches('\n'), &"cd abcd ab".repeat(30)[..200]);
    assert_eq!(write("abcd ab", "--temperature 0 --stop ab").0, "cd \n");
    let (_, warned) = write("xa", "--max-tokens 1");
    assert!(warned.contains("1 of 2 tokens of the prompt did not occur in the training text"), "{warned}");
    let error = refused(&folder, "generate model.safetensors a --chat");
    assert!(error.contains("`--chat` needs a Hugging Face folder or a GGUF file"), "{error}");
}

#[test]
fn what_cant_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = golden("llama").display().to_string();
    for (line, problem) in [
        (format!("generate {} Hello", golden("bert").display()), "needs to read in order to give words"),
        (format!("generate {model} Hello --adapter texts"), "the adapter `texts` lacks `adapter_config.json`"),
        (format!("generate {model} Hello --top-p 2"), "`top_p` needs to be above 0 and at most 1, but is 2"),
        (format!("generate {} Hello --chat", golden("bert").display()), "`--chat` needs a model with a chat template"),
        ("generate nowhere Hello".into(), "nowhere"),
        ("generate HuggingFaceTB/SmolLM2-1.7B Hello".into(), "help: nothing is loaded from the internet: `hf download"),
    ] {
        let error = refused(&folder, &line);
        assert!(error.contains(problem), "{line}: {error}");
    }
    succeed(&folder, "train --epochs 1 --save digits.safetensors");
    let error = refused(&folder, "generate digits.safetensors Hello");
    assert!(error.contains("needs to be trained on a text, but was trained on other data"), "{error}");
    let empty = output(command(&folder, &format!("generate {} --raw", golden("gpt2").display())).arg(""));
    assert!(text(&empty.stderr).contains("the prompt needs at least one token"), "{}", text(&empty.stderr));
}
