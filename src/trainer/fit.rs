//! `fit`: epochs of training steps, with validation, callbacks and checkpoints.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::callbacks::{Callback, EpochEnd, Flow};
use super::checkpoint::Frozen;
use super::saver::{SaveSettings, Saver};
use super::{EpochLog, History, Trainer, Values};
use crate::data::{Dataset, Loader, LoaderSettings};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, FileKind};
use crate::optimizers::Schedule;
use crate::scheduler::timeline::Activity;
use crate::timing::per_second;

/// Settings of a run of training.
#[derive(Clone)]
#[non_exhaustive]
pub struct Fit {
    /// Number of the last epoch. A run that resumes at epoch 3 of 10 trains 7 more.
    pub epochs: u64,
    /// Rows of a batch, over all adapters.
    pub batch_size: usize,
    /// Data for validation after each epoch.
    pub validation: Option<Arc<dyn Dataset>>,
    /// Weights of the classes in training, by label; 1 where none is given. Validation counts each row once.
    pub class_weight: BTreeMap<usize, f32>,
    /// Whether rows are shuffled in each epoch.
    pub shuffle: bool,
    /// Whether a short last batch is left out.
    pub drop_remainder: bool,
    /// Micro-batches in which each adapter computes its rows, one after the other, before one update: less memory for
    /// the same batch. The result is the same, except with batch normalization, whose statistics are then those of each
    /// micro-batch.
    pub micro_batches: u32,
    /// Number of threads that decode data; 0 decodes between steps.
    pub workers: usize,
    /// Batches that are decoded ahead.
    pub prefetch: usize,
    /// Path and interval of checkpoints.
    pub save: Option<SaveSettings>,
    /// File for a trace of all work, for Perfetto; written at the end, also after an error.
    pub trace: Option<PathBuf>,
    /// Flag that ends the run after the current step, with a checkpoint.
    pub stop: Arc<AtomicBool>,
}

impl Default for Fit {
    fn default() -> Self {
        Self {
            epochs: 1,
            batch_size: 32,
            validation: None,
            class_weight: BTreeMap::new(),
            shuffle: true,
            drop_remainder: false,
            micro_batches: 1,
            workers: LoaderSettings::default().workers,
            prefetch: LoaderSettings::default().prefetch,
            save: None,
            trace: None,
            stop: Arc::new(AtomicBool::new(false)),
        }
    }
}

impl Fit {
    /// Trains up to this epoch, with Keras' defaults: batches of 32 rows, shuffled.
    ///
    /// ```
    /// use manyhands::{Fit, data::digits};
    /// # fn main() -> manyhands::Result<()> {
    /// let fit = Fit::new(10).batch_size(64).validation(digits::test()?);
    /// assert_eq!((fit.epochs, fit.batch_size), (10, 64));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(epochs: u64) -> Self {
        Self { epochs, ..Self::default() }
    }

    /// Rows of a batch, over all adapters.
    #[must_use]
    pub fn batch_size(mut self, rows: usize) -> Self {
        self.batch_size = rows;
        self
    }

    /// Data for validation after each epoch.
    #[must_use]
    pub fn validation(mut self, dataset: impl Dataset + 'static) -> Self {
        self.validation = Some(Arc::new(dataset));
        self
    }

    /// Weights of the classes in training, as `class_weight` of Keras: rows of a class count so many times in the loss.
    ///
    /// ```
    /// use manyhands::Fit;
    /// let fit = Fit::new(5).class_weight([(0, 1.0), (1, 20.0)]);
    /// assert_eq!(fit.class_weight[&1], 20.0);
    /// ```
    #[must_use]
    pub fn class_weight(mut self, weights: impl IntoIterator<Item = (usize, f32)>) -> Self {
        self.class_weight = weights.into_iter().collect();
        self
    }

    /// Leaves out a short last batch.
    #[must_use]
    pub fn drop_remainder(mut self) -> Self {
        self.drop_remainder = true;
        self
    }

    /// Keeps the rows in their order.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.shuffle = false;
        self
    }

    /// Number of the last epoch. A run that resumes at epoch 3 of 10 trains 7 more.
    #[must_use]
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.epochs = epochs;
        self
    }

    /// Parts in which each adapter computes its rows, one after the other, before the one update: less memory for the
    /// same batch.
    #[must_use]
    pub fn micro_batches(mut self, parts: u32) -> Self {
        self.micro_batches = parts;
        self
    }

    /// Sets the number of threads that decode data; 0 decodes between steps.
    #[must_use]
    pub fn workers(mut self, n_workers: usize) -> Self {
        self.workers = n_workers;
        self
    }

    /// Batches that are decoded ahead.
    #[must_use]
    pub fn prefetch(mut self, n_batches: usize) -> Self {
        self.prefetch = n_batches;
        self
    }

    /// Ends the run after the current step, with a checkpoint, once the flag is set.
    #[must_use]
    pub fn stop(mut self, flag: Arc<AtomicBool>) -> Self {
        self.stop = flag;
        self
    }

    /// Saves by these settings: also after some steps, or over another run's file.
    #[must_use]
    pub fn save_with(mut self, settings: SaveSettings) -> Self {
        self.save = Some(settings);
        self
    }

    /// Saves a checkpoint after each epoch and at the end, to a new file or to the one that the run was resumed from.
    #[must_use]
    pub fn save(mut self, path: impl Into<PathBuf>) -> Self {
        self.save = Some(SaveSettings::new(path));
        self
    }

    /// Writes a trace of all work, for Perfetto.
    #[must_use]
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace = Some(path.into());
        self
    }

    pub(super) fn loader(&self, seed: u64) -> LoaderSettings {
        LoaderSettings {
            batch_size: self.batch_size,
            shuffle: self.shuffle.then_some(seed),
            drop_remainder: self.drop_remainder,
            workers: self.workers,
            prefetch: self.prefetch,
        }
    }
}

impl Trainer {
    /// Trains, without blocking.
    ///
    /// # Errors
    /// If the data does not fit the model, an adapter fails beyond repair, or a file can't be written.
    pub async fn fit_async(
        &mut self,
        train: Arc<dyn Dataset>,
        fit: &Fit,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<History> {
        self.check_run(train.as_ref(), fit.validation.as_deref())?;
        // Steps left in flight by a session that was abandoned.
        self.end_steps(0).await;
        self.check_position(train.len(), fit)?;
        self.open_async(fit, train.len()).await?;
        self.warn_of_small_batches(fit.batch_size, train.len());
        self.warn_of_classes();
        self.warn_of_frozen();
        self.read_as(fit);
        for (callback, state) in callbacks.iter_mut().zip(&self.progress.callbacks) {
            callback.restore(state);
            if let Some(best) = &self.progress.best {
                callback.restore_best(best);
            }
        }
        let mut loader = Loader::new(self.class_weighted(train, fit)?, fit.loader(self.compile.seed))?;
        self.start_timeline(fit)?;
        // A file that can't be written is found now, not after hours.
        if let Some(path) = &fit.trace {
            files::check(path, FileKind::Trace)?;
        }
        let first_step = self.progress.step;
        let result = self.epochs(&mut loader, fit, callbacks).await;
        self.end_steps(loader.batches_per_epoch()).await;
        if let Err(error) = &result
            && !self.saver.as_ref().is_some_and(Saver::is_doubtful)
        {
            // Weights must match the position, as far as they can be read.
            let is_whole = self.sync_state().await.is_ok() && self.progress.step > first_step;
            // Behind the last batch callbacks have seen an epoch that is not over; and data that are mended may be
            // others, with which only whole epochs continue.
            let may_go_on = self.progress.batch < loader.batches_per_epoch() && error.kind() != ErrorKind::Data;
            if is_whole
                && may_go_on
                && let Err(error) = self.save(fit, callbacks).await
            {
                log::warn!("the run can't be saved where it ended: {error}");
            }
        }
        if fit.save.is_some() {
            self.progress.best = callbacks.iter().find_map(|callback| callback.best().cloned());
        }
        let saved = self.finish_saving();
        // After an error the trace shows what led to it; the error itself is what the caller gets.
        let traced = self.write_trace(fit);
        if let (Err(_), Err(error)) = (&result, &saved) {
            log::warn!("the run can't be saved where it ended: {error}");
        }
        let mut history = result?;
        history.saved_step = saved?;
        traced?;
        history.time = self.time_summary(loader.settings())?;
        log::debug!("{}", history.time);
        Ok(history)
    }

    /// Settings by which evaluation within a run reads its data.
    pub(super) fn read_as(&mut self, fit: &Fit) {
        self.reading = LoaderSettings { workers: fit.workers, prefetch: fit.prefetch, ..LoaderSettings::default() };
    }

    /// All epochs that are left.
    async fn epochs(&mut self, loader: &mut Loader, fit: &Fit, callbacks: &mut [&mut dyn Callback]) -> Result<History> {
        let mut history = History::default();
        while self.progress.epoch < fit.epochs {
            let Some(log) = self.epoch(loader, fit, callbacks).await? else {
                history.is_interrupted = true;
                break;
            };
            let flow = self.end_epoch(&log, fit, callbacks).await?;
            history.epochs.push(log);
            if flow == Flow::Stop || self.progress.is_finished {
                break;
            }
        }
        Ok(history)
    }

    /// One epoch from the current position; `None` if the run was asked to stop.
    async fn epoch(
        &mut self,
        loader: &mut Loader,
        fit: &Fit,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<Option<EpochLog>> {
        let begin_ms = self.runtime.now_ms();
        loader.start_epoch(self.progress.epoch, self.progress.batch);
        self.take_snapshot(0).await?;
        let mut rows = 0;
        let is_due = |step| fit.save.as_ref().is_some_and(|save| is_due(save, step));
        let is_free = |step| !is_due(step) && !fit.stop.load(Ordering::Relaxed);
        while let Some(log) = self.next_step(loader, &is_free).await? {
            rows += log.rows;
            for callback in callbacks.iter_mut() {
                callback.on_step(&log)?;
            }
            if let Some(saver) = &mut self.saver {
                saver.learn(&log)?;
            }
            let is_stopped = fit.stop.load(Ordering::Relaxed);
            if is_stopped && self.n_in_flight() > 0 {
                // The step in flight ends, too.
                continue;
            }
            if is_stopped || is_due(self.progress.step) {
                self.save(fit, callbacks).await?;
            }
            if is_stopped {
                self.sync().await?;
                return Ok(None);
            }
        }
        self.epoch_log(fit, rows, begin_ms).await.map(Some)
    }

    /// Log of an epoch of `rows` rows, validation included.
    pub(super) async fn epoch_log(&mut self, fit: &Fit, rows: usize, begin_ms: f64) -> Result<EpochLog> {
        let train_ms = self.runtime.now_ms() - begin_ms;
        let mut values = self.running();
        if let Some(validation) = &fit.validation {
            let evaluate_ms = self.runtime.now_ms();
            values.extend(self.evaluate_async(validation.clone(), fit.batch_size).await?.prefixed("val_"));
            self.record(Activity::Evaluate, evaluate_ms);
        }
        Ok(EpochLog {
            epoch: self.progress.epoch + 1,
            step: self.progress.step,
            values,
            learning_rate: self.learning_rate(),
            seconds: (self.runtime.now_ms() - begin_ms) / 1e3,
            samples_per_s: per_second(rows as u64, train_ms),
        })
    }

    /// Callbacks, the schedule's plateau, and the checkpoint after an epoch.
    pub(super) async fn end_epoch(
        &mut self,
        log: &EpochLog,
        fit: &Fit,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<Flow> {
        self.sync().await?;
        let mut flow = Flow::Continue;
        for callback in callbacks.iter_mut() {
            if callback.on_epoch(&mut EpochEnd { log, model: &mut self.model })? == Flow::Stop {
                flow = Flow::Stop;
            }
        }
        self.check_frozen()?;
        self.take_changed_weights();
        self.watch_plateau(&log.values);
        self.watch_validation(&log.values);
        self.progress.epoch += 1;
        self.progress.batch = 0;
        self.progress.meter = super::meter::Meter::default();
        self.progress.is_finished = flow == Flow::Stop;
        if self.progress.epoch >= fit.epochs || flow == Flow::Stop {
            for callback in callbacks.iter_mut() {
                callback.on_end(&mut self.model)?;
            }
        }
        if flow == Flow::Stop {
            // Training is over: the adapters may take the best weights.
            self.take_changed_weights();
        }
        self.freeze(fit, callbacks)?;
        self.take_changed_weights();
        Ok(flow)
    }

    /// Sends the adapters the model's weights if a callback changed them.
    fn take_changed_weights(&mut self) {
        if self.model.weights != self.state().weights {
            self.push_weights();
        }
    }

    /// Marks the weights as doubtful if the validation loss is no longer finite.
    fn watch_validation(&mut self, values: &Values) {
        let Some(loss) = values.get("val_loss") else { return };
        if loss.is_finite() {
            self.was_validation_finite = true;
        } else if let Some(saver) = self.saver.as_mut().filter(|_| self.was_validation_finite) {
            saver.doubt();
        }
    }

    /// Copies the current state of the run, to be written while it continues.
    async fn save(&mut self, fit: &Fit, callbacks: &[&mut dyn Callback]) -> Result<()> {
        if self.saver.is_none() {
            return Ok(());
        }
        self.sync().await?;
        self.freeze(fit, callbacks)
    }

    /// Copies a run whose state and model are up to date. The model may have other weights than those of training.
    fn freeze(&mut self, fit: &Fit, callbacks: &[&mut dyn Callback]) -> Result<()> {
        let begin_ms = self.runtime.now_ms();
        match &mut self.saver {
            Some(saver) => saver.make_room()?,
            None => return Ok(()),
        }
        self.progress.callbacks = callbacks.iter().map(|callback| callback.state()).collect();
        self.progress.batch_size = fit.batch_size;
        let (state, best) = (self.state(), callbacks.iter().find_map(|callback| callback.best()));
        let chosen = Some(&self.model.weights).filter(|weights| **weights != state.weights);
        let frozen = Frozen::new(&self.model, chosen, &self.compile.optimizer, state, &self.progress, best);
        if let Some(saver) = &mut self.saver {
            saver.take(frozen)?;
        }
        self.record(Activity::Save, begin_ms);
        Ok(())
    }

    /// Opens the file of a saved run, unless it is open.
    pub(super) fn claim_file(&mut self, fit: &Fit) -> Result<()> {
        let has_it = |saver: &Saver| fit.save.as_ref() == Some(saver.settings());
        if self.saver.as_ref().is_some_and(has_it) {
            return Ok(());
        }
        self.saver = None;
        let open = |save| Saver::open(save, self.own_file.as_deref(), self.progress.step);
        self.saver = fit.save.as_ref().map(open).transpose()?;
        Ok(())
    }

    /// Waits until all is written, and releases the file. Returns the step that it holds.
    pub(super) fn finish_saving(&mut self) -> Result<Option<u64>> {
        let Some(mut saver) = self.saver.take() else { return Ok(None) };
        let finished = saver.finish();
        if !matches!(finished, Ok(None)) {
            self.own_file = Some(saver.settings().path.clone());
        }
        finished
    }

    /// A position within an epoch counts batches of one size, of one dataset in one order. Between epochs all of these
    /// may change; a resumed run reports a change, since it may be a mistake.
    pub(super) fn check_position(&mut self, rows: usize, fit: &Fit) -> Result<()> {
        let seed = self.compile.seed;
        let progress = &self.progress;
        let on_off = |shuffle| if shuffle { "on" } else { "off" }.to_owned();
        let settings = [
            ("seed", progress.seed.to_string(), seed.to_string()),
            ("batch size", progress.batch_size.to_string(), fit.batch_size.to_string()),
            ("number of training rows", progress.rows.to_string(), rows.to_string()),
            ("shuffling", on_off(progress.shuffle.unwrap_or(fit.shuffle)), on_off(fit.shuffle)),
        ];
        for (what, before, now) in settings.iter().filter(|(_, before, now)| before != now) {
            if progress.batch > 0 {
                return Err(Error::setting(
                    "resuming within an epoch",
                    format!("needs the same {what}, {before}, but got {now}"),
                    "resume with the value of before; it may change between epochs",
                ));
            }
            if self.resumed_step == Some(progress.step) && progress.step > 0 {
                log::warn!(
                    "the run that is resumed had another {what}: {before} before, {now} from now on\n  \
                     help: resume with {before} for the same results as without the interruption"
                );
            }
        }
        let progress = &mut self.progress;
        progress.rows = rows;
        progress.batch_size = fit.batch_size;
        progress.seed = seed;
        progress.shuffle = Some(fit.shuffle);
        Ok(())
    }

    /// Learning rate of the next step.
    fn learning_rate(&self) -> f32 {
        self.learning_rate_of(self.progress.step)
    }

    /// Learning rate of a step, counted from 0.
    pub(super) fn learning_rate_of(&self, step: u64) -> f32 {
        self.compile.schedule.rate(self.progress.learning_rate, step) * self.batch_factor()
    }

    #[allow(clippy::cast_precision_loss, reason = "batch sizes are small")]
    fn batch_factor(&self) -> f32 {
        self.compile.learning_rate_batch.map_or(1.0, |batch| self.progress.batch_size as f32 / batch.max(1) as f32)
    }

    fn watch_plateau(&mut self, values: &Values) {
        let Schedule::ReduceLROnPlateau { factor, patience, min_delta, min_lr } = self.compile.schedule else { return };
        let Some(value) = values.get("val_loss").or_else(|| values.get("loss")) else { return };
        let progress = &mut self.progress;
        if !value.is_nan() && progress.plateau_best.is_none_or(|best| value < best - min_delta) {
            (progress.plateau_best, progress.plateau_waited) = (Some(value), 0);
            return;
        }
        progress.plateau_waited += 1;
        if progress.plateau_waited >= patience {
            progress.plateau_waited = 0;
            if progress.learning_rate > min_lr {
                progress.learning_rate = (progress.learning_rate * factor).max(min_lr);
                log::info!("no improvement for {patience} epochs: the learning rate is now {}", progress.learning_rate);
            }
        }
    }
}

fn is_due(save: &SaveSettings, step: u64) -> bool {
    save.every_steps > 0 && step.is_multiple_of(save.every_steps)
}
