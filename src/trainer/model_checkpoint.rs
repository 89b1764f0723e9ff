//! Keeps the best model of a run as a file.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::callbacks::{Callback, EpochEnd, Flow, Monitor};
use crate::error::Result;
use crate::metrics::Reported;

/// Saves the model after each epoch in which a number is better than ever before, as Keras' `ModelCheckpoint` with
/// `save_best_only`. The file is replaced atomically; it holds the model alone, without the optimizer's state.
///
/// ```
/// use manyhands::callbacks::{ModelCheckpoint, Monitor};
/// use manyhands::data::digits;
/// use manyhands::layers::{Dense, Flatten};
/// use manyhands::{Compile, Fit, Loss, Model, Optimizer, Sequential, Trainer};
///
/// # fn main() -> manyhands::Result<()> {
/// # let folder = tempfile::tempdir().map_err(|error| manyhands::Error::writing("a temporary folder", error))?;
/// # let file = folder.path().join("best.safetensors");
/// let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0)?;
/// let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
/// let mut trainer = Trainer::new(model, compile)?.adapters("cpu")?;
/// let mut best = ModelCheckpoint::new(&file, Monitor::new("val_accuracy"));
/// let fit = Fit::new(3).validation(digits::test()?);
/// let history = trainer.fit_with(digits::train()?, &fit, &mut [&mut best])?;
/// assert_eq!(best.best_value(), history.of("val_accuracy").into_iter().reduce(f64::max));
/// assert_eq!(Model::load(&file)?.outputs().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ModelCheckpoint {
    path: PathBuf,
    monitor: Monitor,
    best: Option<f64>,
}

/// Name of the state in a checkpoint.
const STATE: &str = "best_model";

impl ModelCheckpoint {
    /// Saves to this file when the number improves.
    pub fn new(path: impl Into<PathBuf>, monitor: Monitor) -> Self {
        Self { path: path.into(), monitor, best: None }
    }

    /// Saves only models that are better than this value: that of the model which the file holds already.
    #[must_use]
    pub fn initial_value_threshold(mut self, value: f64) -> Self {
        self.best = Some(value);
        self
    }

    /// The watched number.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// The best value so far.
    pub fn best_value(&self) -> Option<f64> {
        self.best
    }
}

impl Callback for ModelCheckpoint {
    fn on_begin(&mut self, reported: &[Reported]) -> Result<()> {
        self.monitor.resolve(reported)
    }

    fn on_epoch(&mut self, end: &mut EpochEnd<'_>) -> Result<Flow> {
        let value = self.monitor.of(end.log);
        if self.monitor.is_better(value, self.best, 0.0)? {
            end.model.save(&self.path)?;
            self.best = Some(value);
        }
        Ok(Flow::Continue)
    }

    fn state(&self) -> Value {
        json!({ STATE: self.monitor.state(self.best) })
    }

    fn restore(&mut self, state: &Value) {
        let state = &state[STATE];
        if self.monitor.is_of(state) {
            self.best = state["best"].as_f64().or(self.best);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Mode;

    #[test]
    fn it_goes_on_with_the_number_that_it_watched() {
        let min = |name: &str| ModelCheckpoint::new("a", Monitor::new(name).mode(Mode::Min));
        let before = min("val_loss").initial_value_threshold(0.5);
        let resumed = |name: &str, state: &Value| {
            let mut checkpoint = min(name);
            checkpoint.restore(state);
            checkpoint.best_value()
        };
        assert_eq!(resumed("val_loss", &before.state()), Some(0.5));
        assert_eq!(resumed("val_accuracy", &before.state()), None);
        assert_eq!(resumed("val_loss", &Value::Null), None);
    }
}
