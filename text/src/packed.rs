//! Frozen weights in packed blocks: which tensors of a model, and in which format.

use std::collections::BTreeMap;

use manyhands_engine::packed::{BLOCK, PackedFormat};

use crate::encoding::Encoding;

/// Formats of packed tensors by their names, such as `blocks.3.attention.query.kernel`.
pub(crate) type Formats = BTreeMap<String, PackedFormat>;

/// Bits in which frozen weights are kept in memory.
///
/// Kernels and the table of tokens are packed. Norms, biases and the tables of positions and types stay floats, and so do kernels whose
/// inputs are no multiple of 32, as in GGUF files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    /// 8 bits: `Q8_0`. Blocks of a GGUF file in `Q8_0`, `Q4_0` or `Q4_1` stay as they are.
    Eight,
    /// 4 bits: `Q4_0`. Blocks of a GGUF file in `Q4_0` or `Q4_1` stay as they are.
    Four,
    /// As the file has them: blocks of a GGUF file in `Q8_0`, `Q4_0` or `Q4_1` stay as they are, all else becomes floats.
    AsFile,
}

impl Packed {
    /// Format of a tensor, if it is packed.
    pub(crate) fn format(self, name: &str, shape: &[usize], encoding: Encoding) -> Option<PackedFormat> {
        let is_product = name.ends_with(".kernel") || name == "embedding.embeddings";
        if !is_product || !shape.last().is_some_and(|inputs| inputs.is_multiple_of(BLOCK)) {
            return None;
        }
        let wanted = match self {
            Self::Eight => Some(PackedFormat::Q8_0),
            Self::Four => Some(PackedFormat::Q4_0),
            Self::AsFile => None,
        };
        let most_bits = wanted.map_or(usize::MAX, PackedFormat::bits);
        encoding.packed().filter(|own| own.bits() <= most_bits).or(wanted)
    }
}
