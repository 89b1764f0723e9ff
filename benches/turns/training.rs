//! Training steps of a model, as the trainer makes them.

use std::sync::Arc;

use manyhands::adapters::Info;
use manyhands::data::Batch;
use manyhands::model::Objective;
use manyhands::runtime::{Native, Runtime};
use manyhands::scheduler::split::SplitMode;
use manyhands::scheduler::{CpuFallback, RigSettings, Scheduler, Step, TrainingState};
use manyhands::{Loss, Model, Optimizer};

use crate::{Turn, Work, models};

/// A model in training, on one batch.
pub struct Training {
    scheduler: Scheduler,
    parameters: usize,
    batch: Batch,
    rate: f32,
    step: u64,
}

/// What a name stands for.
struct Task {
    model: Model,
    loss: Loss,
    optimizer: Optimizer,
    /// Parameters in the other programs.
    parameters: usize,
    /// Values of a row.
    row: usize,
    classes: usize,
}

impl Task {
    fn of(name: &str) -> Self {
        let classes = Loss::SPARSE_CATEGORICAL_CROSSENTROPY;
        let (adam, sgd) = (Optimizer::adam(1e-3), Optimizer::sgd(0.01, 0.9));
        let (model, loss, optimizer, parameters, row, classes) = match name {
            "mlp" => (models::mlp(), classes, adam, 1_863_690, 28 * 28, 10),
            "cnn" => (models::cnn(), classes, sgd, 1_199_978, 28 * 28, 10),
            other => panic!("manyhands has no model `{other}` here"),
        };
        Self { model, loss, optimizer, parameters, row, classes }
    }

    /// Rows that no training would learn from: the same in every program of the comparison.
    fn batch(&self, rows: usize) -> Batch {
        let inputs: Vec<f32> = (0..rows * self.row).map(|i| whole(i * 7919 % 251) / 251.0).collect();
        let targets: Vec<f32> = (0..rows).map(|row| whole(row % self.classes)).collect();
        Batch { rows, inputs: vec![inputs.into()], targets: vec![targets.into()], sample_weights: None }
    }
}

fn whole(value: usize) -> f32 {
    f32::from(u8::try_from(value).unwrap())
}

impl Training {
    pub fn new(name: &str, adapters: &[Info], rows: u32) -> Self {
        let task = Task::of(name);
        let parameters = task.model.layout().n_parameters();
        assert_eq!(parameters, task.parameters, "`{name}` has {} parameters in the other programs", task.parameters);
        let batch = task.batch(usize::try_from(rows).unwrap());
        let rate = task.optimizer.learning_rate();
        Self { scheduler: pollster::block_on(open(&task, adapters, rows)), parameters, batch, rate, step: 0 }
    }

    /// One training step; gives the mean loss.
    async fn train(&mut self) -> f64 {
        let scale = 1.0 / f32::from(u16::try_from(self.batch.rows).unwrap());
        let step = Step { step: self.step, seed: 0, learning_rate: self.rate, loss_scales: vec![scale] };
        self.step += 1;
        let report = self.scheduler.train(&self.batch, &step).await.unwrap();
        assert!(report.is_applied, "step {} was not applied", self.step);
        let losses = report.reports[0].iter().step_by(2);
        losses.map(|loss| f64::from(*loss)).sum::<f64>() * f64::from(scale)
    }
}

async fn open(task: &Task, adapters: &[Info], rows: u32) -> Scheduler {
    let objective = Objective { losses: vec![task.loss], optimizer: task.optimizer, clip_norm: 0.0 };
    let settings = RigSettings {
        adapters: adapters.to_vec(),
        split: SplitMode::Learned,
        capacity: rows,
        cpu_fallback: CpuFallback::Refused,
        accumulation_steps: 1,
    };
    let state = TrainingState::new(task.model.weights.clone(), task.optimizer);
    let (plan, layout) = (task.model.plan(&objective).unwrap(), task.model.layout().clone());
    let mut scheduler =
        Scheduler::open(Arc::new(Native), settings, plan, layout, Some(&objective), state).await.unwrap();
    // All adapters are to be measured together, also where fewer would do.
    scheduler.keep_all();
    scheduler
}

impl Work for Training {
    fn turn(&mut self, steps: u32) -> Turn {
        let begin_ms = Native.now_ms();
        let mut value = f64::NAN;
        for _ in 0..steps {
            value = pollster::block_on(self.train());
        }
        Turn { ms: Native.now_ms() - begin_ms, value }
    }

    fn parameters(&self) -> usize {
        self.parameters
    }
}
