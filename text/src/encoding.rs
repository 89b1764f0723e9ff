//! Encodings of weights: plain numbers, and blocks of few bits that share a scale.

use half::{bf16, f16};
use manyhands_engine::packed::{self, PackedFormat};

/// Encoding of a tensor's elements.
///
/// Blocks lie along the last axis. Each element of a block is `scale · q`, or `scale · q + minimum`, with a small integer `q`.
///
/// **Source**: `ggml-quants.c` of llama.cpp. The golden values are those of `dequantize` of the Python package `gguf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// 32-bit floats.
    F32,
    /// 16-bit floats of IEEE 754.
    F16,
    /// The upper halves of 32-bit floats.
    Bf16,
    /// 4 bits, a scale: 18 bytes for 32 elements.
    Q4_0,
    /// 4 bits, a scale and a minimum: 20 bytes for 32 elements.
    Q4_1,
    /// 5 bits, a scale: 22 bytes for 32 elements.
    Q5_0,
    /// 5 bits, a scale and a minimum: 24 bytes for 32 elements.
    Q5_1,
    /// 8 bits, a scale: 34 bytes for 32 elements.
    Q8_0,
    /// 4 bits, scales and minima of 6 bits for each 32: 144 bytes for 256 elements.
    Q4K,
    /// 5 bits, scales and minima of 6 bits for each 32: 176 bytes for 256 elements.
    Q5K,
    /// 6 bits, scales of 8 bits for each 16: 210 bytes for 256 elements.
    Q6K,
}

/// Elements of a small block.
const SMALL: usize = packed::BLOCK;
/// Elements of a large block.
const LARGE: usize = 256;

impl Encoding {
    /// All encodings.
    pub const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// Name, as GGUF files and tools around them write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// The encoding of a name, in small or large letters.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.name().eq_ignore_ascii_case(name))
    }

    /// Format of these blocks in memory; `None` for encodings that become floats there.
    pub fn packed(self) -> Option<PackedFormat> {
        match self {
            Self::Q8_0 => Some(PackedFormat::Q8_0),
            Self::Q4_0 => Some(PackedFormat::Q4_0),
            Self::Q4_1 => Some(PackedFormat::Q4_1),
            _ => None,
        }
    }

    /// Elements of a block; 1 for plain numbers.
    pub fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => SMALL,
            Self::Q4K | Self::Q5K | Self::Q6K => LARGE,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Bytes of a number of elements: `None` where they are no whole blocks, or too many.
    pub fn bytes(self, elements: usize) -> Option<usize> {
        let is_whole = elements.is_multiple_of(self.block_len());
        (elements / self.block_len()).checked_mul(self.block_bytes()).filter(|_| is_whole)
    }

    /// The values of whole blocks. Bytes after the last whole block are left out.
    pub fn unpack(self, bytes: &[u8]) -> Vec<f32> {
        let mut values = Vec::with_capacity(bytes.len() / self.block_bytes() * self.block_len());
        for block in bytes.chunks_exact(self.block_bytes()) {
            match self {
                Self::F32 => values.push(f32::from_bits(u32::from_le_bytes([block[0], block[1], block[2], block[3]]))),
                Self::F16 => values.push(half_at(block, 0)),
                Self::Bf16 => values.push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
                Self::Q4_0 => unpack_block(PackedFormat::Q4_0, block, &mut values),
                Self::Q4_1 => unpack_block(PackedFormat::Q4_1, block, &mut values),
                Self::Q5_0 => unpack_q5_0(block, &mut values),
                Self::Q5_1 => unpack_q5_1(block, &mut values),
                Self::Q8_0 => unpack_block(PackedFormat::Q8_0, block, &mut values),
                Self::Q4K => unpack_q4_k(block, &mut values),
                Self::Q5K => unpack_q5_k(block, &mut values),
                Self::Q6K => unpack_q6_k(block, &mut values),
            }
        }
        values
    }
}

impl Encoding {
    /// The bytes of values: `None` where the values are no whole blocks, or this encoding is only read.
    ///
    /// Numbers are rounded to the nearest; `Q8_0` as the Python package `gguf` and llama.cpp round.
    pub fn pack(self, values: &[f32]) -> Option<Vec<u8>> {
        Some(match self {
            Self::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
            Self::Bf16 => values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
            Self::Q8_0 if values.len().is_multiple_of(SMALL) => {
                let mut bytes = Vec::new();
                values.chunks_exact(SMALL).for_each(|block| PackedFormat::Q8_0.pack_block(block, &mut bytes));
                bytes
            }
            _ => return None,
        })
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The lower four bits of each byte, then the upper four.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().map(|byte| byte & 0xf).chain(bytes.iter().map(|byte| byte >> 4))
}

/// A block of a format that the engine has, too.
fn unpack_block(format: PackedFormat, block: &[u8], values: &mut Vec<f32>) {
    let first = values.len();
    values.resize(first + SMALL, 0.0);
    format.unpack_block(block, &mut values[first..]);
}

/// Numbers of five bits: the highest of each stand together in four bytes.
fn fives(high: &[u8], low: &[u8]) -> impl Iterator<Item = f32> {
    let high = u32::from_le_bytes([high[0], high[1], high[2], high[3]]);
    nibbles(low).enumerate().map(move |(at, q)| f32::from(q) + if high >> at & 1 == 1 { 16.0 } else { 0.0 })
}

fn unpack_q5_0(block: &[u8], values: &mut Vec<f32>) {
    let scale = half_at(block, 0);
    values.extend(fives(&block[2..6], &block[6..]).map(|q| scale * (q - 16.0)));
}

fn unpack_q5_1(block: &[u8], values: &mut Vec<f32>) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    values.extend(fives(&block[4..8], &block[8..]).map(|q| scale * q + minimum));
}

/// The scale and the minimum of a group of 32, six bits each, from the twelve bytes of a block of `Q4_K`.
fn scale_and_minimum(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 0x3f, packed[group + 4] & 0x3f);
    }
    let (low, scale_top, minimum_top) = (packed[group + 4], packed[group - 4] >> 6, packed[group] >> 6);
    ((low & 0xf) | (scale_top << 4), (low >> 4) | (minimum_top << 4))
}

fn unpack_q4_k(block: &[u8], values: &mut Vec<f32>) {
    unpack_groups(block, &[0; SMALL], &block[16..], values);
}

fn unpack_q5_k(block: &[u8], values: &mut Vec<f32>) {
    unpack_groups(block, &block[16..48], &block[48..], values);
}

/// Groups of 32 with a scale and a minimum of their own. Bit `n` of a byte of `high` is the fifth bit of an element of group `n`.
fn unpack_groups(block: &[u8], high: &[u8], quants: &[u8], values: &mut Vec<f32>) {
    let (scale_of_scales, scale_of_minima) = (half_at(block, 0), half_at(block, 2));
    for group in 0..LARGE / SMALL {
        let (scale, minimum) = scale_and_minimum(&block[4..16], group);
        let (scale, minimum) = (scale_of_scales * f32::from(scale), scale_of_minima * f32::from(minimum));
        // Two groups share 32 bytes.
        let bytes = quants[group / 2 * SMALL..].iter().zip(high).take(SMALL);
        let quant = |(byte, high): (&u8, &u8)| byte >> (4 * (group % 2)) & 0xf | (high >> group & 1) << 4;
        values.extend(bytes.map(|pair| scale * f32::from(quant(pair)) - minimum));
    }
}

fn unpack_q6_k(block: &[u8], values: &mut Vec<f32>) {
    let (low, rest) = block.split_at(LARGE / 2);
    let (high, rest) = rest.split_at(LARGE / 4);
    let (scales, scale) = rest.split_at(LARGE / 16);
    let scale = half_at(scale, 0);
    let scales: Vec<f32> = scales.iter().map(|group| scale * f32::from(group.cast_signed())).collect();
    // 128 elements have 64 bytes of lower bits and 32 of upper bits.
    for at in 0..LARGE {
        let (part, place) = (at / 128, at % 128);
        let low = low[64 * part + place % 64] >> (4 * (place / 64)) & 0xf;
        let high = high[32 * part + place % 32] >> (2 * (place / 32)) & 3;
        values.push(scales[at / 16] * (f32::from(low | high << 4) - 32.0));
    }
}
