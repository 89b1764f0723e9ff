//! Stretches of nodes whose values are computed again for backward, so that they need not wait for it in memory.

use std::ops::Range;

use super::ModelPart;
use super::pieces::Pieces;

/// Divisions that are tried: each allows a stretch half of what the one before allows.
const TRIED: u32 = 12;

/// The tensors of a part in the order of its nodes, as far as a division needs to know them.
struct Line {
    /// Nodes by index in the model.
    nodes: Vec<usize>,
    /// Numbers of a row that all nodes before each position compute.
    sizes: Vec<u64>,
    /// Numbers of a row that are computed before each position and read behind it.
    crossing: Vec<u64>,
    /// Whether a stretch may end before each position.
    ends: Vec<bool>,
}

impl Line {
    /// The memory of a row if no stretch has more numbers than `most`, and the positions at which stretches begin and end; `None` where a
    /// node has more.
    fn divided(&self, most: u64) -> Option<(u64, Vec<usize>)> {
        let end = self.nodes.len();
        // The least memory of what crosses up to each position, and where its last stretch begins.
        let mut best: Vec<Option<(u64, usize)>> = vec![None; end + 1];
        best[0] = Some((0, 0));
        for to in (1..=end).filter(|to| self.ends[*to]) {
            let starts = (0..to).rev().take_while(|from| self.sizes[to] - self.sizes[*from] <= most);
            let reached =
                starts.filter_map(|from| best[from].map(|(crossing, _)| (crossing + self.crossing[to], from)));
            best[to] = reached.min();
        }
        let (crossing, _) = best[end]?;
        let mut places = vec![end];
        while let Some(at) = places.last().copied().filter(|at| *at > 0) {
            places.push(best[at]?.1);
        }
        places.reverse();
        let longest = places.windows(2).map(|ends| self.sizes[ends[1]] - self.sizes[ends[0]]).max();
        Some((crossing + longest.unwrap_or(0), places))
    }
}

impl ModelPart<'_> {
    /// The stretches of nodes that are computed again, by index in the model: as many as take the least memory, without the last, which
    /// backward reaches first.
    pub(super) fn recomputed(&self, pieces: &[Pieces]) -> Vec<Range<usize>> {
        let line = self.line(pieces);
        let all = line.sizes.last().copied().unwrap_or(0);
        let divided = (0..TRIED).filter_map(|halvings| line.divided(all >> halvings));
        let Some((_, places)) = divided.min_by_key(|(memory, _)| *memory) else { return Vec::new() };
        let node = |place: usize| line.nodes.get(place).copied().unwrap_or(self.model.nodes.len());
        let stretches = places.windows(2).map(|ends| node(ends[0])..node(ends[1]));
        let mut stretches: Vec<Range<usize>> = stretches.collect();
        stretches.pop();
        stretches.retain(|stretch| !self.has_batch_statistics(stretch));
        stretches
    }

    /// Batch normalization exchanges its moments with other adapters: once a step.
    fn has_batch_statistics(&self, stretch: &Range<usize>) -> bool {
        self.nodes().filter(|(idx, _)| stretch.contains(idx)).any(|(_, node)| {
            let named = &self.model.layers[node.layer_idx];
            named.is_trainable && named.layer.has_batch_statistics()
        })
    }

    fn line(&self, pieces: &[Pieces]) -> Line {
        let n_inputs = self.model.inputs.len();
        let nodes: Vec<usize> = self.nodes().map(|(idx, _)| idx).collect();
        let mut place = vec![None; self.model.nodes.len()];
        nodes.iter().enumerate().for_each(|(at, idx)| place[*idx] = Some(at));
        // The last position at which each tensor is read: losses and other stages read at the end.
        let mut last_read = vec![0; self.model.shapes.len()];
        for (at, idx) in nodes.iter().enumerate() {
            self.model.nodes[*idx].inputs.iter().for_each(|tensor| last_read[*tensor] = at);
        }
        self.outputs().for_each(|(_, tensor)| last_read[tensor] = nodes.len());
        self.border.handed.iter().for_each(|tensor| last_read[*tensor] = nodes.len());
        let is_whole = |idx: usize| !pieces.iter().any(|pieces| pieces.node == idx);
        let size = |idx: usize| if is_whole(idx) { self.model.shapes[n_inputs + idx].len() as u64 } else { 0 };
        let mut sizes = vec![0];
        for (at, idx) in nodes.iter().enumerate() {
            sizes.push(sizes[at] + size(*idx));
        }
        let mut crossing = vec![0; nodes.len() + 1];
        let mut ends = vec![true; nodes.len() + 1];
        let fused = self.fused_readers();
        for (at, idx) in nodes.iter().enumerate() {
            crossing[at + 1..=last_read[n_inputs + idx].max(at)].iter_mut().for_each(|sum| *sum += size(*idx));
            // A function is applied where its input is computed.
            let reader = fused[*idx].and_then(|reader| place[reader]).unwrap_or(at);
            ends[at + 1..=reader].iter_mut().for_each(|may_end| *may_end = false);
        }
        Line { nodes, sizes, crossing, ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{Add, BatchNormalization, Dense, Relu};
    use crate::{ModelBuilder, Sequential};

    /// Blocks that widen and narrow are cut between each other, and a skip is no obstacle.
    #[test]
    fn blocks_are_cut_where_little_crosses() {
        let mut graph = ModelBuilder::new();
        let mut x = graph.input("x", [8]);
        for block in 0..6 {
            let wide = graph.add_named(&format!("wide{block}"), Dense::new(100), &[x]);
            let wide = graph.add_named(&format!("relu{block}"), Relu::default(), &[wide]);
            let narrow = graph.add_named(&format!("narrow{block}"), Dense::new(8), &[wide]);
            x = graph.add_named(&format!("sum{block}"), Add::default(), &[x, narrow]);
        }
        let model = graph.build(&[x], 0).unwrap();
        let stretches = ModelPart::whole(&model).recomputed(&[]);
        // The input is there anyway, so the first cut may lie before the first sum.
        assert_eq!(stretches, [0..3, 3..8, 8..12, 12..16, 16..20]);
    }

    #[test]
    fn what_exchanges_moments_is_computed_once() {
        let plain = (0..8).fold(Sequential::new([8]), |model, _| model.add(Dense::new(50)).add(Dense::new(8)));
        assert!(!ModelPart::whole(&plain.build(0).unwrap()).recomputed(&[]).is_empty());
        let block = |model: Sequential| model.add(Dense::new(50)).add(BatchNormalization::new()).add(Dense::new(8));
        let normed = (0..8).fold(Sequential::new([8]), |model, _| block(model));
        let model = normed.build(0).unwrap();
        let stretches = ModelPart::whole(&model).recomputed(&[]);
        let is_normed = |idx: usize| model.nodes[idx].name.contains("normalization");
        assert!(stretches.into_iter().flatten().all(|idx| !is_normed(idx)));
    }
}
