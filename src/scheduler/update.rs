//! The update on the host: clip and optimizer, in one pass over memory on several threads.

use crate::kernels::{Call, clip};
use crate::model::CLIP_CONTROL;
use crate::plan::{Role, Scalars};
use crate::runtime::threads;

use super::shards::count;
use super::{Scheduler, rounded};

/// Elements that one thread updates at a time.
const CHUNK: usize = 1 << 15;

impl Scheduler {
    /// Updates the parameters from the summed gradients, by the optimizer kernel's fast twin.
    pub(super) fn update_on_host(&mut self, norm: f64, scalars: &Scalars) {
        let Some(optimizer) = self.optimizer else { return };
        let scale = clip::clip_scale(f64::from(self.clip_norm), norm);
        let control = [rounded(scale), 1.0, rounded(norm), 0.0];
        let (kernel, constants) = (optimizer.kernel(), optimizer.constants());
        let update = kernel.fast.unwrap_or(kernel.twin);
        let parameters = self.state.weights.parameters.iter_mut();
        for (segment, (parameters, gradients)) in parameters.zip(&self.gradients).enumerate() {
            let states = self.state.optimizer.iter_mut().map(|kind| kind[segment].as_mut_slice());
            let chunks = chunks(parameters, gradients, states.collect());
            threads::for_each(chunks, |(gradient, mut outputs)| {
                let words: Vec<u32> =
                    optimizer.params(count(gradient.len())).iter().map(|word| word.bits(scalars)).collect();
                let call = Call { params: &words, constants: &constants, inputs: &[gradient, &control] };
                update(&call, &mut outputs);
            });
        }
    }

    /// Charges the runtime for an update: gradients are read, parameters and states read and written, the new parameters
    /// copied once for all adapters.
    pub(super) fn charge_update(&self) {
        let bytes: u64 =
            self.state.weights.parameters.iter().map(|segment| size_of_val(segment.as_slice()) as u64).sum();
        self.runtime.charge(bytes * (1 + 2 + 2 * self.state.optimizer.len() as u64 + 2));
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
