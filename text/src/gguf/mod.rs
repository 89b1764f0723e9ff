//! GGUF files: the format of llama.cpp, of which versions 2 and 3 are read.
//!
//! Crates that read GGUF were looked at in November 2026: `candle-core` brings an engine for tensors of its own, `gguf-rs-lib` 0.3 takes
//! memory by the counts of the file.
//!
//! **Source**: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

// Files: `header.rs`: values and tensors of a header, within limits; `value.rs`: values of the metadata.

mod header;
mod value;

use std::collections::BTreeMap;
use std::path::Path;

use manyhands_engine::shown;

pub use self::value::Value;
use crate::place::{OpenFile, TensorPlace};
use crate::{Error, Result};

/// An open GGUF file: its metadata, and where its tensors are.
#[derive(Debug)]
pub struct Gguf {
    file: OpenFile,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorPlace>,
}

impl Gguf {
    /// Opens a file and reads its header. Tensors stay in the file.
    ///
    /// # Errors
    /// If it can't be read, is no GGUF file of version 2 or 3, is truncated, or has a tensor that is not read here.
    pub fn open(path: &Path) -> Result<Self> {
        let (file, (metadata, tensors)) = OpenFile::open(path, |file| header::read(path, file))?;
        Ok(Self { file, metadata, tensors })
    }

    /// The path under which the file was opened.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// All metadata by key.
    pub fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.metadata
    }

    /// All tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorPlace> {
        &self.tensors
    }

    /// The bytes of a tensor.
    ///
    /// # Errors
    /// If the file can't be read, or memory is short.
    pub fn read(&self, place: &TensorPlace) -> Result<Vec<u8>> {
        self.file.read(place)
    }

    /// A text of the metadata, if the key is there.
    ///
    /// # Errors
    /// If the value is no text.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.value(key, "a text", |value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// A whole number of the metadata that is not negative, if the key is there.
    ///
    /// # Errors
    /// If the value is none.
    pub fn size(&self, key: &str) -> Result<Option<usize>> {
        self.value(key, "a whole number", |value| match value {
            Value::Unsigned(number) => usize::try_from(*number).ok(),
            Value::Signed(number) => usize::try_from(*number).ok(),
            _ => None,
        })
    }

    /// A float of the metadata, if the key is there.
    ///
    /// # Errors
    /// If the value is none.
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        self.value(key, "a float", |value| match value {
            Value::Float(number) => Some(*number),
            _ => None,
        })
    }

    /// A boolean of the metadata, if the key is there.
    ///
    /// # Errors
    /// If the value is none.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.value(key, "a boolean", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// An array of the metadata, if the key is there.
    ///
    /// # Errors
    /// If the value is none.
    pub fn array(&self, key: &str) -> Result<Option<&[Value]>> {
        self.value(key, "an array", |value| match value {
            Value::Array(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    fn value<'a, T>(&'a self, key: &str, needed: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        let refuse = || self.refuse(format!("needs {needed} under `{}`, but has {}", shown(key), value.kind()));
        read(value).map(Some).ok_or_else(refuse)
    }

    /// An error about this file.
    pub(crate) fn refuse(&self, problem: impl Into<String>) -> Error {
        refuse(self.path(), problem)
    }
}

/// An error about a GGUF file that can't be used.
fn refuse(path: &Path, problem: impl Into<String>) -> Error {
    let help =
        "it is damaged, or made for another program: convert the model again with `convert_hf_to_gguf.py` of llama.cpp";
    Error::checkpoint(format!("`{}`", shown(path)), problem, help)
}
