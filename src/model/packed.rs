//! Packed weights: frozen parameters in blocks of 8 or 4 bits, on the host as on adapters.

use std::collections::{BTreeMap, HashSet};

use super::packing::CAN_BE_PACKED;
use super::{Model, NamedLayer, Weights};
use crate::error::{Error, Result};
use crate::packed::{PackedFormat, PackedTensor, Packing};
use crate::plan::PlacedTensor;
use crate::shown;

/// Parameters whose values others will take the place of.
type Skipped<'a> = HashSet<&'a str>;

impl Model {
    /// Keeps the frozen kernels and tables of layers in packed blocks of 8 or 4 bits: on the host, on adapters and in files.
    ///
    /// `Dense`, `Embedding` and `ReversibleEmbedding` can have them. Products unpack them right before they read them, so that
    /// all results have the same bits as with [`unpack`](Self::unpack)ed weights. Values are rounded as the Python package `gguf`
    /// rounds them; [`set_packed`](Self::set_packed) takes blocks as they are.
    ///
    /// ```
    /// use manyhands::{Sequential, layers::{Dense, Lora}, packed::PackedFormat};
    /// # fn main() -> manyhands::Result<()> {
    /// let mut model = Sequential::new([64]).add_named("projection", Dense::new(32).no_bias()).build(0)?;
    /// model.enable_lora(["projection"], Lora::new(4), 1)?;
    /// model.pack(["projection"], PackedFormat::Q8_0)?;
    /// assert_eq!(model.packed("projection/kernel").map(|it| it.bytes().len()), Some(64 * 32 / 32 * 34));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the model has no layer of such a name, or one that has nothing to be packed; if training may change the parameter, its
    /// lines are no whole blocks of 32 values, or a value is not finite. Then nothing has changed.
    pub fn pack<'a>(&mut self, layers: impl IntoIterator<Item = &'a str>, format: PackedFormat) -> Result<()> {
        let names: Vec<&str> = layers.into_iter().collect();
        self.check_names(&names)?;
        let mut added: Vec<BTreeMap<String, PackedFormat>> = vec![BTreeMap::new(); self.layers.len()];
        for (layer_idx, placed) in self.owners(&self.layout.parameters) {
            let layer = &self.layers[layer_idx];
            if names.contains(&layer.name.as_str()) && layer.layer.block_axis(placed.parameter()).is_some() {
                added[layer_idx].insert(placed.parameter().to_owned(), format);
            }
        }
        let has_none =
            |(idx, layer): &(usize, &NamedLayer)| names.contains(&layer.name.as_str()) && added[*idx].is_empty();
        if let Some((idx, layer)) = self.layers.iter().enumerate().find(has_none) {
            let problem = "needs weights that can be packed, but has none";
            return Err(Error::model(Self::who(idx, layer), problem, CAN_BE_PACKED));
        }
        let change = |layers: &mut [NamedLayer]| {
            layers.iter_mut().zip(added).for_each(|(layer, added)| layer.packed.extend(added));
        };
        self.change_layers(0, &Skipped::new(), change)
    }

    /// Keeps packed parameters of layers as floats again, of the same values.
    ///
    /// # Errors
    /// If the model has no layer of such a name, or memory does not suffice. Then nothing has changed.
    pub fn unpack<'a>(&mut self, layers: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let names: Vec<&str> = layers.into_iter().collect();
        self.check_names(&names)?;
        let change = |layers: &mut [NamedLayer]| {
            let named = layers.iter_mut().filter(|layer| names.contains(&layer.name.as_str()));
            named.for_each(|layer| layer.packed.clear());
        };
        self.change_layers(0, &Skipped::new(), change)
    }

    /// Keeps frozen parameters in these blocks, by their names, `layer/tensor`. A kernel `[inputs, units]` takes lines
    /// `[units, inputs]`, as GGUF files have them; a table `[words, length]` takes lines of a word each.
    ///
    /// # Errors
    /// If the model has no parameter of such a name, training may change it, the layer reads it as floats, or the lines have
    /// another shape. Then nothing has changed.
    pub fn set_packed<'a>(&mut self, tensors: impl IntoIterator<Item = (&'a str, PackedTensor)>) -> Result<()> {
        let tensors: Vec<(&str, PackedTensor)> = tensors.into_iter().collect();
        let mut changed = Vec::new();
        for (name, tensor) in &tensors {
            let (layer_idx, packing, placed) = self.checked(name, tensor)?;
            if placed.packing != Some(packing) {
                changed.push((layer_idx, placed.parameter().to_owned(), packing.format));
            }
        }
        if !changed.is_empty() {
            let change = |layers: &mut [NamedLayer]| {
                for (idx, parameter, format) in changed {
                    layers[idx].packed.insert(parameter, format);
                }
            };
            self.change_layers(0, &tensors.iter().map(|(name, _)| *name).collect(), change)?;
        }
        for (name, tensor) in &tensors {
            if let Some(idx) = self.layout.parameter(name) {
                let placed = &self.layout.parameters[idx];
                tensor.put_words(&mut self.weights.parameters[placed.segment as usize][placed.range()]);
            }
        }
        Ok(())
    }

    /// The layer, the packing and the place of a parameter that is to have these blocks.
    fn checked(&self, name: &str, tensor: &PackedTensor) -> Result<(usize, Packing, &PlacedTensor)> {
        let who = || format!("tensor `{}`", shown(name));
        let found = self.layout.parameter(name).map(|idx| &self.layout.parameters[idx..=idx]);
        let Some((layer_idx, placed)) = found.and_then(|one| self.owners(one).next()) else {
            let names: Vec<&str> = self.layout.parameters.iter().map(|placed| placed.name.as_str()).collect();
            let problem = "needs to be a parameter of the model, but none has that name";
            return Err(Error::model(who(), problem, super::config::names_help(name, &names)));
        };
        let Some(axis) = self.layers[layer_idx].layer.block_axis(placed.parameter()) else {
            return Err(Error::model(who(), "needs to be read as floats, but is to be packed", CAN_BE_PACKED));
        };
        let packing = Packing { format: tensor.format(), axis };
        let (needed, got) = (packing.lines(&placed.shape), tensor.lines());
        if needed != got {
            let help = "lines are `[units, inputs]` of a kernel, `[words, length]` of a table";
            return Err(Error::model(who(), format!("needs lines {needed:?}, but got {got:?}"), help));
        }
        Ok((layer_idx, packing, placed))
    }

    /// The blocks of a packed parameter by its name, `layer/tensor`; `None` if it is kept as floats, or there is none.
    pub fn packed(&self, name: &str) -> Option<PackedTensor> {
        let placed = &self.layout.parameters[self.layout.parameter(name)?];
        packed_of(placed, placed.packing?, &self.weights).ok()
    }

    /// The floats of a parameter.
    pub(super) fn floats(&self, name: &str) -> Result<Option<Vec<f32>>> {
        let placed = self.layout.parameter(name).map(|idx| &self.layout.parameters[idx]);
        placed.map(|placed| floats_of(placed, &self.weights)).transpose()
    }

    /// Whether any parameter is packed.
    pub(super) fn has_packed(&self) -> bool {
        self.layout.parameters.iter().any(|placed| placed.packing.is_some())
    }

    /// Changes layers and builds the model anew. Tensors of the same name keep their values, but those that are skipped; others
    /// are filled from the seed.
    pub(super) fn change_layers(
        &mut self,
        seed: u64,
        skipped: &Skipped<'_>,
        change: impl FnOnce(&mut [NamedLayer]),
    ) -> Result<()> {
        let weights = std::mem::take(&mut self.weights);
        let mut new = self.clone();
        self.weights = weights;
        change(&mut new.layers);
        new.rebuild(seed)?;
        new.take_over(self, skipped)?;
        *self = new;
        Ok(())
    }

    /// Takes over the values of tensors of the same name: as they are, or packed or unpacked.
    pub(super) fn take_over(&mut self, old: &Self, skipped: &Skipped<'_>) -> Result<()> {
        for placed in self.layout.parameters.iter().filter(|placed| !skipped.contains(placed.name.as_str())) {
            let Some(idx) = old.layout.parameter(&placed.name) else { continue };
            let before = &old.layout.parameters[idx];
            let places = &mut self.weights.parameters[placed.segment as usize][placed.range()];
            match placed.packing {
                packing if packing == before.packing => places.copy_from_slice(old.weights.stored(before)),
                None => places.copy_from_slice(&floats_of(before, &old.weights)?),
                Some(packing) => {
                    packing.quantize(&placed.shape, &floats_of(before, &old.weights)?)?.put_words(places);
                }
            }
        }
        for placed in &self.layout.statistics {
            if let Some(idx) = old.layout.statistic(&placed.name) {
                let values = &old.weights.statistics[old.layout.statistics[idx].range()];
                self.weights.statistics[placed.range()].copy_from_slice(values);
            }
        }
        Ok(())
    }
}

fn packed_of(placed: &PlacedTensor, packing: Packing, weights: &Weights) -> Result<PackedTensor> {
    PackedTensor::of_words(packing.format, packing.lines(&placed.shape), weights.stored(placed))
}

fn floats_of(placed: &PlacedTensor, weights: &Weights) -> Result<Vec<f32>> {
    match placed.packing {
        None => Ok(weights.stored(placed).to_vec()),
        Some(packing) => Ok(packing.values(&packed_of(placed, packing, weights)?)),
    }
}
