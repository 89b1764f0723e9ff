//! The tensors of a network as a file has them: joined, turned, interleaved, in the file's encoding.

use std::path::Path;

use manyhands_engine::files::{FileKind, Output};
use serde_json::{Map, json};

use super::Source;
use crate::encoding::Encoding;
use crate::layout::{Planned, planned};
use crate::{Error, ModelFiles, Result, Tensor};

/// Numbers from here on are infinite as 16-bit floats.
const HALF_OVERFLOWS: f32 = 65_520.0;

/// Kind of a file.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    Folder,
    Gguf,
}

/// A tensor of a file, and the tensors of the network that it holds.
pub(crate) struct Stored {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) encoding: Encoding,
    parts: Vec<Planned>,
    form: Form,
}

/// All tensors that a file of a model has, in the order of the network.
pub(super) fn stored(model: &ModelFiles, form: Form, encoding: Encoding) -> Vec<Stored> {
    let mut all: Vec<Stored> = Vec::new();
    for part in planned(model.architecture()) {
        if part.is_optional && !model.shapes().any(|(name, _)| name == part.name) {
            continue;
        }
        let (name, shape) = match form {
            Form::Folder => (part.folder_name.clone(), part.folder_shape()),
            Form::Gguf => (part.gguf_name.clone(), part.gguf_shape()),
        };
        match all.iter_mut().find(|stored| stored.name == name) {
            Some(stored) => stored.parts.push(part),
            None => {
                let encoding = if form == Form::Gguf { gguf_encoding(&part, encoding) } else { encoding };
                all.push(Stored { name, shape, encoding, parts: vec![part], form });
            }
        }
    }
    all
}

/// As the converter of llama.cpp: vectors and small tables stay whole, and rows that are no whole blocks have 16 bits.
fn gguf_encoding(part: &Planned, encoding: Encoding) -> Encoding {
    let row = part.shape.last().copied().unwrap_or(1);
    match part.shape.len() {
        1 => Encoding::F32,
        _ if ["positions.embeddings", "token_types.embeddings"].contains(&part.name.as_str()) => Encoding::F32,
        _ if !row.is_multiple_of(encoding.block_len()) => Encoding::F16,
        _ => encoding,
    }
}

impl Stored {
    /// Number of bytes.
    pub(super) fn bytes(&self) -> Result<usize> {
        let too_large = || {
            Error::checkpoint(
                format!("the tensor `{}`", self.name),
                "is too large to be written",
                "check the model's sizes",
            )
        };
        self.encoding.bytes(self.shape.iter().product()).ok_or_else(too_large)
    }

    /// The bytes of the tensor.
    pub(super) fn read(&self, source: &mut Source) -> Result<Vec<u8>> {
        let mut tensors = Vec::new();
        for part in &self.parts {
            let tensor = source(&part.name)?;
            if tensor.shape != part.shape || tensor.encoding.bytes(tensor.len()) != Some(tensor.bytes.len()) {
                let problem = format!("needs the shape {:?}, but has {:?}", part.shape, tensor.shape);
                return Err(Error::checkpoint(
                    format!("the tensor `{}`", part.name),
                    problem,
                    "give the tensor as the model has it",
                ));
            }
            let is_turned = self.form == Form::Folder && part.is_swapped;
            let tensor = match self.form {
                Form::Folder => part.to_folder(tensor),
                Form::Gguf => part.to_gguf(tensor),
            };
            tensors.push((tensor, is_turned));
        }
        let encoding = self.encoding;
        let cannot = |problem: &str, help: &str| {
            let who = format!("the tensor `{}`", self.name);
            Error::checkpoint(who, format!("can't be written as {}{problem}", encoding.name()), help)
        };
        let packed = |tensor: Tensor| {
            if tensor.encoding == encoding {
                return Ok(tensor.bytes);
            }
            let values = tensor.values();
            if encoding == Encoding::F16
                && values.iter().any(|value| value.is_finite() && value.abs() >= HALF_OVERFLOWS)
            {
                return Err(cannot(", whose largest number is 65,504", "write BF16 or F32"));
            }
            encoding.pack(&values).ok_or_else(|| cannot("", "write F16"))
        };
        let is_turned = tensors.iter().any(|(_, is_turned)| *is_turned);
        if !is_turned {
            let parts = tensors.into_iter().map(|(tensor, _)| packed(tensor));
            return parts.collect::<Result<Vec<_>>>().map(|parts| parts.concat());
        }
        let values = tensors.iter().flat_map(|(tensor, _)| tensor.values()).collect::<Vec<_>>();
        let shape: Vec<usize> = self.shape.iter().rev().copied().collect();
        packed(Tensor::from_values("", shape, &values).transposed())
    }
}

/// Writes a safetensors file tensor by tensor. `kind` goes into the metadata, by which the file is known as ours.
pub(crate) fn write_safetensors(path: &Path, kind: &str, tensors: &[Stored], source: &mut Source) -> Result<()> {
    let mut order: Vec<&Stored> = tensors.iter().collect();
    order.sort_by(|one, other| one.name.cmp(&other.name));
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({"format": "pt", "manyhands.kind": kind}));
    let mut begin = 0;
    for tensor in &order {
        let end = begin + tensor.bytes()?;
        let kind = if tensor.encoding == Encoding::Bf16 { "BF16" } else { tensor.encoding.name() };
        header.insert(tensor.name.clone(), json!({"dtype": kind, "shape": tensor.shape, "data_offsets": [begin, end]}));
        begin = end;
    }
    let mut header = serde_json::Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut out = Output::create(path, FileKind::Model)?;
    put(path, &mut out, &(header.len() as u64).to_le_bytes())?;
    put(path, &mut out, &header)?;
    for tensor in order {
        put(path, &mut out, &tensor.read(source)?)?;
    }
    out.commit()
}

/// Writes bytes to a file that is being written.
pub(super) fn put(path: &Path, out: &mut Output, bytes: &[u8]) -> Result<()> {
    std::io::Write::write_all(out, bytes).map_err(|error| Error::writing(path, error))
}

/// A tensor that is in no model file: a matrix of an adapter.
pub(crate) fn single(name: String, shape: Vec<usize>) -> Stored {
    let part = Planned {
        name: name.clone(),
        shape: shape.clone(),
        folder_name: name.clone(),
        gguf_name: name.clone(),
        is_optional: false,
        third: None,
        is_swapped: false,
        interleaved_heads: None,
        is_less_one: false,
    };
    Stored { name, shape, encoding: Encoding::F32, parts: vec![part], form: Form::Folder }
}

/// Writes arrays of floats, by name and shape.
pub(crate) fn write_arrays(path: &Path, arrays: &[(&str, Vec<usize>, &[f32])]) -> Result<()> {
    let stored: Vec<Stored> = arrays.iter().map(|(name, shape, _)| single((*name).to_owned(), shape.clone())).collect();
    write_safetensors(path, "texts", &stored, &mut |name| {
        let array = arrays.iter().find(|(of, ..)| *of == name);
        let (_, shape, values) = array.ok_or_else(|| Error::writing(path, std::io::Error::other("no such array")))?;
        Ok(Tensor::from_values(name, shape.clone(), values))
    })
}
