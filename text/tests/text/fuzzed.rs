//! Each mutated file is read or refused, without a panic, a hang, or more than 1 GB.

use std::path::Path;

use manyhands_text::gguf::Gguf;
use manyhands_text::packing::Packed;
use manyhands_text::rows::Reader;
use manyhands_text::tokenizer::Around;
use manyhands_text::{ChatTemplate, ModelFiles, Tokenizer};

use super::fuzz::{self, Target, write};
use super::golden;

const TARGETS: &[Target] = &[
    Target { name: "gguf", seeds: gguf_files, run: read_gguf },
    Target { name: "model_folder", seeds: folders, run: read_folder },
    Target { name: "tokenizer", seeds: tokenizers, run: read_tokenizer },
    Target { name: "chat_template", seeds: templates, run: read_template },
    Target { name: "chat_rows", seeds: rows, run: read_rows },
];

fn gguf_files() -> Vec<Vec<u8>> {
    let names = golden::GGUF_FILES.into_iter().chain(["pieces/llama", "pieces/gemma"]);
    names.map(|name| std::fs::read(golden::path(&format!("{name}.gguf"))).unwrap()).collect()
}

fn read_gguf(input: &[u8], folder: &Path) {
    let path = folder.join("a.gguf");
    write(&path, input);
    read_all(&path);
    if let Ok(file) = Gguf::open(&path) {
        drop(Tokenizer::from_gguf(&file));
    }
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
    let Ok(model) = ModelFiles::open(path) else { return };
    model.tensors().for_each(drop);
    if let Ok(tokenizer) = Tokenizer::of(&model) {
        drop(ChatTemplate::of(&model, &tokenizer));
    }
}

fn golden_files(names: &[&str], file: &str) -> Vec<Vec<u8>> {
    names.iter().map(|name| std::fs::read(golden::path(name).join(file)).unwrap()).collect()
}

fn tokenizers() -> Vec<Vec<u8>> {
    golden_files(&["llama", "smollm", "qwen2", "bert"], "tokenizer.json")
}

fn read_tokenizer(input: &[u8], folder: &Path) {
    write(&folder.join("tokenizer.json"), input);
    let Ok(tokenizer) = Tokenizer::from_folder(folder) else { return };
    if let Ok(tokens) = tokenizer.encode("Hello 123, äö <|im_end|>\n", Around::Added) {
        drop(tokenizer.decode(&tokens.ids));
    }
}

fn templates() -> Vec<Vec<u8>> {
    let marked = "{% for m in messages %}{{ m.role }}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}";
    [golden_files(&["llama", "smollm", "qwen2"], "chat_template.jinja"), vec![marked.as_bytes().to_vec()]].concat()
}

const ROWS: &str = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
{"prompt": "a", "completion": "b"}
{"text": "ä\n"}
"#;

fn read_template(input: &[u8], folder: &Path) {
    let tokenizer = Tokenizer::from_folder(&golden::path("smollm")).unwrap();
    let Ok(template) = ChatTemplate::new(&String::from_utf8_lossy(input), &tokenizer) else { return };
    let path = folder.join("a.jsonl");
    write(&path, ROWS.as_bytes());
    drop(Reader { tokenizer: &tokenizer, template: Some(&template) }.read(&path));
}

fn rows() -> Vec<Vec<u8>> {
    vec![ROWS.as_bytes().to_vec()]
}

fn read_rows(input: &[u8], folder: &Path) {
    let path = folder.join("a.jsonl");
    write(&path, input);
    let source = std::fs::read_to_string(golden::path("qwen2/chat_template.jinja")).unwrap();
    let tokenizer = Tokenizer::from_folder(&golden::path("smollm")).unwrap();
    let template = ChatTemplate::new(&source, &tokenizer).unwrap();
    if let Ok(documents) = (Reader { tokenizer: &tokenizer, template: Some(&template) }).read(&path) {
        drop(Packed::new(&documents, 8));
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
