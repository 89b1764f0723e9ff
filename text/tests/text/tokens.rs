//! Texts are split into the tokens of transformers, by `tokenizer.json` and by the vocabulary of a GGUF file.

use manyhands_text::gguf::Gguf;
use manyhands_text::tokenizer::Around;
use manyhands_text::{ModelFiles, Tokenizer};
use serde_json::Value;

use super::golden;

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

/// Compares a tokenizer with golden values: lists of texts with their tokens.
pub fn check(tokenizer: &Tokenizer, golden: &Value, name: &str) {
    let cases = golden.as_array().unwrap();
    assert!(cases.len() >= 10, "{name}");
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let encode = |around| tokenizer.encode(text, around).unwrap();
        assert_eq!(encode(Around::Added).ids, ids(&case["ids"]), "{name}: {text:?}");
        let plain = encode(Around::None);
        assert_eq!(plain.ids, ids(&case["plain"]), "{name}: {text:?}");
        let is_within = |(begin, end): &(usize, usize)| text.get(*begin..*end).is_some();
        assert!(plain.spans.is_sorted() && plain.spans.iter().all(is_within), "{name}: {text:?}: {:?}", plain.spans);
        assert_eq!(tokenizer.decode(&plain.ids).unwrap(), case["decoded"].as_str().unwrap(), "{name}: {text:?}");
    }
}

#[test]
fn texts_have_the_tokens_of_transformers() {
    let files = golden::GGUF_FILES.map(|name| format!("{name}.gguf"));
    for name in golden::FOLDERS.into_iter().chain(files.iter().map(String::as_str)) {
        let tokenizer = Tokenizer::of(&ModelFiles::open(&golden::path(name)).unwrap()).unwrap();
        check(&tokenizer, &golden::of(name.trim_end_matches(".gguf"))["tokens"], name);
        if name == "gemma3" {
            assert_eq!((tokenizer.id("<bos>"), tokenizer.end(), tokenizer.ends()), (Some(2), Some(1), &[1][..]));
        } else if name != "bert" {
            assert_eq!((tokenizer.id("<|im_end|>"), tokenizer.end()), (Some(2), Some(2)), "{name}");
            assert!(tokenizer.is_special(1) && !tokenizer.is_special(100) && tokenizer.ends().contains(&2));
            assert_eq!(tokenizer.named()["bos_token"], "<|endoftext|>", "{name}");
        }
    }
}

/// Vocabularies of Llama 2, Mistral and Gemma in GGUF files, with and without their flags, bytes and merges.
#[test]
fn sentence_pieces_are_those_of_transformers() {
    let golden: Value = serde_json::from_slice(&std::fs::read(golden::path("pieces/tokens.json")).unwrap()).unwrap();
    for (name, cases) in golden.as_object().unwrap() {
        let file = Gguf::open(&golden::path(&format!("pieces/{name}.gguf"))).unwrap();
        let tokenizer = Tokenizer::from_gguf(&file).unwrap();
        check(&tokenizer, cases, name);
        assert_eq!(tokenizer.end(), Some(if name == "gemma" { 1 } else { 2 }), "{name}");
        assert!(tokenizer.is_special(0) && !tokenizer.is_special(100), "{name}");
    }
    assert_eq!(golden.as_object().unwrap().len(), 6);
}

/// transformers opens some folders by a class with splits of its own: `GPT2Tokenizer` names no digits, `LlamaTokenizer` puts no second space.
#[test]
fn folders_are_opened_by_the_class_of_transformers() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(golden::path("tokenizer_classes.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, value: &Value| std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    let mut differ = 0;
    for case in golden["cases"].as_array().unwrap() {
        write("tokenizer.json", &golden["files"][case["file"].as_str().unwrap()]);
        write("tokenizer_config.json", &case["config"]);
        write("config.json", &serde_json::json!({"model_type": case["model_type"]}));
        let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
        check(&tokenizer, &case["tokens"], &format!("{} {} {}", case["file"], case["model_type"], case["config"]));
        differ += usize::from(case["differ"] != 0);
    }
    assert!(differ > 10, "{differ}");
    write("config.json", &serde_json::json!({"model_type": "bert"}));
    std::fs::copy(golden::path("bert/tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
    write("tokenizer_config.json", &serde_json::json!({"tokenizer_class": "LlamaTokenizer"}));
    let error = Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("`LlamaTokenizer` of transformers needs a model `BPE`, and this is `WordPiece`"), "{error}");
}

#[test]
fn a_missing_or_damaged_tokenizer_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = || Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
    assert!(refused().contains("lacks `tokenizer.json`"), "{}", refused());
    for text in ["", "{}", "[1]", "{\"model\": {\"type\": \"BPE\"}}"] {
        std::fs::write(folder.path().join("tokenizer.json"), text).unwrap();
        assert!(refused().contains("needs to have a tokenizer as"), "{}", refused());
    }
}

/// transformers adds what these files name, so that it is cut out of texts: `TokenizersBackend` of transformers 5.
#[test]
fn tokens_that_other_files_add_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::copy(golden::path("smollm/tokenizer.json"), path("tokenizer.json")).unwrap();
    let open = || Tokenizer::from_folder(folder.path()).map_err(|error| error.to_string());
    for (name, text) in [
        ("tokenizer_config.json", r#"{"eos_token": "<|new|>"}"#),
        ("tokenizer_config.json", r#"{"bos_token": {"content": "<|new|>"}}"#),
        ("tokenizer_config.json", r#"{"added_tokens_decoder": {"320": {"content": "<|new|>", "special": true}}}"#),
        ("tokenizer_config.json", r#"{"extra_special_tokens": {"image_token": "<|new|>"}}"#),
        ("special_tokens_map.json", r#"{"additional_special_tokens": ["<|im_end|>", "<|new|>"]}"#),
        ("added_tokens.json", r#"{"<|new|>": 320}"#),
    ] {
        std::fs::write(path(name), text).unwrap();
        let error = open().unwrap_err();
        assert!(error.contains("needs the token `<|new|>`, which a file beside it names"), "{error}");
        assert!(error.contains("help: save the tokenizer by `AutoTokenizer."), "{error}");
        std::fs::write(path(name), text.replace("<|new|>", "<|im_end|>")).unwrap();
        assert_eq!(open().map(|tokenizer| tokenizer.id("<|im_end|>")), Ok(Some(2)), "{name}: {text}");
        std::fs::remove_file(path(name)).unwrap();
    }
    // No text holds a padding, which many models have added late.
    std::fs::write(path("tokenizer_config.json"), r#"{"pad_token": "[PAD]"}"#).unwrap();
    assert!(open().is_ok());
}
