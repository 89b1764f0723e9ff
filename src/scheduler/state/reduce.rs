//! Adding the shards' gradients on the host.

use std::ops::Range;

use crate::kernels::halves::{BLOCK, Halves};
use crate::kernels::{clip, regularizer};
use crate::plan::{Combine, Command, Pass, Penalty, Role};
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
    /// Penalties of parameters, whose slopes are part of the sums.
    pub penalty: f64,
}

/// Elements that one thread adds at a time; fixed, so that sums do not depend on the number of threads.
const CHUNK: usize = 1 << 15;

impl State {
    /// Adds all gradients that were sent in the order of the shards, whatever their order of arrival, and then the slopes of the
    /// parameters' penalties, which count once for the whole batch.
    pub fn reduce(&mut self, rig: &Rig, answers: &[Answer]) -> Totals {
        let plan = rig.plan();
        let mut total = Sums::default();
        for (command_idx, command) in plan.commands(Pass::Train).iter().enumerate() {
            let Command::Exchange(exchange) = command else { continue };
            let Role::Gradients(segment) = plan.get(exchange.view.buffer).role else { continue };
            if exchange.combine != Combine::Sum || exchange.is_awaited() {
                continue;
            }
            let sent = answers.iter().filter_map(|answer| answer.exchanges.get(&command_idx));
            let parts: Vec<Part<'_>> = match exchange.halves {
                None => sent.map(|values| Part::Whole(values)).collect(),
                Some(_) => sent.map(|packed| Part::Halves(Halves::new(packed))).collect(),
            };
            let start = usize::try_from(exchange.view.offset).unwrap_or(usize::MAX);
            let len = usize::try_from(exchange.view.len.fixed).unwrap_or(usize::MAX);
            let penalties = Penalties {
                all: plan.penalties.iter().filter(|penalty| penalty.segment == segment).collect(),
                weights: &self.training.weights.parameters[segment as usize],
                start,
            };
            total = total.and(add(&mut self.gradients[segment as usize][start..start + len], &parts, &penalties));
            rig.runtime.charge(F32_BYTES * (parts.len() as u64 * exchange.sent().len.fixed + exchange.view.len.fixed));
        }
        Totals { norm: total.squares.sqrt(), is_finite: total.wrong == 0, penalty: total.penalty }
    }

    /// Penalties of the parameters as the host has them.
    pub fn penalty(&self, rig: &Rig) -> f64 {
        let of = |penalty: &Penalty| {
            let segment = &self.training.weights.parameters[penalty.segment as usize];
            regularizer::penalty(&segment[penalty.range()], penalty.factors())
        };
        rig.plan().penalties.iter().map(of).sum()
    }
}

/// Totals over a part of the summed gradients; totals of parts add up.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// Squares of the finite values.
    squares: f64,
    /// Values that are not finite.
    wrong: usize,
    /// Penalties of the parameters.
    penalty: f64,
}

impl Sums {
    fn and(self, more: Self) -> Self {
        let Self { squares, wrong, penalty } = self;
        Self { squares: squares + more.squares, wrong: wrong + more.wrong, penalty: penalty + more.penalty }
    }
}

/// The penalties of a segment, and its parameters.
struct Penalties<'a> {
    all: Vec<&'a Penalty>,
    weights: &'a [f32],
    /// Start of the current bucket.
    start: usize,
}

impl Penalties<'_> {
    /// Adds the slopes to a part of a bucket's sums; gives the penalties.
    fn add(&self, range: &Range<usize>, sum: &mut [f32]) -> f64 {
        let first = self.start + range.start;
        let within = |penalty: &&Penalty| {
            let wanted = penalty.range();
            let (begin, end) = (wanted.start.max(first), wanted.end.min(first + sum.len()));
            (begin < end).then_some((begin..end, penalty.factors()))
        };
        let parts: Vec<_> = self.all.iter().filter_map(within).collect();
        let slopes = parts.into_iter().map(|(part, factors)| {
            regularizer::add_slopes(&mut sum[part.start - first..part.end - first], &self.weights[part], factors)
        });
        slopes.sum()
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

/// `sum = Σ parts`, in order, and the slopes of penalties.
fn add(sum: &mut [f32], parts: &[Part<'_>], penalties: &Penalties<'_>) -> Sums {
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
        let penalty = penalties.add(&range, sum);
        let (squares, wrong) = clip::sum_of_squares(sum);
        Sums { squares, wrong, penalty }
    });
    sums.into_iter().fold(Sums::default(), Sums::and)
}
