//! Layers, losses, metrics and optimizers of users, which files may name beside the crate's own.

use crate::{layers, losses, metrics, optimizers};

/// Layers, losses, metrics and optimizers of your own that a file may name.
///
/// ```
/// use manyhands::model::Own;
/// let none = Own::default();
/// assert!(none.layers.is_empty() && none.losses.is_empty() && none.optimizers.is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Own<'a> {
    /// Made by [`layers::entry`].
    pub layers: &'a [layers::Entry],
    /// Made by [`losses::entry`].
    pub losses: &'a [losses::Entry],
    /// Made by [`metrics::entry`].
    pub metrics: &'a [metrics::Entry],
    /// Made by [`optimizers::entry`].
    pub optimizers: &'a [optimizers::Entry],
}

/// Only layers.
impl<'a> From<&'a [layers::Entry]> for Own<'a> {
    fn from(layers: &'a [layers::Entry]) -> Self {
        Self { layers, ..Self::default() }
    }
}

/// Only layers.
impl<'a, const N: usize> From<&'a [layers::Entry; N]> for Own<'a> {
    fn from(layers: &'a [layers::Entry; N]) -> Self {
        layers.as_slice().into()
    }
}
