//! The choice of trainable layers.

use super::{Model, Weights};
use crate::error::{Error, Result};
use crate::plan::{Layout, PlacedTensor};
use crate::shown;

impl Model {
    /// Freezes layers, as Keras' `layer.trainable = False`: training leaves their parameters as they are, computes and
    /// sends no gradients of them, and keeps no optimizer state for them. A frozen batch normalization normalizes by
    /// its moving statistics, which stay as they are.
    ///
    /// A trainer keeps the choice it was made with: freeze before [`Trainer::new`](crate::Trainer::new).
    ///
    /// ```
    /// use manyhands::{Sequential, layers::Dense};
    /// # fn main() -> manyhands::Result<()> {
    /// let model = Sequential::new([4]).add_named("trunk", Dense::new(8)).add_named("head", Dense::new(2));
    /// let mut model = model.build(0)?;
    /// model.freeze(["trunk"])?;
    /// assert_eq!((model.n_trainable(), model.n_parameters()), (8 * 2 + 2, 5 * 8 + 9 * 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the model has no layer of such a name. Then nothing has changed.
    pub fn freeze<'a>(&mut self, layers: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let layers: Vec<&str> = layers.into_iter().collect();
        self.check_names(&layers)?;
        let old = self.trainable();
        self.set(|idx, name| old[idx] && !layers.contains(&name))
    }

    /// Lets training change layers again.
    ///
    /// # Errors
    /// If the model has no layer of such a name, or one keeps weights [packed](Self::pack). Then nothing has changed.
    pub fn unfreeze<'a>(&mut self, layers: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let layers: Vec<&str> = layers.into_iter().collect();
        self.check_names(&layers)?;
        let old = self.trainable();
        self.set(|idx, name| old[idx] || layers.contains(&name))
    }

    /// Freezes all layers but these, which training may change.
    ///
    /// # Errors
    /// If the model has no layer of such a name, or one keeps weights [packed](Self::pack). Then nothing has changed.
    pub fn freeze_all_but<'a>(&mut self, layers: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let layers: Vec<&str> = layers.into_iter().collect();
        self.check_names(&layers)?;
        self.set(|_, name| layers.contains(&name))
    }

    /// Lets training change all layers again.
    ///
    /// # Errors
    /// If memory does not suffice, or a layer keeps weights [packed](Self::pack).
    pub fn unfreeze_all(&mut self) -> Result<()> {
        self.set(|_, _| true)
    }

    /// Whether training may change a layer; `None` if the model has no layer of this name.
    pub fn is_trainable(&self, layer: &str) -> Option<bool> {
        self.layers.iter().find(|named| named.name == layer).map(|named| named.is_trainable)
    }

    /// Values of trainable parameters, all tensors together: those of [`n_parameters`](Self::n_parameters) that training
    /// may change.
    pub fn n_trainable(&self) -> usize {
        self.layout.n_trainable()
    }

    fn trainable(&self) -> Vec<bool> {
        self.layers.iter().map(|named| named.is_trainable).collect()
    }

    pub(super) fn check_names(&self, layers: &[&str]) -> Result<()> {
        let Some(unknown) = layers.iter().find(|layer| self.is_trainable(layer).is_none()) else { return Ok(()) };
        let names: Vec<&str> = self.layers.iter().map(|named| named.name.as_str()).collect();
        Err(Error::model(
            format!("layer `{}`", shown(*unknown)),
            "needs to be a layer of the model, but none has that name",
            super::config::names_help(unknown, &names),
        ))
    }

    /// Sets for each layer whether it is trainable, and moves the weights to their new places.
    fn set(&mut self, is_trainable: impl Fn(usize, &str) -> bool) -> Result<()> {
        let named = self.layers.iter().enumerate();
        let is_trainable: Vec<bool> = named.map(|(idx, named)| is_trainable(idx, &named.name)).collect();
        let mut order = vec![usize::MAX; self.layers.len()];
        for (at, node) in self.nodes.iter().enumerate().rev() {
            order[node.layer_idx] = at;
        }
        let mut parameters: Vec<_> = self.owners(&self.layout.parameters).collect();
        parameters.sort_by_key(|(layer_idx, _)| order[*layer_idx]);
        let mut layout = Layout::default();
        let is_frozen = |(layer_idx, placed): &&(usize, &PlacedTensor)| {
            !is_trainable[*layer_idx] || self.layers[*layer_idx].freezes(placed.parameter())
        };
        if let Some((idx, placed)) = parameters.iter().find(|it| it.1.packing.is_some() && !is_frozen(it)) {
            return Err(Error::model(
                Self::who(*idx, &self.layers[*idx]),
                format!("needs `{}` as floats to be trained, but keeps it packed", placed.parameter()),
                "`Model::unpack` makes floats of it",
            ));
        }
        for (_, placed) in parameters.iter().filter(|it| !is_frozen(it)) {
            layout.add_parameter(placed.name.clone(), placed.shape.clone())?;
        }
        for (_, placed) in parameters.iter().filter(is_frozen) {
            layout.add_frozen(placed.name.clone(), placed.shape.clone(), placed.packing)?;
        }
        for placed in &self.layout.statistics {
            layout.add_statistic(placed.name.clone(), placed.shape.clone())?;
        }
        let mut weights = Weights::zeros(&layout)?;
        for placed in &layout.parameters {
            let Some(idx) = self.layout.parameter(&placed.name) else { continue };
            let values = &mut weights.parameters[placed.segment as usize][placed.range()];
            values.copy_from_slice(self.weights.stored(&self.layout.parameters[idx]));
        }
        weights.statistics.clone_from(&self.weights.statistics);
        self.layers.iter_mut().zip(is_trainable).for_each(|(named, is_trainable)| named.is_trainable = is_trainable);
        (self.layout, self.weights) = (layout, weights);
        Ok(())
    }
}
