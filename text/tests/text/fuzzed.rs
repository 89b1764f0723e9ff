//! Each mutated file is read or refused, without a panic, a hang, or more than 1 GB.

use std::path::Path;

use manyhands_text::ModelFiles;

use super::fuzz::{self, Target, write};
use super::golden;

const TARGETS: &[Target] = &[
    Target { name: "gguf", seeds: gguf_files, run: read_gguf },
    Target { name: "model_folder", seeds: folders, run: read_folder },
];

fn gguf_files() -> Vec<Vec<u8>> {
    golden::GGUF_FILES.map(|name| std::fs::read(golden::path(&format!("{name}.gguf"))).unwrap()).to_vec()
}

fn read_gguf(input: &[u8], folder: &Path) {
    let path = folder.join("a.gguf");
    write(&path, input);
    read_all(&path);
}

/// `config.json`, a zero, and the weights.
fn folders() -> Vec<Vec<u8>> {
    let read = |name: &str, file: &str| std::fs::read(golden::path(name).join(file)).unwrap();
    golden::FOLDERS
        .into_iter()
        .filter(|name| *name != "qwen3")
        .map(|name| [&read(name, "config.json")[..], &[0], &read(name, "model.safetensors")].concat())
        .collect()
}

fn read_folder(input: &[u8], folder: &Path) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let model = folder.join("model");
    std::fs::create_dir_all(&model).unwrap();
    write(&model.join("config.json"), parts.next().unwrap_or_default());
    write(&model.join("model.safetensors"), parts.next().unwrap_or_default());
    read_all(&model);
}

fn read_all(path: &Path) {
    if let Ok(model) = ModelFiles::open(path) {
        model.tensors().for_each(drop);
    }
}

#[test]
fn mutated_files_are_read_or_refused() {
    fuzz::watch_all(TARGETS, module_path!(), fuzz::QUICK);
}

#[test]
#[ignore = "a hundred thousand inputs of each target take many minutes"]
fn a_hundred_thousand_mutated_files_are_read_or_refused() {
    fuzz::watch_all(TARGETS, module_path!(), fuzz::FULL);
}

/// The process that is watched.
#[test]
fn child() {
    fuzz::child(TARGETS);
}
