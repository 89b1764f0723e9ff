//! `fit`: epochs of training steps, with validation, callbacks and checkpoints.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::callbacks::{Callback, EpochEnd, Flow};
use super::checkpoint::Frozen;
use super::needs::Needs;
use super::save_settings::SaveSettings;
use super::share::check_same_weights;
use super::{AsyncTrainer, EpochLog, Fit, History, Trainer};
use crate::data::{Dataset, Loader, LoaderSettings};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, FileKind};
use crate::scheduler::timeline::{Activity, Tracing};
use crate::timing::per_second;

impl AsyncTrainer<'_> {
    /// Trains, without blocking.
    ///
    /// # Errors
    /// If the data does not fit the model, an adapter fails beyond repair, or a file can't be written.
    pub async fn fit(
        &mut self,
        train: Arc<dyn Dataset>,
        fit: &Fit,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<History> {
        let group = self.trainer.group().clone();
        let mut fit = fit.clone();
        if !group.is_first() {
            // The first process writes files.
            (fit.save, fit.trace) = (None, None);
        }
        let fitted = self.fit_here(train, &fit, callbacks).await;
        group.shared(fitted).await
    }

    async fn fit_here(
        &mut self,
        train: Arc<dyn Dataset>,
        fit: &Fit,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<History> {
        let rows = train.len();
        let mut loader = self.begin_run(train, fit).await?;
        Needs::of(self.trainer).warn_of_small_batches(fit.batch_size, rows, self.trainer.adapters.sharing());
        Needs::of(self.trainer).warn_of_frozen();
        let reported = self.trainer.reported(fit.validation.is_some());
        callbacks.iter_mut().try_for_each(|callback| callback.on_begin(&reported))?;
        for (callback, state) in callbacks.iter_mut().zip(&self.trainer.progress.callbacks) {
            callback.restore(state);
            if let Some(best) = &self.trainer.progress.best {
                callback.restore_best(best);
            }
        }
        // A file that can't be written is found now, not after hours.
        if let Some(path) = &fit.trace {
            files::check(path, FileKind::Trace)?;
        }
        Run { trainer: self.trainer, fit, callbacks }.train(&mut loader).await
    }

    /// Checks data and settings of a run, opens the adapters, and starts the loader and the timeline.
    pub(super) async fn begin_run(&mut self, train: Arc<dyn Dataset>, fit: &Fit) -> Result<Loader> {
        self.trainer.check_run(train.as_ref(), fit.validation.as_deref())?;
        self.check_alike(train.as_ref(), fit).await?;
        (self.trainer.share.is_stopped, self.trainer.share.stop) = (false, fit.stop.clone());
        self.trainer.share.renew();
        // Steps left in flight by a session that was abandoned.
        self.end_steps(0).await;
        self.trainer.progress.go_on(
            train.as_ref(),
            fit,
            self.trainer.compile.seed,
            self.trainer.saving.resumed_step(),
        )?;
        self.open(fit, train.len()).await?;
        Needs::of(self.trainer).warn_of_classes();
        self.trainer.reading =
            LoaderSettings { workers: fit.workers, prefetch: fit.prefetch, ..LoaderSettings::default() };
        let loader = Loader::new(
            Needs::of(self.trainer).class_weighted(train, &fit.class_weight)?,
            fit.loader(self.trainer.compile.seed),
        )?;
        self.trainer.adapters.start_timeline(if fit.trace.is_some() { Tracing::On } else { Tracing::Off })?;
        Ok(loader)
    }
}

/// The weights that the model of a saved run has.
#[derive(Clone, Copy)]
enum ModelWeights {
    /// The weights of training. Within an epoch the model may have older ones, which need not be brought up to date.
    OfTraining,
    /// The model's own weights: callbacks may have given it the best ones.
    OfCallbacks,
}

/// A run of a trainer: its settings and callbacks.
pub(super) struct Run<'a, 'c> {
    pub(super) trainer: &'a mut Trainer,
    pub(super) fit: &'a Fit,
    pub(super) callbacks: &'a mut [&'c mut dyn Callback],
}

impl Run<'_, '_> {
    /// Trains until the run is over, and saves it.
    ///
    /// # Errors
    /// If an adapter fails beyond repair, or a file can't be written.
    async fn train(mut self, loader: &mut Loader) -> Result<History> {
        let first_step = self.trainer.progress.step;
        let result = self.epochs(loader).await;
        self.trainer.asynchronous().end_steps(loader.batches_per_epoch()).await;
        if let Err(error) = &result
            && !self.trainer.saving.is_doubtful()
        {
            // Weights must match the position, as far as they can be read.
            let is_whole = self.trainer.sync_state().await.is_ok() && self.trainer.progress.step > first_step;
            // Behind the last batch callbacks have seen an epoch that is not over; and data that are mended may be
            // others, with which only whole epochs continue.
            let may_go_on = self.trainer.progress.batch < loader.batches_per_epoch() && error.kind() != ErrorKind::Data;
            if is_whole
                && may_go_on
                && let Err(error) = self.save().await
            {
                log::warn!("the run can't be saved where it ended: {error}");
            }
        }
        if self.fit.save.is_some() {
            self.trainer.progress.best = self.callbacks.iter().find_map(|callback| callback.best().cloned());
        }
        let saved = self.trainer.saving.finish();
        // After an error the trace shows what led to it; the error itself is what the caller gets.
        let traced = self.fit.trace.as_ref().map_or(Ok(()), |path| self.trainer.adapters.write_trace(path));
        if let (Err(_), Err(error)) = (&result, &saved) {
            log::warn!("the run can't be saved where it ended: {error}");
        }
        let mut history = result?;
        history.saved_step = saved?;
        traced?;
        history.time = self.trainer.adapters.time_summary(loader.settings())?;
        log::debug!("{}", history.time);
        Ok(history)
    }

    /// All epochs that are left.
    async fn epochs(&mut self, loader: &mut Loader) -> Result<History> {
        let mut history = History::default();
        while self.trainer.progress.epoch < self.fit.epochs {
            let Some(log) = self.epoch(loader).await? else {
                history.is_interrupted = true;
                break;
            };
            let flow = self.end_epoch(&log).await?;
            history.epochs.push(log);
            if flow == Flow::Stop || self.trainer.progress.is_finished {
                break;
            }
        }
        Ok(history)
    }

    /// One epoch from the current position; `None` if the run was asked to stop.
    async fn epoch(&mut self, loader: &mut Loader) -> Result<Option<EpochLog>> {
        let fit = self.fit;
        let begin_ms = self.trainer.adapters.runtime.now_ms();
        loader.start_epoch(self.trainer.progress.epoch, self.trainer.progress.batch);
        self.trainer.take_snapshot(0).await?;
        let mut rows = 0;
        let is_due = |step| fit.save.as_ref().is_some_and(|save| is_due(save, step));
        let is_free = |step| !is_due(step) && !fit.stop.load(Ordering::Relaxed);
        while let Some(log) = self.trainer.asynchronous().next_step(loader, &is_free).await? {
            rows += log.rows;
            for callback in self.callbacks.iter_mut() {
                callback.on_step(&log)?;
            }
            self.trainer.saving.learn(&log)?;
            let is_stopped = self.is_stopped();
            if is_stopped && !self.trainer.adapters.is_idle() {
                // The step in flight ends, too.
                continue;
            }
            if is_stopped || is_due(self.trainer.progress.step) {
                self.save().await?;
            }
            if is_stopped {
                self.trainer.sync().await?;
                return Ok(None);
            }
        }
        self.epoch_log(rows, begin_ms).await.map(Some)
    }

    /// Whether the run ends now. Several processes end after the same step.
    fn is_stopped(&self) -> bool {
        let trainer = &self.trainer;
        if trainer.group().is_alone() { self.fit.stop.load(Ordering::Relaxed) } else { trainer.share.is_stopped }
    }

    /// Log of an epoch of `rows` rows, validation included.
    pub(super) async fn epoch_log(&mut self, rows: usize, begin_ms: f64) -> Result<EpochLog> {
        let train_ms = self.trainer.adapters.runtime.now_ms() - begin_ms;
        let mut values = self.trainer.progress.running(&self.trainer.compile, &self.trainer.model);
        if let Some(validation) = &self.fit.validation {
            let evaluate_ms = self.trainer.adapters.runtime.now_ms();
            values.extend(
                self.trainer.asynchronous().evaluate(validation.clone(), self.fit.batch_size).await?.prefixed("val_"),
            );
            self.trainer.adapters.record(Activity::Evaluate, evaluate_ms);
        }
        let progress = &self.trainer.progress;
        Ok(EpochLog {
            epoch: progress.epoch + 1,
            step: progress.step,
            values,
            learning_rate: progress.scheduled(progress.learning_rate, progress.updates(), &self.trainer.compile),
            seconds: (self.trainer.adapters.runtime.now_ms() - begin_ms) / 1e3,
            samples_per_s: per_second(rows as u64, train_ms),
        })
    }

    /// Callbacks, the schedule's plateau, and the checkpoint after an epoch.
    pub(super) async fn end_epoch(&mut self, log: &EpochLog) -> Result<Flow> {
        self.trainer.sync().await?;
        let mut flow = Flow::Continue;
        for callback in self.callbacks.iter_mut() {
            if callback.on_epoch(&mut EpochEnd { log, model: &mut self.trainer.model })? == Flow::Stop {
                flow = Flow::Stop;
            }
        }
        let flow = self.agree(flow).await?;
        self.check_frozen()?;
        self.take_changed_weights();
        let Trainer { progress, saving, compile, model, adapters, .. } = &mut *self.trainer;
        progress.watch_plateau(&compile.schedule, &log.values);
        saving.watch_validation(&log.values);
        progress.end_epoch(flow == Flow::Stop);
        if progress.epoch >= self.fit.epochs || flow == Flow::Stop {
            // The model gets the averages of its weights; the state keeps the weights.
            let averages = adapters.state().averages(&compile.optimizer).unwrap_or_default();
            model
                .weights
                .parameters
                .iter_mut()
                .zip(averages)
                .for_each(|(segment, average)| segment.clone_from(average));
            for callback in self.callbacks.iter_mut() {
                callback.on_end(&mut self.trainer.model)?;
            }
        }
        if flow == Flow::Stop {
            // Training is over: the adapters may take the best weights.
            self.take_changed_weights();
        }
        check_same_weights(self.trainer.group(), self.trainer.adapters.state(), self.trainer.progress.step).await?;
        self.freeze(ModelWeights::OfCallbacks)?;
        self.take_changed_weights();
        Ok(flow)
    }

    /// Ends the run if a callback of any process says so.
    async fn agree(&self, flow: Flow) -> Result<Flow> {
        let Some(joined) = self.trainer.group().joined() else { return Ok(flow) };
        let stops = joined.sum(&[f64::from(u8::from(flow == Flow::Stop))]).await?;
        Ok(if stops.iter().any(|stops| *stops > 0.0) { Flow::Stop } else { Flow::Continue })
    }

    /// Sends the adapters the model's weights if a callback changed them, or training ended with averages.
    fn take_changed_weights(&mut self) {
        if self.trainer.model.weights != self.trainer.adapters.state().weights {
            self.trainer.adapters.take_weights(&self.trainer.model);
        }
    }

    /// Keeps the current state of the run, to be written while it continues.
    async fn save(&mut self) -> Result<()> {
        if !self.trainer.saving.is_on() {
            return Ok(());
        }
        // Before the state is read: so the last one, if it is still written, is not held beside two others.
        self.trainer.saving.make_room()?;
        self.trainer.sync_state().await?;
        self.freeze(ModelWeights::OfTraining)
    }

    /// Keeps a run whose state is up to date.
    fn freeze(&mut self, weights: ModelWeights) -> Result<()> {
        let Trainer { model, compile, adapters, progress, saving, .. } = &mut *self.trainer;
        if !saving.is_on() {
            return Ok(());
        }
        let begin_ms = adapters.runtime.now_ms();
        saving.make_room()?;
        progress.callbacks = self.callbacks.iter().map(|callback| callback.state()).collect();
        progress.batch_size = self.fit.batch_size;
        let (state, best) = (adapters.share_state(), self.callbacks.iter().find_map(|callback| callback.best()));
        let chosen = match weights {
            ModelWeights::OfCallbacks => Some(&model.weights).filter(|weights| **weights != state.weights),
            ModelWeights::OfTraining => None,
        };
        saving.take(Frozen::new(model, chosen, &compile.optimizer, state, progress, best))?;
        adapters.record(Activity::Save, begin_ms);
        Ok(())
    }

    /// Refuses changes of trainable layers by a callback: plans and optimizer state depend on them.
    fn check_frozen(&self) -> Result<()> {
        if self.trainer.adapters.train(self.trainer.model.layout()) {
            return Ok(());
        }
        Err(Error::model(
            "the model of the run",
            "needs the trainable layers that the run began with, but a callback changed them",
            "end the run, freeze or unfreeze layers of its model, and make a new trainer of that",
        ))
    }
}

fn is_due(save: &SaveSettings, step: u64) -> bool {
    save.every_steps > 0 && step.is_multiple_of(save.every_steps)
}
