//! Callbacks: actions after each step and each epoch.

use serde_json::{Value, json};

use super::{EpochLog, StepLog};
use crate::error::{Error, Result};
use crate::model::{Model, Weights};

/// Whether training continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Train the next epoch.
    Continue,
    /// End after this epoch.
    Stop,
}

/// Arguments of a callback after an epoch.
#[derive(Debug)]
pub struct EpochEnd<'a> {
    /// The epoch's numbers.
    pub log: &'a EpochLog,
    /// The model with its weights; training continues with a callback's changes.
    pub model: &'a mut Model,
}

/// An action during training.
pub trait Callback {
    /// After each step.
    ///
    /// # Errors
    /// Ends training with that error.
    fn on_step(&mut self, _log: &StepLog) -> Result<()> {
        Ok(())
    }

    /// After each epoch, validation included.
    ///
    /// # Errors
    /// Ends training with that error.
    fn on_epoch(&mut self, _end: &mut EpochEnd<'_>) -> Result<Flow> {
        Ok(Flow::Continue)
    }

    /// Called when training ends: after the last epoch, or because a callback stopped it, but not when it was
    /// interrupted. The weights that this gives the model are those of the trained model. A run that resumes for more
    /// epochs continues from those of its last step.
    ///
    /// # Errors
    /// Ends training with that error.
    fn on_end(&mut self, _model: &mut Model) -> Result<()> {
        Ok(())
    }

    /// State of the callback for a checkpoint, given to [`restore`](Self::restore).
    fn state(&self) -> Value {
        Value::Null
    }

    /// Restores the state that [`state`](Self::state) returned.
    fn restore(&mut self, _state: &Value) {}

    /// Weights that a checkpoint must hold for [`restore_best`](Self::restore_best).
    fn best(&self) -> Option<&Weights> {
        None
    }

    /// Takes back the weights that [`best`](Self::best) returned.
    fn restore_best(&mut self, _weights: &Weights) {}
}

/// Watched number, and the direction in which it improves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Its name: `val_loss`.
    pub name: String,
    /// Whether larger is better; the default is true for accuracies.
    pub larger_is_better: bool,
}

impl Monitor {
    /// Watches a number; larger is better where its name says accuracy.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let larger_is_better = name.contains("accuracy");
        Self { name, larger_is_better }
    }

    /// Whether a value is better than the best so far. NaN never is, not even as the first.
    pub(super) fn is_better(&self, new: f64, best: Option<f64>, min_delta: f64) -> bool {
        let beats = |best| if self.larger_is_better { new > best + min_delta } else { new < best - min_delta };
        !new.is_nan() && best.is_none_or(beats)
    }

    /// Checks that an epoch reports such a number.
    ///
    /// # Errors
    /// If it does not: what it reports.
    pub fn check(&self, reported: &[impl AsRef<str>]) -> Result<()> {
        let known: Vec<&str> = reported.iter().map(AsRef::as_ref).collect();
        if known.contains(&self.name.as_str()) {
            return Ok(());
        }
        Err(Error::setting(
            format!("monitor `{}`", self.name),
            format!("is needed, but an epoch reports only {}", known.join(", ")),
            "name one of these; those with `val_` need validation data",
        ))
    }

    pub(super) fn of(&self, log: &EpochLog) -> Result<f64> {
        let known: Vec<&str> = log.values.iter().map(|(name, _)| name).collect();
        self.check(&known)?;
        Ok(log.values.get(&self.name).unwrap_or(f64::NAN))
    }
}

/// Ends training when a number has not improved for some epochs. At the end of training, whatever ended it, the model gets
/// the best weights, as with Keras' `restore_best_weights`.
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    monitor: Monitor,
    patience: u32,
    min_delta: f64,
    best: Option<f64>,
    best_weights: Option<Weights>,
    waited: u32,
}

impl EarlyStopping {
    /// Watches a number for `patience` epochs without improvement.
    pub fn new(monitor: Monitor, patience: u32) -> Self {
        Self { monitor, patience, min_delta: 0.0, best: None, best_weights: None, waited: 0 }
    }

    /// Counts only improvements of at least `min_delta`.
    #[must_use]
    pub fn min_delta(mut self, min_delta: f64) -> Self {
        self.min_delta = min_delta;
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

impl Callback for EarlyStopping {
    fn on_epoch(&mut self, end: &mut EpochEnd<'_>) -> Result<Flow> {
        let value = self.monitor.of(end.log)?;
        if self.monitor.is_better(value, self.best, self.min_delta) {
            self.best = Some(value);
            self.best_weights = Some(end.model.weights.clone());
            self.waited = 0;
            return Ok(Flow::Continue);
        }
        self.waited += 1;
        if self.waited < self.patience {
            return Ok(Flow::Continue);
        }
        Ok(Flow::Stop)
    }

    /// Source: Keras 3, `EarlyStopping.on_train_end` with `restore_best_weights`.
    fn on_end(&mut self, model: &mut Model) -> Result<()> {
        let is_out_of_patience = self.waited >= self.patience;
        // A run that may continue keeps them.
        let best = if is_out_of_patience { self.best_weights.take() } else { self.best_weights.clone() };
        if let Some(best) = best {
            model.weights = best;
        }
        Ok(())
    }

    fn best(&self) -> Option<&Weights> {
        self.best_weights.as_ref()
    }

    fn restore_best(&mut self, weights: &Weights) {
        self.best_weights = Some(weights.clone());
    }

    fn state(&self) -> Value {
        json!({ "monitor": self.monitor.name, "best": self.best, "waited": self.waited })
    }

    fn restore(&mut self, state: &Value) {
        // The best of another number says nothing of this one.
        if state["monitor"].as_str().is_some_and(|monitor| monitor != self.monitor.name) {
            return;
        }
        self.best = state["best"].as_f64();
        self.waited = state["waited"].as_u64().and_then(|waited| u32::try_from(waited).ok()).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{Callback, EarlyStopping, Monitor};

    #[test]
    fn early_stopping_goes_on_with_the_number_that_it_watched() {
        let mut loss = EarlyStopping::new(Monitor::new("val_loss"), 3);
        (loss.best, loss.waited) = (Some(0.5), 2);
        let resumed = |name: &str| {
            let mut stopping = EarlyStopping::new(Monitor::new(name), 3);
            stopping.restore(&loss.state());
            (stopping.best, stopping.waited)
        };
        assert_eq!((resumed("val_loss"), resumed("val_accuracy")), ((Some(0.5), 2), (None, 0)));
    }

    #[test]
    fn a_value_that_is_no_number_is_never_the_best() {
        let [loss, accuracy] = ["val_loss", "val_accuracy"].map(Monitor::new);
        for monitor in [&loss, &accuracy] {
            assert!(!monitor.is_better(f64::NAN, None, 0.0) && !monitor.is_better(f64::NAN, Some(1.0), 0.0));
            assert!(monitor.is_better(0.5, None, 0.0));
        }
        assert!(loss.is_better(0.5, Some(0.6), 0.0) && !loss.is_better(0.5, Some(0.6), 0.2));
        assert!(accuracy.is_better(0.7, Some(0.6), 0.0) && !accuracy.is_better(0.7, Some(0.6), 0.2));
    }
}
