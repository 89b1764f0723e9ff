//! A loss that the caller computes: its targets are the gradient by the outputs.

use manyhands::extend::{Domain, Grid, Head, LossFunction, Problem, Recorder, Recording, Score, Settings, Target};
use manyhands::extend::{Word, length_word};
use manyhands::losses::{Entry, MeanAbsoluteError, entry};
use manyhands::{Loss, Shape};
use manyhands_engine::kernels::regularizer;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Losses that files do not name.
const OWN: &[Entry] = &[entry::<GivenGradient>("GivenGradient")];

/// The losses of an objective.
pub(crate) fn losses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Loss>, D::Error> {
    let read = |named| Loss::read(named, OWN).map_err(|error| D::Error::custom(error.to_string()));
    Vec::deserialize(deserializer)?.into_iter().map(read).collect()
}

/// The gradient of each output is its target. With a loss weight of 0 the loss is that of penalties alone.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenGradient {}

impl LossFunction for GivenGradient {
    fn kind(&self) -> &'static str {
        "GivenGradient"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }

    fn head(&self) -> Head {
        Head::Values
    }

    fn target(&self, output: &Shape) -> Target {
        Target { shape: output.clone(), domain: Domain::Numbers }
    }

    fn needs_outputs(&self) -> bool {
        true
    }

    fn score(&self) -> Score {
        Score::AbsoluteError
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        // Its report is not read, and its gradient is 0.
        MeanAbsoluteError {}.record(rec, it);
        // Half of the target's square has the target as its slope.
        let len = length_word(it.target.len);
        let (l1, l2) = (Word::F32(0.0), Word::F32(0.5));
        let slope =
            regularizer::Record { len, splits: Word::U32(1), l1, l2, count: Word::U32(1), scale: Word::GradientScale };
        rec.dispatch(&regularizer::SLOPES, slope, [it.target], [it.gradient], Grid::Elements(len));
    }
}
