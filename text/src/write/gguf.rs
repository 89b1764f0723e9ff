//! GGUF files of version 3.

use std::path::Path;

use manyhands_engine::files::{FileKind, Output};

use super::Source;
use super::stored::{Form, Stored, put, stored};
use super::vocabulary;
use crate::architecture::{Activation, Architecture, Family, Positions, ROTARY_FACTORS, RotaryScaling};
use crate::encoding::Encoding;
use crate::gguf::{Gguf, Value};
use crate::{Error, ModelFiles, Result, Tensor};

/// The alignment of tensors, which is the format's own.
const ALIGNMENT: usize = 32;
/// First key: by it a file is known as ours.
const MARK: &str = "manyhands.version";

type Metadata = Vec<(String, Value)>;

/// Writes a model as llama.cpp reads it, with the tensors that `source` gives: matrices as F32, F16, BF16 or `Q8_0`, vectors as F32.
///
/// The metadata of a GGUF file are kept. Those of a folder are made from its `config.json` and `tokenizer.json`.
///
/// # Errors
/// If the path has another file, the encoding is another one, the tokenizer is no byte-level BPE that llama.cpp knows, or the file can't
/// be written.
pub fn write_gguf(path: &Path, model: &ModelFiles, encoding: Encoding, source: &mut Source) -> Result<()> {
    let Some(file_type) = file_type(encoding) else {
        let problem = format!("needs F32, F16, BF16 or Q8_0, but was asked for {}", encoding.name());
        return Err(Error::setting(
            "a GGUF file",
            problem,
            "write Q8_0, and pack further with `llama-quantize` of llama.cpp",
        ));
    };
    let mut metadata = vec![(MARK.to_owned(), Value::Text(env!("CARGO_PKG_VERSION").into()))];
    metadata.extend(match model.gguf() {
        Some(file) => kept(file),
        None => [of_network(model.architecture())?, vocabulary::of(model)?].concat(),
    });
    metadata.push(("general.file_type".into(), Value::Unsigned(file_type)));
    metadata.push(("general.quantization_version".into(), Value::Unsigned(2)));
    let mut tensors = stored(model, Form::Gguf, encoding);
    let factors = rotary_factors(model.architecture());
    if let Some(factors) = &factors {
        tensors.push(super::stored::single(ROTARY_FACTORS.into(), factors.shape.clone()));
    }
    let mut out = Output::create(path, FileKind::Gguf)?;
    put(path, &mut out, &header(&metadata, &tensors)?)?;
    for tensor in &tensors {
        let bytes = match &factors {
            Some(factors) if tensor.name == ROTARY_FACTORS => factors.bytes.clone(),
            _ => tensor.read(source)?,
        };
        put(path, &mut out, &bytes)?;
        put(path, &mut out, &vec![0; bytes.len().next_multiple_of(ALIGNMENT) - bytes.len()])?;
    }
    out.commit()
}

/// Number of an encoding in `general.file_type`.
fn file_type(encoding: Encoding) -> Option<u64> {
    match encoding {
        Encoding::F32 => Some(0),
        Encoding::F16 => Some(1),
        Encoding::Q8_0 => Some(7),
        Encoding::Bf16 => Some(32),
        _ => None,
    }
}

/// The metadata of a file but for what is written anew.
fn kept(file: &Gguf) -> Metadata {
    let anew = [MARK, "general.file_type", "general.quantization_version", "general.alignment"];
    let pairs = file.metadata().iter().filter(|(key, _)| !anew.contains(&key.as_str()));
    pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn of_network(architecture: &Architecture) -> Result<Metadata> {
    let refuse = |problem: &str| Err(Error::checkpoint("a GGUF file", problem, "write a Hugging Face folder"));
    let name = match architecture.family {
        Family::Llama | Family::Mistral => "llama",
        Family::Qwen2 => "qwen2",
        Family::Qwen3 => "qwen3",
        Family::Gemma3 => return refuse("has no place for Gemma 3 here"),
        Family::Gpt2 => "gpt2",
        Family::Bert => return refuse("has no place for the word pieces of BERT here"),
    };
    let usual = if architecture.family == Family::Gpt2 { Activation::GeluTanh } else { Activation::Silu };
    if architecture.activation != usual {
        return refuse("has no place for the network's activation");
    }
    if architecture.windows.iter().any(Option::is_some) && architecture.family != Family::Mistral {
        return refuse("has no place for windows of a part of the blocks");
    }
    let size = |key: &str, size: usize| (format!("{name}.{key}"), Value::Unsigned(size as u64));
    let epsilon = if architecture.family == Family::Gpt2 { "layer_norm_epsilon" } else { "layer_norm_rms_epsilon" };
    let mut metadata = vec![
        ("general.architecture".to_owned(), Value::Text(name.into())),
        size("context_length", architecture.positions),
        size("embedding_length", architecture.width),
        size("block_count", architecture.blocks),
        size("feed_forward_length", architecture.inner),
        size("attention.head_count", architecture.heads),
        size("attention.head_count_kv", architecture.key_heads),
        (format!("{name}.attention.{epsilon}"), Value::Float(architecture.epsilon)),
        size("vocab_size", architecture.vocabulary),
    ];
    if let Some(window) = architecture.window() {
        metadata.push(size("attention.sliding_window", window));
    }
    if let Positions::Rotary { base, scaling } = &architecture.position {
        metadata.push((format!("{name}.rope.freq_base"), Value::Float(*base)));
        for key in ["rope.dimension_count", "attention.key_length", "attention.value_length"] {
            metadata.push(size(key, architecture.head_width));
        }
        if let RotaryScaling::Linear { factor } = scaling {
            metadata.push((format!("{name}.rope.scaling.type"), Value::Text("linear".into())));
            metadata.push((format!("{name}.rope.scaling.factor"), Value::Float(*factor)));
        }
    }
    Ok(metadata)
}

/// Factors by which llama.cpp divides the rotary frequencies of Llama 3.1.
fn rotary_factors(architecture: &Architecture) -> Option<Tensor> {
    let Positions::Rotary { base, scaling } = &architecture.position else { return None };
    if !matches!(scaling, RotaryScaling::Llama3 { .. } | RotaryScaling::Factors(_)) {
        return None;
    }
    let plain = Architecture {
        position: Positions::Rotary { base: *base, scaling: RotaryScaling::None },
        ..architecture.clone()
    };
    let pairs = plain.rotary_frequencies().into_iter().zip(architecture.rotary_frequencies());
    #[allow(clippy::cast_possible_truncation, reason = "the file has 32-bit floats")]
    let factors: Vec<f32> = pairs.map(|(plain, scaled)| (plain / scaled) as f32).collect();
    Some(Tensor::from_values(ROTARY_FACTORS, [factors.len()], &factors))
}

fn header(metadata: &[(String, Value)], tensors: &[Stored]) -> Result<Vec<u8>> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        push_text(&mut bytes, key);
        bytes.extend(kind(value).to_le_bytes());
        push_value(&mut bytes, value);
    }
    let mut offset = 0;
    for tensor in tensors {
        push_text(&mut bytes, &tensor.name);
        bytes.extend(number(tensor.shape.len()).to_le_bytes());
        bytes.extend(tensor.shape.iter().rev().flat_map(|size| (*size as u64).to_le_bytes()));
        bytes.extend(number_of(tensor.encoding).to_le_bytes());
        bytes.extend((offset as u64).to_le_bytes());
        offset += tensor.bytes()?.next_multiple_of(ALIGNMENT);
    }
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    Ok(bytes)
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Number of a value's kind: whole numbers and floats have 32 bits where these hold them, as llama.cpp expects.
fn kind(value: &Value) -> u32 {
    match value {
        Value::Unsigned(number) if u32::try_from(*number).is_ok() => 4,
        Value::Unsigned(_) => 10,
        Value::Signed(number) if i32::try_from(*number).is_ok() => 5,
        Value::Signed(_) => 11,
        Value::Float(_) => 6,
        Value::Bool(_) => 7,
        Value::Text(_) => 8,
        Value::Array(_) => 9,
    }
}

fn push_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        #[allow(clippy::cast_possible_truncation, reason = "`kind` chose the width that holds it")]
        Value::Unsigned(number) if kind(value) == 4 => bytes.extend((*number as u32).to_le_bytes()),
        Value::Unsigned(number) => bytes.extend(number.to_le_bytes()),
        #[allow(clippy::cast_possible_truncation, reason = "`kind` chose the width that holds it")]
        Value::Signed(number) if kind(value) == 5 => bytes.extend((*number as i32).to_le_bytes()),
        Value::Signed(number) => bytes.extend(number.to_le_bytes()),
        #[allow(clippy::cast_possible_truncation, reason = "llama.cpp reads 32-bit floats")]
        Value::Float(number) => bytes.extend((*number as f32).to_le_bytes()),
        Value::Bool(flag) => bytes.push(u8::from(*flag)),
        Value::Text(text) => push_text(bytes, text),
        Value::Array(values) => {
            // Numbers of one array have one width: the widest that one of them needs.
            let widest = values.iter().map(kind).max().unwrap_or(4);
            bytes.extend(widest.to_le_bytes());
            bytes.extend((values.len() as u64).to_le_bytes());
            for value in values {
                match value {
                    Value::Unsigned(number) if widest == 10 => bytes.extend(number.to_le_bytes()),
                    Value::Signed(number) if widest == 11 => bytes.extend(number.to_le_bytes()),
                    value => push_value(bytes, value),
                }
            }
        }
    }
}

fn number_of(encoding: Encoding) -> u32 {
    match encoding {
        Encoding::F32 => 0,
        Encoding::F16 => 1,
        Encoding::Q4_0 => 2,
        Encoding::Q4_1 => 3,
        Encoding::Q5_0 => 6,
        Encoding::Q5_1 => 7,
        Encoding::Q8_0 => 8,
        Encoding::Q4K => 12,
        Encoding::Q5K => 13,
        Encoding::Q6K => 14,
        Encoding::Bf16 => 30,
    }
}
