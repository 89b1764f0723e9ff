//! The position of a run, its learning rate, and the settings that a resumed run must keep.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Compile, Fit, LossScale, Meter, Values};
use crate::data::{Augmentation, Dataset, Loader};
use crate::error::{Error, Result};
use crate::model::{Model, Weights};
use crate::optimizers::Schedule;
use crate::plan::Precision;
use crate::scheduler::Scaling;

/// Position of a run; with the weights and the optimizer's state it is all that a resumed run needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Progress {
    /// Training steps done.
    pub step: u64,
    /// Epochs done.
    pub epoch: u64,
    /// Batches done in the epoch at hand.
    pub batch: usize,
    /// Rows of the training data.
    pub rows: usize,
    /// Hash of the training data ([`Dataset::digest`](crate::data::Dataset::digest)) of a run that is saved. Files of older versions
    /// lack this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<u64>,
    /// Rows of a batch.
    pub batch_size: usize,
    /// Seed of shuffling and dropout.
    pub seed: u64,
    /// Whether rows are shuffled. Files of older versions lack this.
    pub shuffle: Option<bool>,
    /// Random changes of the training images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub augment: Vec<Augmentation>,
    /// The optimizer's learning rate, less what plateaus have taken off it.
    pub learning_rate: f32,
    /// Best value of the plateau schedule.
    pub(crate) plateau_best: Option<f64>,
    /// Epochs since then.
    pub(crate) plateau_waited: u32,
    /// Loss and metrics of the current epoch.
    pub(crate) meter: Meter,
    /// State of the callbacks.
    pub(crate) callbacks: Vec<Value>,
    /// The loss scale, under mixed precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// Whether a callback ended the run.
    pub is_finished: bool,
    /// Weights that a callback may restore: tensors of the file, under `best/`.
    #[serde(skip)]
    pub(crate) best: Option<Weights>,
}

impl Progress {
    /// The beginning of a run.
    pub(super) fn start(compile: &Compile) -> Self {
        Self { learning_rate: compile.optimizer.learning_rate(), ..Self::default() }.computing_in(compile.precision)
    }

    /// With a loss scale, where the precision asks for one: that of before, if there is one.
    pub(super) fn computing_in(self, precision: Precision) -> Self {
        let loss_scale = match precision {
            Precision::Float32 => None,
            Precision::MixedFloat16 => Some(self.loss_scale.unwrap_or_default()),
        };
        Self { loss_scale, ..self }
    }

    /// The scaling of a step behind so many that are in flight, if all of these are applied.
    pub(super) fn scaling(&self, in_flight: u64) -> Option<Scaling> {
        let scale = (0..in_flight).fold(self.loss_scale?, |scale, _| scale.after_applied());
        let updates = (self.step + in_flight).saturating_sub(scale.skipped_steps());
        Some(Scaling { exponent: scale.exponent(), updates })
    }

    /// Steps of the optimizer: those that were applied, if others are expected.
    pub(super) fn updates(&self) -> u64 {
        self.scaling(0).map_or(self.step, |scaling| scaling.updates)
    }

    /// Lets the loss scale follow a step.
    pub(super) fn follow(&mut self, is_applied: bool) {
        if let Some(scale) = &mut self.loss_scale {
            *scale = if is_applied { scale.after_applied() } else { scale.after_skipped() };
        }
    }

    /// Takes over a learning rate that was changed on purpose; reductions by plateaus stay.
    pub(super) fn change_rate(&mut self, old: f32, new: f32) {
        if new != old && old > 0.0 {
            self.learning_rate *= new / old;
        } else if new != old {
            self.learning_rate = new;
        }
    }

    /// Learning rate of a step, counted from 0: `rate`, changed by schedule and batch size.
    #[allow(clippy::cast_precision_loss, reason = "batch sizes are small")]
    pub(super) fn scheduled(&self, rate: f32, step: u64, compile: &Compile) -> f32 {
        let factor = compile.learning_rate_batch.map_or(1.0, |batch| self.batch_size as f32 / batch.max(1) as f32);
        compile.schedule.rate(rate, step) * factor
    }

    /// Continues with these settings; `resumed_step` is the step at which the run was resumed from a file. A position
    /// within an epoch counts batches of one size, of one dataset in one order. Between epochs all of these may change; a
    /// resumed run reports a change, since it may be a mistake.
    ///
    /// # Errors
    /// If the position is within an epoch of other settings.
    pub(super) fn go_on(&mut self, train: &dyn Dataset, fit: &Fit, seed: u64, resumed_step: Option<u64>) -> Result<()> {
        let rows = train.len();
        let text = |changes: &[Augmentation]| serde_json::to_string(changes).unwrap_or_default();
        let on_off = |shuffle| if shuffle { "on" } else { "off" }.to_owned();
        let settings = [
            ("seed", self.seed.to_string(), seed.to_string()),
            ("batch size", self.batch_size.to_string(), fit.batch_size.to_string()),
            ("number of training rows", self.rows.to_string(), rows.to_string()),
            ("shuffling", on_off(self.shuffle.unwrap_or(fit.shuffle)), on_off(fit.shuffle)),
            ("augmentation", text(&self.augment), text(&fit.augment)),
        ];
        for (what, before, now) in settings.iter().filter(|(_, before, now)| before != now) {
            if self.batch > 0 {
                return Err(Error::setting(
                    "resuming within an epoch",
                    format!("needs the same {what}, {before}, but got {now}"),
                    "resume with the value of before; it may change between epochs",
                ));
            }
            if resumed_step == Some(self.step) && self.step > 0 {
                log::warn!(
                    "the run that is resumed had another {what}: {before} before, {now} from now on\n  \
                     help: resume with {before} for the same results as without the interruption"
                );
            }
        }
        let data = if fit.save.is_some() || resumed_step.is_some() { train.digest() } else { None };
        let has_changed = self.rows == rows && self.data.zip(data).is_some_and(|(before, now)| before != now);
        if has_changed && self.batch > 0 {
            return Err(Error::setting(
                "resuming within an epoch",
                "needs the same training data, but their rows, or the order of these, have changed",
                "resume with the data of before; they may change between epochs",
            ));
        }
        if has_changed && resumed_step == Some(self.step) && self.step > 0 {
            log::warn!(
                "the run that is resumed had other training data: their rows, or the order of these, have changed\n  \
                 help: resume with the data of before for the same results as without the interruption"
            );
        }
        (self.rows, self.data) = (rows, data);
        self.batch_size = fit.batch_size;
        self.seed = seed;
        self.shuffle = Some(fit.shuffle);
        self.augment.clone_from(&fit.augment);
        Ok(())
    }

    /// Loss and metrics of the epoch so far.
    pub(super) fn running(&self, compile: &Compile, model: &Model) -> Values {
        self.meter.values(compile, model)
    }

    /// Whether all batches that a loader gave have been trained.
    pub(super) fn is_at(&self, loader: &Loader) -> bool {
        let position = loader.position();
        (position.epoch, position.batch) == (self.epoch, self.batch)
    }

    /// Goes to the next epoch.
    pub(super) fn end_epoch(&mut self, is_finished: bool) {
        self.epoch += 1;
        self.batch = 0;
        self.meter = Meter::default();
        self.is_finished = is_finished;
    }

    /// Lowers the learning rate if the schedule is [`Schedule::ReduceLROnPlateau`] and an epoch's values are on one.
    pub(super) fn watch_plateau(&mut self, schedule: &Schedule, values: &Values) {
        let Schedule::ReduceLROnPlateau { factor, patience, min_delta, min_lr } = *schedule else { return };
        let Some(value) = values.get("val_loss").or_else(|| values.get("loss")) else { return };
        if !value.is_nan() && self.plateau_best.is_none_or(|best| value < best - min_delta) {
            (self.plateau_best, self.plateau_waited) = (Some(value), 0);
            return;
        }
        self.plateau_waited += 1;
        if self.plateau_waited >= patience {
            self.plateau_waited = 0;
            if self.learning_rate > min_lr {
                self.learning_rate = (self.learning_rate * factor).max(min_lr);
                log::info!("no improvement for {patience} epochs: the learning rate is now {}", self.learning_rate);
            }
        }
    }
}
