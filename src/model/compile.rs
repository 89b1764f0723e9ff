//! Compiles a model to its plan: each node records its part of each pass.

use super::{Model, OutputMask};
use crate::error::{Error, Result};
use crate::kernels::{add, batch_norm, clip, ema, regularizer};
use crate::layers::Regularizer;
use crate::losses::{Head, Loss};
use crate::optimizers::{Clipping, Optimizer};
use crate::plan::{
    Accumulation, BatchStatistics, GradientCompression, Grid, Layout, Length, Moving, Node, Pass, Penalty, Placed,
    Plan, Recorder, Role, Tensor, View, Word, length_word, vectors_word,
};

/// Settings of the training pass: a loss for each output, and the optimizer.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// Loss of each output, in order.
    pub losses: Vec<Loss>,
    /// Rule that updates the parameters.
    pub optimizer: Optimizer,
    /// Global norm above which gradients are scaled down; 0 switches it off.
    pub clip_norm: f32,
    /// Format of gradients sent to the host.
    pub gradient_compression: GradientCompression,
    /// Place where the gradients of an adapter's micro-batches are added.
    pub accumulation: Accumulation,
    /// Rows over which batch normalization takes its statistics.
    pub batch_statistics: BatchStatistics,
    /// Outputs that are reported, beside their losses: those with metrics that need them. In order.
    pub reported_outputs: Vec<usize>,
}

impl Objective {
    /// Losses and an optimizer; gradients are neither clipped nor compressed.
    pub fn new(losses: Vec<Loss>, optimizer: Optimizer) -> Self {
        Self {
            losses,
            optimizer,
            clip_norm: 0.0,
            gradient_compression: GradientCompression::None,
            accumulation: Accumulation::default(),
            batch_statistics: BatchStatistics::default(),
            reported_outputs: Vec::new(),
        }
    }

    /// With gradients that are added where that takes the fewest bytes, for so many micro-batches.
    #[must_use]
    pub(crate) fn for_micro_batches(self, micro_batches: u32) -> Self {
        let accumulation = if micro_batches > 1 { Accumulation::Adapter } else { Accumulation::Host };
        Self { accumulation, ..self }
    }
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

/// Name of the buffer that holds what the clip decided: `[scale, apply, norm, 0]`.
pub(crate) const CLIP_CONTROL: &str = "update.control";
/// Start of the names of buffers with a parameter's penalty, after that of the node.
const PENALTY: &str = "penalty";
/// Start of the names of buffers with a parameter's penalty.
pub(crate) const PENALTIES: &str = "update.penalty";

impl Model {
    /// The plan of prediction alone.
    #[doc(hidden)]
    pub fn inference_plan(&self) -> Plan {
        let mut plan = self.flat_buffers();
        self.record_forward_pass(&mut plan, Pass::Predict, None);
        plan
    }

    /// The plan of training, evaluation and prediction.
    ///
    /// # Errors
    /// If losses and outputs do not go together.
    #[doc(hidden)]
    pub fn plan(&self, objective: &Objective) -> Result<Plan> {
        self.check_losses(&objective.losses)?;
        objective.optimizer.check()?;
        let mut plan = self.flat_buffers();
        plan.penalties = self.penalties();
        plan.masks = self.input_masks();
        let trained = self.record_training(&mut plan, objective);
        self.record_forward_pass(&mut plan, Pass::Evaluate, Some(objective));
        self.record_forward_pass(&mut plan, Pass::Predict, None);
        self.record_update(&mut plan, objective, &trained);
        Ok(plan)
    }

    fn check_losses(&self, losses: &[Loss]) -> Result<()> {
        if losses.len() != self.outputs.len() {
            return Err(Error::setting(
                "losses",
                format!("need one for each of {} outputs, but got {}", self.outputs.len(), losses.len()),
                "give the losses in the order of the model's outputs",
            ));
        }
        for (idx, (loss, output)) in losses.iter().zip(&self.outputs).enumerate() {
            loss.check()?;
            self.check_logits(loss, *output)?;
            if self.output_masks[idx] == OutputMask::Computed {
                return Err(Error::model(
                    format!("output `{}`", self.tensor_name(*output)),
                    "needs a mask that an input alone decides, but its mask depends on what a layer computes",
                    "let `Masking` or `Embedding` read an input, or give the mask as an input of its own",
                ));
            }
        }
        Ok(())
    }

    /// Cross-entropies apply their own softmax or sigmoid; with a second one training is bad, without an error.
    fn check_logits(&self, loss: &Loss, output: usize) -> Result<()> {
        let Some(node) = output.checked_sub(self.inputs.len()).map(|idx| &self.nodes[idx]) else { return Ok(()) };
        let named = &self.layers[node.layer_idx];
        let config = named.layer.config();
        let activation = config.get("activation").and_then(|value| value.as_str()).unwrap_or(named.layer.kind());
        let ends_in = activation.to_ascii_lowercase();
        let doubled = match loss.head() {
            Head::Values => false,
            Head::Sigmoid => ends_in == "sigmoid",
            Head::Softmax => ends_in == "softmax",
        };
        if !doubled {
            return Ok(());
        }
        Err(Error::model(
            Self::who(node.layer_idx, named),
            format!(
                "needs to give logits, since the loss `{}` applies its own {ends_in}, but it ends in {ends_in}",
                loss.name()
            ),
            format!("remove the {ends_in}; apply it to the predictions where you need probabilities"),
        ))
    }

    fn flat_buffers(&self) -> Plan {
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
        for (idx, input) in (0..).zip(&self.inputs) {
            plan.buffer(input.name.clone(), Role::Input(idx), Length::per_row(input.shape.len()));
        }
        plan
    }

    /// The first trainable parameter of each layer, and the node of its first use.
    fn firsts(&self) -> Firsts {
        let mut firsts = Firsts { parameter: vec![None; self.layers.len()], node: vec![None; self.layers.len()] };
        for (idx, (layer_idx, _)) in self.owners(self.layout.trainable()).enumerate() {
            firsts.parameter[layer_idx].get_or_insert(idx);
        }
        for (idx, node) in self.nodes.iter().enumerate() {
            firsts.node[node.layer_idx].get_or_insert(idx);
        }
        firsts
    }

    /// Tensors that depend on a trainable parameter.
    fn recorded_tensors(&self, firsts: &Firsts) -> Vec<Tensor> {
        let mut needs = vec![false; self.inputs.len()];
        for node in &self.nodes {
            let own = firsts.parameter[node.layer_idx].is_some();
            needs.push(own || node.inputs.iter().any(|tensor| needs[*tensor]));
        }
        let tensors = self.shapes.iter().zip(needs);
        tensors.map(|(shape, needs_gradient)| Tensor { shape: shape.clone(), needs_gradient }).collect()
    }

    fn node(&self, idx: usize) -> Node {
        let node = &self.nodes[idx];
        Node {
            idx,
            name: node.name.clone(),
            layer: self.layers[node.layer_idx].name.clone(),
            inputs: node.inputs.clone(),
            output: self.inputs.len() + idx,
            is_trainable: self.layers[node.layer_idx].is_trainable,
        }
    }

    fn record_forward(&self, rec: &mut Recorder<'_>) {
        for (idx, role) in (0..self.inputs.len()).zip((0..).map(Role::Input)) {
            let view = rec.plan().find_or_add("input", role, Length::per_row(self.inputs[idx].shape.len()));
            rec.set_value(idx, view);
        }
        let fused = self.fused_readers();
        let mut is_done = vec![false; self.nodes.len()];
        for (idx, node) in self.nodes.iter().enumerate() {
            rec.enter(self.node(idx));
            if is_done[idx] {
                rec.pass_value();
                continue;
            }
            if let Some(reader) = fused[idx] {
                rec.fuse(self.layers[self.nodes[reader].layer_idx].layer.function());
                is_done[reader] = true;
            }
            self.layers[node.layer_idx].layer.forward(rec);
        }
    }

    /// Penalties of trainable parameters.
    fn penalties(&self) -> Vec<Penalty> {
        let mut penalties = Vec::new();
        for named in self.layers.iter().filter(|named| named.is_trainable) {
            for (names, Regularizer { l1, l2 }) in named.regularizers.of_parameters() {
                let found = names.iter().find_map(|name| self.layout.parameter(&format!("{}/{name}", named.name)));
                let Some(placed) = found.map(|idx| &self.layout.parameters[idx]) else { continue };
                let len = placed.len() as u64;
                penalties.push(Penalty { segment: placed.segment, offset: placed.offset, len, l1, l2 });
            }
        }
        penalties
    }

    /// The penalty of a node's outputs.
    fn activity(&self, node_idx: usize) -> Option<Regularizer> {
        self.layers[self.nodes[node_idx].layer_idx].regularizers.activity()
    }

    /// Records copies of outputs that are reported, behind the reports of the losses; returns the number of reports so far.
    fn record_reported(&self, rec: &mut Recorder<'_>, outputs: &[usize]) -> u32 {
        let first = u32::try_from(self.outputs.len()).unwrap_or(u32::MAX);
        for (idx, output) in (first..).zip(outputs) {
            let tensor = self.outputs[*output];
            let (y, name) = (rec.value(tensor), self.tensor_name(tensor));
            rec.enter(Node::apart(self.nodes.len(), name, vec![tensor]));
            let report = rec.plan().find_or_add(name, Role::Report(idx), y.len);
            let len = length_word(y.len);
            rec.dispatch(&add::COPY, add::Record { len }, [y], [report], Grid::Elements(len));
        }
        first + u32::try_from(outputs.len()).unwrap_or(u32::MAX)
    }

    /// Records the penalties of outputs: row by row, in report `idx`, behind all others.
    fn record_activities(&self, rec: &mut Recorder<'_>, idx: u32) {
        let penalized = (0..self.nodes.len()).filter_map(|idx| Some((idx, self.activity(idx)?)));
        for (count, (node, regularizer)) in penalized.enumerate() {
            let report = rec.plan().find_or_add("activity", Role::Report(idx), Length::per_row(2));
            rec.enter(self.node(node));
            let y = rec.value(self.inputs.len() + node);
            let params = regularizer_params(regularizer, length_word(y.len), Word::Rows(1));
            let dispatch = rec.dispatch(&regularizer::OUTPUTS, params, [y], [report], Grid::Items(Word::Rows(1)));
            if count > 0 {
                dispatch.constants.push(("ADDS", 1.0));
            }
        }
    }

    /// The node whose function each node applies to its own output: its only reader, if that is such a function.
    fn fused_readers(&self) -> Vec<Option<usize>> {
        let n_inputs = self.inputs.len();
        let mut readers = vec![0; self.shapes.len()];
        let read = self.nodes.iter().flat_map(|node| &node.inputs).chain(&self.outputs);
        read.for_each(|tensor| readers[*tensor] += 1);
        let mut fused = vec![None; self.nodes.len()];
        for (idx, node) in self.nodes.iter().enumerate() {
            let [Some(before)] = node.inputs.iter().map(|tensor| tensor.checked_sub(n_inputs)).collect::<Vec<_>>()[..]
            else {
                continue;
            };
            let function = self.layers[node.layer_idx].layer.function();
            let fits = function.is_some_and(|function| !function.activation.slope_needs_input());
            let takes = self.layers[self.nodes[before].layer_idx].layer.can_fuse();
            if fits && takes && readers[n_inputs + before] == 1 && self.activity(before).is_none() {
                fused[before] = Some(idx);
            }
        }
        fused
    }

    fn record_losses(&self, rec: &mut Recorder<'_>, losses: &[Loss]) -> Vec<View> {
        let mut gradients = Vec::new();
        for ((output_idx, tensor), loss) in (0..).zip(&self.outputs).zip(losses) {
            let name = format!("loss:{}", self.tensor_name(*tensor));
            rec.enter(Node::apart(self.nodes.len(), name, vec![*tensor]));
            let y = rec.value(*tensor);
            gradients.push(loss.record(rec, output_idx, &self.shapes[*tensor], y));
        }
        gradients
    }

    /// Returns the stretches of the flat parameters whose gradients it computes.
    fn record_training(&self, plan: &mut Plan, objective: &Objective) -> Vec<Stretch> {
        let firsts = self.firsts();
        let tensors = self.recorded_tensors(&firsts);
        let rec = Recorder::new(plan, &self.layout, Pass::Train, &tensors);
        let rec = rec.compressed(objective.gradient_compression).adding_on(objective.accumulation);
        let mut rec = rec.over(objective.batch_statistics);
        self.record_forward(&mut rec);
        let gradients = self.record_losses(&mut rec, &objective.losses);
        let reports = self.record_reported(&mut rec, &objective.reported_outputs);
        self.record_activities(&mut rec, reports);
        for (tensor, gradient) in self.outputs.iter().zip(gradients) {
            rec.add_gradient(*tensor, gradient);
        }
        for (idx, node) in self.nodes.iter().enumerate().rev() {
            let tensor = self.inputs.len() + idx;
            rec.enter(self.node(idx));
            if rec.has_gradient(tensor) && tensors[tensor].needs_gradient {
                if let Some(regularizer) = self.activity(idx) {
                    record_slopes(&mut rec, tensor, regularizer);
                }
                self.layers[node.layer_idx].layer.backward(&mut rec);
                rec.leave();
            }
            if let Some(first) = firsts.completes(idx, node.layer_idx) {
                rec.complete_gradients(first);
            }
        }
        // A penalty moves a parameter that no loss reaches, too.
        let is_penalized = |placed: &Placed| {
            let is_of = |penalty: &Penalty| (penalty.segment, penalty.offset) == (placed.segment, placed.offset);
            rec.penalties().iter().any(is_of)
        };
        let trained = stretches(&self.layout, |parameter| {
            rec.has_parameter_gradient(parameter) || is_penalized(&self.layout.parameters[parameter])
        });
        rec.finish();
        trained
    }

    /// Records a pass of inference: with losses, or, without an objective, with the outputs.
    fn record_forward_pass(&self, plan: &mut Plan, pass: Pass, objective: Option<&Objective>) {
        let tensors = self.recorded_tensors(&self.firsts());
        let mut rec = Recorder::new(plan, &self.layout, pass, &tensors);
        self.record_forward(&mut rec);
        match objective {
            None => self.record_outputs(&mut rec),
            Some(Objective { losses, reported_outputs, .. }) => {
                self.record_losses(&mut rec, losses);
                let reports = self.record_reported(&mut rec, reported_outputs);
                self.record_activities(&mut rec, reports);
            }
        }
        rec.finish();
    }

    fn record_outputs(&self, rec: &mut Recorder<'_>) {
        for (output_idx, tensor) in (0..).zip(&self.outputs) {
            let (y, name) = (rec.value(*tensor), self.tensor_name(*tensor));
            rec.enter(Node::apart(self.nodes.len(), name, vec![*tensor]));
            let output = rec.plan().buffer(format!("{name}.result"), Role::Output(output_idx), y.len);
            let len = length_word(y.len);
            rec.dispatch(&add::COPY, add::Record { len }, [y], [output], Grid::Elements(len));
        }
    }

    fn record_update(&self, plan: &mut Plan, objective: &Objective, trained: &[Stretch]) {
        let moving = plan.moving.clone();
        let mut rec = Recorder::new(plan, &self.layout, Pass::Update, &[]);
        rec.enter(Node::apart(0, "update", Vec::new()));
        record_penalties(&mut rec);
        let control = record_clip(&mut rec, self.layout.trainable_segments(), objective.clip_norm);
        // Without trainable parameters no stretch makes them.
        for (segment, len) in (0..).zip(self.layout.trainable_segments()) {
            for (kind, _) in (0..).zip(objective.optimizer.state_names()) {
                flat(&mut rec, Role::State(kind, segment), *len);
            }
        }
        match objective.optimizer.clipping() {
            None => {}
            Some(Clipping::Norm(norm)) => {
                self.layout.trainable().iter().for_each(|placed| record_clip_norm(&mut rec, placed, norm));
            }
            Some(Clipping::Value(value)) => {
                let segments = (0..).zip(self.layout.trainable_segments());
                segments.for_each(|(segment, len)| record_clip_value(&mut rec, segment, *len, value));
            }
        }
        for stretch in trained {
            record_stretch(&mut rec, &objective.optimizer, stretch, control);
        }
        if objective.optimizer.ema().is_some() {
            let segments = (0..).zip(self.layout.trainable_segments());
            segments.for_each(|(segment, len)| record_average(&mut rec, &objective.optimizer, segment, *len, control));
        }
        for moving in moving {
            record_moving(&mut rec, &moving, control);
        }
        rec.finish();
    }
}

fn flat(rec: &mut Recorder<'_>, role: Role, len: u64) -> View {
    rec.plan().find_or_add("update", role, Length { per_row: 0, fixed: len })
}

/// `l1`, `l2` and what they are of.
fn regularizer_params(Regularizer { l1, l2 }: Regularizer, len: Word, splits: Word) -> regularizer::Record {
    regularizer::Record { len, splits, l1: Word::F32(l1), l2: Word::F32(l2), count: Word::BatchRows(1) }
}

/// Adds the slopes of a penalty of outputs to their gradient.
fn record_slopes(rec: &mut Recorder<'_>, tensor: usize, regularizer: Regularizer) {
    let (y, dy) = (rec.value(tensor), rec.output_gradient());
    let len = length_word(y.len);
    let params = regularizer_params(regularizer, len, Word::U32(1));
    rec.dispatch(&regularizer::SLOPES, params, [y], [dy], Grid::Elements(len));
}

/// Adds the slopes of the parameters' penalties to the gradients, and leaves the penalties where the host reads them.
fn record_penalties(rec: &mut Recorder<'_>) {
    for (idx, penalty) in rec.penalties().to_vec().into_iter().enumerate() {
        let Penalty { segment, offset, len, l1, l2 } = penalty;
        let whole = rec.layout().segments[segment as usize];
        let part = |view: View| View { offset, len: Length { per_row: 0, fixed: len }, ..view };
        let parameter = part(flat(rec, Role::Parameters(segment), whole));
        let gradient = part(flat(rec, Role::Gradients(segment), whole));
        let splits = clip::splits(len);
        let sums = rec.control(&format!("{PENALTY}{idx}"), splits as usize);
        let params = regularizer_params(Regularizer { l1, l2 }, length_word(gradient.len), Word::U32(splits));
        let grid = Grid::Items(Word::U32(splits));
        rec.dispatch(&regularizer::WEIGHTS, params, [parameter], [gradient, sums], grid);
    }
}

fn record_clip(rec: &mut Recorder<'_>, segments: &[u64], max_norm: f32) -> View {
    let slots = |len: &u64| clip::slots(clip::splits(*len));
    let parts: u32 = segments.iter().map(slots).sum();
    let partials = rec.scratch("norm_partials", Length { per_row: 0, fixed: 2 * u64::from(parts.max(1)) });
    let control = rec.control("control", 4);
    let record = |len: Word, splits: u32| clip::Record {
        len,
        splits: Word::U32(splits),
        max_norm: Word::F32(max_norm),
        parts: Word::U32(parts),
    };
    let mut offset = 0;
    for (segment, len) in (0..).zip(segments) {
        let gradient = flat(rec, Role::Gradients(segment), *len);
        let part = Length { per_row: 0, fixed: 2 * u64::from(slots(len)) };
        let out = View { buffer: partials.buffer, offset, len: part };
        offset += part.fixed;
        let splits = clip::splits(*len);
        let record = record(length_word(gradient.len), splits);
        rec.dispatch(&clip::NORM, record, [gradient], [out], Grid::Items(Word::U32(splits)));
    }
    rec.dispatch(&clip::COMBINE, record(Word::U32(0), 0), [partials], [control], Grid::Items(Word::U32(1)));
    control
}

/// Scales the gradient of one parameter down to a norm.
fn record_clip_norm(rec: &mut Recorder<'_>, placed: &Placed, max_norm: f32) {
    let len = placed.len() as u64;
    let whole = rec.layout().segments[placed.segment as usize];
    let gradient = flat(rec, Role::Gradients(placed.segment), whole);
    let gradient = View { offset: placed.offset, len: placed.length(), ..gradient };
    let splits = clip::splits(len);
    let parts = clip::slots(splits);
    let record = clip::Record {
        len: length_word(gradient.len),
        splits: Word::U32(splits),
        max_norm: Word::F32(max_norm),
        parts: Word::U32(parts),
    };
    let partials = rec.scratch("variable_partials", Length { per_row: 0, fixed: 2 * u64::from(parts) });
    let factors = rec.scratch("variable_factors", Length { per_row: 0, fixed: 4 });
    rec.dispatch(&clip::NORM, record, [gradient], [partials], Grid::Items(Word::U32(splits)));
    rec.dispatch(&clip::COMBINE, record, [partials], [factors], Grid::Items(Word::U32(1)));
    rec.dispatch(&clip::SCALE, record, [factors], [gradient], Grid::Elements(length_word(gradient.len)));
}

/// Brings the gradients of a segment between a value and its negative.
fn record_clip_value(rec: &mut Recorder<'_>, segment: u32, len: u64, value: f32) {
    let gradient = flat(rec, Role::Gradients(segment), len);
    let len = length_word(gradient.len);
    let zero = Word::U32(0);
    let record = clip::Record { len, splits: zero, max_norm: Word::F32(value), parts: zero };
    rec.dispatch(&clip::VALUES, record, [], [gradient], Grid::Elements(len));
}

/// Neighbours among the flat parameters.
struct Stretch {
    segment: u32,
    offset: u64,
    len: u64,
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

fn record_stretch(rec: &mut Recorder<'_>, optimizer: &Optimizer, stretch: &Stretch, control: View) {
    let Stretch { segment, offset, len } = *stretch;
    let whole = rec.layout().segments[segment as usize];
    let mut part = |role: Role| View { offset, len: Length { per_row: 0, fixed: len }, ..flat(rec, role, whole) };
    let gradient = part(Role::Gradients(segment));
    let mut outputs = vec![part(Role::Parameters(segment))];
    for (kind, _) in (0..).zip(optimizer.rule().state_names()) {
        outputs.push(part(Role::State(kind, segment)));
    }
    let grid = Grid::Elements(vectors_word(gradient.len));
    let (rule, len) = (optimizer.rule(), u32::try_from(len).unwrap_or(u32::MAX));
    let dispatch = rec.dispatch(rule.kernel(), rule.params(len), [gradient, control], outputs, grid);
    dispatch.constants = rule.constants();
}

/// Updates the averages of a segment. The average comes first among the outputs: only rules are what changes parameters.
fn record_average(rec: &mut Recorder<'_>, optimizer: &Optimizer, segment: u32, len: u64, control: View) {
    let kind = u32::try_from(optimizer.rule().state_names().len()).unwrap_or(u32::MAX);
    let outputs = [flat(rec, Role::State(kind, segment), len), flat(rec, Role::Parameters(segment), len)];
    let params = optimizer.ema_params(u32::try_from(len).unwrap_or(u32::MAX));
    rec.dispatch(&ema::UPDATE, params, [control], outputs, Grid::Elements(vectors_word(outputs[0].len)));
}

fn record_moving(rec: &mut Recorder<'_>, moving: &Moving, control: View) {
    let channels = Word::U32(u32::try_from(moving.channels).unwrap_or(u32::MAX));
    let params = batch_norm::Record {
        pixels: Word::Rows(moving.count_per_row),
        channels,
        count: Word::Rows(moving.count_per_row),
        epsilon: Word::F32(0.0),
        momentum: Word::F32(moving.momentum),
        splits: Word::U32(1),
        correction: Word::U32(moving.correction),
    };
    let outputs = [moving.mean, moving.variance];
    rec.dispatch(&batch_norm::UPDATE, params, [moving.moments, control], outputs, Grid::Elements(channels));
}
