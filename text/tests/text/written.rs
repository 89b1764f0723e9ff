//! Files that are written are those of PEFT, gguf and transformers, and are read back as they were.

use std::collections::BTreeMap;
use std::path::Path;

use manyhands_engine::packed::{PackedFormat, PackedTensor};
use manyhands_text::adapter::{Adapter, LoraPair, write_adapter};
use manyhands_text::architecture::Architecture;
use manyhands_text::gguf::Gguf;
use manyhands_text::write::{write_folder, write_gguf};
use manyhands_text::{ChatTemplate, Encoding, ModelFiles, Tensor, Tokenizer};
use safetensors::SafeTensors;
use serde_json::Value;

use super::{golden, tokens};

fn open(path: &Path) -> ModelFiles {
    ModelFiles::open(path).unwrap()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn values_pack_to_the_bits_of_gguf() {
    let bytes = std::fs::read(golden::path("blocks.safetensors")).unwrap();
    let arrays = SafeTensors::deserialize(&bytes).unwrap();
    let values = Encoding::F32.unpack(arrays.tensor("usual").unwrap().data());
    for encoding in [Encoding::F16, Encoding::Q8_0] {
        let known = arrays.tensor(&format!("{}.quantized", encoding.name())).unwrap();
        assert_eq!(encoding.pack(&values).unwrap(), known.data(), "{}", encoding.name());
    }
    for format in PackedFormat::ALL {
        let known = arrays.tensor(&format!("{}.quantized", format.name())).unwrap();
        let packed = PackedTensor::quantize(format, [4, 32], &values).unwrap();
        assert_eq!(packed.bytes(), known.data(), "{}", format.name());
    }
    assert_eq!((Encoding::Q8_0.pack(&values[1..]), Encoding::Q4K.pack(&values)), (None, None));
}

/// The golden files were written by the Python package `gguf`; those of `llama` have interleaved rows.
#[test]
fn gguf_files_have_the_bytes_of_gguf() {
    let folder = tempfile::tempdir().unwrap();
    for name in golden::GGUF_FILES {
        let (path, model) = (folder.path().join(name), open(&golden::path(name)));
        write_gguf(&path, &model, Encoding::F16, &mut |name| model.tensor(name)).unwrap();
        let [written, known] = [path, golden::path(&format!("{name}.gguf"))].map(|path| Gguf::open(&path).unwrap());
        assert!(written.tensors().keys().eq(known.tensors().keys()), "{name}");
        let mut compared = 0;
        for (tensor, place) in written.tensors().iter().filter(|(tensor, _)| *tensor != "rope_freqs.weight") {
            let other = &known.tensors()[tensor];
            assert_eq!(place.shape, other.shape, "{name}: {tensor}");
            if place.encoding == other.encoding {
                assert_eq!(written.read(place).unwrap(), known.read(other).unwrap(), "{name}: {tensor}");
                compared += 1;
            }
        }
        assert!(2 * compared > known.tensors().len(), "{name}: {compared}");
        for key in ["tokens", "token_type", "merges", "pre", "bos_token_id", "eos_token_id", "add_bos_token"] {
            let key = format!("tokenizer.ggml.{key}");
            let [written, known] = [&written, &known].map(|file| file.metadata().get(&key));
            assert_eq!(written, known, "{name}: {key}");
        }
    }
}

fn check_equal(written: &ModelFiles, model: &ModelFiles, bound: f32, name: &str) {
    assert!(written.shapes().eq(model.shapes()), "{name}");
    for (one, other) in written.tensors().zip(model.tensors()) {
        let (one, other) = (one.unwrap(), other.unwrap());
        let (one_values, other_values) = (one.values(), other.values());
        let is_near = one_values.iter().zip(&other_values).all(|(one, other)| (one - other).abs() <= bound);
        assert!(is_near, "{name}: {}", one.name);
    }
}

#[test]
fn gguf_files_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama", "smollm", "mistral", "qwen3", "gpt2"] {
        let model = open(&golden::path(name));
        for (encoding, bound) in [(Encoding::F32, 0.0), (Encoding::F16, 1e-7), (Encoding::Q8_0, 1e-2)] {
            let path = folder.path().join("a.gguf");
            write_gguf(&path, &model, encoding, &mut |name| model.tensor(name)).unwrap();
            let written = open(&path);
            check_equal(&written, &model, bound, name);
            let (one, other) = (written.architecture(), model.architecture());
            let pairs = one.rotary_frequencies().into_iter().zip(other.rotary_frequencies());
            assert!(pairs.into_iter().all(|(one, other)| (one - other).abs() <= 1e-6 * other));
            let (family, position) = (other.family, other.position.clone());
            let epsilon = other.epsilon;
            assert_eq!(&Architecture { family, position, epsilon, ..one.clone() }, other, "{name}");
            tokens::check(&Tokenizer::of(&written).unwrap(), &golden::of(name)["tokens"], name);
            assert!(ChatTemplate::of(&written, &Tokenizer::of(&written).unwrap()).unwrap().is_some());
            // A GGUF file of its own is written again, with the same metadata.
            let again = folder.path().join("b.gguf");
            write_gguf(&again, &written, encoding, &mut |name| written.tensor(name)).unwrap();
            assert_eq!(std::fs::read(&path).unwrap().len(), std::fs::read(&again).unwrap().len(), "{name}");
        }
    }
    for (name, message) in [
        ("bert", "word pieces of BERT"),
        ("qwen2", "windows of a part of the blocks"),
        ("gemma3", "no place for Gemma 3"),
    ] {
        let model = open(&golden::path(name));
        let path = folder.path().join("c.gguf");
        let error = write_gguf(&path, &model, Encoding::F16, &mut |name| model.tensor(name)).unwrap_err().to_string();
        assert!(error.contains(message) && !path.exists(), "{error}");
    }
}

#[test]
fn folders_are_read_back() {
    for name in golden::FOLDERS.into_iter().chain(["qwen3.gguf", "gpt2.gguf"]) {
        let folder = tempfile::tempdir().unwrap();
        let model = open(&golden::path(name));
        let doubled = |tensor: Tensor| {
            let values: Vec<f32> = tensor.values().iter().map(|value| 2.0 * value).collect();
            Tensor::from_values(tensor.name, tensor.shape, &values)
        };
        write_folder(folder.path(), &model, Encoding::F32, &mut |name| model.tensor(name).map(doubled)).unwrap();
        let written = open(folder.path());
        for (one, other) in written.tensors().zip(model.tensors()) {
            assert_eq!(one.unwrap(), doubled(other.unwrap()), "{name}");
        }
        let epsilon = model.architecture().epsilon;
        assert_eq!(&Architecture { epsilon, ..written.architecture().clone() }, model.architecture(), "{name}");
        tokens::check(&Tokenizer::of(&written).unwrap(), &golden::of(name.trim_end_matches(".gguf"))["tokens"], name);
        // The folder is ours: it may be written again.
        write_folder(folder.path(), &model, Encoding::Bf16, &mut |name| model.tensor(name)).unwrap();
        assert_eq!(json(&folder.path().join("config.json"))["dtype"], "bfloat16");
        assert_eq!(open(folder.path()).tensor("embedding.embeddings").unwrap().encoding, Encoding::Bf16);
    }
}

/// Pairs of an adapter that PEFT wrote, in the order of Keras.
fn pairs(tensors: &SafeTensors) -> BTreeMap<String, LoraPair> {
    let model = open(&golden::path("llama"));
    let names = model.shapes().map(|(name, _)| name.to_owned());
    let kernels =
        names.filter(|name| ["query.kernel", "value.kernel", "down.kernel"].iter().any(|end| name.ends_with(end)));
    let modules = [
        ("attention.query", "self_attn.q_proj"),
        ("attention.value", "self_attn.v_proj"),
        ("feed_forward.down", "mlp.down_proj"),
    ];
    let pair = |name: String| {
        let module =
            modules.iter().fold(name.replace("blocks.", "model.layers."), |name, (from, to)| name.replace(from, to));
        let matrix = |part: &str| {
            let key = format!("base_model.model.{}.{part}.weight", module.trim_end_matches(".kernel"));
            let view = tensors.tensor(&key).unwrap();
            Tensor::from_values("x.kernel", view.shape(), &Encoding::F32.unpack(view.data())).in_keras_order().1
        };
        (name, LoraPair { a: matrix("lora_A"), b: matrix("lora_B") })
    };
    kernels.map(pair).collect()
}

#[test]
fn adapters_are_those_of_peft() {
    let bytes = std::fs::read(golden::path("adapter/adapter_model.safetensors")).unwrap();
    let known = SafeTensors::deserialize(&bytes).unwrap();
    let network = open(&golden::path("llama")).architecture().clone();
    let pairs = pairs(&known);
    let adapter = Adapter { rank: 2, alpha: 6.0, dropout: 0.1, rank_stabilized: false, base: "llama".into(), pairs };
    let folder = tempfile::tempdir().unwrap();
    write_adapter(folder.path(), &network, &adapter).unwrap();
    let bytes = std::fs::read(folder.path().join("adapter_model.safetensors")).unwrap();
    let written = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(written.len(), 12);
    for (name, tensor) in known.iter() {
        let own = written.tensor(name).unwrap();
        assert_eq!((own.shape(), own.data()), (tensor.shape(), tensor.data()), "{name}");
    }
    let [own, known] = [folder.path().join("adapter_config.json"), golden::path("adapter/adapter_config.json")]
        .map(|path| json(&path));
    for (key, value) in own.as_object().unwrap() {
        let set = |value: &Value| {
            value
                .as_array()
                .map(|names| names.iter().map(ToString::to_string).collect::<std::collections::BTreeSet<_>>())
        };
        let is_equal = value == &known[key] || value.as_f64().is_some() && value.as_f64() == known[key].as_f64();
        assert!(is_equal || set(value).is_some() && set(value) == set(&known[key]), "{key}: {value}");
    }
    // Modules of one block alone have their whole paths.
    let first = adapter.pairs.iter().filter(|(name, _)| name.starts_with("blocks.0.attention.query"));
    let first = Adapter { pairs: first.map(|(name, pair)| (name.clone(), pair.clone())).collect(), ..adapter };
    write_adapter(folder.path(), &network, &first).unwrap();
    let targets = json(&folder.path().join("adapter_config.json"))["target_modules"].clone();
    assert_eq!(targets, serde_json::json!(["model.layers.0.self_attn.q_proj"]));
}

#[test]
fn what_can_not_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = open(&golden::path("gpt2"));
    let network = model.architecture();
    let adapter = |name: &str, size: usize| {
        let pair = LoraPair { a: vec![0.0; size], b: vec![0.0; size] };
        Adapter { rank: 2, alpha: 2.0, pairs: BTreeMap::from([(name.to_owned(), pair)]), ..Adapter::default() }
    };
    let refused = |adapter| write_adapter(&folder.path().join("new"), network, &adapter).unwrap_err().to_string();
    for (name, size, message) in [
        ("blocks.0.attention.query.kernel", 64, "since GPT-2 joins query, key and value"),
        ("blocks.9.attention.output.kernel", 64, "is no tensor of the network"),
        ("blocks.0.attention.output.kernel", 63, "needs matrices [32, 2] and [2, 32]"),
        ("blocks.0.attention.output.bias", 64, "is no matrix"),
    ] {
        let error = refused(adapter(name, size));
        assert!(error.contains(message) && error.contains("help: "), "{error}");
    }
    assert!(!folder.path().join("new").exists());
    std::fs::write(folder.path().join("mine.txt"), "mine").unwrap();
    let mut source = |name: &str| model.tensor(name);
    let error = write_folder(folder.path(), &model, Encoding::F16, &mut source).unwrap_err().to_string();
    assert!(error.contains("needs to be a new or empty folder"), "{error}");
    let error = write_folder(folder.path(), &model, Encoding::Q8_0, &mut source).unwrap_err().to_string();
    assert!(error.contains("needs F32, F16 or BF16, but was asked for Q8_0"), "{error}");
    let other = folder.path().join("other.gguf");
    std::fs::copy(golden::path("gpt2.gguf"), &other).unwrap();
    let error = write_gguf(&other, &model, Encoding::F16, &mut source).unwrap_err().to_string();
    assert!(error.contains("needs to be a GGUF file that manyhands wrote or a new file"), "{error}");
    let mut wrong = |name: &str| Ok(Tensor::from_values(name, [1], &[1.0]));
    let error = write_gguf(&folder.path().join("b"), &model, Encoding::F16, &mut wrong).unwrap_err().to_string();
    assert!(error.contains("needs the shape [320, 32], but has [1]"), "{error}");
}
