//! Weights in 8 or 4 bits: blocks of 32 values that share a scale, byte for byte those of GGUF files.
//!
//! A packed tensor is a number of *lines*, each of whole blocks: `[units, inputs]` of a kernel, `[words, length]` of a table. On
//! adapters and in a model's flat weights its bytes stand in words of 32 bits, in buffers of f32.

use std::borrow::Cow;

use half::f16;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Values of a block.
pub const BLOCK: usize = 32;
/// Bytes of a scale or a minimum, a 16-bit float.
const SCALE_BYTES: usize = 2;
/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u32>();

/// Format of packed weights, as GGUF files name them.
///
/// **Source**: `ggml-quants.c` of llama.cpp. The golden values are those of `quantize` and `dequantize` of the Python package `gguf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum PackedFormat {
    /// 8 bits and a scale: 34 bytes for 32 values, 0.27 of f32.
    #[serde(rename = "q8_0", alias = "Q8_0")]
    Q8_0,
    /// 4 bits and a scale: 18 bytes for 32 values, 0.14 of f32.
    #[serde(rename = "q4_0", alias = "Q4_0")]
    Q4_0,
    /// 4 bits, a scale and a minimum: 20 bytes for 32 values, 0.16 of f32.
    #[serde(rename = "q4_1", alias = "Q4_1")]
    Q4_1,
}

impl PackedFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Q8_0, Self::Q4_0, Self::Q4_1];

    /// Name, as GGUF files and tools around them write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
        }
    }

    /// Bits of a value, the scale not counted.
    pub const fn bits(self) -> usize {
        match self {
            Self::Q8_0 => 8,
            Self::Q4_0 | Self::Q4_1 => 4,
        }
    }

    /// 16-bit floats before the numbers of a block: the scale, and in `Q4_1` the minimum.
    pub const fn scales(self) -> usize {
        match self {
            Self::Q8_0 | Self::Q4_0 => 1,
            Self::Q4_1 => 2,
        }
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        SCALE_BYTES * self.scales() + BLOCK * self.bits() / 8
    }

    /// Bytes of `[lines, line_len]` values; `None` if lines are no whole blocks, or the bytes are too many to be counted.
    pub fn bytes(self, [lines, line_len]: [usize; 2]) -> Option<usize> {
        let blocks = line_len.is_multiple_of(BLOCK).then_some(line_len / BLOCK)?;
        lines.checked_mul(blocks)?.checked_mul(self.block_bytes())
    }

    /// The values of a block.
    ///
    /// # Panics
    /// If it has fewer bytes than a block, or `values` fewer places than 32.
    pub fn unpack_block(self, block: &[u8], values: &mut [f32]) {
        let (scale, numbers) = (half_at(block, 0), &block[SCALE_BYTES * self.scales()..self.block_bytes()]);
        match self {
            Self::Q8_0 => {
                let numbers = numbers.iter().map(|byte| f32::from(byte.cast_signed()));
                values[..BLOCK].iter_mut().zip(numbers).for_each(|(value, number)| *value = scale * number);
            }
            Self::Q4_0 => unpack_nibbles(numbers, values, |number| scale * (f32::from(number) - 8.0)),
            Self::Q4_1 => {
                let minimum = half_at(block, 1);
                unpack_nibbles(numbers, values, |number| scale * f32::from(number) + minimum);
            }
        }
    }

    /// Appends the block of 32 values.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn pack_block(self, values: &[f32], bytes: &mut Vec<u8>) {
        let values = &values[..BLOCK];
        match self {
            Self::Q8_0 => {
                let scale = values.iter().fold(0.0_f32, |most, value| most.max(value.abs())) / 127.0;
                let inverse = inverse(scale);
                bytes.extend(f16::from_f32(scale).to_le_bytes());
                #[allow(clippy::cast_possible_truncation, reason = "the largest is 127")]
                bytes.extend(values.iter().map(|value| ((value * inverse).round() as i8).cast_unsigned()));
            }
            Self::Q4_0 => {
                // The first of the largest sizes, with its sign, becomes -8.
                let larger = |most: f32, value: &f32| if value.abs() > most.abs() { *value } else { most };
                let scale = values.iter().fold(values[0], larger) / -8.0;
                let inverse = inverse(scale);
                bytes.extend(f16::from_f32(scale).to_le_bytes());
                pack_nibbles(values, bytes, |value| value * inverse + 8.5);
            }
            Self::Q4_1 => {
                // Adding 0 takes the sign off a 0, which depends on the order in which values are compared.
                let least = values.iter().copied().fold(f32::INFINITY, f32::min) + 0.0;
                let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max) + 0.0;
                let scale = (most - least) / 15.0;
                let inverse = inverse(scale);
                bytes.extend([scale, least].map(f16::from_f32).into_iter().flat_map(f16::to_le_bytes));
                pack_nibbles(values, bytes, |value| (value - least) * inverse + 0.5);
            }
        }
    }
}

/// Numbers of 4 bits: those of the lower half of a block stand in the lower halves of bytes.
fn unpack_nibbles(numbers: &[u8], values: &mut [f32], value: impl Fn(u8) -> f32) {
    let (low, high) = values[..BLOCK].split_at_mut(BLOCK / 2);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(numbers) {
        *low = value(byte & 0xf);
        *high = value(byte >> 4);
    }
}

/// Appends numbers of 4 bits, the whole parts of what `number` gives.
fn pack_nibbles(values: &[f32], bytes: &mut Vec<u8>, number: impl Fn(f32) -> f32) {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    let number = |value: &f32| (number(*value) as u8).min(15);
    let (low, high) = values.split_at(BLOCK / 2);
    bytes.extend(low.iter().zip(high).map(|(low, high)| number(low) | number(high) << 4));
}

fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// The scale of a block, 0, or its minimum, 1.
fn half_at(block: &[u8], idx: usize) -> f32 {
    f16::from_le_bytes([block[SCALE_BYTES * idx], block[SCALE_BYTES * idx + 1]]).to_f32()
}

/// Axis of a tensor of floats along which its blocks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockAxis {
    /// The first: a kernel `[inputs, units]` is packed as lines `[units, inputs]`.
    First,
    /// The last: a table `[words, length]` is packed as it stands.
    Last,
}

/// Form of a packed parameter: the format, and how its lines lie in the shape of the floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Format of its blocks.
    pub format: PackedFormat,
    /// Axis of its blocks.
    pub axis: BlockAxis,
}

impl Packing {
    /// Lines, and values of a line, of a matrix of floats.
    pub fn lines(self, shape: &[usize]) -> [usize; 2] {
        let [first, last] = [shape.first(), shape.last()].map(|axis| axis.copied().unwrap_or(0));
        match self.axis {
            BlockAxis::First => [last, first],
            BlockAxis::Last => [first, last],
        }
    }

    /// Words of a matrix of floats of this shape.
    pub fn words(self, shape: &[usize]) -> usize {
        self.format.bytes(self.lines(shape)).map_or(usize::MAX, |bytes| bytes.div_ceil(WORD_BYTES))
    }

    /// The packed tensor of a matrix of floats of this shape.
    ///
    /// # Errors
    /// As [`PackedTensor::quantize`].
    pub fn quantize(self, shape: &[usize], values: &[f32]) -> Result<PackedTensor> {
        let [lines, line_len] = self.lines(shape);
        let values = match self.axis {
            BlockAxis::Last => Cow::Borrowed(values),
            BlockAxis::First => Cow::Owned(transposed(values, [line_len, lines])),
        };
        PackedTensor::quantize(self.format, [lines, line_len], &values)
    }

    /// The matrix of floats of a packed tensor.
    pub fn values(self, tensor: &PackedTensor) -> Vec<f32> {
        match self.axis {
            BlockAxis::Last => tensor.values(),
            BlockAxis::First => transposed(&tensor.values(), tensor.lines),
        }
    }
}

/// A matrix `[rows, columns]` with its axes swapped.
fn transposed(values: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    let mut swapped = Vec::with_capacity(values.len());
    for column in 0..columns {
        swapped.extend((0..rows).map(|row| values[row * columns + column]));
    }
    swapped
}

/// A matrix in packed blocks: some lines, each of whole blocks.
#[derive(Clone, PartialEq, Eq)]
pub struct PackedTensor {
    format: PackedFormat,
    lines: [usize; 2],
    bytes: Vec<u8>,
}

impl PackedTensor {
    /// Takes the blocks of `[lines, line_len]` values, as a GGUF file has them: a matrix `[units, inputs]`, or a table
    /// `[words, length]`.
    ///
    /// # Errors
    /// If lines are no whole blocks of 32, there are more or fewer bytes than the blocks have, or a scale is not finite.
    pub fn new(format: PackedFormat, lines: [usize; 2], bytes: Vec<u8>) -> Result<Self> {
        let needed = needed_bytes(format, lines)?;
        if bytes.len() != needed {
            return Err(Error::data(
                who(format, lines),
                format!("needs {needed} bytes, but got {}", bytes.len()),
                "give the blocks of all lines, and nothing else",
            ));
        }
        let tensor = Self { format, lines, bytes };
        match tensor.spoilt() {
            None => Ok(tensor),
            Some((block, scale)) => Err(Error::non_finite(
                who(format, lines),
                format!("needs finite scales, but that of block {block} is {scale}"),
                "the file is damaged, or was packed from values that are not finite, or too large for a scale of 16 bits",
            )),
        }
    }

    /// The first scale or minimum that is not finite, behind the index of its block.
    fn spoilt(&self) -> Option<(usize, f32)> {
        let scales = |block| (0..self.format.scales()).map(move |idx| half_at(block, idx));
        let mut all = self.blocks().enumerate().flat_map(|(at, block)| scales(block).map(move |scale| (at, scale)));
        all.find(|(_, scale)| !scale.is_finite())
    }

    /// Packs `[lines, line_len]` values, as `quantize` of the Python package `gguf`.
    ///
    /// # Errors
    /// If lines are no whole blocks of 32, there are more or fewer values, or one is too large for a scale of 16 bits.
    pub fn quantize(format: PackedFormat, lines: [usize; 2], values: &[f32]) -> Result<Self> {
        let needed = needed_bytes(format, lines)?;
        let len = lines[0] * lines[1];
        if values.len() != len {
            return Err(Error::data(
                who(format, lines),
                format!("needs {len} values, but got {}", values.len()),
                "give one value for each place of each line",
            ));
        }
        let mut bytes = Vec::with_capacity(needed);
        values.chunks_exact(BLOCK).for_each(|block| format.pack_block(block, &mut bytes));
        Self::new(format, lines, bytes)
    }

    /// The tensor whose bytes stand in words.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_words(format: PackedFormat, lines: [usize; 2], words: &[f32]) -> Result<Self> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        Self::new(format, lines, bytes[..needed_bytes(format, lines)?.min(bytes.len())].to_vec())
    }

    /// Format of the blocks.
    pub fn format(&self) -> PackedFormat {
        self.format
    }

    /// Lines, and values of a line.
    pub fn lines(&self) -> [usize; 2] {
        self.lines
    }

    /// The blocks of all lines.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The values of all lines.
    pub fn values(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.lines[0] * self.lines[1]];
        let blocks = values.chunks_exact_mut(BLOCK).zip(self.blocks());
        blocks.for_each(|(values, block)| self.format.unpack_block(block, values));
        values
    }

    /// Writes the bytes into words, and zeros into bytes of the last word that are left.
    ///
    /// # Panics
    /// If there are fewer words than the bytes need.
    pub fn put_words(&self, words: &mut [f32]) {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(words);
        let (own, rest) = bytes.split_at_mut(self.bytes.len());
        own.copy_from_slice(&self.bytes);
        rest.fill(0);
    }

    fn blocks(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.format.block_bytes())
    }
}

/// Without the bytes.
impl std::fmt::Debug for PackedTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.format.name(), self.lines)
    }
}

fn who(format: PackedFormat, lines: [usize; 2]) -> String {
    format!("a tensor {lines:?} in {}", format.name())
}

/// Bytes of the blocks.
fn needed_bytes(format: PackedFormat, lines: [usize; 2]) -> Result<usize> {
    format.bytes(lines).ok_or_else(|| {
        Error::data(
            who(format, lines),
            format!("needs lines of whole blocks of {BLOCK} values, but got lines of {}", lines[1]),
            "keep such a tensor as floats",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand: powers of two, so that no scale is rounded.
    #[test]
    fn blocks_are_those_of_gguf_files() {
        let mut values = [0.0; BLOCK];
        (values[0], values[1], values[31]) = (-127.0, 2.5, 64.0);
        let mut bytes = Vec::new();
        PackedFormat::Q8_0.pack_block(&values, &mut bytes);
        // A scale of 1.0; 2.5 is rounded away from 0.
        assert_eq!((&bytes[..4], bytes[33]), (&[0x00, 0x3c, 0x81, 3][..], 64));
        (values[0], values[1], values[31]) = (-16.0, 3.0, 14.0);
        bytes.clear();
        PackedFormat::Q4_0.pack_block(&values, &mut bytes);
        // A scale of 2.0; numbers are 8 more than they are: 0, 10 (of 9.5 + 0.5), 15.
        assert_eq!((&bytes[..4], bytes[17]), (&[0x00, 0x40, 0x80, 0x8a][..], 0xf8));
        let mut unpacked = [1.0; BLOCK];
        PackedFormat::Q4_0.unpack_block(&bytes, &mut unpacked);
        (values[1], values[31]) = (4.0, 14.0);
        assert_eq!(unpacked, values);
        (values[0], values[1], values[31]) = (-16.0, 4.9, 14.0);
        bytes.clear();
        PackedFormat::Q4_1.pack_block(&values, &mut bytes);
        // A scale of 2.0 and a minimum of -16.0; 20.9 / 2 + 0.5 is 10 and something, 0 is 8, and 30 / 2 is 15.
        assert_eq!((&bytes[..6], bytes[19]), (&[0x00, 0x40, 0x00, 0xcc, 0x80, 0x8a][..], 0xf8));
        PackedFormat::Q4_1.unpack_block(&bytes, &mut unpacked);
        values[1] = 4.0;
        assert_eq!(unpacked, values);
    }

    #[test]
    fn a_kernel_is_packed_along_its_inputs() {
        let packing = Packing { format: PackedFormat::Q8_0, axis: BlockAxis::First };
        let values: Vec<f32> = (0..64).map(|at| if at % 2 == 0 { 127.0 } else { -1.0 }).collect();
        let tensor = packing.quantize(&[32, 2], &values).unwrap();
        assert_eq!((tensor.lines(), packing.words(&[32, 2])), ([2, 32], 17));
        assert!(tensor.values()[..32].iter().all(|value| *value == 127.0), "the first unit");
        let mut words = vec![1.0; 17];
        tensor.put_words(&mut words);
        assert_eq!(PackedTensor::of_words(PackedFormat::Q8_0, [2, 32], &words).unwrap(), tensor);
        assert_eq!(packing.values(&tensor)[..2], [127.0, tensor.values()[32]]);
    }

    #[test]
    fn lengths_and_scales_are_checked() {
        let error =
            |lines, bytes: Vec<u8>| PackedTensor::new(PackedFormat::Q4_0, lines, bytes).unwrap_err().to_string();
        assert_eq!(
            error([2, 33], Vec::new()),
            "a tensor [2, 33] in Q4_0 needs lines of whole blocks of 32 values, but got lines of 33\n  \
             help: keep such a tensor as floats"
        );
        assert!(error([usize::MAX, 64], Vec::new()).contains("needs lines of whole blocks"));
        assert!(error([2, 32], vec![0; 35]).contains("needs 36 bytes, but got 35"));
        let mut bytes = vec![0; 36];
        (bytes[18], bytes[19]) = (0x00, 0x7c);
        assert!(error([2, 32], bytes).contains("needs finite scales, but that of block 1 is inf"));
        let mut bytes = vec![0; 40];
        (bytes[22], bytes[23]) = (0x00, 0xfc);
        let minimum = PackedTensor::new(PackedFormat::Q4_1, [2, 32], bytes).unwrap_err().to_string();
        assert!(minimum.contains("needs finite scales, but that of block 1 is -inf"), "{minimum}");
        let few = PackedTensor::quantize(PackedFormat::Q8_0, [1, 32], &[0.0; 31]).unwrap_err().to_string();
        assert!(few.contains("needs 32 values, but got 31"), "{few}");
        let large = PackedTensor::quantize(PackedFormat::Q8_0, [1, 32], &[1e30; 32]).unwrap_err().to_string();
        assert!(large.contains("needs finite scales"), "{large}");
    }
}
