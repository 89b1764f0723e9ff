//! A sample of live steps: now and then one adapter's rows are computed again by another, from the same weights, and compared.
//!
//! The trials of a first load find what a driver always does wrong. A card whose memory fails, or that is too hot, begins to compute wrong
//! numbers later. Where two adapters differ, the CPU computes the rows, too, and tells which of them is wrong. A card that trains alone
//! computes a few rows a second time, beside the CPU.

use std::borrow::Cow;

use litemap::LiteMap;
use manyhands_engine::adapters::cpu::Interpreter;

use super::in_flight::StepInFlight;
use super::open_runs::{Among, Job};
use super::shards::{Answer, Shard};
use super::{Scheduler, diagnosis};
use crate::error::Result;
use crate::kernels::halves::{BLOCK, Halves};
use crate::plan::{Combine, Command, Exchange, Pass, Plan, Role, Work};
use manyhands_engine::adapters::{Combining, Kind, memory};

/// Part of training that samples may take.
const PART: f64 = 0.01;
/// Parts by which losses and gradients of two adapters may differ. Roundings and kinks change some values a little; a fault changes most
/// of them, or some by far.
const LOSSES: f64 = 0.05;
const GRADIENTS: f64 = 0.2;
/// Part of all gradients below which those of one tensor are roundings.
const ROUNDINGS: f64 = 1e-3;
/// Rows that a lone adapter computes again: the CPU needs long for each.
const ROWS_ALONE: u32 = 4;
/// Work, in operations a millisecond, that a slow CPU does by the kernels' definitions: until a sample has told how long one takes.
const CPU_WORK_PER_MS: f64 = 1e6;
/// Milliseconds of such a sample at least, until then: requests and copies take as long for a small model.
const LEAST_ALONE_MS: f64 = 50.0;
/// Memory of the host that such a sample may take: what a computer with 16 GiB has to spare.
const BYTES_ALONE: u64 = 2 << 30;
/// Values of a report, for each row or position: loss and score. A score jumps where two classes are alike.
const REPORT: usize = 2;

/// The time of the next sample, and the adapter whose rows it has.
#[derive(Default)]
pub(super) struct Samples {
    is_on: bool,
    /// The adapter whose rows are next, unless it has none.
    next: usize,
    /// End of the last sample, or of the first step.
    last_ms: Option<f64>,
    /// The last step in which each adapter agreed with another.
    confirmed: LiteMap<usize, u32>,
    /// Duration of the last one.
    took_ms: f64,
    /// Predicted duration of one of the only adapter; infinite where none can be taken.
    alone_ms: Option<f64>,
}

impl Samples {
    /// Samples are taken from now on.
    pub fn begin(&mut self) {
        self.is_on = true;
    }

    /// Whether enough time has gone by for a sample that is predicted to take so long.
    fn is_due(&self, now_ms: f64, predicted_ms: f64) -> bool {
        self.last_ms.is_some_and(|last_ms| PART * (now_ms - last_ms) >= predicted_ms.max(self.took_ms))
    }
}

/// The result of a comparison of two adapters.
enum Verdict {
    Agree,
    /// This one computes wrong numbers, with what is wrong.
    Wrong(usize, String),
    /// A difference of which the CPU tells nothing, since it agrees with neither more; or nothing that could be compared.
    Open,
}

/// Two computations of the same rows differ.
struct Difference {
    /// Times what is tolerated.
    factor: f64,
    text: String,
}

impl Scheduler {
    /// Takes a sample of a training pass, if it is time for one. If an adapter computes wrong numbers, it is left out, and the pass runs
    /// again on the others: nothing has changed by then.
    pub(super) async fn sampled(&mut self, job: Job<'_>, answers: Vec<Answer>) -> Result<Vec<Answer>> {
        let now_ms = self.rig.runtime.now_ms();
        let Some((sampled, other)) = self.next_sample(&answers, now_ms) else { return Ok(answers) };
        let first = &answers[sampled];
        let Shard { first: first_row, rows, .. } = first.shard;
        let alone = Job { among: Among::Adapters, ..job };
        let again = self.round(alone).run(vec![Shard::whole(other, first_row, rows)]).await?;
        let verdict = match &again[..] {
            // Another adapter, if it was lost meanwhile; other rows, if its memory no longer suffices.
            [again] if again.shard.rows == rows && again.shard.adapter_idx != first.shard.adapter_idx => {
                self.compared(job, first, again)
            }
            _ => Verdict::Open,
        };
        let end_ms = self.rig.runtime.now_ms();
        (self.samples.last_ms, self.samples.took_ms) = (Some(end_ms), end_ms - now_ms);
        let (adapter_idx, text) = match verdict {
            Verdict::Wrong(adapter_idx, text) => (adapter_idx, text),
            Verdict::Agree => {
                for agreed in [first.shard.adapter_idx, again[0].shard.adapter_idx] {
                    self.samples.confirmed.insert(agreed, job.scalars.step);
                }
                return Ok(answers);
            }
            Verdict::Open => return Ok(answers),
        };
        let since = match self.samples.confirmed.get(&adapter_idx) {
            Some(step) => format!("since step {}", step + 1),
            None => "until now".to_owned(),
        };
        self.rig.distrust(adapter_idx, &format!("it computes wrong numbers: {text}"));
        log::warn!(
            "steps {since} may be wrong, too: go on from a checkpoint of before if the loss shows it, and test the card (`manyhands doctor`)"
        );
        self.ensure_active().await?;
        let (_, shards) = self.partition.step_shards(&self.rig, u64::from(job.scalars.step), job.scalars.rows);
        self.round(job).run(shards).await
    }

    /// An answer to be computed again, and the adapter for that: the fastest of those that share the step.
    fn next_sample(&mut self, answers: &[Answer], now_ms: f64) -> Option<(usize, usize)> {
        // Shards that wait for each other can't run alone.
        if !self.samples.is_on || self.rig.plan().is_coupled(Pass::Train) {
            return None;
        }
        self.samples.last_ms.get_or_insert(now_ms);
        let n_adapters = self.rig.members.len();
        let is_whole = |at: &usize| answers[*at].shard.is_first && answers[*at].shard.is_last;
        let turn = |at: &usize| (answers[*at].shard.adapter_idx + n_adapters - self.samples.next) % n_adapters;
        let sampled = (0..answers.len()).filter(is_whole).min_by_key(turn)?;
        let Shard { adapter_idx, rows, .. } = answers[sampled].shard;
        let members = &self.rig.members;
        let fits = |idx: &usize| *idx != adapter_idx && members[*idx].is_active() && members[*idx].capacity >= rows;
        let splitter = self.partition.splitter();
        let shares = answers.iter().map(|answer| answer.shard.adapter_idx).filter(fits);
        let predicted = shares.filter_map(|idx| Some((idx, splitter.predicted_ms(idx, rows)?)));
        let (other, predicted_ms) = predicted.min_by(|a, b| a.1.total_cmp(&b.1))?;
        self.samples.is_due(now_ms, predicted_ms).then(|| {
            self.samples.next = (adapter_idx + 1) % n_adapters;
            (sampled, other)
        })
    }

    /// Compares two computations of the same rows; if they differ, the CPU computes them, too.
    fn compared(&self, job: Job<'_>, first: &Answer, again: &Answer) -> Verdict {
        let plan = self.rig.plan();
        let Some(difference) = difference(plan, &Computed::of(first), &Computed::of(again)) else {
            return Verdict::Agree;
        };
        let Some(judge) = self.judged(job, first.shard, &[]) else { return Verdict::Open };
        let from_judge = |answer: &Answer| self::difference(plan, &Computed::of(answer), &judge);
        let (wrong, right) = match (from_judge(first), from_judge(again)) {
            (Some(of_first), of_again) if of_again.as_ref().is_none_or(|it| it.factor < of_first.factor / 4.0) => {
                ((first, of_first), again)
            }
            (of_first, Some(of_again)) if of_first.as_ref().is_none_or(|it| it.factor < of_again.factor / 4.0) => {
                ((again, of_again), first)
            }
            _ => {
                log::debug!("step {}: {}; the CPU agrees with neither more", job.scalars.step + 1, difference.text);
                return Verdict::Open;
            }
        };
        let (Shard { adapter_idx, first, rows, .. }, right) = (wrong.0.shard, self.rig.name(right.shard.adapter_idx));
        let of_rows = format!("in step {}, for rows {first} to {}", job.scalars.step + 1, first + rows - 1);
        Verdict::Wrong(adapter_idx, format!("{of_rows}, {} from the CPU's, and those of {right} don't", wrong.1.text))
    }

    /// Takes a sample of the only adapter, which keeps the parameters, if it is time for one: it computes some rows of a step again, and
    /// so does the CPU, from the same parameters. True if the adapter is left out, since two samples with other rows showed wrong numbers,
    /// or was lost meanwhile: then the state is that of the host's last copy.
    ///
    /// # Errors
    /// If no adapter is left.
    pub(super) async fn distrusts_only(&mut self, step: &StepInFlight) -> Result<bool> {
        let (now_ms, rows) = (self.rig.runtime.now_ms(), step.rows.min(ROWS_ALONE));
        if self.state.is_rewound() || !self.is_due_alone(rows, now_ms) {
            return Ok(false);
        }
        self.settle().await?;
        let mut text = None;
        for first in [0, step.rows - rows] {
            text = self.wrong_alone(step, first, rows).await?;
            if self.state.is_rewound() {
                return Ok(true);
            }
            if text.is_none() {
                break;
            }
        }
        let end_ms = self.rig.runtime.now_ms();
        (self.samples.last_ms, self.samples.took_ms) = (Some(end_ms), end_ms - now_ms);
        let Some(text) = text else { return Ok(false) };
        let number = step.step.step + 1;
        self.rig
            .distrust(self.rig.only(), &format!("it computes wrong numbers: in step {number}, {text} from the CPU's"));
        log::warn!(
            "what it trained before may be wrong, too: go on from an earlier checkpoint if the loss shows it, and test the card (`manyhands doctor`)"
        );
        self.ensure_active().await?;
        Ok(true)
    }

    /// Whether it is time for a sample of the only adapter.
    fn is_due_alone(&mut self, rows: u32, now_ms: f64) -> bool {
        let rig = &self.rig;
        let is_cpu = || rig.members[rig.only()].handle.info.kind == Kind::Cpu;
        if !self.samples.is_on || !self.state.is_on_device() || is_cpu() {
            return false;
        }
        self.samples.last_ms.get_or_insert(now_ms);
        let predicted_ms = *self.samples.alone_ms.get_or_insert_with(|| {
            let plan = rig.plan();
            let fits = memory::bytes(plan, rows, Kind::Cpu) <= BYTES_ALONE;
            if cfg!(target_arch = "wasm32") || plan.is_coupled(Pass::Train) || !fits {
                return f64::INFINITY;
            }
            (Work::of(plan, Pass::Train, rows).weight() / CPU_WORK_PER_MS).max(LEAST_ALONE_MS)
        });
        self.samples.is_due(now_ms, predicted_ms)
    }

    /// The difference of the only adapter's numbers for some rows of a step from the CPU's; `None` if there is none, or no numbers can be had.
    async fn wrong_alone(&mut self, step: &StepInFlight, first: u32, rows: u32) -> Result<Option<String>> {
        if self.state.is_rewound() || !self.is_on_device() {
            return Ok(None);
        }
        let scalars = self.state.scalars(step.rows, step.part, &step.step);
        let (pass, combining, among) = (Pass::Train, Combining::Host, Among::Adapters);
        let job = Job { pass, batch: &step.batch, scalars: &scalars, combining, among };
        let shard = Shard::whole(self.rig.only(), first, rows);
        let answers = self.round(job).run(vec![shard]).await?;
        let [answer] = &answers[..] else { return Ok(None) };
        if answer.shard != shard {
            return Ok(None);
        }
        // If it is lost meanwhile, the next step will tell.
        let Ok(newest) = self.state.on_device(&mut self.rig).await else { return Ok(None) };
        let Some(judge) = self.judged(job, shard, &newest) else { return Ok(None) };
        Ok(difference(self.rig.plan(), &Computed::of(answer), &judge).map(|it| it.text))
    }

    /// The CPU's numbers for a shard, command by command, by the kernels' definitions; `None` if it has no memory for that. Values that
    /// only a device has take the place of the host's.
    fn judged(&self, job: Job<'_>, shard: Shard, newest: &[(Role, Vec<f32>)]) -> Option<Computed<'static>> {
        let (plan, scalars) = (self.rig.plan(), shard.scalars(job.scalars));
        let mut interpreter = Interpreter::growing(plan.clone(), shard.rows);
        interpreter.make_room(shard.rows).inspect_err(|error| log::debug!("the CPU can't judge: {error}")).ok()?;
        diagnosis::fill(&mut interpreter, &self.state, &job.batch.shard(shard.range()));
        newest.iter().for_each(|(role, values)| interpreter.write(*role, 0, values));
        let mut gradients = Vec::new();
        for (at, command) in plan.commands(job.pass).iter().enumerate() {
            match command {
                Command::Dispatch(dispatch) => interpreter.dispatch(dispatch, &scalars),
                Command::Exchange(exchange) => {
                    gradients.push((at, interpreter.view(exchange.sent(), shard.rows).to_vec().into()));
                }
            }
        }
        Some(Computed { gradients, reports: interpreter.results(job.pass, shard.rows).into() })
    }
}

/// Gradients of some rows by command, and the results of the pass.
struct Computed<'a> {
    gradients: Vec<(usize, Cow<'a, [f32]>)>,
    reports: Cow<'a, [Vec<f32>]>,
}

impl<'a> Computed<'a> {
    fn of(answer: &'a Answer) -> Self {
        let gradients = answer.exchanges.iter().map(|(at, values)| (*at, values.into()));
        Self { gradients: gradients.collect(), reports: (&answer.reports).into() }
    }

    fn sent(&self, command: usize) -> &[f32] {
        self.gradients.iter().find(|(at, _)| *at == command).map_or(&[], |(_, values)| values)
    }
}

/// The largest difference of two computations of the same rows beyond what roundings make.
fn difference(plan: &Plan, a: &Computed, b: &Computed) -> Option<Difference> {
    let mut largest: Option<Difference> = None;
    let mut note = |apart: Apart, tolerated: f64, what: &str| {
        let factor = apart.distance / tolerated.max(f64::MIN_POSITIVE);
        if factor > 1.0 && largest.as_ref().is_none_or(|it| factor > it.factor) {
            let text = format!("{what} differ by {:.1e}, where {tolerated:.1e} would be roundings,", apart.distance);
            largest = Some(Difference { factor, text });
        }
    };
    for (at, id) in plan.results(Pass::Train).into_iter().enumerate() {
        let (Role::Report(_), Some(a), Some(b)) = (plan.get(id).role, a.reports.get(at), b.reports.get(at)) else {
            continue;
        };
        let losses = a.iter().step_by(REPORT).zip(b.iter().step_by(REPORT));
        let apart = Apart::default().and(losses).ended(a.len() == b.len());
        note(apart, LOSSES * apart.norm, "its losses");
    }
    let sums = plan.commands(Pass::Train).iter().enumerate().filter_map(|(at, command)| match command {
        Command::Exchange(exchange) if exchange.combine == Combine::Sum => Some((at, exchange)),
        _ => None,
    });
    let tensors: Vec<Apart> = sums.map(|(at, exchange)| Apart::of(exchange, a.sent(at), b.sent(at))).collect();
    let all = tensors.iter().map(|tensor| tensor.norm * tensor.norm).sum::<f64>().sqrt();
    for tensor in tensors {
        note(tensor, GRADIENTS * tensor.norm + ROUNDINGS * all, "its gradients");
    }
    largest
}

/// Distance of two lists of values: while values are added, of squares.
#[derive(Clone, Copy, Default)]
struct Apart {
    distance: f64,
    /// That of the longer one.
    norm: f64,
    norms: [f64; 2],
}

impl Apart {
    /// That of two gradients, as they were sent.
    fn of(exchange: &Exchange, a: &[f32], b: &[f32]) -> Self {
        if exchange.halves.is_some() { Self::of_halves(a, b) } else { Self::of_values(a, b) }
    }

    fn of_values(a: &[f32], b: &[f32]) -> Self {
        Self::default().and(a.iter().zip(b)).ended(a.len() == b.len())
    }

    /// A block at a time: gradients may be as large as the model.
    fn of_halves(a: &[f32], b: &[f32]) -> Self {
        let (mut apart, mut block) = (Self::default(), [0.0; BLOCK]);
        let (of_a, of_b) = (Halves::new(a), Halves::new(b));
        for first in (0..of_a.blocks().min(of_b.blocks())).map(|at| at * BLOCK) {
            of_a.for_each(first..first + BLOCK, |_, values| block = *values);
            of_b.for_each(first..first + BLOCK, |_, values| apart = apart.and(block.iter().zip(values)));
        }
        apart.ended(a.len() == b.len())
    }

    fn and<'a>(mut self, pairs: impl Iterator<Item = (&'a f32, &'a f32)>) -> Self {
        for (a, b) in pairs {
            let (a, b) = (f64::from(*a), f64::from(*b));
            self.distance += (a - b) * (a - b);
            self.norms = [self.norms[0] + a * a, self.norms[1] + b * b];
        }
        self
    }

    /// Lengths of what was added. Where both hold what is not finite, as under mixed precision, nothing is compared.
    fn ended(self, are_as_long: bool) -> Self {
        let [a, b] = self.norms.map(f64::sqrt);
        let distance = match (are_as_long, a.is_finite(), b.is_finite()) {
            (true, true, true) => self.distance.sqrt(),
            (true, false, false) => 0.0,
            _ => f64::INFINITY,
        };
        let norm = if a.is_finite() && b.is_finite() { a.max(b) } else { 0.0 };
        Self { distance, norm, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::halves::pack;

    #[test]
    fn halves_lie_as_far_apart_as_their_values() {
        let values: Vec<f32> = (0_u8..192).map(|at| f32::from(at) / 16.0 - 5.0).collect();
        let mut others = values.clone();
        others[70] += 3.0;
        others[191] -= 4.0;
        let (plain, packed) = (Apart::of_values(&values, &others), Apart::of_halves(&pack(&values), &pack(&others)));
        assert!((plain.distance - 5.0).abs() < 1e-6, "{}", plain.distance);
        assert!((packed.distance - 5.0).abs() < 1e-2 && (packed.norm / plain.norm - 1.0).abs() < 1e-3);
    }

    #[test]
    fn what_both_lack_is_no_difference() {
        let [whole, broken] = [[1.0, 2.0], [1.0, f32::INFINITY]];
        assert_eq!(Apart::of_values(&broken, &broken).distance.to_bits(), 0.0_f64.to_bits());
        assert!(Apart::of_values(&whole, &broken).distance.is_infinite());
        assert!(Apart::of_values(&whole, &whole[..1]).distance.is_infinite());
    }
}
