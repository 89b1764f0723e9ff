//! A tensor of a model: its name, shape and bytes.

use manyhands_engine::packed::{PackedFormat, PackedTensor};

use crate::encoding::Encoding;
use crate::{Error, Result};

/// A tensor with its bytes, still packed.
///
/// Matrices are `[units, inputs]`, as PyTorch and GGUF have them: blocks of packed encodings lie along the inputs.
/// [`in_keras_order`](Self::in_keras_order) gives kernels as Keras has them.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Name in any model, such as `blocks.3.attention.query.kernel`.
    pub name: String,
    /// Sizes of the axes, the slowest first.
    pub shape: Vec<usize>,
    /// Encoding of the bytes.
    pub encoding: Encoding,
    /// The elements, row-major, without gaps.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// A tensor of 32-bit floats.
    pub fn from_values(name: impl Into<String>, shape: impl Into<Vec<usize>>, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { name: name.into(), shape: shape.into(), encoding: Encoding::F32, bytes }
    }

    /// The elements as floats, in the tensor's own order.
    pub fn values(&self) -> Vec<f32> {
        self.encoding.unpack(&self.bytes)
    }

    /// Shape and elements in the order of Keras: kernels are `[inputs, units]`, all else stays.
    pub fn in_keras_order(&self) -> (Vec<usize>, Vec<f32>) {
        let values = self.values();
        match self.shape[..] {
            [units, inputs] if self.name.ends_with(".kernel") => {
                let swapped = (0..inputs).flat_map(|input| (0..units).map(move |unit| unit * inputs + input));
                (vec![inputs, units], swapped.map(|at| values[at]).collect())
            }
            _ => (self.shape.clone(), values),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The blocks of a matrix in a format: its own, if it has them, else those of its values.
    ///
    /// # Errors
    /// If it is no matrix of lines of whole blocks, or a value or a scale is not finite.
    pub fn into_packed(self, format: PackedFormat) -> Result<PackedTensor> {
        let [lines, line_len] = self.shape[..] else {
            let problem = format!("needs two axes to be packed, but has the shape {:?}", self.shape);
            return Err(Error::checkpoint(format!("the tensor `{}`", self.name), problem, "keep it as floats"));
        };
        match self.encoding.packed() {
            Some(own) if own == format => PackedTensor::new(format, [lines, line_len], self.bytes),
            _ => PackedTensor::quantize(format, [lines, line_len], &self.values()),
        }
        .map_err(|error| Error::checkpoint(format!("the tensor `{}`", self.name), error.problem(), error.help()))
    }

    /// The tensor with rows along the first axis that consist of whole blocks: unpacked where they do not.
    fn with_whole_rows(self) -> (Self, usize) {
        let row = self.shape.iter().skip(1).product();
        match self.encoding.bytes(row) {
            Some(bytes) => (self, bytes),
            None => (Self::from_values(self.name.clone(), self.shape.clone(), &self.values()), row * size_of::<f32>()),
        }
    }

    /// The rows of which `source` names the old place of each new one.
    pub(crate) fn rows(self, rows: usize, source: impl Fn(usize) -> usize) -> Self {
        let (mut tensor, bytes) = self.with_whole_rows();
        let mut moved = Vec::with_capacity(rows * bytes);
        for row in 0..rows {
            moved.extend_from_slice(&tensor.bytes[source(row) * bytes..][..bytes]);
        }
        tensor.bytes = moved;
        tensor.shape[0] = rows;
        tensor
    }

    /// The elements and a number, as 32-bit floats.
    pub(crate) fn plus(self, number: f32) -> Self {
        let values: Vec<f32> = self.values().into_iter().map(|value| value + number).collect();
        Self::from_values(self.name, self.shape, &values)
    }

    /// A matrix with its axes swapped.
    pub(crate) fn transposed(self) -> Self {
        let [rows, columns] = self.shape[..] else { return self };
        let mut tensor = match self.encoding.block_len() {
            1 => self,
            _ => Self::from_values(self.name.clone(), self.shape.clone(), &self.values()),
        };
        let size = tensor.encoding.block_bytes();
        let places = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
        tensor.bytes = places.flat_map(|at| &tensor.bytes[at * size..][..size]).copied().collect();
        tensor.shape = vec![columns, rows];
        tensor
    }
}
