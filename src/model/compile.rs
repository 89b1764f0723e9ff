//! Compiles a model to its plan: the passes of all nodes, and the update.

use super::Model;
use super::model_part::{ModelPart, Stretch, regularizer_params};
use super::objective::Objective;
use crate::error::Result;
use crate::kernels::{batch_norm, clip, ema, regularizer};
use crate::layers::Regularizer;
use crate::losses::Loss;
use crate::optimizers::{Clipping, Optimizer, PlacedRule};
use crate::plan::{
    Grid, Layout, Length, Moving, Node, Pass, Penalty, PlacedTensor, Plan, Precision, Recorder, Role, View, Word,
    length_word, vectors_word,
};

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
        let whole = ModelPart::whole(self);
        let mut plan = whole.flat_buffers();
        whole.record_forward_pass(&mut plan, Pass::Predict, None);
        plan
    }

    /// Whether a plan of an objective has the pass of prediction.
    pub(super) fn predicts(&self, objective: &Objective) -> bool {
        objective.predicts || !ModelPart::whole(self).has_pieces(objective)
    }

    /// The plan of training, evaluation and prediction.
    ///
    /// # Errors
    /// If losses and outputs do not go together.
    #[doc(hidden)]
    pub fn plan(&self, objective: &Objective) -> Result<Plan> {
        self.check_objective(objective)?;
        let whole = ModelPart::whole(self);
        let mut plan = whole.flat_buffers();
        plan.penalties = whole.penalties();
        plan.masks = self.position_masks(&objective.losses);
        let trained = whole.record_training(&mut plan, objective);
        if objective.losses.iter().any(Loss::needs_outputs) {
            whole.record_training_outputs(&mut plan, objective);
        }
        whole.record_forward_pass(&mut plan, Pass::Evaluate, Some(objective));
        if self.predicts(objective) {
            whole.record_forward_pass(&mut plan, Pass::Predict, None);
        }
        record_update(&self.layout, &mut plan, objective, &trained.stretches);
        Ok(plan)
    }
}

/// Records the update of stretches of the flat parameters: which they are, and how a device updates them if the host need not.
#[allow(clippy::cast_possible_truncation, reason = "a segment is smaller than 2^25 elements")]
fn record_update(layout: &Layout, plan: &mut Plan, objective: &Objective, trained: &[Stretch]) {
    let parts: Vec<_> = trained.iter().flat_map(|stretch| by_rule(layout, &objective.optimizer, stretch)).collect();
    let range = |part: &Stretch| part.offset as usize..(part.offset + part.len) as usize;
    plan.updated = parts.iter().map(|(part, _)| (part.segment, range(part))).collect();
    if objective.optimizer.needs_host() {
        return;
    }
    let moving = plan.moving.clone();
    let mut rec = Recorder::new(plan, layout, Pass::Update, &[]);
    rec.enter(Node::apart(0, "update", Vec::new()));
    if objective.precision == Precision::MixedFloat16 {
        let segments = (0..).zip(layout.trainable_segments());
        segments.for_each(|(segment, len)| record_unscaling(&mut rec, segment, *len));
    }
    record_penalties(&mut rec);
    let control = record_clip(&mut rec, layout.trainable_segments(), objective.clip_norm);
    // Without trainable parameters no stretch makes them.
    for (segment, len) in (0..).zip(layout.trainable_segments()) {
        for (kind, _) in (0..).zip(objective.optimizer.state_names()) {
            flat(&mut rec, Role::State(kind, segment), *len);
        }
    }
    match objective.optimizer.clipping() {
        None => {}
        Some(Clipping::Norm(norm)) => {
            layout.trainable().iter().for_each(|placed| record_clip_norm(&mut rec, placed, norm));
        }
        Some(Clipping::Value(value)) => {
            let segments = (0..).zip(layout.trainable_segments());
            segments.for_each(|(segment, len)| record_clip_value(&mut rec, segment, *len, value));
        }
    }
    for (part, rule) in parts {
        record_part(&mut rec, rule, &part, control);
    }
    if objective.optimizer.ema().is_some() {
        let segments = (0..).zip(layout.trainable_segments());
        segments.for_each(|(segment, len)| record_average(&mut rec, &objective.optimizer, segment, *len, control));
    }
    for moving in moving {
        record_moving(&mut rec, &moving, control);
    }
    rec.finish();
}

fn flat(rec: &mut Recorder<'_>, role: Role, len: u64) -> View {
    rec.plan().find_or_add("update", role, Length { per_row: 0, fixed: len })
}

/// Takes the factor of all gradients away from those of a segment.
fn record_unscaling(rec: &mut Recorder<'_>, segment: u32, len: u64) {
    let gradient = flat(rec, Role::Gradients(segment), len);
    let len = length_word(gradient.len);
    let record = clip::Record { len, factor: Word::GradientUnscale, ..clip::Record::NONE };
    rec.dispatch(&clip::UNSCALE, record, [], [gradient], Grid::Elements(len));
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
        update: Word::Update,
        ..clip::Record::NONE
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
fn record_clip_norm(rec: &mut Recorder<'_>, placed: &PlacedTensor, max_norm: f32) {
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
        ..clip::Record::NONE
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
    let record = clip::Record { len, max_norm: Word::F32(value), ..clip::Record::NONE };
    rec.dispatch(&clip::VALUES, record, [], [gradient], Grid::Elements(len));
}

/// The parts of a stretch that one rule updates: groups have rules of their own, and weight decay may leave parameters out.
fn by_rule<'a>(layout: &Layout, optimizer: &'a Optimizer, stretch: &Stretch) -> Vec<(Stretch, PlacedRule<'a>)> {
    let Stretch { segment, offset, len } = *stretch;
    let end = offset + len;
    let is_held = |placed: &&PlacedTensor| placed.segment == segment && (offset..end).contains(&placed.offset);
    let mut parts: Vec<(Stretch, PlacedRule<'_>)> = Vec::new();
    let mut last: Option<&str> = None;
    for placed in layout.trainable().iter().filter(is_held) {
        if !last.replace(&placed.name).is_some_and(|last| optimizer.updates_alike(last, &placed.name)) {
            if let Some((last, _)) = parts.last_mut() {
                last.len = placed.offset - last.offset;
            }
            let part = Stretch { segment, offset: placed.offset, len: end - placed.offset };
            parts.push((part, optimizer.rule_of(&placed.name)));
        }
    }
    parts
}

fn record_part(rec: &mut Recorder<'_>, placed: PlacedRule<'_>, part: &Stretch, control: View) {
    let rule = placed.rule;
    let Some(kernel) = rule.kernel() else { return };
    let Stretch { segment, offset, len } = *part;
    let whole = rec.layout().segments[segment as usize];
    let mut part = |role: Role| View { offset, len: Length { per_row: 0, fixed: len }, ..flat(rec, role, whole) };
    let gradient = part(Role::Gradients(segment));
    let mut outputs = vec![part(Role::Parameters(segment))];
    for (kind, _) in (0..).zip(rule.state_names()) {
        outputs.push(part(Role::State(kind, segment)));
    }
    let grid = Grid::Elements(vectors_word(gradient.len));
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    let dispatch = rec.dispatch(kernel, placed.params(len), [gradient, control], outputs, grid);
    dispatch.constants = rule.constants();
}

/// Updates the averages of a segment.
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
