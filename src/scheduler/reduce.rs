//! Adding the shards' gradients on the host.

use crate::kernels::clip;
use crate::plan::{Combine, Command, Pass, Role, When};
use crate::runtime::threads;

use super::Scheduler;
use super::round::Answer;

/// What is known of the summed gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Totals {
    /// Global norm, of the finite values.
    pub norm: f64,
    /// Is every element finite?
    pub is_finite: bool,
}

/// Bytes of an f32.
const F32: u64 = 4;

/// Elements that one thread adds at a time; fixed, so that sums do not depend on the number of threads.
const CHUNK: usize = 1 << 15;

impl Scheduler {
    /// Adds all gradients in the order of the shards, whatever order they came in.
    pub(super) fn reduce(&mut self, answers: &[Answer]) -> Totals {
        let plan = self.plan.clone();
        let mut total = (0.0, 0);
        for (command_idx, command) in plan.commands(Pass::Train).iter().enumerate() {
            let Command::Exchange(exchange) = command else { continue };
            let Role::Gradients(segment) = plan.get(exchange.view.buffer).role else { continue };
            if exchange.combine != Combine::Sum || exchange.when != When::Update {
                continue;
            }
            let parts: Vec<&[f32]> =
                answers.iter().filter_map(|answer| answer.exchanges.get(&command_idx)).map(Vec::as_slice).collect();
            let start = usize::try_from(exchange.view.offset).unwrap_or(usize::MAX);
            let len = usize::try_from(exchange.view.len.fixed).unwrap_or(usize::MAX);
            let (squares, wrong) = add(&mut self.gradients[segment as usize][start..start + len], &parts);
            total = (total.0 + squares, total.1 + wrong);
            self.runtime.charge(F32 * (parts.len() as u64 + 1) * exchange.view.len.fixed);
        }
        Totals { norm: total.0.sqrt(), is_finite: total.1 == 0 }
    }
}

/// `sum = Σ parts`, in order. Returns the sum of its squares, and how many values are not finite.
fn add(sum: &mut [f32], parts: &[&[f32]]) -> (f64, usize) {
    // A list first: a sum over threads would add in an order of its own.
    let sums = threads::map_chunks(sum, CHUNK, |idx, sum| {
        let range = idx * CHUNK..idx * CHUNK + sum.len();
        let mut parts = parts.iter().map(|part| &part[range.clone()]);
        match parts.next() {
            Some(first) => sum.copy_from_slice(first),
            None => sum.fill(0.0),
        }
        for part in parts {
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        clip::sum_of_squares(sum)
    });
    sums.into_iter().fold((0.0, 0), |total, sum| (total.0 + sum.0, total.1 + sum.1))
}
