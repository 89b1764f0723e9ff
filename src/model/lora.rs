//! Trainable factors of low rank beside frozen kernels: adds them to a model, and merges them into its kernels.

use std::borrow::Cow;
use std::collections::HashSet;

use super::{Model, NamedLayer};
use crate::error::{Error, Result};
use crate::layers::Lora;

impl Model {
    /// Freezes the kernels of layers, with trainable factors of low rank beside them, as Keras' `layer.enable_lora`.
    ///
    /// `Dense` and `Embedding` can have them. Other parameters, such as a bias, stay as trainable as they were. The model
    /// computes what it did before until training has moved the factors: `A` is filled from the seed, `B` is 0.
    ///
    /// ```
    /// use manyhands::{Sequential, layers::{Dense, Lora}};
    /// # fn main() -> manyhands::Result<()> {
    /// let mut model = Sequential::new([64]).add_named("projection", Dense::new(32).no_bias()).build(0)?;
    /// model.enable_lora(["projection"], Lora::new(4).alpha(8.0), 1)?;
    /// assert_eq!((model.n_trainable(), model.n_parameters()), (64 * 4 + 4 * 32, 64 * 32 + 64 * 4 + 4 * 32));
    /// model.merge_lora()?;
    /// assert_eq!(model.n_parameters(), 64 * 32);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the model has no layer of such a name, or one that can't have such factors or has them already; if settings are
    /// out of their range. Then nothing has changed.
    pub fn enable_lora<'a>(&mut self, layers: impl IntoIterator<Item = &'a str>, lora: Lora, seed: u64) -> Result<()> {
        let names: Vec<&str> = layers.into_iter().collect();
        self.check_names(&names)?;
        let mut changed = Vec::new();
        for (idx, named) in self.layers.iter().enumerate().filter(|(_, named)| names.contains(&named.name.as_str())) {
            let refuse = |problem: &str, help: &str| Error::model(Self::who(idx, named), problem, help);
            if !named.layer.low_ranks().is_empty() {
                return Err(refuse("needs to have no low-rank factors, but has some", "`merge_lora` merges them"));
            }
            let layer = named.layer.with_lora(Some(lora)).ok_or_else(|| {
                refuse("needs to be a layer that can have low-rank factors", "`Dense` and `Embedding` can")
            })?;
            changed.push((idx, layer));
        }
        let change = |layers: &mut [NamedLayer]| changed.into_iter().for_each(|(idx, layer)| layers[idx].layer = layer);
        self.change_layers(seed, &HashSet::new(), change)
    }

    /// Adds the products of low-rank factors to their kernels, which may then be trained again, and removes the factors.
    ///
    /// The model computes the same as before, up to rounding; sums are in f64. A packed kernel is floats afterwards. Keras merges whenever it saves weights; files of
    /// this crate keep the factors, so that training goes on from them.
    ///
    /// # Errors
    /// If memory does not suffice. Then nothing has changed.
    pub fn merge_lora(&mut self) -> Result<()> {
        let mut merged = Vec::new();
        let mut changed = Vec::new();
        for (idx, named) in self.layers.iter().enumerate() {
            let low_ranks = named.layer.low_ranks();
            for it in &low_ranks {
                let name_of = |name: &str| format!("{}/{name}", named.name);
                let [a, b] = [it.a, it.b].map(|name| self.tensor(&name_of(name)));
                // A layer that no output needs has no weights.
                let (Some(mut kernel), Some(a), Some(b)) = (self.floats(&name_of(it.kernel))?, a, b) else { continue };
                it.merge(&mut kernel, a, b);
                merged.push((format!("{}/{}", named.name, it.kernel), kernel));
            }
            if !low_ranks.is_empty() {
                changed.extend(named.layer.with_lora(None).map(|layer| (idx, layer)));
            }
        }
        let skipped = merged.iter().map(|(name, _)| name.as_str()).collect();
        let change = |layers: &mut [NamedLayer]| {
            for (idx, layer) in changed {
                for it in layers[idx].layer.low_ranks() {
                    layers[idx].packed.remove(it.kernel);
                }
                layers[idx].layer = layer;
            }
        };
        self.change_layers(0, &skipped, change)?;
        for (name, values) in merged {
            if let Some(places) = self.tensor_mut(&name) {
                places.copy_from_slice(&values);
            }
        }
        Ok(())
    }

    /// The model with its low-rank factors merged and all weights as floats; itself if it has neither.
    pub(super) fn plain(&self) -> Result<Cow<'_, Self>> {
        if self.layers.iter().all(|named| named.layer.low_ranks().is_empty()) && !self.has_packed() {
            return Ok(Cow::Borrowed(self));
        }
        let mut plain = self.clone();
        plain.merge_lora()?;
        let unpack = |layers: &mut [NamedLayer]| layers.iter_mut().for_each(|layer| layer.packed.clear());
        plain.change_layers(0, &HashSet::new(), unpack)?;
        Ok(Cow::Owned(plain))
    }
}
