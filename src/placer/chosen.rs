//! A chosen placement, as a table.

use std::fmt;
use std::ops::Range;

use crate::scheduler::Division;
use crate::shown::bytes;
use crate::table::Table;

/// A placement that was chosen by measurement, and what it was chosen for. It shows itself as a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChosenPlacement {
    /// The stage of each node and adapter; none for copies on all adapters.
    pub(crate) division: Option<Division>,
    /// Pieces of a batch.
    pub micro_batches: u32,
    /// Predicted milliseconds of a training step.
    pub step_ms: f64,
    /// Predicted milliseconds of a step with copies of the model, on the adapters on which they are fastest; `None` if they do
    /// not fit.
    pub copies_ms: Option<f64>,
    /// Predicted milliseconds of a step with copies on all adapters that hold one, before the scheduler excludes any; `None` if they do
    /// not fit.
    pub all_copies_ms: Option<f64>,
    /// Predicted milliseconds of a step in stages, where copies were chosen.
    pub staged_ms: Option<f64>,
    /// Adapters that could take part, and are left out since a step is faster without them.
    pub left_out: Vec<String>,
    /// Adapters on which no copy fits, and the bytes that they lack.
    pub lacking: Vec<(String, u64)>,
    /// The stages in order; one for copies.
    pub stages: Vec<ChosenStage>,
}

/// A stage of a chosen placement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChosenStage {
    /// Its first and last layer.
    pub layers: String,
    /// Its blocks.
    pub(crate) blocks: Range<usize>,
    /// Names of its adapters.
    pub adapters: Vec<String>,
    /// Bytes that it takes on each of them.
    pub bytes: Vec<u64>,
    /// Predicted milliseconds of a step in which each of them is busy.
    pub ms: f64,
}

impl ChosenPlacement {
    /// Whether the layers are in several stages.
    pub fn is_staged(&self) -> bool {
        self.division.as_ref().is_some_and(|division| division.n_stages() > 1)
    }

    /// The blocks of each stage.
    pub(super) fn ranges(&self) -> Vec<Range<usize>> {
        self.stages.iter().map(|stage| stage.blocks.clone()).collect()
    }

    /// The stages in a line: their layers, and the adapters of each.
    pub(crate) fn line(&self) -> String {
        let of = |stage: &ChosenStage| format!("`{}` on {}", stage.layers, stage.adapters.join(", "));
        self.stages.iter().map(of).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for ChosenPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { micro_batches, step_ms, .. } = self;
        if self.is_staged() {
            let n_stages = self.stages.len();
            write!(
                f,
                "placement: {n_stages} stages, {micro_batches} micro-batches: {step_ms:.1} ms a step predicted; "
            )?;
            match self.copies_ms {
                Some(ms) => writeln!(f, "replicas would take {ms:.1} ms")?,
                None => writeln!(f, "replicas do not fit")?,
            }
        } else {
            write!(f, "placement: replicas: {step_ms:.1} ms a step predicted; ")?;
            match self.staged_ms {
                Some(ms) => writeln!(f, "stages would take {ms:.1} ms, and replicas are kept unless stages save 5 %")?,
                None => writeln!(f, "no stages fit")?,
            }
        }
        for (name, missing) in &self.lacking {
            writeln!(f, "a replica does not fit on {name}: it lacks {} even for one row", bytes(*missing))?;
        }
        if !self.left_out.is_empty() {
            let without = self.left_out.join(", ");
            match self.all_copies_ms.filter(|_| !self.is_staged()) {
                Some(ms) => writeln!(f, "left out: {without}; with all adapters, replicas would take {ms:.1} ms")?,
                None => writeln!(f, "left out: {without}")?,
            }
        }
        let mut table = Table::new(["stage", "layers", "adapters", "memory", "busy ms a step"]).numbers([0, 4]);
        for (number, stage) in self.stages.iter().enumerate() {
            let memory: Vec<String> = stage.bytes.iter().map(|need| bytes(*need)).collect();
            table.row([
                number.to_string(),
                stage.layers.clone(),
                stage.adapters.join(", "),
                memory.join(", "),
                format!("{:.1}", stage.ms),
            ]);
        }
        table.fmt(f)
    }
}
