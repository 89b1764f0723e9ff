//! Places of tensors in a file, which are read when they are needed.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use manyhands_engine::files;

use crate::encoding::Encoding;
use crate::{Error, Result};

/// Place of a tensor in a file, its shape and its encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPlace {
    /// Sizes of the axes, the slowest first: `[units, inputs]` for most matrices.
    pub shape: Vec<usize>,
    /// Encoding of the elements.
    pub encoding: Encoding,
    /// First byte in the file.
    pub(crate) begin: u64,
    /// Number of bytes.
    pub(crate) bytes: usize,
}

/// An open file of which parts are read.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl OpenFile {
    /// Opens a file and reads its header with a function.
    pub(crate) fn open<T>(path: &Path, read: impl FnOnce(&File) -> Result<T>) -> Result<(Self, T)> {
        let file = files::open(path)?;
        let header = read(&file)?;
        Ok((Self { path: path.to_owned(), file: Mutex::new(file) }, header))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of a tensor. Its place was compared with the file's length.
    pub(crate) fn read(&self, place: &TensorPlace) -> Result<Vec<u8>> {
        let reading = |error| Error::reading(&self.path, error);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(place.bytes).map_err(|error| reading(io::Error::other(error)))?;
        bytes.resize(place.bytes, 0);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(place.begin)).and_then(|_| file.read_exact(&mut bytes)).map_err(reading)?;
        Ok(bytes)
    }
}
