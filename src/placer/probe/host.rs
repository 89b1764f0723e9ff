//! Speed of the host's update.

use std::sync::Arc;

use super::super::blocks::Blocks;
use super::{FEWEST, bytes_of};
use crate::kernels::Call;
use crate::plan::Scalars;
use crate::runtime::{Runtime, threads};
use crate::simulator::HostSpec;
use crate::timing::median;

/// Parts of the host's trial update, and most values of each.
const UPDATED_IN: usize = 32;
const MOST_UPDATED: f64 = 131_072.0;

/// The speed at which the host updates as many parameters as the model has, in 10⁹ bytes a second.
pub(super) fn host_gb_s(blocks: &Blocks, runtime: &Arc<dyn Runtime>) -> f64 {
    let optimizer = &blocks.objective.optimizer;
    let rule = optimizer.rule();
    let Some(kernel) = rule.kernel() else { return HostSpec::default().copy_gb_s };
    let constants = rule.constants();
    let update = kernel.fast.unwrap_or(kernel.twin);
    let n_states = rule.state_names().len();
    let scalars = Scalars { hyper: optimizer.hyper(1e-3, 1), ..Scalars::default() };
    let bytes = blocks.parameter_bytes(0..blocks.len());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number between two small ones")]
    let part = (bytes / bytes_of(UPDATED_IN as u64)).clamp(1024.0, MOST_UPDATED) as usize;
    let mut chunks: Vec<Vec<Vec<f32>>> = vec![vec![vec![0.1; part]; 1 + n_states]; UPDATED_IN];
    let gradients = vec![vec![0.01; part]; UPDATED_IN];
    let time = || {
        let begin_ms = runtime.now_ms();
        let chunks = chunks.iter_mut().zip(&gradients).collect();
        threads::for_each(chunks, |(outputs, gradient): (&mut Vec<Vec<f32>>, &Vec<f32>)| {
            let n_values = u32::try_from(part).unwrap_or(u32::MAX);
            let words: Vec<u32> = rule.params(n_values).iter().map(|word| word.bits(&scalars)).collect();
            let call = Call { params: &words, constants: &constants, inputs: &[gradient, &[1.0, 1.0, 0.0, 0.0]] };
            let mut outputs: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
            update(&call, &mut outputs);
        });
        runtime.now_ms() - begin_ms
    };
    let ms = median(std::iter::repeat_with(time).take(FEWEST));
    let moved = bytes_of((part * UPDATED_IN * (3 + 2 * n_states)) as u64);
    if ms > 0.0 { moved / (ms * 1e6) } else { HostSpec::default().copy_gb_s }
}
