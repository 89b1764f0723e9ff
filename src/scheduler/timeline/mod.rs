//! Times of all work: totals for the summary, and on request single spans for a trace.

mod summary;
mod trace;

use serde::Serialize;

use crate::plan::Pass;
use manyhands_engine::adapters::Timing;

pub use summary::{AdapterTime, HostTime, TimeSummary};

/// Spans that a trace keeps: the newest, in 16 MiB.
const MOST_SPANS: usize = 1 << 18;

/// Place of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// The host's thread: scheduler and trainer.
    Host,
    /// The adapter at this position.
    Adapter(usize),
}

/// Kind of work of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Host: waiting for the next batch of a training step.
    Data,
    /// Host: a training step, without the wait for its batch. It encloses the host's work in it.
    Step,
    /// Host: the runs that measure all adapters before the first step.
    Calibrate,
    /// Host: adding gradients.
    Reduce,
    /// Host: waiting for other processes, and exchanging with them.
    Processes,
    /// Host: updating parameters and moving statistics. Adapter: the same on a device that trains alone.
    Update,
    /// Host: giving weights out.
    Broadcast,
    /// Host: evaluating a dataset. It encloses the waits for its batches.
    Evaluate,
    /// Host: writing a checkpoint.
    Save,
    /// Adapter: writing weights.
    Weights,
    /// Adapter: writing inputs and targets.
    Upload,
    /// Adapter: computing.
    Compute,
    /// Adapter: reading gradients and results back.
    Readback,
    /// Adapter: waiting for the other adapters, at an exchange or at the end of its part.
    Wait,
    /// Adapter: silent until it counted as lost.
    Lost,
}

const KINDS: usize = Activity::Lost as usize + 1;

impl Activity {
    /// Name in a trace, such as `broadcast`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "wait for data",
            Self::Step => "step",
            Self::Calibrate => "calibrate",
            Self::Reduce => "reduce",
            Self::Processes => "exchange with other processes",
            Self::Update => "update",
            Self::Broadcast => "broadcast",
            Self::Evaluate => "evaluate",
            Self::Save => "save",
            Self::Weights => "upload weights",
            Self::Upload => "upload",
            Self::Compute => "compute",
            Self::Readback => "readback",
            Self::Wait => "wait for others",
            Self::Lost => "lost",
        }
    }
}

/// A pass of a stage on a piece of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTask {
    /// The stage.
    pub stage: usize,
    /// Its pass: forward, and later back, or both at once.
    pub pass: Pass,
    /// Index of the piece.
    pub piece: usize,
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Place.
    pub lane: Lane,
    /// Kind of work.
    pub what: Activity,
    /// Start, by the runtime's clock.
    pub start_ms: f64,
    /// Length.
    pub ms: f64,
    /// Training step that it belongs to, counted from 0; `None` outside of training steps.
    pub step: Option<u64>,
    /// Task that an adapter ran, where layers are placed in stages.
    pub task: Option<StageTask>,
    /// Rows that it worked on; 0 where there are none.
    pub rows: u32,
}

impl Span {
    /// End.
    pub fn end_ms(&self) -> f64 {
        self.start_ms + self.ms
    }
}

/// Whether single spans are kept, for a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracing {
    /// The newest 262,144 spans are kept.
    On,
    /// Only totals are kept.
    #[default]
    Off,
}

/// Sums over the spans of one lane.
#[derive(Clone, Debug, Default)]
struct Totals {
    ms: [f64; KINDS],
    rows: u64,
    /// Time that an adapter was busy with them.
    trained_ms: f64,
    /// Time that other adapters waited for this one.
    held_up_ms: f64,
}

impl Totals {
    fn of(&self, what: Activity) -> f64 {
        self.ms[what as usize]
    }
}

/// Times of all work since [`start`](Self::start).
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    begin_ms: f64,
    names: Vec<String>,
    host: Totals,
    adapters: Vec<Totals>,
    steps: u64,
    tracing: Tracing,
    /// The newest spans; once there are [`MOST_SPANS`], the oldest is replaced.
    spans: Vec<Span>,
    oldest: usize,
    n_dropped: u64,
}

impl Timeline {
    /// Resets, and begins at `now_ms`.
    pub fn start(&mut self, now_ms: f64, tracing: Tracing) {
        let names = std::mem::take(&mut self.names);
        let adapters = vec![Totals::default(); names.len()];
        *self = Self { begin_ms: now_ms, names, adapters, tracing, ..Self::default() };
    }

    /// Continues with the timeline of an earlier rig. An adapter of it counts as the one at its position now.
    pub(crate) fn go_on(&mut self, earlier: Self) {
        let names = std::mem::replace(self, earlier).names;
        for (adapter_idx, name) in names.iter().enumerate() {
            self.name_adapter(adapter_idx, name);
        }
    }

    /// Names the adapter at a position; one more if it is the next.
    pub(crate) fn name_adapter(&mut self, adapter_idx: usize, name: &str) {
        if adapter_idx >= self.names.len() {
            self.names.resize(adapter_idx + 1, String::new());
            self.adapters.resize(adapter_idx + 1, Totals::default());
        }
        name.clone_into(&mut self.names[adapter_idx]);
    }

    /// Records a span: adds it to the totals, and keeps it if a trace is wanted. What was before the start is cut off.
    pub fn record(&mut self, span: Span) {
        let begin_ms = span.start_ms.max(self.begin_ms);
        let span = Span { start_ms: begin_ms, ms: span.end_ms() - begin_ms, ..span };
        if span.ms < 0.0 {
            return;
        }
        let totals = match span.lane {
            Lane::Host => &mut self.host,
            Lane::Adapter(idx) => match self.adapters.get_mut(idx) {
                Some(totals) => totals,
                None => return,
            },
        };
        totals.ms[span.what as usize] += span.ms;
        if span.what == Activity::Step {
            self.steps += 1;
            totals.rows += u64::from(span.rows);
        }
        if span.ms > 0.0 {
            self.keep(span);
        }
    }

    /// Records that an adapter was busy for so long to train on some rows.
    pub(super) fn add_rows(&mut self, adapter_idx: usize, rows: u32, busy_ms: f64) {
        if let Some(totals) = self.adapters.get_mut(adapter_idx) {
            totals.rows += u64::from(rows);
            totals.trained_ms += busy_ms;
        }
    }

    /// Keeps a span for the trace alone.
    pub fn trace(&mut self, span: Span) {
        if span.ms > 0.0 && span.start_ms >= self.begin_ms {
            self.keep(span);
        }
    }

    fn keep(&mut self, span: Span) {
        if self.tracing == Tracing::Off {
            return;
        }
        if self.spans.len() < MOST_SPANS {
            self.spans.push(span);
            return;
        }
        self.spans[self.oldest] = span;
        self.oldest = (self.oldest + 1) % MOST_SPANS;
        self.n_dropped += 1;
    }

    /// The spans that were kept, in the order of their ends.
    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        self.spans[self.oldest..].iter().chain(&self.spans[..self.oldest])
    }

    /// Spans that were too old to be kept.
    pub fn n_dropped(&self) -> u64 {
        self.n_dropped
    }

    /// Records one run of an adapter, with its waits at exchanges, `(start_ms, end_ms)`.
    pub(super) fn record_run(&mut self, run: &RunOf, timing: &Timing, waits: &[(f64, f64)]) {
        let Timing { start_ms, upload_ms, .. } = *timing;
        self.record(run.span(Activity::Weights, timing.weights.start_ms, timing.weights.ms));
        self.record(run.span(Activity::Upload, start_ms, upload_ms));
        let computing = if run.pass == Pass::Update { Activity::Update } else { Activity::Compute };
        let mut at_ms = start_ms + upload_ms;
        let computed_ms = at_ms + timing.compute_ms + timing.wait_ms + timing.tuning_ms;
        for (from_ms, to_ms) in waits {
            let (from_ms, to_ms) = (from_ms.clamp(at_ms, computed_ms), to_ms.clamp(at_ms, computed_ms));
            self.record(run.span(computing, at_ms, from_ms - at_ms));
            self.record(run.span(Activity::Wait, from_ms, to_ms - from_ms));
            at_ms = to_ms;
        }
        self.record(run.span(computing, at_ms, computed_ms - at_ms));
        self.record(run.span(Activity::Readback, computed_ms, timing.readback_ms));
    }

    /// Records that others waited for an adapter.
    pub(super) fn hold_up(&mut self, adapter_idx: usize, ms: f64) {
        if let Some(totals) = self.adapters.get_mut(adapter_idx) {
            totals.held_up_ms += ms.max(0.0);
        }
    }
}

/// Fields that the spans of one run share.
pub(super) struct RunOf {
    pub adapter_idx: usize,
    pub pass: Pass,
    pub step: Option<u64>,
    pub task: Option<StageTask>,
    pub rows: u32,
}

impl RunOf {
    fn span(&self, what: Activity, start_ms: f64, ms: f64) -> Span {
        Span {
            lane: Lane::Adapter(self.adapter_idx),
            what,
            start_ms,
            ms,
            step: self.step,
            task: self.task,
            rows: self.rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start_ms: f64, ms: f64) -> Span {
        Span { lane: Lane::Host, what: Activity::Reduce, start_ms, ms, step: Some(0), task: None, rows: 1 }
    }

    #[test]
    fn the_newest_spans_are_kept_and_all_are_counted() {
        let mut timeline = Timeline::default();
        timeline.start(0.0, Tracing::On);
        for idx in 0..MOST_SPANS + 3 {
            timeline.record(span(idx as f64, 1.0));
        }
        assert_eq!(timeline.n_dropped(), 3);
        assert_eq!(timeline.spans().count(), MOST_SPANS);
        assert_eq!(timeline.spans().next().unwrap().start_ms, 3.0);
        assert_eq!(timeline.host.of(Activity::Reduce), (MOST_SPANS + 3) as f64);
    }

    #[test]
    fn a_run_is_told_without_gaps() {
        let mut timeline = Timeline::default();
        timeline.name_adapter(0, "one");
        timeline.start(0.0, Tracing::On);
        let run = RunOf { adapter_idx: 0, pass: Pass::Train, step: Some(4), task: None, rows: 8 };
        let weights = manyhands_engine::adapters::Writes { start_ms: 1.0, ms: 2.0 };
        let timing = Timing {
            start_ms: 10.0,
            upload_ms: 1.0,
            compute_ms: 4.0,
            readback_ms: 2.0,
            wait_ms: 3.0,
            tuning_ms: 1.0,
            weights,
        };
        timeline.record_run(&run, &timing, &[(12.0, 14.0), (15.0, 16.0)]);
        let found: Vec<_> = timeline.spans().map(|span| (span.what, span.start_ms, span.end_ms())).collect();
        let expected = [
            (Activity::Weights, 1.0, 3.0),
            (Activity::Upload, 10.0, 11.0),
            (Activity::Compute, 11.0, 12.0),
            (Activity::Wait, 12.0, 14.0),
            (Activity::Compute, 14.0, 15.0),
            (Activity::Wait, 15.0, 16.0),
            (Activity::Compute, 16.0, 19.0),
            (Activity::Readback, 19.0, 21.0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_was_before_the_start_is_cut_off() {
        let mut timeline = Timeline::default();
        timeline.start(10.0, Tracing::On);
        timeline.record(span(4.0, 5.0));
        timeline.record(span(8.0, 5.0));
        assert_eq!(timeline.spans().map(|span| (span.start_ms, span.ms)).collect::<Vec<_>>(), [(10.0, 3.0)]);
    }
}
