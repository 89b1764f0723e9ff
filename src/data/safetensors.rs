//! Arrays in a safetensors file, as `safetensors.torch.save_file` writes tensors of PyTorch.
//!
//! They become what arrays of an `.npz` become: see [`numpy`](super::numpy). Numbers are booleans, integers and floats of 16 bits and
//! more, `bfloat16` among them. Images have their channels last; `x.permute(0, 2, 3, 1).contiguous()` brings those of PyTorch there.
//! Source: <https://github.com/huggingface/safetensors>, "Format".

use std::path::Path;
use std::sync::Arc;

use safetensors::{Dtype, SafeTensors};

use super::numpy::{ArrayFile, ArrayHead, ArrayPlace, NumpyArray};
use super::{DataPair, Dataset, source};
use crate::{Error, Result, shown};

/// Tensors of a file, by name.
struct TensorFile<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
    /// Names of the tensors, in alphabetical order.
    names: Vec<String>,
}

impl<'a> TensorFile<'a> {
    /// Reads the header, which has to account for each byte of the file: no tensor claims more than is there.
    fn open(path: &'a Path, bytes: &'a [u8]) -> Result<Self> {
        let tensors = SafeTensors::deserialize(bytes).map_err(|error| {
            let problem = format!("needs to be a whole safetensors file, but is not: {error}");
            Error::data(format!("`{}`", shown(path)), problem, "write it by `safetensors.torch.save_file`")
        })?;
        let mut names: Vec<String> = tensors.names().into_iter().map(String::from).collect();
        names.sort();
        Ok(Self { path, tensors, names })
    }
}

impl ArrayFile for TensorFile<'_> {
    fn path(&self) -> &Path {
        self.path
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn read(&self, name: &str) -> Result<NumpyArray> {
        let place = ArrayPlace { path: self.path, name: Some(name) };
        let refuse = |problem: String| Error::data(place.who(), problem, "save another type: `x.float()`");
        let tensor = self.tensors.tensor(name).map_err(|error| refuse(format!("can't be read: {error}")))?;
        let (kind, size) = match tensor.dtype() {
            Dtype::BOOL => (b'b', 1),
            Dtype::U8 => (b'u', 1),
            Dtype::U16 => (b'u', 2),
            Dtype::U32 => (b'u', 4),
            Dtype::U64 => (b'u', 8),
            Dtype::I8 => (b'i', 1),
            Dtype::I16 => (b'i', 2),
            Dtype::I32 => (b'i', 4),
            Dtype::I64 => (b'i', 8),
            Dtype::F16 => (b'f', 2),
            Dtype::BF16 | Dtype::F32 => (b'f', 4),
            Dtype::F64 => (b'f', 8),
            other => {
                let needed = "booleans, integers or floats of at least 16 bits";
                return Err(refuse(format!("needs {needed}, but has elements of type `{other:?}`")));
            }
        };
        let bytes = match tensor.dtype() {
            // The upper half of an f32.
            Dtype::BF16 => tensor.data().chunks_exact(2).flat_map(|half| [0, 0, half[0], half[1]]).collect(),
            _ => tensor.data().to_vec(),
        };
        let head = ArrayHead::little_endian(kind, size, tensor.shape().to_vec());
        Ok(NumpyArray::new(place, head, bytes))
    }
}

/// Rows to train on and, where the file has them, to test with. `names` are those of the tensors `x_train`, `y_train`, `x_test`
/// and `y_test`, where they are others.
///
/// # Errors
///
/// When the file is no safetensors file, lacks a tensor, or a tensor is none of numbers, numbers of rows or shapes differ.
pub fn open(path: &Path, names: [Option<&str>; 4]) -> Result<DataPair> {
    TensorFile::open(path, &source::read_file(path)?)?.pair(names)
}

/// Rows without targets: `x`, `x_test` or the only tensor of a file.
///
/// # Errors
///
/// When the file is no safetensors file, lacks such a tensor, or the tensor is none of numbers.
pub fn open_inputs(path: &Path) -> Result<Arc<dyn Dataset>> {
    TensorFile::open(path, &source::read_file(path)?)?.inputs()
}
