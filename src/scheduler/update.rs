//! The update on the host: clip, optimizer and copy for the adapters in one pass over memory, on several threads.

use std::ops::Range;
use std::sync::Arc;

use crate::adapters::Request;
use crate::kernels::rounding::single;
use crate::kernels::{Call, clip};
use crate::model::CLIP_CONTROL;
use crate::optimizers::UpdateRule;
use crate::plan::{Role, Scalars};
use crate::runtime::threads;

use super::Scheduler;
use super::round::Answer;
use super::shards::count;
use super::timeline::What;

/// Elements that one thread updates at a time.
const CHUNK: usize = 1 << 15;

/// Parameters that are updated and handed out at once. While the adapters take them in, the next ones are updated.
const PART: usize = 1 << 20;

impl Scheduler {
    /// Updates the parameters from the summed gradients, by the optimizer kernel's fast twin, and gives them to the
    /// adapters that took part in the step. The others get them before their next run: what rests costs nothing.
    pub(super) fn update_on_host(&mut self, norm: f64, scalars: &Scalars, answers: &[Answer]) {
        let Some(optimizer) = self.optimizer.clone() else { return };
        let receivers = self.receivers(answers);
        let scale = clip::clip_scale(f64::from(self.clip_norm), norm);
        let control = [single(scale), 1.0, single(norm), 0.0];
        let step = Some(u64::from(scalars.step));
        let mut now_ms = self.runtime.now_ms();
        for (segment, updated) in self.plan.updated() {
            let segment = segment as usize;
            for start in updated.clone().step_by(PART) {
                let range = start..(start + PART).min(updated.end);
                self.update_part(optimizer.rule(), segment, range.clone(), &control, scalars);
                now_ms = self.record(What::Update, now_ms, step, 0);
                self.hand_out_part(segment, range, &receivers);
                now_ms = self.record(What::HandOut, now_ms, step, 0);
            }
        }
    }

    fn update_part(
        &mut self,
        rule: &dyn UpdateRule,
        segment: usize,
        range: Range<usize>,
        control: &[f32],
        scalars: &Scalars,
    ) {
        let (kernel, constants) = (rule.kernel(), rule.constants());
        let update = kernel.fast.unwrap_or(kernel.twin);
        let parameters = &mut self.state.weights.parameters[segment][range.clone()];
        let states = self.state.optimizer.iter_mut().map(|kind| &mut kind[segment][range.clone()]);
        let chunks = chunks(parameters, &self.gradients[segment][range.clone()], states.collect());
        threads::for_each(chunks, |(gradient, mut outputs)| {
            let words: Vec<u32> = rule.params(count(gradient.len())).iter().map(|word| word.bits(scalars)).collect();
            let call = Call { params: &words, constants: &constants, inputs: &[gradient, control] };
            update(&call, &mut outputs);
        });
        // Gradients are read, parameters and states read and written.
        self.charge(range.len() * (1 + 2 + 2 * self.state.optimizer.len()));
    }

    fn hand_out_part(&self, segment: usize, range: Range<usize>, receivers: &[usize]) {
        let (role, offset) = (Role::Parameters(count(segment)), range.start as u64);
        let data: Arc<[f32]> = self.state.weights.parameters[segment][range].into();
        // Copied once for all adapters.
        self.charge(2 * data.len());
        for adapter_idx in receivers {
            self.send(*adapter_idx, Request::Write { role, offset, data: data.clone() });
        }
    }

    /// Charges the runtime for values that are read or written.
    fn charge(&self, values: usize) {
        self.runtime.charge((values * size_of::<f32>()) as u64);
    }

    /// The adapters that took part in a step and are there; from now on the others lack the newest weights.
    fn receivers(&mut self, answers: &[Answer]) -> Vec<usize> {
        for (adapter_idx, member) in self.members.iter_mut().enumerate() {
            let took_part = answers.iter().any(|answer| answer.shard.adapter_idx == adapter_idx);
            member.is_stale = !(took_part && member.is_alive());
        }
        (0..self.members.len()).filter(|idx| !self.members[*idx].is_stale).collect()
    }

    /// Norm and whether the update was applied, from the plan's control buffers.
    pub(super) fn clip_result(&self, controls: &[Vec<f32>]) -> [f32; 2] {
        let buffers = self.plan.buffers.iter().filter(|buffer| buffer.role == Role::Control);
        let clip = buffers.zip(controls).find(|(buffer, _)| buffer.name == CLIP_CONTROL);
        clip.map_or([0.0, 0.0], |(_, values)| [values[2], values[1]])
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
