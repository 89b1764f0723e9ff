//! Which nodes and layers the outputs need: the others are left out of a model.

use super::build::use_name;
use super::{Model, NamedLayer};

impl Model {
    /// Which tensors the outputs are made of: by number, in one pass from the last node to the first.
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

    /// Removes the nodes that no output needs, and counts tensors and uses of layers anew. Inputs stay.
    pub(super) fn leave_out_unneeded(&mut self) {
        let n_inputs = self.inputs.len();
        let mut needed = self.needed();
        needed[..n_inputs].fill(true);
        if !needed.contains(&false) {
            return;
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
        let names: Vec<&str> = self.left_out().map(|layer| layer.name.as_str()).collect();
        if !names.is_empty() {
            log::warn!("no output needs `{}`: left out of the model", names.join("`, `"));
        }
    }

    /// The layers that no output needs: they have no weights, and do not run.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = &NamedLayer> {
        let mut is_used = vec![false; self.layers.len()];
        self.nodes.iter().for_each(|node| is_used[node.layer_idx] = true);
        self.layers.iter().zip(is_used).filter_map(|(layer, is_used)| (!is_used).then_some(layer))
    }
}
