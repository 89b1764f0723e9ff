//! Adding the shards' gradients on the host.

use std::ops::Range;

use crate::kernels::clip;
use crate::kernels::halves::{BLOCK, Halves};
use crate::plan::{Combine, Command, Pass, Role, When};
use crate::runtime::threads;

use super::State;
use crate::scheduler::rig::Rig;
use crate::scheduler::shards::Answer;
use crate::size::F32_BYTES;

/// Properties of the summed gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::scheduler) struct Totals {
    /// Global norm, of the finite values.
    pub norm: f64,
    /// Whether every element is finite.
    pub is_finite: bool,
}

/// Elements that one thread adds at a time; fixed, so that sums do not depend on the number of threads.
const CHUNK: usize = 1 << 15;

impl State {
    /// Adds all gradients in the order of the shards, whatever their order of arrival.
    pub fn reduce(&mut self, rig: &Rig, answers: &[Answer]) -> Totals {
        let plan = rig.plan();
        let mut total = (0.0, 0);
        for (command_idx, command) in plan.commands(Pass::Train).iter().enumerate() {
            let Command::Exchange(exchange) = command else { continue };
            let Role::Gradients(segment) = plan.get(exchange.view.buffer).role else { continue };
            if exchange.combine != Combine::Sum || exchange.when != When::Update {
                continue;
            }
            let sent = answers.iter().filter_map(|answer| answer.exchanges.get(&command_idx));
            let parts: Vec<Part<'_>> = match exchange.halves {
                None => sent.map(|values| Part::Whole(values)).collect(),
                Some(_) => sent.map(|packed| Part::Halves(Halves::new(packed))).collect(),
            };
            let start = usize::try_from(exchange.view.offset).unwrap_or(usize::MAX);
            let len = usize::try_from(exchange.view.len.fixed).unwrap_or(usize::MAX);
            let (squares, wrong) = add(&mut self.gradients[segment as usize][start..start + len], &parts);
            total = (total.0 + squares, total.1 + wrong);
            rig.runtime.charge(F32_BYTES * (parts.len() as u64 * exchange.sent().len.fixed + exchange.view.len.fixed));
        }
        Totals { norm: total.0.sqrt(), is_finite: total.1 == 0 }
    }
}

/// A shard's values of a bucket.
#[derive(Clone, Copy)]
enum Part<'a> {
    Whole(&'a [f32]),
    Halves(Halves<'a>),
}

impl Part<'_> {
    /// Writes a range of the bucket, which begins between blocks.
    fn write(self, range: Range<usize>, sum: &mut [f32]) {
        match self {
            Self::Whole(values) => sum.copy_from_slice(&values[range]),
            Self::Halves(halves) => {
                halves.for_each(range, |first, values| sum[first..first + BLOCK].copy_from_slice(values));
            }
        }
    }

    /// Adds a range of the bucket, which begins between blocks.
    fn add(self, range: Range<usize>, sum: &mut [f32]) {
        let add = |sum: &mut [f32], values: &[f32]| sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        match self {
            Self::Whole(values) => add(sum, &values[range]),
            Self::Halves(halves) => halves.for_each(range, |first, values| add(&mut sum[first..first + BLOCK], values)),
        }
    }
}

/// `sum = Σ parts`, in order. Returns the sum of its squares, and the number of values that are not finite.
fn add(sum: &mut [f32], parts: &[Part<'_>]) -> (f64, usize) {
    // Collect first: a sum over threads would have an order that varies.
    let sums = threads::map_chunks(sum, CHUNK, |idx, sum| {
        let range = idx * CHUNK..idx * CHUNK + sum.len();
        match parts.split_first() {
            None => sum.fill(0.0),
            Some((first, rest)) => {
                first.write(range.clone(), sum);
                rest.iter().for_each(|part| part.add(range.clone(), sum));
            }
        }
        clip::sum_of_squares(sum)
    });
    sums.into_iter().fold((0.0, 0), |total, sum| (total.0 + sum.0, total.1 + sum.1))
}
