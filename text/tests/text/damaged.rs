//! Each damaged or foreign file is refused with an error that names it.

use std::path::Path;

use manyhands_text::architecture::Architecture;
use manyhands_text::gguf::Gguf;
use manyhands_text::{ModelFiles, Tokenizer};

use super::golden;

fn refused(path: &Path) -> String {
    ModelFiles::open(path).unwrap_err().to_string()
}

/// Opens a model and reads all of it.
fn try_all(path: &Path) {
    if let Ok(model) = ModelFiles::open(path) {
        model.tensors().for_each(drop);
    }
}

fn header_len(bytes: &[u8]) -> usize {
    let data = Gguf::open(&golden::path("llama.gguf"))
        .unwrap()
        .tensors()
        .values()
        .map(|place| place.shape.iter().product::<usize>())
        .sum::<usize>();
    // Tensors take between two and four bytes an element.
    bytes.len() - 2 * data
}

#[test]
fn a_gguf_file_may_end_anywhere() {
    let whole = std::fs::read(golden::path("llama.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gguf");
    // Each length within the header, then a few within the tensors.
    for len in (0..header_len(&whole)).chain((header_len(&whole)..whole.len() - 16).step_by(997)) {
        std::fs::write(&path, &whole[..len]).unwrap();
        let error = Gguf::open(&path).unwrap_err().to_string();
        assert!(error.contains("a.gguf") && error.contains("help: "), "{len}: {error}");
    }
}

#[test]
fn a_gguf_file_may_have_any_byte_wrong() {
    let whole = std::fs::read(golden::path("llama.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gguf");
    let header = header_len(&whole);
    // Between its first keys and its tensors, the header holds the vocabulary.
    for at in (0..1_200).chain((1_200..header - 1_200).step_by(11)).chain(header - 1_200..header) {
        let mut bytes = whole.clone();
        bytes[at] = bytes[at].wrapping_add(if at % 2 == 0 { 0x80 } else { 0xff });
        std::fs::write(&path, &bytes).unwrap();
        try_all(&path);
    }
}

/// A GGUF file of version 3 with counts, then bytes.
fn gguf(path: &Path, n_tensors: u64, n_keys: u64, rest: &[u8]) {
    let head = [b"GGUF", &3_u32.to_le_bytes()[..], &n_tensors.to_le_bytes(), &n_keys.to_le_bytes(), rest].concat();
    std::fs::write(path, head).unwrap();
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

fn tensor(name: &str, axes: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let n_axes = u32::try_from(axes.len()).unwrap().to_le_bytes();
    let axes: Vec<u8> = axes.iter().flat_map(|size| size.to_le_bytes()).collect();
    [&text(name)[..], &n_axes, &axes, &kind.to_le_bytes(), &offset.to_le_bytes()].concat()
}

#[test]
fn hostile_counts_and_offsets_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gguf");
    let array = |kind: u32, count: u64| {
        [&text("a")[..], &9_u32.to_le_bytes(), &kind.to_le_bytes(), &count.to_le_bytes(), &[0; 64]].concat()
    };
    let deep =
        [&text("a")[..], &9_u32.to_le_bytes(), &[[9, 0, 0, 0], [1, 0, 0, 0], [0; 4]].concat().repeat(6)].concat();
    let cases: [(u64, u64, Vec<u8>, &str); 13] = [
        (u64::MAX, 0, vec![], "needs at most 65536 tensors, but claims 18446744073709551615"),
        (0, u64::MAX, vec![], "more for its header, but ends after"),
        (0, 1, [&u64::MAX.to_le_bytes()[..], &[0; 64]].concat(), "more for its header"),
        (0, 1, array(0, u64::MAX), "needs at most 4194304 values in arrays"),
        (0, 1, deep, "arrays that are not so deep in each other"),
        (0, 1, array(77, 1), "has a value of kind 77"),
        (0, 2, [&text("a")[..], &[7, 0, 0, 0, 1], &text("a"), &[7, 0, 0, 0, 1]].concat(), "has `a` twice"),
        (1, 0, tensor("t", &[u64::MAX, 2], 0, 0), "a tensor `t` whose shape"),
        (1, 0, tensor("t", &[1 << 40, 1 << 40], 0, 0), "whose shape"),
        (1, 0, tensor("t", &[33], 3, 0), "whose shape [33] is impossible in Q4_1"),
        (1, 0, tensor("t", &[1; 9], 0, 0), "needs at most 4 axes for the tensor `t`, but has 9"),
        (1, 0, tensor("t", &[8], 0, u64::MAX - 8), "needs 32 bytes for the tensor `t`"),
        (1, 0, tensor("t", &[256], 10, 0), "but `t` is Q2_K"),
    ];
    for (n_tensors, n_keys, rest, message) in cases {
        gguf(&path, n_tensors, n_keys, &rest);
        let error = Gguf::open(&path).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("\n  help: "), "{message}: {error}");
    }
    for (version, message) in
        [(1_u32, "of version 2 or 3, but is of version 1"), (0x0300_0000, "made for a big-endian machine")]
    {
        std::fs::write(&path, [b"GGUF", &version.to_le_bytes()[..], &[0; 16]].concat()).unwrap();
        assert!(refused(&path).contains(message), "{}", refused(&path));
    }
    std::fs::write(&path, "no model").unwrap();
    assert!(refused(&path).contains("needs to begin with `GGUF`"));
}

/// Pieces of one letter, repeated up to a thousand times, imply half a million merges of a kilobyte each, from a file of half a megabyte.
#[test]
fn pieces_whose_merges_would_fill_the_memory_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gguf");
    let key = |name: &str, kind: u32, value: &[u8]| [&text(name), &kind.to_le_bytes()[..], value].concat();
    let array = |kind: u32, count: usize, values: Vec<u8>| {
        [&kind.to_le_bytes()[..], &(count as u64).to_le_bytes(), &values].concat()
    };
    let read = |pieces: &[String]| {
        let tokens = array(8, pieces.len(), pieces.iter().flat_map(|piece| text(piece)).collect());
        let scores = array(6, pieces.len(), vec![0; 4 * pieces.len()]);
        let keys = [
            key("tokenizer.ggml.model", 8, &text("llama")),
            key("tokenizer.ggml.tokens", 9, &tokens),
            key("tokenizer.ggml.scores", 9, &scores),
        ];
        gguf(&path, 0, 3, &keys.concat());
        Tokenizer::from_gguf(&Gguf::open(&path).unwrap())
    };
    let repeated = |most: usize| -> Vec<String> { (1..=most).map(|count| "q".repeat(count)).collect() };
    let error = read(&repeated(1000)).unwrap_err().to_string();
    assert!(error.contains("needs pieces that few others make up, but has ones that many do"), "{error}");
    // Real vocabularies have spaces and lines up to some thirty times.
    assert_eq!(read(&repeated(64)).unwrap().vocabulary(), 64);
}

/// A golden file with one more key behind its first bytes. A text of `\0` keeps the tensors where their alignment wants them.
fn with_key(name: &str, key: &str, value: &[u8]) -> tempfile::TempDir {
    let whole = std::fs::read(golden::path(name)).unwrap();
    let n_keys = u64::from_le_bytes(whole[16..24].try_into().unwrap()) + 2;
    let key = [&text(key)[..], value].concat();
    let padding = |len: usize| [&text("a")[..], &8_u32.to_le_bytes(), &text(&"\0".repeat(len))].concat();
    let padding = (0..32).map(padding).find(|padding| (key.len() + padding.len()).is_multiple_of(32)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bytes = [&whole[..16], &n_keys.to_le_bytes(), &key, &padding, &whole[24..]].concat();
    std::fs::write(folder.path().join("a.gguf"), bytes).unwrap();
    folder
}

/// Keys that llama.cpp reads, with its defaults: `load_hparams` in `llama-model.cpp`.
#[test]
fn keys_of_a_gguf_file_mean_what_they_mean_to_llama_cpp() {
    let float = |value: f32| [6_u32.to_le_bytes(), value.to_le_bytes()].concat();
    let open = |name: &str, key: &str, value: &[u8]| {
        let folder = with_key(name, key, value);
        ModelFiles::open(&folder.path().join("a.gguf")).map(|files| files.architecture().clone())
    };
    let usual = ModelFiles::open(&golden::path("qwen3.gguf")).unwrap().architecture().clone();
    for key in ["qwen3.rope.scaling.factor", "qwen3.rope.scale_linear"] {
        let frequencies = open("qwen3.gguf", key, &float(4.0)).unwrap().rotary_frequencies();
        let fourth: Vec<f64> = usual.rotary_frequencies().iter().map(|frequency| frequency / 4.0).collect();
        assert_eq!(frequencies, fourth, "{key}");
        assert_eq!(open("qwen3.gguf", key, &float(1.0)).unwrap(), usual);
    }
    for (name, key, value, message) in [
        ("llama.gguf", "llama.rope.scaling.factor", float(4.0), "by a factor beside `rope_freqs.weight`"),
        ("qwen3.gguf", "qwen3.rope.scaling.attn_factor", float(1.5), "sets `qwen3.rope.scaling.attn_factor`"),
        ("qwen3.gguf", "qwen3.attention.causal", [7, 0, 0, 0, 0].to_vec(), "sets `qwen3.attention.causal` to false"),
    ] {
        let error = open(name, key, &value).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("help: "), "{error}");
    }
}

fn copied(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(golden::path(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

#[test]
fn a_folder_may_have_any_damage() {
    let folder = copied("qwen3");
    for name in ["config.json", "model.safetensors.index.json", "model-00002-of-00003.safetensors"] {
        let path = folder.path().join(name);
        let whole = std::fs::read(&path).unwrap();
        let text = whole.len().min(4_000);
        for len in (0..text).chain((text..whole.len()).step_by(499)) {
            std::fs::write(&path, &whole[..len]).unwrap();
            // Only the last bytes of the texts are needless.
            let is_read = ModelFiles::open(folder.path()).is_ok();
            assert!(!is_read || len + 2 > whole.len(), "{name} of {len} bytes");
        }
        for at in (0..text).step_by(3) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 7);
            std::fs::write(&path, &bytes).unwrap();
            try_all(folder.path());
        }
        std::fs::write(&path, &whole).unwrap();
    }
    try_all(folder.path());
}

#[test]
fn missing_files_are_named() {
    let folder = copied("qwen3");
    std::fs::remove_file(folder.path().join("model-00003-of-00003.safetensors")).unwrap();
    assert!(refused(folder.path()).contains("names the file `model-00003-of-00003.safetensors`, which is not there"));
    let index = folder.path().join("model.safetensors.index.json");
    let text = std::fs::read_to_string(&index).unwrap();
    std::fs::write(&index, text.replace("model-00003-of-00003.safetensors", "../model.safetensors")).unwrap();
    assert!(refused(folder.path()).contains("needs files of its own folder, but names `../model.safetensors`"));
    std::fs::remove_file(&index).unwrap();
    assert!(refused(folder.path()).contains("needs weights in `model.safetensors` or `model.safetensors.index.json`"));
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    let error = refused(folder.path());
    assert!(
        error.contains("config.json` can't be read") && error.contains("help: name the folder of a model"),
        "{error}"
    );
    let error = refused(&golden::path("adapter"));
    assert!(error.contains("help: the folder holds an adapter: name the model"), "{error}");
}

#[test]
fn settings_that_change_the_result_are_refused_by_name() {
    let usual = std::fs::read_to_string(golden::path("llama/config.json")).unwrap();
    let usual: serde_json::Value = serde_json::from_str(&usual).unwrap();
    let refused = |key: &str, value: serde_json::Value| {
        let mut changed = usual.clone();
        changed[key] = value;
        Architecture::from_config(Path::new("config.json"), &changed.to_string()).unwrap_err().to_string()
    };
    let cases = [
        (
            "quantization_config",
            serde_json::json!({"bits": 4}),
            "sets `quantization_config` to {\"bits\":4}, which is not supported",
        ),
        ("hidden_act", "xielu".into(), "sets `hidden_act` to \"xielu\""),
        (
            "rope_parameters",
            serde_json::json!({"rope_type": "yarn", "factor": 4.0}),
            "sets `rope_parameters.rope_type` to \"yarn\"",
        ),
        (
            "rope_parameters",
            serde_json::json!({"rope_type": "llama3", "factor": 4.0}),
            "needs a positive number `low_freq_factor`",
        ),
        (
            "rope_parameters",
            serde_json::json!({"full_attention": {"rope_type": "default"}}),
            "sets `rope_parameters.full_attention` to {\"rope_type\":\"default\"}",
        ),
        ("partial_rotary_factor", 0.5.into(), "sets `partial_rotary_factor` to 0.5"),
        ("num_local_experts", 8.into(), "sets `num_local_experts` to 8"),
        ("pretraining_tp", 2.into(), "sets `pretraining_tp` to 2"),
        (
            "layer_types",
            serde_json::json!(["full_attention", "chunked_attention"]),
            "sets `layer_types` to \"chunked_attention\"",
        ),
        ("model_type", "lama".into(), "but has `lama`"),
        ("model_type", "mixtral".into(), "needs a `model_type` of llama,"),
        ("hidden_size", (-1).into(), "needs a positive whole number under `hidden_size`, but has -1"),
        ("num_key_value_heads", 3.into(), "but has 4 and 3"),
        ("head_dim", 7.into(), "needs heads of an even number of elements"),
        ("vocab_size", serde_json::Value::Null, "lacks `vocab_size`"),
        ("rms_norm_eps", "small".into(), "needs a positive number under `rms_norm_eps`"),
    ];
    for (key, value, message) in cases {
        let error = refused(key, value);
        assert!(error.contains(message) && error.contains("\n  help: "), "{error}");
    }
}

#[test]
fn tensors_must_fit_the_network() {
    let folder = copied("mistral");
    let config = folder.path().join("config.json");
    let usual = std::fs::read_to_string(&config).unwrap();
    for (from, to, message) in [
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 3",
            "lacks the tensor `model.layers.2.input_layernorm.weight`",
        ),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "has a tensor `model.layers.1."),
        (
            "\"vocab_size\": 320",
            "\"vocab_size\": 321",
            "needs the shape [321, 32] for the tensor `model.embed_tokens.weight`, but has [320, 32]",
        ),
        ("\"mistral\"", "\"qwen3\"", "lacks the tensor `model.layers.0.self_attn.q_norm.weight`"),
    ] {
        std::fs::write(&config, usual.replace(from, to)).unwrap();
        assert!(refused(folder.path()).contains(message), "{}", refused(folder.path()));
    }
}

/// Settings tie the output of GPT-2 to its table of tokens; some programs write it twice.
#[test]
fn an_output_of_its_own_is_no_copy_of_the_table() {
    let folder = copied("gpt2");
    let path = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let mut tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap().tensors();
    let table = tensors.iter().find(|(name, _)| name == "transformer.wte.weight").unwrap().1.clone();
    let mut other = table.data().to_vec();
    other[0] ^= 1;
    let other = safetensors::tensor::TensorView::new(table.dtype(), table.shape().to_vec(), &other).unwrap();
    tensors.push(("lm_head.weight".into(), table));
    safetensors::serialize_to_file(tensors.clone(), None, &path).unwrap();
    ModelFiles::open(folder.path()).unwrap();
    tensors.last_mut().unwrap().1 = other;
    safetensors::serialize_to_file(tensors, None, &path).unwrap();
    let error = refused(folder.path());
    assert!(error.contains("`lm_head.weight` that differs from its table of tokens"), "{error}");
    assert!(error.contains("help: if the model is to have both, set `tie_word_embeddings`"), "{error}");
}
