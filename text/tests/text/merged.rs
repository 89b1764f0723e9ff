//! Models with an adapter merged compute what PEFT and gguf make of them: `merged` in `scripts/text_golden.py`.

use std::fs;
use std::path::{Path, PathBuf};

use manyhands::Predictor;
use manyhands::data::InMemory;
use manyhands_text::adapter::{Adapter, LoraPair, write_merged};
use manyhands_text::network::{self, Output};
use manyhands_text::{ChatTemplate, Encoding, ModelFiles, Tensor, Tokenizer};
use serde_json::Value;
use tempfile::TempDir;

use super::outputs::{LENGTH, assert_close, rows};
use super::{golden, tokens};

fn open(path: &Path) -> ModelFiles {
    ModelFiles::open(path).unwrap()
}

/// A model with a golden adapter merged, in a new folder or file.
fn merged(folder: &TempDir, model: &str, adapter: &str, output: &str, encoding: Option<Encoding>) -> PathBuf {
    let (model, output) = (open(&golden::path(model)), folder.path().join(output));
    let adapter = Adapter::read(&golden::path(adapter), model.architecture()).unwrap();
    write_merged(&output, &model, &adapter, encoding).unwrap();
    output
}

fn check_logits(path: &Path, known: &Value, logits: &Value, what: &str) {
    let model = network::build(&open(path), LENGTH, Output::Logits).unwrap();
    let data = InMemory::without_targets(rows(&known["ids"])).unwrap();
    let outputs = Predictor::new(model).adapters("cpu").unwrap().predict(data, 1).unwrap().remove(0);
    let row = outputs.index_axis(ndarray::Axis(0), 0);
    let last = row.index_axis(ndarray::Axis(0), LENGTH - 1);
    assert_close(what, last.iter().copied(), &golden::numbers(&logits["last"]), 1e-5);
    let largest = row.outer_iter().map(|logits| logits.iter().copied().fold(f32::MIN, f32::max));
    assert_close(what, largest, &golden::numbers(&logits["largest"]), 1e-5);
}

fn all(path: &Path) -> Vec<Tensor> {
    open(path).tensors().collect::<Result<_, _>>().unwrap()
}

#[test]
fn merged_models_compute_what_peft_makes_of_them() {
    let golden: Value = serde_json::from_slice(&fs::read(golden::path("merged.json")).unwrap()).unwrap();
    for (adapter, known) in golden.as_object().unwrap() {
        let (name, own) = (known["model"].as_str().unwrap(), known["own"].as_str().unwrap());
        let mut compared = 0;
        for (form, logits) in known["logits"].as_object().unwrap() {
            let folder = tempfile::tempdir().unwrap();
            let (kind, encoding) = form.split_once(' ').unwrap();
            let (output, usual) = if kind == "gguf" { ("merged.gguf", "F16") } else { ("merged", own) };
            // The usual type need not be named.
            let asked = if encoding == usual { None } else { Encoding::of_name(encoding) };
            let path = merged(&folder, name, adapter, output, asked);
            let what = format!("{adapter} as {form}");
            check_logits(&path, known, logits, &what);
            let embedding = open(&path).tensor("embedding.embeddings").unwrap();
            assert_eq!(embedding.encoding.name(), encoding, "{what}");
            // A GGUF file has the folder's weights, so its merged ones are equal.
            let of_file = merged(&folder, &format!("{name}.gguf"), adapter, "of_file.gguf", asked);
            if kind == "gguf" {
                assert_eq!(all(&of_file), all(&path), "{what}");
            }
            compared += 1;
        }
        assert_eq!(compared, 4);
    }
}

#[test]
fn a_merged_model_has_the_tokenizer_of_its_base() {
    for (model, adapter, output) in [
        ("llama", "adapter", "merged"),
        ("llama", "adapter", "merged.gguf"),
        ("llama.gguf", "adapter", "merged.gguf"),
        ("gpt2", "adapter-gpt2", "merged.gguf"),
        ("gpt2.gguf", "adapter-gpt2", "merged"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = merged(&folder, model, adapter, output, None);
        let (base, written) = (open(&golden::path(model)), open(&path));
        let [one, other] = [&base, &written].map(|files| Tokenizer::of(files).unwrap());
        let known = golden::of(model.trim_end_matches(".gguf"));
        tokens::check(&other, &known["tokens"], model);
        assert_eq!((one.ends(), one.named()), (other.ends(), other.named()), "{model} as {output}");
        let templates = [(&base, &one), (&written, &other)]
            .map(|(files, tokenizer)| ChatTemplate::of(files, tokenizer).unwrap().unwrap().question("Hi").unwrap());
        assert_eq!(templates[0], templates[1], "{model} as {output}");
        // Kernels that the adapter does not change keep their bytes in a folder of the same type.
        if (model, output) == ("llama", "merged") {
            let (before, after) = (all(&golden::path(model)), all(&path));
            let changed: Vec<&str> = before
                .iter()
                .zip(&after)
                .filter(|(one, other)| one != other)
                .map(|(one, _)| one.name.as_str())
                .collect();
            assert_eq!(changed.len(), 6, "{changed:?}");
            assert!(changed.iter().all(|name| ["query", "value", "down"].iter().any(|part| name.contains(part))));
        }
    }
}

#[test]
fn what_can_not_be_merged_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("full")).unwrap();
    fs::write(path("full/mine.txt"), "mine").unwrap();
    fs::copy(golden::path("gpt2.gguf"), path("there.gguf")).unwrap();
    let read = |model: &str, adapter: &str| {
        let files = open(&golden::path(model));
        let adapter = Adapter::read(&golden::path(adapter), files.architecture()).unwrap();
        (files, adapter)
    };
    let (llama, of_file) = (read("llama", "adapter"), read("llama.gguf", "adapter"));
    let with = |value: f32| {
        let (files, mut adapter) = read("llama", "adapter");
        let pair: &mut LoraPair = adapter.pairs.values_mut().next().unwrap();
        pair.a.fill(value);
        pair.b.fill(value);
        (files, adapter)
    };
    let short = {
        let (files, mut adapter) = read("llama", "adapter");
        adapter.pairs.values_mut().next().unwrap().a.pop();
        (files, adapter)
    };
    for ((files, adapter), output, encoding, message) in [
        (&llama, "full", None, "needs to be a new or empty folder, but is there already"),
        (&llama, "there.gguf", None, "needs to be a new file, but is there already"),
        (&llama, "q8", Some(Encoding::Q8_0), "needs F32, F16 or BF16, but was asked for Q8_0"),
        (&llama, "q4.gguf", Some(Encoding::Q4_0), "needs F32, F16, BF16 or Q8_0, but was asked for Q4_0"),
        (&of_file, "factors", None, "has no setting for the factors of rotary positions in a GGUF file"),
        (&with(300.0), "large.gguf", None, "can't be written as F16, whose largest number is 65,504"),
        (&with(f32::NAN), "nan", None, "needs to be finite with the adapter's changes, but has NaN"),
        (&short, "short", None, "needs the shape of the adapter's matrices, but has [32, 32]"),
    ] {
        let error = write_merged(&path(output), files, adapter, encoding).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("help: "), "{output}: {error}");
    }
    let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["full", "there.gguf"]);
    assert_eq!(fs::read(path("there.gguf")).unwrap(), fs::read(golden::path("gpt2.gguf")).unwrap());
    // What is large as F16 is none as BF16.
    let (files, adapter) = with(300.0);
    write_merged(&path("large.gguf"), &files, &adapter, Some(Encoding::Bf16)).unwrap();
    assert_eq!(open(&path("large.gguf")).tensor("embedding.embeddings").unwrap().encoding, Encoding::Bf16);
}
