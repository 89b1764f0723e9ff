//! What a preset is built for.

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
