//! Position of each parameter and statistic in the flat buffers.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::packed::Packing;
use crate::shape::elements;
use crate::shown::thousands;
use crate::size::F32_BYTES;

use super::{ALIGN, Length, MAX_BINDING, MAX_TENSOR};

/// One tensor in a flat buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedTensor {
    /// `layer/tensor`, also its name in a file.
    pub name: String,
    /// Its shape, without a batch axis.
    pub shape: Vec<usize>,
    /// Index of the segment of the flat buffer.
    pub segment: u32,
    /// First element in the segment; a multiple of [`ALIGN`].
    pub offset: u64,
    /// Form of its blocks, if it is packed: words of 32 bits then stand in the place of floats.
    pub packing: Option<Packing>,
}

impl PlacedTensor {
    /// Number of elements.
    pub fn len(&self) -> usize {
        elements(&self.shape)
    }

    /// Number of floats, or words of packed blocks, that it takes in its segment.
    pub fn stored_len(&self) -> usize {
        self.packing.map_or_else(|| self.len(), |packing| packing.words(&self.shape))
    }

    /// Its name within its layer.
    pub fn parameter(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(_, parameter)| parameter)
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The range of its floats or words in its segment.
    #[allow(clippy::cast_possible_truncation, reason = "a segment is smaller than 2^29 elements")]
    pub fn range(&self) -> std::ops::Range<usize> {
        let start = self.offset as usize;
        start..start + self.stored_len()
    }
}

/// The flat layout of all parameters, and that of all statistics.
///
/// Trainable parameters stand in the order in which the layers are first used, so that in backward's order the
/// gradients become ready from the end. Those of frozen layers stand behind them, in segments of their own: so gradients,
/// what travels of them, and the optimizer's state are those of the first segments. Segments each fit the binding that WebGPU promises, but
/// for a tensor that is larger and has its own; no tensor crosses a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Parameters: trainable ones, then those of frozen layers.
    pub parameters: Vec<PlacedTensor>,
    /// Length of each segment of the parameters, in elements.
    pub segments: Vec<u64>,
    /// Number of trainable parameters.
    n_trainable: usize,
    /// Number of segments with trainable parameters.
    n_trainable_segments: usize,
    /// Moving statistics; all in one segment.
    pub statistics: Vec<PlacedTensor>,
    /// Length of the statistics, in elements.
    pub statistics_len: u64,
    /// Index of each parameter by its name: a model may have a hundred thousand.
    parameters_by_name: HashMap<String, usize>,
    statistics_by_name: HashMap<String, usize>,
}

fn padded(len: u64) -> u64 {
    len.next_multiple_of(ALIGN)
}

impl Layout {
    /// Places a trainable parameter behind the others. Those of frozen layers come after the last of them.
    ///
    /// # Errors
    /// If it is larger than one binding can be.
    pub fn add_parameter(&mut self, name: String, shape: Vec<usize>) -> Result<()> {
        self.place_parameter(name, shape, None, 0)?;
        (self.n_trainable, self.n_trainable_segments) = (self.parameters.len(), self.segments.len());
        Ok(())
    }

    /// Places a parameter that training leaves as it is behind the others, in a segment without trainable ones: as floats, or in the
    /// blocks of a packing.
    ///
    /// # Errors
    /// If it is larger than one binding can be.
    pub fn add_frozen(&mut self, name: String, shape: Vec<usize>, packing: Option<Packing>) -> Result<()> {
        self.place_parameter(name, shape, packing, self.n_trainable_segments)
    }

    /// Places a parameter in the last segment, or a new one: not before segment `first`.
    fn place_parameter(
        &mut self,
        name: String,
        shape: Vec<usize>,
        packing: Option<Packing>,
        first: usize,
    ) -> Result<()> {
        let len = match packing {
            Some(packing) => binding_len("packed parameter", &name, &[packing.words(&shape)])?,
            None => binding_len("parameter", &name, &shape)?,
        };
        let last = self.segments.get(first..).and_then(<[u64]>::last);
        if last.is_none_or(|used| used + padded(len) > MAX_BINDING) {
            self.segments.push(0);
        }
        let segment = self.segments.len() - 1;
        let offset = self.segments[segment];
        self.segments[segment] += padded(len);
        let segment = u32::try_from(segment).unwrap_or(u32::MAX);
        self.parameters_by_name.insert(name.clone(), self.parameters.len());
        self.parameters.push(PlacedTensor { name, shape, segment, offset, packing });
        Ok(())
    }

    /// Places a statistic behind the others.
    ///
    /// # Errors
    /// If it is larger than one binding can be.
    pub fn add_statistic(&mut self, name: String, shape: Vec<usize>) -> Result<()> {
        let len = binding_len("statistic", &name, &shape)?;
        self.statistics_by_name.insert(name.clone(), self.statistics.len());
        let (segment, offset, packing) = (0, self.statistics_len, None);
        self.statistics.push(PlacedTensor { name, shape, segment, offset, packing });
        self.statistics_len += padded(len);
        Ok(())
    }

    /// Index of a parameter.
    pub fn parameter(&self, name: &str) -> Option<usize> {
        self.parameters_by_name.get(name).copied().filter(|idx| *idx < self.parameters.len())
    }

    /// Index of a statistic.
    pub fn statistic(&self, name: &str) -> Option<usize> {
        self.statistics_by_name.get(name).copied()
    }

    /// The trainable parameters.
    pub fn trainable(&self) -> &[PlacedTensor] {
        &self.parameters[..self.n_trainable]
    }

    /// The segments that hold the trainable parameters: the first ones.
    pub fn trainable_segments(&self) -> &[u64] {
        &self.segments[..self.n_trainable_segments]
    }

    /// Whether a parameter is trainable.
    pub fn is_trainable(&self, idx: usize) -> bool {
        idx < self.n_trainable
    }

    /// Number of values of all parameters, padding not counted.
    pub fn n_parameters(&self) -> usize {
        self.parameters.iter().map(PlacedTensor::len).sum()
    }

    /// Number of values of trainable parameters, padding not counted.
    pub fn n_trainable(&self) -> usize {
        self.trainable().iter().map(PlacedTensor::len).sum()
    }

    /// One trainable segment of this length in place of all parameters, whose names are gone.
    pub fn shrink_to(&mut self, len: u64) {
        (self.parameters, self.segments) = (Vec::new(), vec![len]);
        (self.n_trainable, self.n_trainable_segments) = (0, 1);
    }

    /// Number of statistics, padding not counted.
    pub fn n_statistics(&self) -> usize {
        self.statistics.iter().map(PlacedTensor::len).sum()
    }
}

/// Elements of a tensor that one binding holds.
fn binding_len(kind: &str, name: &str, shape: &[usize]) -> Result<u64> {
    let len = elements(shape) as u64;
    if len <= MAX_TENSOR {
        return Ok(len);
    }
    let got = match len.checked_mul(F32_BYTES) {
        Some(bytes) if len < usize::MAX as u64 => format!("has {len} ({} bytes)", thousands(bytes)),
        _ => format!("is of shape {shape:?}"),
    };
    Err(Error::model(
        format!("{kind} `{name}`"),
        format!("needs at most {MAX_TENSOR} elements (2 GiB, the largest binding of wgpu), but {got}"),
        "make the layer narrower, or split it into two layers and concatenate their outputs",
    ))
}

impl PlacedTensor {
    /// Number of elements with those behind it that nothing uses.
    pub fn padded_len(&self) -> u64 {
        padded(self.stored_len() as u64)
    }

    /// Its length as a buffer length, in floats or words.
    pub fn length(&self) -> Length {
        Length::fixed(self.stored_len())
    }
}
