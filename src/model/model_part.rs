//! Records the passes of a part of a model: of all its nodes, or of those of a stage.

mod pieces;
mod recomputed;

use std::borrow::Cow;
use std::ops::Range;

use super::objective::Objective;
use super::{GraphNode, Model, NamedLayer};
use crate::kernels::{add, regularizer};
use crate::layers::Regularizer;
use crate::losses::Loss;
use crate::losses::positions::Positions;
use crate::plan::{
    Combine, Grid, Handed, Layout, Length, Node, Pass, Penalty, PlacedTensor, Plan, Recorder, Role, Tensor, View, When,
    Word, length_word,
};
use pieces::Pieces;

/// The nodes that a plan records: all of a model, or those of a stage.
pub(super) struct ModelPart<'a> {
    model: &'a Model,
    /// The layout of its parameters and statistics.
    layout: Cow<'a, Layout>,
    /// Whether it records each node.
    holds: Vec<bool>,
    /// Tensors that it gets from other stages and hands over to them.
    pub(super) border: Border,
}

/// The tensors that a stage gets from other stages and hands over to them, by number, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Border {
    /// Inputs of the model that the stage reads; `None` for all.
    pub inputs: Option<Vec<usize>>,
    /// Tensors that it reads and earlier stages compute.
    pub values: Vec<usize>,
    /// Tensors whose gradient later stages hand over to it.
    pub gradients: Vec<usize>,
    /// Tensors that it computes and later stages read.
    pub handed: Vec<usize>,
}

impl<'a> ModelPart<'a> {
    /// All nodes.
    pub(super) fn whole(model: &'a Model) -> Self {
        let holds = vec![true; model.nodes.len()];
        Self { model, layout: Cow::Borrowed(&model.layout), holds, border: Border::default() }
    }

    /// The nodes of a stage.
    pub(super) fn stage(model: &'a Model, layout: Layout, holds: Vec<bool>, border: Border) -> Self {
        Self { model, layout: Cow::Owned(layout), holds, border }
    }

    /// The outputs that its nodes compute, by position in the model; a whole model's include inputs that are outputs.
    fn outputs(&self) -> impl Iterator<Item = (u32, usize)> {
        let is_held = |tensor: usize| match tensor.checked_sub(self.model.inputs.len()) {
            None => self.border.inputs.as_ref().is_none_or(|inputs| inputs.contains(&tensor)),
            Some(node) => self.holds[node],
        };
        (0..).zip(self.model.outputs.iter().copied()).filter(move |(_, tensor)| is_held(*tensor))
    }

    /// Whether outputs are recorded in pieces, so that they never exist as a whole.
    pub(super) fn has_pieces(&self, objective: &Objective) -> bool {
        !self.pieces(objective).is_empty()
    }

    /// Whether a step trains it or reports of it: a loss, a penalty of outputs or a later stage's gradient reaches it.
    pub(super) fn is_trained(&self) -> bool {
        let is_penalized = self.nodes().any(|(idx, _)| self.activity(idx).is_some());
        is_penalized || !self.border.gradients.is_empty() || self.outputs().next().is_some()
    }

    /// The inputs of the model that it reads.
    fn inputs(&self) -> Vec<usize> {
        self.border.inputs.clone().unwrap_or_else(|| (0..self.model.inputs.len()).collect())
    }

    /// Its nodes, by index in the model.
    fn nodes(&self) -> impl DoubleEndedIterator<Item = (usize, &'a GraphNode)> {
        self.model.nodes.iter().enumerate().filter(|(idx, _)| self.holds[*idx])
    }

    pub(super) fn flat_buffers(&self) -> Plan {
        let mut plan = Plan::default();
        for (segment, len) in (0..).zip(&self.layout.segments) {
            let len = Length { per_row: 0, fixed: *len };
            plan.buffer(format!("parameters{segment}"), Role::Parameters(segment), len);
            if (segment as usize) < self.layout.trainable_segments().len() {
                plan.buffer(format!("gradients{segment}"), Role::Gradients(segment), len);
            }
        }
        let len = Length { per_row: 0, fixed: self.layout.statistics_len };
        if len.fixed > 0 {
            plan.buffer("statistics", Role::Statistics, len);
        }
        for idx in self.inputs() {
            let input = &self.model.inputs[idx];
            plan.buffer(input.name.clone(), Role::Input(number(idx)), Length::per_row(input.shape.len()));
        }
        plan
    }

    /// The first trainable parameter of each layer, and the node of its first use.
    fn firsts(&self) -> Firsts {
        let mut firsts =
            Firsts { parameter: vec![None; self.model.layers.len()], node: vec![None; self.model.layers.len()] };
        for (idx, (layer_idx, _)) in self.model.owners(self.layout.trainable()).enumerate() {
            firsts.parameter[layer_idx].get_or_insert(idx);
        }
        for (idx, node) in self.nodes() {
            firsts.node[node.layer_idx].get_or_insert(idx);
        }
        firsts
    }

    /// Tensors that depend on a trainable parameter.
    pub(super) fn recorded_tensors(&self) -> Vec<Tensor> {
        let mut has_parameters = vec![false; self.model.layers.len()];
        self.model.owners(self.model.layout.trainable()).for_each(|(layer_idx, _)| has_parameters[layer_idx] = true);
        let mut needs = vec![false; self.model.inputs.len()];
        for node in &self.model.nodes {
            let own = has_parameters[node.layer_idx];
            needs.push(own || node.inputs.iter().any(|tensor| needs[*tensor]));
        }
        let tensors = self.model.shapes.iter().zip(needs);
        tensors.map(|(shape, needs_gradient)| Tensor { shape: shape.clone(), needs_gradient }).collect()
    }

    fn node(&self, idx: usize) -> Node {
        let node = &self.model.nodes[idx];
        Node {
            idx,
            name: node.name.clone(),
            layer: self.model.layers[node.layer_idx].name.clone(),
            inputs: node.inputs.clone(),
            output: self.model.inputs.len() + idx,
            is_trainable: self.model.layers[node.layer_idx].is_trainable,
        }
    }

    /// Records forward of all nodes but those whose outputs are recorded in pieces.
    fn record_forward(&self, rec: &mut Recorder<'_>, pieces: &[Pieces]) {
        for idx in self.inputs() {
            let len = Length::per_row(self.model.inputs[idx].shape.len());
            let view = rec.plan().find_or_add("input", Role::Input(number(idx)), len);
            rec.set_value(idx, view);
        }
        for tensor in &self.border.values {
            let view = self.fed(rec, *tensor, Role::Received);
            rec.set_value(*tensor, view);
        }
        self.record_nodes(rec, &(0..self.model.nodes.len()), pieces);
    }

    /// Records forward of some nodes, in order.
    fn record_nodes(&self, rec: &mut Recorder<'_>, nodes: &Range<usize>, pieces: &[Pieces]) {
        let fused = self.fused_readers();
        let mut is_done = vec![false; self.model.nodes.len()];
        for (idx, node) in self.nodes().filter(|(idx, _)| nodes.contains(idx)) {
            if pieces.iter().any(|pieces| pieces.node == idx) {
                continue;
            }
            rec.enter(self.node(idx));
            if is_done[idx] {
                rec.pass_value();
                continue;
            }
            if let Some(reader) = fused[idx] {
                rec.fuse(self.model.layers[self.model.nodes[reader].layer_idx].layer.function());
                is_done[reader] = true;
            }
            node.layer(&self.model.layers).forward(rec);
        }
    }

    /// Records that the values of some nodes are computed again, for their backward.
    fn record_again(&self, rec: &mut Recorder<'_>, nodes: &Range<usize>, pieces: &[Pieces]) {
        for (idx, _) in self.nodes().filter(|(idx, _)| nodes.contains(idx)) {
            rec.forget(self.model.inputs.len() + idx);
        }
        self.record_nodes(rec, nodes, pieces);
    }

    /// The buffer of a tensor's values, or of its gradient, that other stages give.
    fn fed(&self, rec: &mut Recorder<'_>, tensor: usize, role: fn(u32) -> Role) -> View {
        let len = Length::per_row(self.model.shapes[tensor].len());
        rec.plan().find_or_add(self.model.tensor_name(tensor), role(number(tensor)), len)
    }

    /// Records that the values which later stages read are handed over.
    fn record_handed(&self, rec: &mut Recorder<'_>) {
        for tensor in &self.border.handed {
            let value = rec.value(*tensor);
            rec.exchange(value, Combine::HandOver(Handed::Value(number(*tensor))), When::Update);
        }
    }

    /// Penalties of trainable parameters.
    pub(super) fn penalties(&self) -> Vec<Penalty> {
        let mut penalties = Vec::new();
        for named in self.model.layers.iter().filter(|named| named.is_trainable) {
            for (names, Regularizer { l1, l2 }) in named.regularizers.of_parameters() {
                let found = names.iter().find_map(|name| self.layout.parameter(&format!("{}/{name}", named.name)));
                let Some(placed) = found.map(|idx| &self.layout.parameters[idx]) else { continue };
                for placed in self.trained_for(named, placed) {
                    let len = placed.len() as u64;
                    penalties.push(Penalty { segment: placed.segment, offset: placed.offset, len, l1, l2 });
                }
            }
        }
        penalties
    }

    /// The parameters that are trained for one of a layer: itself, or the factors beside a frozen kernel, as in Keras.
    fn trained_for<'p>(&'p self, named: &NamedLayer, placed: &'p PlacedTensor) -> Vec<&'p PlacedTensor> {
        let low_ranks = named.layer.low_ranks();
        let Some(low_rank) = low_ranks.iter().find(|it| it.kernel == placed.parameter()) else { return vec![placed] };
        let factors = [low_rank.a, low_rank.b].into_iter();
        let found = factors.filter_map(|name| self.layout.parameter(&format!("{}/{name}", named.name)));
        found.map(|idx| &self.layout.parameters[idx]).collect()
    }

    /// The penalty of a node's outputs.
    fn activity(&self, node_idx: usize) -> Option<Regularizer> {
        self.model.layers[self.model.nodes[node_idx].layer_idx].regularizers.activity()
    }

    /// Records copies of outputs that are reported, behind the reports of the losses; returns the number of reports so far.
    fn record_reported(&self, rec: &mut Recorder<'_>, outputs: &[usize]) -> u32 {
        let first = u32::try_from(self.model.outputs.len()).unwrap_or(u32::MAX);
        let held: Vec<usize> = self.outputs().map(|(_, tensor)| tensor).collect();
        for (idx, output) in (first..).zip(outputs) {
            let tensor = self.model.outputs[*output];
            if !held.contains(&tensor) {
                continue;
            }
            let (y, name) = (rec.value(tensor), self.model.tensor_name(tensor));
            rec.enter(Node::apart(self.model.nodes.len(), name, vec![tensor]));
            let report = rec.plan().find_or_add(name, Role::Report(idx), y.len);
            let (record, grid) = add::Record::of(y.len);
            rec.dispatch(&add::COPY, record, [y], [report], grid);
        }
        first + u32::try_from(outputs.len()).unwrap_or(u32::MAX)
    }

    /// Records the penalties of outputs: row by row, in report `idx`, behind all others.
    fn record_activities(&self, rec: &mut Recorder<'_>, idx: u32) {
        let penalized = self.nodes().filter_map(|(idx, _)| Some((idx, self.activity(idx)?)));
        for (count, (node, regularizer)) in penalized.enumerate() {
            let report = rec.plan().find_or_add("activity", Role::Report(idx), Length::per_row(2));
            rec.enter(self.node(node));
            let y = rec.value(self.model.inputs.len() + node);
            let params = regularizer_params(regularizer, length_word(y.len), Word::Rows(1));
            let dispatch = rec.dispatch(&regularizer::OUTPUTS, params, [y], [report], Grid::Items(Word::Rows(1)));
            if count > 0 {
                dispatch.constants.push(("ADDS", 1.0));
            }
        }
    }

    /// The node whose function each node applies to its own output: its only reader, if that is such a function.
    fn fused_readers(&self) -> Vec<Option<usize>> {
        let n_inputs = self.model.inputs.len();
        let mut readers = vec![0; self.model.shapes.len()];
        let read = self.model.nodes.iter().flat_map(|node| &node.inputs).chain(&self.model.outputs);
        read.for_each(|tensor| readers[*tensor] += 1);
        let mut fused = vec![None; self.model.nodes.len()];
        for (idx, node) in self.nodes() {
            let [Some(before)] = node.inputs.iter().map(|tensor| tensor.checked_sub(n_inputs)).collect::<Vec<_>>()[..]
            else {
                continue;
            };
            let function = self.model.layers[node.layer_idx].layer.function();
            let fits = function.is_some_and(|function| !function.activation.slope_needs_input());
            let takes = self.model.layers[self.model.nodes[before].layer_idx].layer.can_fuse();
            if self.holds[before] && fits && takes && readers[n_inputs + before] == 1 && self.activity(before).is_none()
            {
                fused[before] = Some(idx);
            }
        }
        fused
    }

    /// Records the losses of its outputs; gives the gradient of each, by tensor. Those in pieces have been used.
    fn record_losses(&self, rec: &mut Recorder<'_>, losses: &[Loss], pieces: &[Pieces]) -> Vec<(usize, View)> {
        let mut gradients = Vec::new();
        for (output_idx, tensor) in self.outputs() {
            let loss = &losses[output_idx as usize];
            if let Some(pieces) = pieces.iter().find(|pieces| pieces.output_idx == output_idx) {
                self.record_pieces(rec, pieces, loss);
                continue;
            }
            rec.enter(self.loss_node(tensor));
            let (y, shape) = (rec.value(tensor), &self.model.shapes[tensor]);
            let gradient = loss.record(rec, output_idx, shape, &Positions::all(shape.positions()), y);
            gradients.push((tensor, gradient));
        }
        gradients
    }

    fn loss_node(&self, output: usize) -> Node {
        Node::apart(self.model.nodes.len(), format!("loss:{}", self.model.tensor_name(output)), vec![output])
    }

    /// Records forward, losses and backward.
    pub(super) fn record_training(&self, plan: &mut Plan, objective: &Objective) -> TrainedPart {
        let (firsts, pieces) = (self.firsts(), self.pieces(objective));
        let tensors = self.with_pieces(self.recorded_tensors(), &pieces);
        let rec = Recorder::new(plan, &self.layout, Pass::Train, &tensors);
        let rec = rec.compressed(objective.gradient_compression).adding_on(objective.accumulation);
        let mut rec = rec.over(objective.batch_statistics).computing_in(objective.precision);
        self.record_forward(&mut rec, &pieces);
        let gradients = self.record_losses(&mut rec, &objective.losses, &pieces);
        let reports = self.record_reported(&mut rec, &objective.reported_outputs);
        self.record_activities(&mut rec, reports);
        for (tensor, gradient) in gradients {
            rec.add_gradient(tensor, gradient);
        }
        for tensor in &self.border.gradients {
            let gradient = self.fed(&mut rec, *tensor, Role::ReceivedGradient);
            rec.add_gradient(*tensor, gradient);
        }
        let mut recomputed = if objective.recompute { self.recomputed(&pieces) } else { Vec::new() };
        for (idx, node) in self.nodes().rev() {
            if let Some(nodes) = recomputed.pop_if(|nodes| nodes.contains(&idx)) {
                self.record_again(&mut rec, &nodes, &pieces);
            }
            let tensor = self.model.inputs.len() + idx;
            rec.enter(self.node(idx));
            if rec.has_gradient(tensor) && tensors[tensor].needs_gradient {
                if let Some(regularizer) = self.activity(idx) {
                    record_slopes(&mut rec, tensor, regularizer);
                }
                node.layer(&self.model.layers).backward(&mut rec);
                rec.leave();
            }
            if let Some(first) = firsts.completes(idx, node.layer_idx) {
                rec.complete_gradients(first);
            }
        }
        let handed = self.record_handed_gradients(&mut rec);
        // A penalty moves a parameter that no loss reaches, too.
        let is_penalized = |placed: &PlacedTensor| {
            let is_of = |penalty: &Penalty| (penalty.segment, penalty.offset) == (placed.segment, placed.offset);
            rec.penalties().iter().any(is_of)
        };
        let stretches = stretches(&self.layout, |parameter| {
            rec.has_parameter_gradient(parameter) || is_penalized(&self.layout.parameters[parameter])
        });
        rec.finish();
        TrainedPart { stretches, handed }
    }

    /// Records that gradients of earlier stages' tensors are handed over; gives these tensors.
    fn record_handed_gradients(&self, rec: &mut Recorder<'_>) -> Vec<usize> {
        let mut handed = Vec::new();
        for tensor in &self.border.values {
            if let Some(gradient) = rec.gradient(*tensor) {
                rec.exchange(gradient, Combine::HandOver(Handed::Gradient(number(*tensor))), When::Update);
                handed.push(*tensor);
            }
        }
        handed
    }

    /// Records forward as in training, for stages that hand values over.
    pub(super) fn record_forward_training(&self, plan: &mut Plan, objective: &Objective) {
        self.record_forward_as(plan, objective, |rec| {
            rec.drop_exchanges();
            self.record_handed(rec);
        });
    }

    /// Records forward as in training, up to the outputs.
    pub(super) fn record_training_outputs(&self, plan: &mut Plan, objective: &Objective) {
        self.record_forward_as(plan, objective, |rec| {
            rec.keep_awaited_exchanges();
            self.record_outputs(rec);
        });
    }

    /// Records forward as in training, and its end. The pass that trains sends batch statistics.
    fn record_forward_as(&self, plan: &mut Plan, objective: &Objective, end: impl FnOnce(&mut Recorder<'_>)) {
        let (tensors, n_moving) = (self.recorded_tensors(), plan.moving.len());
        let rec = Recorder::new(plan, &self.layout, Pass::Forward, &tensors).over(objective.batch_statistics);
        let mut rec = rec.computing_in(objective.precision);
        self.record_forward(&mut rec, &[]);
        end(&mut rec);
        rec.finish();
        plan.moving.truncate(n_moving);
    }

    /// Records a pass of inference: with losses, or, without an objective, with the outputs.
    pub(super) fn record_forward_pass(&self, plan: &mut Plan, pass: Pass, objective: Option<&Objective>) {
        let pieces = objective.map_or_else(Vec::new, |objective| self.pieces(objective));
        let tensors = self.with_pieces(self.recorded_tensors(), &pieces);
        let mut rec = Recorder::new(plan, &self.layout, pass, &tensors);
        self.record_forward(&mut rec, &pieces);
        self.record_handed(&mut rec);
        match objective {
            None => self.record_outputs(&mut rec),
            Some(Objective { losses, reported_outputs, .. }) => {
                self.record_losses(&mut rec, losses, &pieces);
                let reports = self.record_reported(&mut rec, reported_outputs);
                self.record_activities(&mut rec, reports);
            }
        }
        rec.finish();
    }

    fn record_outputs(&self, rec: &mut Recorder<'_>) {
        for (output_idx, tensor) in self.outputs() {
            let (y, name) = (rec.value(tensor), self.model.tensor_name(tensor));
            rec.enter(Node::apart(self.model.nodes.len(), name, vec![tensor]));
            let (plan, role) = (rec.plan(), Role::Output(output_idx));
            let output = match plan.find(role) {
                Some(buffer) => View { buffer, offset: 0, len: y.len },
                None => plan.buffer(format!("{name}.result"), role, y.len),
            };
            let (record, grid) = add::Record::of(y.len);
            rec.dispatch(&add::COPY, record, [y], [output], grid);
        }
    }
}

/// Result of recording the training pass of a part.
pub(super) struct TrainedPart {
    /// Stretches of the flat parameters whose gradients it computes.
    pub stretches: Vec<Stretch>,
    /// Tensors of earlier stages whose gradients it hands over.
    pub handed: Vec<usize>,
}

/// A position as it stands in a plan.
fn number(idx: usize) -> u32 {
    u32::try_from(idx).unwrap_or(u32::MAX)
}

/// First buffers of each layer.
struct Firsts {
    /// Its first parameter in the layout, if it has any and is trainable.
    parameter: Vec<Option<usize>>,
    /// The first node that uses it.
    node: Vec<Option<usize>>,
}

impl Firsts {
    /// The first parameter of a node's layer, if this is the layer's first use: backward, its last.
    fn completes(&self, node_idx: usize, layer_idx: usize) -> Option<usize> {
        self.parameter[layer_idx].filter(|_| self.node[layer_idx] == Some(node_idx))
    }
}

/// Adds the slopes of a penalty of outputs to their gradient.
fn record_slopes(rec: &mut Recorder<'_>, tensor: usize, regularizer: Regularizer) {
    let (y, dy) = (rec.value(tensor), rec.output_gradient());
    let len = length_word(y.len);
    let params = regularizer_params(regularizer, len, Word::U32(1));
    rec.dispatch(&regularizer::SLOPES, params, [y], [dy], Grid::Elements(len));
}

/// `l1`, `l2` and what they are of.
pub(super) fn regularizer_params(Regularizer { l1, l2 }: Regularizer, len: Word, splits: Word) -> regularizer::Record {
    let (l1, l2) = (Word::F32(l1), Word::F32(l2));
    regularizer::Record { len, splits, l1, l2, count: Word::BatchRows(1), scale: Word::GradientScale }
}

/// Neighbours among the flat parameters.
pub(super) struct Stretch {
    pub segment: u32,
    pub offset: u64,
    pub len: u64,
}

/// The parameters that are trained, in as few stretches as hold no other.
///
/// A parameter without a gradient is not updated, as in Keras: neither weight decay nor old momentum changes it.
fn stretches(layout: &Layout, is_trained: impl Fn(usize) -> bool) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for (idx, placed) in layout.parameters.iter().enumerate().filter(|(idx, _)| is_trained(*idx)) {
        let next = layout.parameters.get(idx + 1).filter(|next| next.segment == placed.segment);
        let end = next.map_or(layout.segments[placed.segment as usize], |next| next.offset);
        match stretches.last_mut() {
            Some(last) if last.segment == placed.segment && last.offset + last.len == placed.offset => {
                last.len = end - last.offset;
            }
            _ => stretches.push(Stretch { segment: placed.segment, offset: placed.offset, len: end - placed.offset }),
        }
    }
    stretches
}
