//! A run: the crate's trainer and its session, with their messages to the page.

use std::ops::ControlFlow;
use std::sync::Arc;

use manyhands::adapters::{Info, Kind};
use manyhands::logs::LoneStep;
use manyhands::{
    BatchStatistics, Error, Fit, GradientCompression, Loss, Optimizer, Precision, Result, Session, SplitMode, Trainer,
};
use manyhands_bench::rig::{Data as Batches, Opening, RigAdapter, Turn};
use manyhands_bench::scaling::ScalingJob;
use manyhands_bench::workloads::Workload;
use manyhands_engine::runtime::{self, Runtime};

use crate::cpu::opener;
use crate::host::{self, tell};
use crate::logs::{Spread, Stepped};
use crate::messages::{Event, Level};
use crate::models;
use crate::rig::PageRig;
use crate::settings::{Change, RunSettings};
use crate::tasks::{LearnedData, LearningTask};
use crate::writing::Writer;

/// Least milliseconds between messages about steps.
const TELL_MS: f64 = 50.0;
/// Inverse of the part of the time that predictions of the test pictures, or lines of text, may take.
const SHOW_PART: f64 = 10.0;
/// Inverse of the part of the time that steps may take which one adapter computes again.
const COMPARED_PART: f64 = 10.0;
/// Most milliseconds until the next of them.
const COMPARED_MS: f64 = 5000.0;
/// Least milliseconds between lines: people read them.
const WRITE_MS: f64 = 1000.0;
/// Characters of a line.
const LINE: usize = 60;
/// The turns of each number of adapters in a measurement, in alternation: training steps for learning the split, and steps that
/// count, fewer after a second and a half.
const TURNS: [Turn; 3] = [Turn { warm_up: 6, counted: 9, enough: Some((1_500.0, 3)), least_ms: 0.0 }; 3];
/// Least rows of a batch for which adapters are opened, so that the test pictures need few batches.
const LEAST_CAPACITY: usize = 120;

/// A run.
pub(crate) struct PageRun {
    pub(crate) settings: RunSettings,
    pub(crate) trainer: Trainer,
    session: Session,
    task: LearningTask,
    /// The writer of sample lines; none where pictures are learned.
    writer: Option<Writer>,
    clock: Arc<dyn Runtime>,
    steps: Vec<Stepped>,
    /// Number of the newest of them, or of those told.
    told_step: u64,
    told_ms: f64,
    /// End of the step before; none at the start and after a pause.
    stepped_ms: Option<f64>,
    /// Time of the last prediction of the test pictures, or of the last line of text, and its length.
    shown_ms: f64,
    showing_ms: f64,
    /// Time of the last step that one adapter computed, too, and the length of that; `compared_ms` is none before the first step.
    compared_ms: Option<f64>,
    comparing_ms: f64,
    /// Whether the next step is one, since something has changed.
    compares_next: bool,
    /// Epochs after which it ends.
    pub(crate) last_epoch: u64,
    epochs_begun: u64,
}

/// Result of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepResult {
    Stepped,
    Finished,
}

impl PageRun {
    /// Opens the adapters of a rig, with their throttles, for fresh weights.
    pub(crate) async fn open(
        task: LearningTask,
        settings: RunSettings,
        adapters: &[(Info, f64)],
        rig: &mut PageRig,
    ) -> Result<Self> {
        let model = models::build(&task, &settings.model, settings.batch_norm, settings.seed)?;
        let infos = adapters.iter().map(|(info, _)| info.clone()).collect();
        let mut trainer =
            Trainer::new(model, models::compile(&settings))?.on(infos).split(settings.split.into()).opener(opener());
        // Workers on one CPU are there to show a split: whether the second pays depends on the load of the machine.
        if adapters.iter().all(|(info, _)| info.kind == Kind::Cpu) {
            trainer = trainer.keep_all();
        }
        for (position, (_, factor)) in adapters.iter().enumerate() {
            trainer = trainer.throttle(position, *factor);
        }
        let largest = settings.batch_size.max(LEAST_CAPACITY);
        trainer.asynchronous().open(&Fit::new(1).batch_size(largest), largest).await?;
        rig.update(&trainer);
        let fit = models::fit(&settings, &task, 0);
        let session = trainer.asynchronous().session(models::training(&settings, &task, 0)?, fit).await?;
        let last_epoch = if settings.epochs == 0 { u64::MAX } else { settings.epochs };
        host::set_step(0);
        let clock = runtime::system();
        let (steps, told_ms) = (Vec::new(), clock.now_ms());
        let mut run = Self {
            settings,
            trainer,
            session,
            writer: task.vocabulary.clone().map(Writer::new),
            task,
            clock,
            steps,
            told_step: 0,
            told_ms,
            stepped_ms: None,
            shown_ms: 0.0,
            showing_ms: 0.0,
            compared_ms: None,
            comparing_ms: 0.0,
            compares_next: false,
            last_epoch,
            epochs_begun: 0,
        };
        // All test pictures of clothes are as much arithmetic as many steps: they come behind the first one.
        if run.task.data != LearnedData::Fashion {
            run.show().await?;
        }
        Ok(run)
    }

    /// Number of training steps, and of started epochs.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.trainer.progress().step, self.epochs_begun)
    }

    /// Whether the last epoch has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.trainer.progress().epoch >= self.last_epoch
    }

    /// One training step, with the actions after it.
    pub(crate) async fn step(&mut self, rig: &mut PageRig) -> Result<StepResult> {
        self.epochs_begun = self.trainer.progress().epoch + 1;
        let since_ms = *self.stepped_ms.get_or_insert(self.clock.now_ms());
        let alone = self.computed_alone().await;
        let stepped = self.session.step_async(&mut self.trainer).await;
        rig.update(&self.trainer);
        if let Some(log) = stepped? {
            host::set_step(log.step);
            if self.told_step >= log.step {
                // Repeated steps are marked.
                self.tell_steps();
            }
            self.told_step = log.step;
            let now_ms = self.clock.now_ms();
            self.stepped_ms = Some(now_ms);
            self.steps.push(Stepped::of(log, &rig.places, now_ms - since_ms, alone));
            // The first step compiles shaders.
            self.compared_ms.get_or_insert(now_ms);
            if now_ms - self.told_ms > TELL_MS {
                self.tell_steps();
            }
            if self.is_show_due() {
                self.show().await?;
            }
            return Ok(StepResult::Stepped);
        }
        // No row of the epoch is left.
        self.end_epoch().await
    }

    /// Lets one adapter alone compute the next step, too.
    pub(crate) fn compare(&mut self) {
        self.compares_next = true;
    }

    /// The next step by one adapter alone, from the same weights, if it is time for that.
    async fn computed_alone(&mut self) -> Option<LoneStep> {
        let begin_ms = self.clock.now_ms();
        let pause_ms = (COMPARED_PART * self.comparing_ms).min(COMPARED_MS);
        if !self.compares_next && !self.compared_ms.is_some_and(|compared_ms| begin_ms - compared_ms > pause_ms) {
            return None;
        }
        // What is wrong with an adapter the step itself tells.
        let alone = self.session.step_alone_async(&mut self.trainer).await.ok()??;
        let end_ms = self.clock.now_ms();
        (self.compared_ms, self.comparing_ms, self.compares_next) = (Some(end_ms), end_ms - begin_ms, false);
        Some(alone)
    }

    /// Whether the network writes text.
    pub(crate) fn writes(&self) -> bool {
        self.writer.is_some()
    }

    /// Whether training has gone on for so long that what it shows takes no large part of the time.
    fn is_show_due(&self) -> bool {
        let least_ms = if self.writes() { WRITE_MS } else { 0.0 };
        self.clock.now_ms() - self.shown_ms > least_ms.max(SHOW_PART * self.showing_ms)
    }

    async fn end_epoch(&mut self) -> Result<StepResult> {
        self.tell_steps();
        let epoch = self.session.end_epoch_async(&mut self.trainer).await?;
        tell(&Event::Epoch { epoch });
        self.vary().await?;
        // Test pictures are read behind the epoch whose accuracy is told; lines keep to their pace.
        if !self.writes() || self.is_show_due() {
            self.show().await?;
        }
        Ok(if self.is_finished() { StepResult::Finished } else { StepResult::Stepped })
    }

    /// Varies the training pictures, if this is the epoch for it.
    async fn vary(&mut self) -> Result<()> {
        let epoch = self.trainer.progress().epoch;
        if models::begins_to_vary(&self.settings, epoch) {
            let pictures = models::training(&self.settings, &self.task, epoch)?;
            let fit = models::fit(&self.settings, &self.task, epoch);
            self.session = self.trainer.asynchronous().session(pictures, fit).await?;
            let message =
                "from now on training pictures are turned and stretched a little, and drawings are among them";
            tell(&Event::Notice { level: Level::Info, message: message.to_owned(), step: host::step() });
        }
        Ok(())
    }

    /// Sends the steps that were not sent yet.
    pub(crate) fn tell_steps(&mut self) {
        self.told_ms = self.clock.now_ms();
        if !self.steps.is_empty() {
            tell(&Event::Steps { steps: std::mem::take(&mut self.steps) });
        }
    }

    /// Sends the steps that were not sent yet. What follows is no part of the next step's time by the clock.
    pub(crate) fn rest(&mut self) {
        self.stepped_ms = None;
        self.tell_steps();
    }

    /// Sends what shows how far training is: predictions of the test pictures, or a line of text.
    pub(crate) async fn show(&mut self) -> Result<()> {
        let begin_ms = self.clock.now_ms();
        match self.writer.take() {
            Some(mut writer) => {
                let written = self.write(&mut writer).await;
                self.writer = Some(writer);
                written?;
            }
            None => self.predict().await?,
        }
        self.shown_ms = self.clock.now_ms();
        self.showing_ms = self.shown_ms - begin_ms;
        Ok(())
    }

    async fn predict(&mut self) -> Result<()> {
        let rows = self.settings.batch_size.max(LEAST_CAPACITY);
        let logits = self.trainer.asynchronous().predict(Arc::clone(&self.task.test), rows).await?;
        let (classes, confidences) = models::answers(&models::probabilities(&logits[0]));
        tell(&Event::Predictions { step: self.trainer.progress().step, classes, confidences });
        Ok(())
    }

    /// Writes a line.
    async fn write(&mut self, writer: &mut Writer) -> Result<()> {
        let mut text = String::new();
        for _ in 0..LINE {
            let scores = self.trainer.asynchronous().predict(writer.row()?, 1).await?;
            #[allow(clippy::cast_possible_truncation, reason = "a place between 0 and 1")]
            writer.take(&scores[0], self.settings.temperature, js_sys::Math::random() as f32);
            text += &writer.newest();
        }
        tell(&Event::Written { step: self.trainer.progress().step, text });
        Ok(())
    }

    /// Sends the prediction of a drawing.
    pub(crate) async fn classify(&mut self, id: u32, pixels: &[f32]) -> Result<()> {
        if self.task.data != LearnedData::Digits {
            return Err(Error::data(
                "the drawing",
                "is a digit, which this network does not read",
                "choose the digits",
            ));
        }
        let logits = self.trainer.asynchronous().predict(models::drawing(pixels)?, 1).await?;
        let probabilities = models::probabilities(&logits[0]);
        tell(&Event::Classified { id, step: self.trainer.progress().step, probabilities });
        Ok(())
    }

    /// Changes settings from the next step on.
    pub(crate) async fn change(&mut self, change: Change) -> Result<()> {
        self.compare();
        if let Some(rows) = change.batch_size {
            check_batch(rows)?;
            self.session.set_batch_size(&mut self.trainer, rows)?;
            self.settings.batch_size = rows;
        }
        if let Some(split) = change.split {
            self.trainer.set_split(split.into())?;
            self.settings.split = split;
        }
        if let Some(form) = change.batch_norm.filter(|form| *form != self.settings.batch_norm) {
            let model = models::build(&self.task, &self.settings.model, form, self.settings.seed)?;
            self.trainer.asynchronous().exchange_model(model).await?;
            self.settings.batch_norm = form;
        }
        if let Some(rate) = change.learning_rate {
            self.trainer.set_learning_rate(rate);
            self.settings.learning_rate = rate;
        }
        self.settings.temperature = change.temperature.unwrap_or(self.settings.temperature);
        Ok(())
    }

    /// The model as a file.
    pub(crate) async fn export(&mut self) -> Result<()> {
        let bytes = self.trainer.asynchronous().current_model().await?.to_bytes()?;
        tell(&Event::Exported { name: self.task.data.file(), bytes });
        Ok(())
    }

    /// Measures 1 to N adapters, while training pauses, for the page. `None` if it was cancelled.
    pub(crate) async fn measure(
        &mut self,
        adapters: Vec<(Info, f64)>,
        batch_size: u32,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Event>> {
        let workload = Workload {
            name: "page",
            about: "the network of the page",
            model: self.trainer.asynchronous().current_model().await?.clone(),
            optimizer: Optimizer::adam(self.settings.learning_rate),
            loss: Loss::SPARSE_CATEGORICAL_CROSSENTROPY,
            classes: self.task.outputs(),
            batch_size,
            gradient_compression: GradientCompression::None,
            batch_statistics: BatchStatistics::default(),
            micro_batches: 1,
            precision: Precision::Float32,
        };
        let names = adapters.iter().map(|(info, _)| info.name.clone()).collect();
        let members: Vec<RigAdapter> =
            adapters.into_iter().map(|(info, throttle)| RigAdapter { info, throttle }).collect();
        let job = ScalingJob {
            opening: Opening { opener: opener(), runtime: Arc::clone(&self.clock), ..Opening::default() },
            workload: &workload,
            members: &members,
            data: Batches::Synthetic,
            split: SplitMode::Learned,
            turns: TURNS.to_vec(),
        };
        let begin = |part| {
            tell(&Event::Measuring(part));
            if is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let measured = job.measure(begin).await?.map(|curve| {
            let spread = Spread::from(&curve);
            Event::Measured { report: curve.report(names), spread, rounds: TURNS.len() }
        });
        Ok(measured)
    }
}

/// The page offers 1 to 512.
pub(crate) fn check_batch(rows: usize) -> Result<()> {
    if (1..=512).contains(&rows) {
        return Ok(());
    }
    Err(Error::setting("`batch_size`", format!("needs 1 to 512 rows, but is {rows}"), "64 is usual"))
}
