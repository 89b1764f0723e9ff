//! Adding the shards' gradients on the host.

use std::ops::Range;

use litemap::LiteMap;

use crate::error::Result;
use crate::kernels::halves::{self, BLOCK, Halves};
use crate::kernels::{clip, regularizer};
use crate::plan::{Combine, Command, Exchange, Pass, Penalty, Plan, Role, Scalars};
use crate::runtime::threads;

use super::State;
use crate::scheduler::all_reduce::{AllReduce, pieces};
use crate::scheduler::rig::Rig;
use crate::scheduler::shards::Answer;
use crate::scheduler::timeline::Activity;
use crate::size::{F32_BYTES, power_of_two};

/// Properties of the summed gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::scheduler) struct Totals {
    /// Global norm, of the finite values.
    pub norm: f64,
    /// Whether every element is finite.
    pub is_finite: bool,
    /// Penalties of parameters, whose slopes are part of the sums.
    pub penalty: f64,
    /// Of the time, waiting for the sums of other processes.
    pub processes_ms: f64,
}

/// Elements that one thread adds at a time; fixed, so that sums do not depend on the number of threads.
const CHUNK: usize = 1 << 15;

impl State {
    /// Adds all gradients that were sent in the order of the shards, whatever their order of arrival, and then the slopes of the
    /// parameters' penalties, which count once for the whole batch.
    ///
    /// Each process adds those of its own shards, and then they are added over the processes: the same bits in all of them.
    ///
    /// # Errors
    /// If another process does not answer.
    pub async fn reduce(&mut self, rig: &mut Rig, answers: &[Answer], scalars: &Scalars) -> Result<Totals> {
        let (step, unscale) = (u64::from(scalars.step), power_of_two(-scalars.gradient_exponent));
        if !rig.processes.is_alone() {
            return self.reduce_over_processes(rig, answers, step, unscale).await;
        }
        let start_ms = rig.runtime.now_ms();
        let mut total = Sums::default();
        for Terms { segment, range, parts } in terms(rig, answers) {
            charge_for(rig, &range, &parts);
            let penalties = Penalties::of(rig.plan(), &self.training.weights.parameters, segment, range.start);
            let last = Last { unscale, penalties };
            total = total.and(add(&mut self.gradients[segment as usize][range], &parts, Some(&last)));
        }
        rig.record(Activity::Reduce, start_ms, Some(step), 0);
        Ok(total.totals(0.0))
    }

    /// Sums over processes are exchanged in pieces. While some are on their way, the next are added up here, and the last get their
    /// penalties and their norm.
    async fn reduce_over_processes(
        &mut self,
        rig: &mut Rig,
        answers: &[Answer],
        step: u64,
        unscale: f32,
    ) -> Result<Totals> {
        let mut all_reduce = AllReduce::new(rig.processes.clone(), self.compression);
        let now_ms = rig.runtime.now_ms();
        let mut reduced = Reduced { total: Sums::default(), processes_ms: 0.0, now_ms, step, unscale };
        // The plan is the same in all processes, and with it the order of the exchanges.
        for Terms { segment, range, parts } in terms(rig, answers) {
            for piece in pieces(range.clone()) {
                if all_reduce.is_full() {
                    self.take_sum(rig, &mut all_reduce, &mut reduced).await?;
                }
                charge_for(rig, &piece, &parts);
                let mut values = all_reduce.memory(piece.len());
                let from = piece.start - range.start;
                let parts: Vec<_> = parts.iter().map(|part| part.starting_at(from)).collect();
                add(&mut values, &parts, None);
                all_reduce.send((segment, piece), values);
            }
        }
        while self.take_sum(rig, &mut all_reduce, &mut reduced).await? {}
        rig.record(Activity::Reduce, reduced.now_ms, Some(step), 0);
        Ok(reduced.total.totals(reduced.processes_ms))
    }

    /// Takes the next sum of all processes over; false if none is on its way.
    async fn take_sum(
        &mut self,
        rig: &mut Rig,
        all_reduce: &mut AllReduce<(u32, Range<usize>)>,
        reduced: &mut Reduced,
    ) -> Result<bool> {
        let begin_ms = rig.record(Activity::Reduce, reduced.now_ms, Some(reduced.step), 0);
        reduced.now_ms = begin_ms;
        let Some(((segment, range), values)) = all_reduce.next().await else { return Ok(false) };
        let values = values?;
        reduced.now_ms = rig.record(Activity::Processes, begin_ms, Some(reduced.step), 0);
        reduced.processes_ms += reduced.now_ms - begin_ms;
        // So are the sums.
        rig.runtime.charge(2 * F32_BYTES * values.len() as u64);
        let penalties = Penalties::of(rig.plan(), &self.training.weights.parameters, segment, range.start);
        let part = Part { sent: Sent::Whole(&values), first: 0 };
        let last = Last { unscale: reduced.unscale, penalties };
        let sums = add(&mut self.gradients[segment as usize][range], &[part], Some(&last));
        reduced.total = reduced.total.and(sums);
        all_reduce.reuse(values);
        Ok(true)
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

/// The part of the gradients that is reduced over all processes, and the time that it took.
struct Reduced {
    total: Sums,
    /// Of the time, waiting for sums.
    processes_ms: f64,
    /// End of what was recorded last.
    now_ms: f64,
    step: u64,
    /// Takes the factor of all gradients away.
    unscale: f32,
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
    fn totals(self, processes_ms: f64) -> Totals {
        let Self { squares, wrong, penalty } = self;
        Totals { norm: squares.sqrt(), is_finite: wrong == 0, penalty, processes_ms }
    }

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

impl<'a> Penalties<'a> {
    /// Penalties for the bucket of a segment that begins at `start`.
    fn of(plan: &'a Plan, parameters: &'a [Vec<f32>], segment: u32, start: usize) -> Self {
        let all = plan.penalties.iter().filter(|penalty| penalty.segment == segment).collect();
        Self { all, weights: &parameters[segment as usize], start }
    }

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

/// The values that shards sent of a stretch of the flat gradients.
struct Terms<'a> {
    segment: u32,
    range: Range<usize>,
    parts: Vec<Part<'a>>,
}

/// All that shards sent of gradients, in the order of the plan's exchanges, and in the order of the shards.
fn terms<'a>(rig: &Rig, answers: &'a [Answer]) -> Vec<Terms<'a>> {
    let mut terms = Vec::new();
    for (stage_idx, stage) in rig.stages.iter().enumerate() {
        for (command_idx, command) in stage.plan.commands(Pass::Train).iter().enumerate() {
            let Command::Exchange(exchange) = command else { continue };
            let Role::Gradients(segment) = stage.plan.get(exchange.view.buffer).role else { continue };
            if exchange.combine != Combine::Sum || exchange.is_awaited() {
                continue;
            }
            let start = usize::try_from(exchange.view.offset).unwrap_or(usize::MAX);
            let range = start..start + usize::try_from(exchange.view.len.fixed).unwrap_or(usize::MAX);
            let own = || answers.iter().filter(|answer| answer.stage == stage_idx);
            let places = stage.places.parameters.iter().filter(|place| place.segment == segment);
            for place in places.filter_map(|place| place.within(&range)) {
                let first = place.range().start - start;
                let sent = own().filter_map(|answer| answer.exchanges.get(&command_idx));
                let parts = sent.map(|values| Part { sent: Sent::of(exchange, values), first });
                terms.push(Terms { segment: place.whole_segment, range: place.whole_range(), parts: parts.collect() });
            }
        }
    }
    if rig.is_staged() { of_shared(terms) } else { terms }
}

/// Stages that share a layer send values of the same stretches: these are cut alike, and become one sum each.
fn of_shared(terms: Vec<Terms<'_>>) -> Vec<Terms<'_>> {
    let mut ends: Vec<(u32, usize)> = Vec::new();
    for Terms { segment, range, .. } in &terms {
        ends.extend([(*segment, range.start), (*segment, range.end)]);
    }
    ends.sort_unstable();
    ends.dedup();
    let mut cut: LiteMap<(u32, usize), Terms<'_>> = LiteMap::new();
    for Terms { segment, range, parts } in terms {
        let mut start = range.start;
        let first = ends.partition_point(|end| *end <= (segment, range.start));
        for (_, end) in ends[first..].iter().take_while(|end| **end <= (segment, range.end)) {
            let from = start - range.start;
            let parts = parts.iter().map(|part| part.starting_at(from));
            let piece =
                cut.entry((segment, start)).or_insert_with(|| Terms { segment, range: start..*end, parts: Vec::new() });
            piece.parts.extend(parts);
            start = *end;
        }
    }
    cut.into_iter().map(|(_, terms)| terms).collect()
}

/// A shard's values of a stretch.
#[derive(Clone, Copy)]
struct Part<'a> {
    sent: Sent<'a>,
    /// Position of the stretch's first value among those that were sent.
    first: usize,
}

/// Values as a shard sent them.
#[derive(Clone, Copy)]
enum Sent<'a> {
    Whole(&'a [f32]),
    Halves(Halves<'a>),
}

impl<'a> Sent<'a> {
    fn of(exchange: &Exchange, values: &'a [f32]) -> Self {
        if exchange.halves.is_some() { Self::Halves(Halves::new(values)) } else { Self::Whole(values) }
    }

    /// Words that were sent for so many values.
    fn len_of(self, len: u64) -> u64 {
        match self {
            Self::Whole(_) => len,
            Self::Halves(_) => halves::packed_len(usize::try_from(len).unwrap_or(usize::MAX)) as u64,
        }
    }
}

impl Part<'_> {
    /// The rest of it from a position of the stretch on.
    fn starting_at(self, position: usize) -> Self {
        Self { first: self.first + position, ..self }
    }

    /// Writes a range of the stretch, which begins between blocks.
    fn write(self, range: Range<usize>, sum: &mut [f32]) {
        let range = self.first + range.start..self.first + range.end;
        match self.sent {
            Sent::Whole(values) => sum.copy_from_slice(&values[range]),
            Sent::Halves(halves) => {
                halves.for_each(range, |first, values| sum[first..first + BLOCK].copy_from_slice(values));
            }
        }
    }

    /// Adds a range of the stretch, which begins between blocks.
    fn add(self, range: Range<usize>, sum: &mut [f32]) {
        let range = self.first + range.start..self.first + range.end;
        let add = |sum: &mut [f32], values: &[f32]| sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        match self.sent {
            Sent::Whole(values) => add(sum, &values[range]),
            Sent::Halves(halves) => halves.for_each(range, |first, values| add(&mut sum[first..first + BLOCK], values)),
        }
    }
}

/// Charges the runtime for the values of shards that are read, and their sums that are written.
fn charge_for(rig: &Rig, range: &Range<usize>, parts: &[Part<'_>]) {
    let len = range.len() as u64;
    let sent: u64 = parts.iter().map(|part| part.sent.len_of(len)).sum();
    rig.runtime.charge(F32_BYTES * (sent + len));
}

/// The last changes of a sum, when all its parts are in it.
struct Last<'a> {
    /// Takes the factor of all gradients away.
    unscale: f32,
    /// Adds the slopes of penalties.
    penalties: Penalties<'a>,
}

/// `sum = Σ parts`, in order, and the changes that come last.
fn add(sum: &mut [f32], parts: &[Part<'_>], last: Option<&Last<'_>>) -> Sums {
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
        let Some(Last { unscale, penalties }) = last else { return Sums::default() };
        if unscale.to_bits() != 1.0_f32.to_bits() {
            sum.iter_mut().for_each(|value| *value *= unscale);
        }
        let penalty = penalties.add(&range, sum);
        let (squares, wrong) = clip::sum_of_squares(sum);
        Sums { squares, wrong, penalty }
    });
    sums.into_iter().fold(Sums::default(), Sums::and)
}
