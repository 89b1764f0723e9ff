//! Input and output sizes of a preset.

use crate::shape::Shape;

/// Shapes and seed of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// Shape of a row.
    pub input: Shape,
    /// Width of the output.
    pub outputs: usize,
    /// Seed of the initial weights.
    pub seed: u64,
}
