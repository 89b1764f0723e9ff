//! Outputs of many classes, whose logits are computed and used a piece of the positions at a time.
//!
//! Logits of a vocabulary and their gradient are most of the memory that a small language model takes. No position needs those of
//! another: so the layer that makes them, the loss and their way back are recorded for some positions after the others, and one piece's
//! buffers serve all.

use super::ModelPart;
use crate::losses::Loss;
use crate::losses::positions::Positions;
use crate::model::Objective;
use crate::plan::{Length, Node, Recorder, Tensor};
use crate::shape::Shape;

/// Numbers of a row's piece at most: 8 MiB, and as much for their gradient.
const MOST: usize = 1 << 21;
/// Factor of the most numbers where the layer is trained: each piece adds to the gradient of all of its weights.
const TRAINED: usize = 8;
/// Positions of a row's piece at least: products of few rows are slow.
const FEWEST_POSITIONS: usize = 16;

/// An output that is recorded in pieces.
pub(super) struct Pieces {
    /// The node that computes it.
    pub node: usize,
    /// Its position among the model's outputs.
    pub output_idx: u32,
    /// Positions of each piece.
    positions: Vec<Positions>,
    /// Number of the first piece's input among the recorded tensors: each piece has two, input and output.
    first: usize,
}

impl ModelPart<'_> {
    /// Its outputs that are recorded in pieces: large ones that nothing but a loss reads.
    pub(super) fn pieces(&self, objective: &Objective) -> Vec<Pieces> {
        let (mut found, mut first) = (Vec::new(), self.model.shapes.len());
        for (output_idx, tensor) in self.outputs() {
            let Some(node) = tensor.checked_sub(self.model.inputs.len()) else { continue };
            let loss = objective.losses[output_idx as usize].function();
            let is_by_position = self.model.nodes[node].layer(&self.model.layers).is_by_position();
            if !is_by_position || !loss.is_by_position() || self.is_read(tensor, objective) {
                continue;
            }
            let layer_idx = self.model.nodes[node].layer_idx;
            let mut trained = self.model.owners(self.model.layout.trainable());
            let most = if trained.any(|(owner, _)| owner == layer_idx) { MOST * TRAINED } else { MOST };
            let positions = pieces_of(&self.model.shapes[tensor], most);
            if positions.len() > 1 {
                let next = first + 2 * positions.len();
                found.push(Pieces { node, output_idx, positions, first });
                first = next;
            }
        }
        found
    }

    /// Whether anything but one loss reads an output.
    fn is_read(&self, tensor: usize, objective: &Objective) -> bool {
        let reported = objective.reported_outputs.iter().map(|output| &self.model.outputs[*output]);
        let read = self.model.nodes.iter().flat_map(|node| &node.inputs).chain(&self.model.outputs).chain(reported);
        let is_penalized = self.activity(tensor - self.model.inputs.len()).is_some();
        is_penalized || read.filter(|read| **read == tensor).count() > 1
    }

    /// The tensors of the graph, then input and output of each piece.
    pub(super) fn with_pieces(&self, mut tensors: Vec<Tensor>, pieces: &[Pieces]) -> Vec<Tensor> {
        for pieces in pieces {
            let ends = self.ends(pieces.node).map(|tensor| tensors[tensor].clone());
            for positions in &pieces.positions {
                tensors.extend(
                    ends.clone()
                        .map(|end| Tensor { shape: Shape::new([positions.part.len(), end.shape.last()]), ..end }),
                );
            }
        }
        tensors
    }

    /// The tensors that a node of one input reads and writes.
    fn ends(&self, node: usize) -> [usize; 2] {
        [self.model.nodes[node].inputs[0], self.model.inputs.len() + node]
    }

    /// Records an output and its loss, and in training the gradient of what its layer reads.
    pub(super) fn record_pieces(&self, rec: &mut Recorder<'_>, pieces: &Pieces, loss: &Loss) {
        let [input, output] = self.ends(pieces.node);
        let (x, width) = (rec.value(input), self.model.shapes[input].last());
        let layer = self.model.nodes[pieces.node].layer(&self.model.layers);
        let mut dx = None;
        for (idx, positions) in pieces.positions.iter().enumerate() {
            let [piece_input, piece_output] = [0, 1].map(|end| pieces.first + 2 * idx + end);
            let node = Node { inputs: vec![piece_input], output: piece_output, ..self.node(pieces.node) };
            rec.enter(node.clone());
            let piece = positions.take(rec, x, width);
            rec.set_value(piece_input, piece);
            layer.forward(rec);
            let y = rec.value(piece_output);
            rec.enter(self.loss_node(output));
            let shape = &self.model.shapes[output];
            let gradient = loss.record(rec, pieces.output_idx, shape, positions, y);
            rec.enter(node);
            if !rec.is_training() {
                continue;
            }
            rec.add_gradient(piece_output, gradient);
            layer.backward(rec);
            rec.leave();
            if let Some(piece) = rec.gradient(piece_input) {
                let len = Length::per_row(positions.all * width);
                let dx = *dx.get_or_insert_with(|| rec.scratch("input_gradient", len));
                positions.put(rec, piece, dx, width);
            }
        }
        if let Some(dx) = dx {
            rec.add_gradient(input, dx);
        }
    }
}

/// The positions of each piece of an output, of which at most so many numbers are to exist at once.
fn pieces_of(output: &Shape, most: usize) -> Vec<Positions> {
    let all = output.positions();
    let fitting = (most / output.last().max(1)).max(FEWEST_POSITIONS);
    let count = if output.len() <= most { 1 } else { all.div_ceil(fitting) };
    let even = all.div_ceil(count.max(1)).max(1);
    (0..all).step_by(even).map(|start| Positions { part: start..(start + even).min(all), all }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(positions: usize, classes: usize) -> Vec<usize> {
        pieces_of(&Shape::new([positions, classes]), MOST).iter().map(|it| it.part.len()).collect()
    }

    #[test]
    fn logits_of_a_vocabulary_are_cut_and_small_ones_are_not() {
        assert_eq!(parts(256, 100), [256]);
        assert_eq!(parts(64, 49_152), [32, 32]);
        assert_eq!(parts(512, 151_936), [16; 32]);
        assert_eq!(parts(100, 49_152), [34, 34, 32]);
        assert_eq!(parts(1, 10_000_000), [1]);
    }
}
