//! The update on the host: clip, optimizer and copy for the adapters in one pass over memory, on several threads.

use std::ops::Range;
use std::sync::Arc;

use crate::kernels::rounding::single;
use crate::kernels::{Call, clip, ema};
use crate::model::{CLIP_CONTROL, PENALTIES};
use crate::optimizers::{Clipping, Optimizer, PlacedRule, WholeTensor};
use crate::plan::{PlacedTensor, Plan, Role, Scalars};
use crate::runtime::threads;
use manyhands_engine::adapters::Request;

use super::{State, TrainingState};
use crate::scheduler::rig::Rig;
use crate::scheduler::shards::Answer;
use crate::scheduler::timeline::Activity;

/// Elements that one thread updates at a time.
const CHUNK: usize = 1 << 15;

/// Parameters that are updated and broadcast at once. While the adapters receive them, the next ones are updated.
const PART: usize = 1 << 20;

impl State {
    /// Updates the parameters from the summed gradients, by the optimizer kernel's fast twin, and broadcasts them
    /// to the adapters that took part in the step. The others get them before their next run.
    pub fn update(&mut self, rig: &mut Rig, norm: f64, scalars: &Scalars, answers: &[Answer]) {
        let Some(optimizer) = self.optimizer.clone() else { return };
        let receivers = receivers(rig, answers);
        let norm = self.accumulate(&optimizer, scalars).unwrap_or(norm);
        let updated = if optimizer.updates(scalars) { rig.plan().updated.clone() } else { Vec::new() };
        self.clip_variables(&optimizer);
        let scale = clip::clip_scale(f64::from(self.clip_norm), norm);
        let control = [single(scale), 1.0, single(norm), 0.0];
        let step = Some(u64::from(scalars.step));
        // Then the adapters get the averages below.
        let is_overwritten = optimizer.overwrites(scalars);
        let mut now_ms = rig.runtime.now_ms();
        for (segment, updated) in updated {
            let first =
                self.layout.trainable().iter().find(|it| it.segment == segment && it.range().start == updated.start);
            let rule = optimizer.rule_of(first.map_or("", |placed| &placed.name));
            if rule.rule.kernel().is_none() {
                self.update_tensors(rig, &optimizer, (segment, updated.clone()), control[0], scalars);
            }
            for start in updated.clone().step_by(PART) {
                let range = start..(start + PART).min(updated.end);
                self.update_part(rig, rule, (segment as usize, range.clone()), &control, scalars);
                now_ms = rig.record(Activity::Update, now_ms, step, 0);
                if !is_overwritten {
                    self.broadcast(rig, segment, range, &receivers);
                    now_ms = rig.record(Activity::Broadcast, now_ms, step, 0);
                }
            }
        }
        if optimizer.ema().is_none() {
            return;
        }
        for segment in (0..).take(self.gradients.len()) {
            let len = self.gradients[segment as usize].len();
            for start in (0..len).step_by(PART) {
                let range = start..(start + PART).min(len);
                self.average_part(rig, &optimizer, (segment as usize, range.clone()), scalars);
                now_ms = rig.record(Activity::Update, now_ms, step, 0);
                if is_overwritten {
                    self.broadcast(rig, segment, range, &receivers);
                    now_ms = rig.record(Activity::Broadcast, now_ms, step, 0);
                }
            }
        }
    }

    /// Sends a part of a segment of the parameters to several adapters.
    fn broadcast(&self, rig: &Rig, segment: u32, range: Range<usize>, receivers: &[usize]) {
        let values = &self.training.weights.parameters[segment as usize];
        for (stage_idx, stage) in rig.stages.iter().enumerate() {
            let places = stage.places.parameters.iter().filter(|place| place.whole_segment == segment);
            for place in places.filter_map(|place| place.within_whole(&range)) {
                // Copied once for all adapters of the stage.
                let data: Arc<[f32]> = values[place.whole_range()].into();
                charge(rig, 2 * data.len());
                let (role, offset) = (Role::Parameters(place.segment), place.offset);
                for adapter_idx in receivers.iter().filter(|idx| rig.members[**idx].stage == stage_idx) {
                    rig.send(*adapter_idx, Request::Write { role, offset, data: data.clone() });
                }
            }
        }
    }

    /// Adds the gradients to those of the steps before, if several steps make an update. The step that completes it has their mean, of which
    /// this is the norm, and leaves sums of 0.
    fn accumulate(&mut self, optimizer: &Optimizer, scalars: &Scalars) -> Option<f64> {
        let (steps, kind) = optimizer.accumulation()?;
        let (count, updates) = (single(steps.into()), optimizer.updates(scalars));
        let sums = &mut Self::training_mut(&mut self.training).optimizer[kind];
        let mut squares = 0.0;
        for (gradients, sums) in self.gradients.iter_mut().zip(sums) {
            for (gradient, sum) in gradients.iter_mut().zip(sums.iter_mut()) {
                *sum += *gradient;
                *gradient = *sum / count;
            }
            if updates {
                sums.fill(0.0);
            }
            squares += clip::sum_of_squares(gradients).0;
        }
        Some(squares.sqrt())
    }

    /// Clips the gradient of each parameter by itself.
    fn clip_variables(&mut self, optimizer: &Optimizer) {
        let Some(clipping) = optimizer.clipping() else { return };
        let mut variables: Vec<&mut [f32]> = Vec::new();
        for (segment, values) in (0..).zip(&mut self.gradients) {
            let placed = self.layout.trainable().iter().filter(|placed| placed.segment == segment);
            variables.extend(split(placed, values));
        }
        threads::for_each(variables, |gradient| match clipping {
            Clipping::Value(limit) => clip::bound(gradient, limit),
            Clipping::Norm(max_norm) => {
                let norm = clip::sum_of_squares(gradient).0.sqrt();
                let scale = single(clip::clip_scale(f64::from(max_norm), norm));
                gradient.iter_mut().for_each(|value| *value *= scale);
            }
        });
    }

    /// Updates the parameters of a stretch by the rules that need whole tensors.
    fn update_tensors(
        &mut self,
        rig: &Rig,
        optimizer: &Optimizer,
        (segment, range): (u32, Range<usize>),
        scale: f32,
        scalars: &Scalars,
    ) {
        let is_within = |placed: &&PlacedTensor| placed.segment == segment && range.contains(&placed.range().start);
        let all: Vec<&PlacedTensor> = self.layout.trainable().iter().filter(is_within).collect();
        let placed = || all.iter().copied();
        let segment = segment as usize;
        if scale.to_bits() != 1.0_f32.to_bits() {
            self.gradients[segment][range.clone()].iter_mut().for_each(|value| *value *= scale);
        }
        let n_states = optimizer.rule().state_names().len();
        let TrainingState { weights, optimizer: kinds } = Self::training_mut(&mut self.training);
        let mut states: Vec<Vec<&mut [f32]>> = all.iter().map(|_| Vec::new()).collect();
        for kind in kinds.iter_mut().take(n_states) {
            states.iter_mut().zip(split(placed(), &mut kind[segment])).for_each(|(states, state)| states.push(state));
        }
        let parameters = split(placed(), &mut weights.parameters[segment]).zip(states);
        let tensors = all.iter().zip(parameters).map(|(placed, (parameter, states))| WholeTensor {
            name: &placed.name,
            shape: &placed.shape,
            gradient: &self.gradients[segment][placed.range()],
            parameter,
            states,
            numbers: optimizer.rule_of(&placed.name).numbers(scalars),
        });
        threads::for_each(tensors.collect(), |tensor| optimizer.rule_of(tensor.name).rule.update_tensor(tensor));
        charge(rig, range.len() * (1 + 2 + 2 * n_states));
    }

    fn update_part(
        &mut self,
        rig: &Rig,
        placed: PlacedRule<'_>,
        (segment, range): (usize, Range<usize>),
        control: &[f32],
        scalars: &Scalars,
    ) {
        let rule = placed.rule;
        let Some(kernel) = rule.kernel() else { return };
        let constants = rule.constants();
        let update = kernel.fast.unwrap_or(kernel.twin);
        let training = Self::training_mut(&mut self.training);
        let parameters = &mut training.weights.parameters[segment][range.clone()];
        let n_states = rule.state_names().len();
        let states = training.optimizer.iter_mut().take(n_states).map(|kind| &mut kind[segment][range.clone()]);
        let chunks = chunks(parameters, &self.gradients[segment][range.clone()], states.collect());
        threads::for_each(chunks, |(gradient, mut outputs)| {
            #[allow(clippy::cast_possible_truncation, reason = "a chunk is far below 2^32 elements")]
            let len = gradient.len() as u32;
            let words: Vec<u32> = placed.params(len).iter().map(|word| word.bits(scalars)).collect();
            let call = Call { params: &words, constants: &constants, inputs: &[gradient, control] };
            update(&call, &mut outputs);
        });
        // Gradients are read, parameters and states read and written.
        charge(rig, range.len() * (1 + 2 + 2 * n_states));
    }

    /// Updates averages of parameters, and the parameters where they take them over.
    fn average_part(
        &mut self,
        rig: &Rig,
        optimizer: &Optimizer,
        (segment, range): (usize, Range<usize>),
        scalars: &Scalars,
    ) {
        let update = ema::UPDATE.fast.unwrap_or(ema::UPDATE.twin);
        let training = Self::training_mut(&mut self.training);
        let Some(averages) = training.optimizer.last_mut() else { return };
        let averages = averages[segment][range.clone()].chunks_mut(CHUNK);
        let parameters = training.weights.parameters[segment][range.clone()].chunks_mut(CHUNK);
        threads::for_each(averages.zip(parameters).collect(), |(average, parameter)| {
            let len = u32::try_from(average.len()).unwrap_or(u32::MAX);
            let words: Vec<u32> = optimizer.ema_params(len).iter().map(|word| word.bits(scalars)).collect();
            // The update that came before was applied.
            let call = Call { params: &words, constants: &[], inputs: &[&[1.0, 1.0, 0.0, 0.0]] };
            update(&call, &mut [average, parameter]);
        });
        charge(rig, 3 * range.len());
    }
}

/// The values of parameters in their segment, in the order of the layout.
fn split<'a>(placed: impl Iterator<Item = &'a PlacedTensor>, segment: &mut [f32]) -> impl Iterator<Item = &mut [f32]> {
    let (mut rest, mut from) = (segment, 0);
    placed.map(move |placed| {
        let range = placed.range();
        let (_, behind) = std::mem::take(&mut rest).split_at_mut(range.start - from);
        let (values, behind) = behind.split_at_mut(range.len());
        (rest, from) = (behind, range.end);
        values
    })
}

/// Charges the runtime for values that are read or written.
fn charge(rig: &Rig, values: usize) {
    rig.runtime.charge((values * size_of::<f32>()) as u64);
}

/// The active adapters that took part in a step; from now on the others lack the newest weights.
fn receivers(rig: &mut Rig, answers: &[Answer]) -> Vec<usize> {
    for (adapter_idx, member) in rig.members.iter_mut().enumerate() {
        let took_part = answers.iter().any(|answer| answer.shard.adapter_idx == adapter_idx);
        member.is_stale = !(took_part && member.is_active());
    }
    (0..rig.members.len()).filter(|idx| !rig.members[*idx].is_stale).collect()
}

/// Results of an update on the device.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::scheduler) struct Updated {
    /// Global norm of the gradients.
    pub norm: f32,
    /// Whether they were finite, so that the update was applied.
    pub is_applied: bool,
    /// Whether the clip's last word says that they were not finite, and that the next step is void.
    pub is_refused: bool,
    /// Penalties of the parameters before it.
    pub penalty: f64,
}

impl Updated {
    /// From a plan's control buffers.
    pub fn of(plan: &Plan, controls: &[Vec<f32>]) -> Self {
        let mut updated = Self::default();
        let buffers = plan.buffers.iter().filter(|buffer| buffer.role == Role::Control);
        for (buffer, values) in buffers.zip(controls) {
            if buffer.name == CLIP_CONTROL {
                (updated.norm, updated.is_applied) = (values[2], values[1] > 0.0);
                updated.is_refused = values[3] > 0.0;
            } else if buffer.name.starts_with(PENALTIES) {
                updated.penalty += values.iter().map(|part| f64::from(*part)).sum::<f64>();
            }
        }
        updated
    }
}

type Chunk<'a> = (&'a [f32], Vec<&'a mut [f32]>);

/// Gradient, and parameters and states beside it, in chunks.
fn chunks<'a>(parameters: &'a mut [f32], gradients: &'a [f32], states: Vec<&'a mut [f32]>) -> Vec<Chunk<'a>> {
    let gradients = gradients.chunks(CHUNK).map(|gradient| (gradient, Vec::new()));
    let mut chunks: Vec<Chunk<'a>> = gradients.collect();
    for values in std::iter::once(parameters).chain(states) {
        for (chunk, part) in chunks.iter_mut().zip(values.chunks_mut(CHUNK)) {
            chunk.1.push(part);
        }
    }
    chunks
}
