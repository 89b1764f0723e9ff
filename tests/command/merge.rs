//! Does `manyhands merge` write models that it reads again, and nothing over what is there?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, refused, succeed, text};

fn golden(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/tests/golden").join(name);
    path.canonicalize().unwrap().display().to_string()
}

/// The likeliest tokens behind a word.
fn tokens(folder: &TempDir, model: &str, flags: &str) -> Value {
    let line = format!("generate {model} Hello --raw --max-tokens 12 --temperature 0 --json {flags}");
    serde_json::from_str::<Value>(&succeed(folder, &line)).unwrap()["tokens"].clone()
}

#[test]
fn a_merged_model_writes_as_its_base_with_the_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let (llama, adapter) = (golden("llama"), golden("adapter"));
    let tuned = tokens(&folder, &llama, &format!("--adapter {adapter}"));
    assert_ne!(tuned, tokens(&folder, &llama, ""));
    for (output, flags, told) in [
        ("merged", "--type f32", "weights as F32; the adapter changed 6 of 20 tensors"),
        ("out/merged.gguf", "--type F32", "weights as F32"),
        ("out/half.gguf", "", "weights as F16"),
        ("own", "", "weights as BF16"),
    ] {
        let said = succeed(&folder, &format!("merge {llama} --adapter {adapter} --output {output} {flags}"));
        assert!(said.starts_with(&format!("{output}: ")) && said.contains(told), "{said}");
        if flags.contains("32") {
            assert_eq!(tokens(&folder, output, ""), tuned, "{output}");
        }
    }
    let again = refused(&folder, &format!("merge {llama} --adapter {adapter} --output merged"));
    assert!(again.contains("the output `merged` needs to be a new or empty folder"), "{again}");
    let again = refused(&folder, &format!("merge out/half.gguf --adapter {adapter} --output out/half.gguf"));
    assert!(again.contains("needs to be a new file, but is there already"), "{again}");
}

#[test]
fn what_can_not_be_merged_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (llama, adapter) = (golden("llama"), golden("adapter"));
    for (line, problem) in [
        (format!("merge {} --adapter {adapter} --output new", golden("gpt2")), "which changes no kernel of this model"),
        (format!("merge {llama} --adapter nowhere --output new"), "the adapter `nowhere` lacks `adapter_config.json`"),
        (format!("merge nowhere --adapter {adapter} --output new"), "nowhere"),
        (format!("merge {llama} --adapter {adapter} --output new --type Q8_0"), "write a GGUF file for packed weights"),
    ] {
        let error = refused(&folder, &line);
        assert!(error.contains(problem), "{line}: {error}");
    }
    let unknown =
        command(&folder, &format!("merge {llama} --adapter {adapter} --output new.gguf --type Q4_K")).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("needs to be F32, F16, BF16, Q8_0"), "{}", text(&unknown.stderr));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
