//! Callbacks: actions after each step and each epoch.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{EpochLog, StepLog};
use crate::error::{Error, Result};
use crate::metrics::{Mode, Reported};
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
    /// Before the first step, with the numbers that each epoch will report.
    ///
    /// # Errors
    /// Ends training with that error.
    fn on_begin(&mut self, _reported: &[Reported]) -> Result<()> {
        Ok(())
    }

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
    /// The direction. Without one it is that of the loss or metric, which is looked up when training begins.
    pub mode: Option<Mode>,
}

impl Monitor {
    /// Watches a number, in the direction of its loss or metric.
    ///
    /// ```
    /// use manyhands::callbacks::{Mode, Monitor};
    /// assert_eq!(Monitor::new("val_f1_score").mode, None);
    /// assert_eq!(Monitor::new("val_price_spread").mode(Mode::Max).mode, Some(Mode::Max));
    /// ```
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), mode: None }
    }

    /// Sets the direction.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Finds the number among those that an epoch reports, and takes its direction where none is set.
    ///
    /// # Errors
    /// If an epoch does not report it, or if its direction is not known.
    pub fn resolve(&mut self, reported: &[Reported]) -> Result<()> {
        let Some(number) = reported.iter().find(|number| number.name == self.name) else {
            let known: Vec<&str> = reported.iter().map(|number| number.name.as_str()).collect();
            return Err(Error::setting(
                self.who(),
                format!("is needed, but an epoch reports only {}", known.join(", ")),
                "name one of these; those with `val_` need validation data",
            ));
        };
        self.mode = self.mode.or(number.mode);
        self.direction().map(drop)
    }

    fn who(&self) -> String {
        format!("monitor `{}`", self.name)
    }

    /// The direction, once it is known.
    fn direction(&self) -> Result<Mode> {
        self.mode.ok_or_else(|| {
            Error::setting(
                self.who(),
                "needs a `mode`, but has none, and its metric does not tell whether smaller or larger is better",
                "set the mode `min` or `max` beside the monitor; `MetricFunction::mode` sets it for a metric of your own",
            )
        })
    }

    /// Whether a value is better than the best so far. NaN never is, not even as the first.
    pub(super) fn is_better(&self, new: f64, best: Option<f64>, min_delta: f64) -> Result<bool> {
        let sign = self.direction()?.sign();
        let beats = |best: f64| sign * new < sign * best - min_delta;
        Ok(!new.is_nan() && best.is_none_or(beats))
    }

    /// Its value in an epoch; NaN where the epoch has none.
    pub(super) fn of(&self, log: &EpochLog) -> f64 {
        log.values.get(&self.name).unwrap_or(f64::NAN)
    }

    /// A best value of this number, for a checkpoint.
    pub(super) fn state(&self, best: Option<f64>) -> Value {
        json!({ "monitor": self.name, "mode": self.mode, "best": best })
    }

    /// Whether a checkpoint's best value is of this number, in this direction. Older versions wrote no direction: they took
    /// larger as better where the name said accuracy, and smaller otherwise.
    pub(super) fn is_of(&self, state: &Value) -> bool {
        let name = state["monitor"].as_str();
        let older = name.map(|name| if name.contains("accuracy") { Mode::Max } else { Mode::Min });
        let mode = Mode::deserialize(&state["mode"]).ok().or(older);
        name == Some(&self.name) && mode == self.mode
    }
}

/// Ends training when a number has not improved for some epochs. At the end of training, whatever ended it, the model gets
/// the best weights, as with Keras' `restore_best_weights`.
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    monitor: Monitor,
    patience: u32,
    min_delta: f64,
    start_from_epoch: u64,
    best: Option<f64>,
    best_weights: Option<Weights>,
    waited: u32,
}

impl EarlyStopping {
    /// Watches a number for `patience` epochs without improvement.
    pub fn new(monitor: Monitor, patience: u32) -> Self {
        Self { monitor, patience, min_delta: 0.0, start_from_epoch: 0, best: None, best_weights: None, waited: 0 }
    }

    /// Counts only improvements of at least `min_delta`.
    #[must_use]
    pub fn min_delta(mut self, min_delta: f64) -> Self {
        self.min_delta = min_delta;
        self
    }

    /// Leaves out so many epochs at the start of the run: neither are they waited for, nor is one of them the best. As in Keras.
    #[must_use]
    pub fn start_from_epoch(mut self, n_epochs: u64) -> Self {
        self.start_from_epoch = n_epochs;
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
    fn on_begin(&mut self, reported: &[Reported]) -> Result<()> {
        self.monitor.resolve(reported)
    }

    fn on_epoch(&mut self, end: &mut EpochEnd<'_>) -> Result<Flow> {
        if end.log.epoch <= self.start_from_epoch {
            return Ok(Flow::Continue);
        }
        let value = self.monitor.of(end.log);
        if self.monitor.is_better(value, self.best, self.min_delta)? {
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
        let mut state = self.monitor.state(self.best);
        state["waited"] = self.waited.into();
        state
    }

    fn restore(&mut self, state: &Value) {
        // The best of another number, or the worst of this one, says nothing of it.
        if !self.monitor.is_of(state) {
            return;
        }
        self.best = state["best"].as_f64();
        self.waited = state["waited"].as_u64().and_then(|waited| u32::try_from(waited).ok()).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_stopping_goes_on_with_the_number_that_it_watched() {
        let min = |name: &str| EarlyStopping::new(Monitor::new(name).mode(Mode::Min), 3);
        let mut loss = min("val_loss");
        (loss.best, loss.waited) = (Some(0.5), 2);
        let resumed = |mut stopping: EarlyStopping, state: &Value| {
            stopping.restore(state);
            (stopping.best, stopping.waited)
        };
        let max = EarlyStopping::new(Monitor::new("val_loss").mode(Mode::Max), 3);
        assert_eq!(resumed(min("val_loss"), &loss.state()), (Some(0.5), 2));
        assert_eq!(resumed(min("val_accuracy"), &loss.state()), (None, 0));
        assert_eq!(resumed(max, &loss.state()), (None, 0));
    }

    #[test]
    fn a_best_value_of_an_older_version_is_taken_where_it_was_the_best() {
        let state = |name: &str| json!({ "monitor": name, "best": 0.4, "waited": 1 });
        for (name, mode, needed) in [
            ("val_loss", Mode::Min, Some(0.4)),
            ("val_accuracy", Mode::Max, Some(0.4)),
            // The worst of all epochs.
            ("val_f1_score", Mode::Max, None),
        ] {
            let mut stopping = EarlyStopping::new(Monitor::new(name).mode(mode), 3);
            stopping.restore(&state(name));
            assert_eq!(stopping.best, needed, "{name}");
        }
    }

    #[test]
    fn a_value_that_is_no_number_is_never_the_best() {
        let loss = Monitor::new("val_loss").mode(Mode::Min);
        let accuracy = Monitor::new("val_accuracy").mode(Mode::Max);
        let is_better = |monitor: &Monitor, new, best, delta| monitor.is_better(new, best, delta).unwrap();
        for monitor in [&loss, &accuracy] {
            assert!(!is_better(monitor, f64::NAN, None, 0.0) && !is_better(monitor, f64::NAN, Some(1.0), 0.0));
            assert!(is_better(monitor, 0.5, None, 0.0));
        }
        assert!(is_better(&loss, 0.5, Some(0.6), 0.0) && !is_better(&loss, 0.5, Some(0.6), 0.2));
        assert!(is_better(&accuracy, 0.7, Some(0.6), 0.0) && !is_better(&accuracy, 0.7, Some(0.6), 0.2));
    }

    #[test]
    fn an_unknown_direction_asks_for_a_mode() {
        let reported = [("loss", Some(Mode::Min)), ("auc", Some(Mode::Max)), ("spread", None)];
        let reported = reported.map(|(name, mode)| Reported { name: name.into(), mode });
        let resolved = |mut monitor: Monitor| monitor.resolve(&reported).map(|()| monitor.mode);
        assert_eq!(resolved(Monitor::new("auc")).unwrap(), Some(Mode::Max));
        assert_eq!(resolved(Monitor::new("auc").mode(Mode::Min)).unwrap(), Some(Mode::Min));
        assert_eq!(resolved(Monitor::new("spread").mode(Mode::Max)).unwrap(), Some(Mode::Max));
        let error = resolved(Monitor::new("spread")).unwrap_err().to_string();
        assert!(error.starts_with("monitor `spread` needs a `mode`, but has none"), "{error}");
        let error = resolved(Monitor::new("f1_score")).unwrap_err().to_string();
        assert!(error.contains("an epoch reports only loss, auc, spread"), "{error}");
    }
}
