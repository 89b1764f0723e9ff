//! The sizes at which each kernel is tested and measured: one table for tests, benches and the support matrix.

use crate::plan::Grid;

/// How an input is filled.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// Standard normal numbers.
    Normal(usize),
    /// Uniform in `[low, high)`.
    Uniform(usize, f32, f32),
    /// Whole numbers below a bound, as f32: class labels.
    Labels(usize, u32),
    /// These values.
    Values(Vec<f32>),
}

impl Fill {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Normal(len) | Self::Uniform(len, ..) | Self::Labels(len, _) => *len,
            Self::Values(values) => values.len(),
        }
    }

    /// No elements at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One call of a kernel.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is special about it: `65 x 257`.
    pub label: String,
    /// The words of `Params`.
    pub params: Vec<u32>,
    /// `override` constants.
    pub constants: Vec<(&'static str, f64)>,
    /// Inputs.
    pub inputs: Vec<Fill>,
    /// What the outputs hold before the call (outputs may be read and written).
    pub outputs: Vec<Fill>,
    /// The grid.
    pub grid: Grid,
}
