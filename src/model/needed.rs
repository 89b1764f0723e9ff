//! Finds the nodes and layers that the outputs need: the others are left out of a model.

use super::build::use_name;
use super::{Model, NamedLayer, OutputMask};

/// A layer that is adapted to data before training.
pub(crate) struct Adapted {
    /// Its name.
    pub layer: String,
    /// The tensor that reaches it.
    pub input: usize,
    /// Index of the mean to which each element of a row belongs.
    pub places: Vec<usize>,
}

impl Model {
    /// Tensors that the outputs depend on, by number: one pass from the last node to the first.
    fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.shapes.len()];
        self.outputs.iter().for_each(|output| needed[*output] = true);
        for (idx, node) in self.nodes.iter().enumerate().rev() {
            if needed[self.inputs.len() + idx] {
                node.inputs.iter().for_each(|input| needed[*input] = true);
            }
        }
        needed
    }

    /// The part of the model that ends in a tensor, with its weights.
    pub(crate) fn up_to(&self, tensor: usize) -> Self {
        let mut part = Self { outputs: vec![tensor], output_masks: vec![OutputMask::None], ..self.clone() };
        part.cut();
        part
    }

    /// Layers that are adapted to data before training, in the order in which data reach them.
    pub(crate) fn adapted(&self) -> Vec<Adapted> {
        let mut adapted: Vec<Adapted> = Vec::new();
        for node in &self.nodes {
            let named = &self.layers[node.layer_idx];
            let Some(places) = named.layer.adapted(&self.shapes[node.inputs[0]]) else { continue };
            // For a layer with several uses, the first one counts.
            if adapted.iter().all(|known| known.layer != named.name) {
                adapted.push(Adapted { layer: named.name.clone(), input: node.inputs[0], places });
            }
        }
        adapted
    }

    /// Removes the nodes that no output needs, and renumbers tensors and uses of layers. Inputs stay.
    pub(super) fn leave_out_unneeded(&mut self) {
        if !self.cut() {
            return;
        }
        let names: Vec<&str> = self.left_out().map(|layer| layer.name.as_str()).collect();
        if !names.is_empty() {
            log::warn!("no output needs `{}`: left out of the model", names.join("`, `"));
        }
    }

    /// Removes the nodes that no output needs; false if there are none.
    fn cut(&mut self) -> bool {
        let n_inputs = self.inputs.len();
        let mut needed = self.needed();
        needed[..n_inputs].fill(true);
        if !needed.contains(&false) {
            return false;
        }
        let mut next = 0..;
        let numbers: Vec<usize> =
            needed.iter().map(|needed| if *needed { next.next().unwrap_or(0) } else { 0 }).collect();
        let mut keep = needed.iter();
        self.shapes.retain(|_| keep.next() == Some(&true));
        let mut keep = needed[n_inputs..].iter();
        self.nodes.retain(|_| keep.next() == Some(&true));
        let mut uses = vec![0; self.layers.len()];
        for node in &mut self.nodes {
            node.name = use_name(&self.layers[node.layer_idx].name, &mut uses[node.layer_idx]);
            node.inputs.iter_mut().for_each(|input| *input = numbers[*input]);
        }
        self.outputs.iter_mut().for_each(|output| *output = numbers[*output]);
        true
    }

    /// The layers that no output needs: they have no weights, and do not run.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = &NamedLayer> {
        let mut is_used = vec![false; self.layers.len()];
        self.nodes.iter().for_each(|node| is_used[node.layer_idx] = true);
        self.layers.iter().zip(is_used).filter_map(|(layer, is_used)| (!is_used).then_some(layer))
    }
}
