//! A rig that is measured: adapters, a model, and the times of its training steps.

#![allow(clippy::unwrap_used, dead_code, reason = "a bench that fails may panic, and need not use everything")]

use std::sync::Arc;

use manyhands::adapters::Info;
use manyhands::data::Batch;
use manyhands::model::Objective;
use manyhands::runtime::{Native, Runtime};
use manyhands::scheduler::split::SplitMode;
use manyhands::scheduler::{CpuFallback, RigSettings, Scheduler, Step, StepReport, TrainingState};
use manyhands::{Loss, Model, Optimizer};

/// Training steps of one turn; the first few are not counted.
const STEPS: usize = 14;
const WARM_UP: usize = 6;

/// Adapters that train together.
pub struct Rig {
    pub name: String,
    pub scheduler: Scheduler,
    step: u64,
    step_ms: Vec<f64>,
    pub rows: Vec<u32>,
}

impl Rig {
    /// Opens adapters for batches of up to `rows` rows.
    pub async fn open(
        name: &str,
        model: &Model,
        optimizer: Optimizer,
        adapters: &[Info],
        split: SplitMode,
        rows: u32,
    ) -> Self {
        let objective = Objective { losses: vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], optimizer, clip_norm: 0.0 };
        let settings = RigSettings {
            adapters: adapters.to_vec(),
            split,
            capacity: rows,
            cpu_fallback: CpuFallback::Refused,
            accumulation_steps: 1,
        };
        let state = TrainingState::new(model.weights.clone(), optimizer);
        let (plan, layout) = (model.plan(&objective).unwrap(), model.layout().clone());
        let mut scheduler =
            Scheduler::open(Arc::new(Native), settings, plan, layout, Some(&objective), state).await.unwrap();
        // All adapters are to be measured together, also where fewer would do.
        scheduler.keep_all();
        Self { name: name.into(), scheduler, step: 0, step_ms: Vec::new(), rows: Vec::new() }
    }

    /// Trains for some steps; the first of them are not counted.
    pub async fn turn(&mut self, batch: &Batch) {
        for count in 0..STEPS {
            let begin_ms = Native.now_ms();
            let report = self.train(batch).await;
            let ms = Native.now_ms() - begin_ms;
            if count >= WARM_UP {
                self.step_ms.push(ms);
            }
            self.rows = report.shards.iter().map(|shard| shard.rows).collect();
        }
    }

    /// One training step.
    pub async fn train(&mut self, batch: &Batch) -> StepReport {
        let scale = 1.0 / f32::from(u16::try_from(batch.rows).unwrap());
        let step = Step { step: self.step, seed: 0, learning_rate: 1e-3, loss_scales: vec![scale] };
        self.step += 1;
        self.scheduler.train(batch, &step).await.unwrap()
    }

    /// Rows a second, by the median step.
    pub fn samples_per_s(&self, rows: usize) -> f64 {
        let mut sorted = self.step_ms.clone();
        sorted.sort_by(f64::total_cmp);
        f64::from(u32::try_from(rows).unwrap()) * 1e3 / sorted[sorted.len() / 2]
    }
}

/// Rows of 28 × 28 × 1 that no training would learn from.
pub fn batch(rows: usize) -> Batch {
    let inputs: Vec<f32> = (0..rows * 784).map(|i| f32::from(u8::try_from(i * 7919 % 251).unwrap()) / 251.0).collect();
    let targets: Vec<f32> = (0..rows).map(|row| f32::from(u8::try_from(row % 10).unwrap())).collect();
    Batch { rows, inputs: vec![inputs.into()], targets: vec![targets.into()], sample_weights: None }
}
