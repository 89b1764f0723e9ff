//! Does a run survive the loss of adapters, with the result of an undisturbed one?

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that fails may panic, and says what it could not run"
)]

use std::sync::Arc;

use manyhands::adapters::{self, Kind};
use manyhands::data::{Batch, Dataset, digits};
use manyhands::layers::{Activation, BatchNormalization, Conv2D, Dense, Flatten};
use manyhands::model::Objective;
use manyhands::runtime::Native;
use manyhands::scheduler::split::SplitMode;
use manyhands::scheduler::{CpuFallback, RigSettings, Scheduler, Step, TrainingState};
use manyhands::{Loss, Model, Optimizer, Sequential};

fn model(batch_norm: BatchNormalization) -> Model {
    Sequential::new([8, 8, 1])
        .add(Conv2D::new(4, [3, 3]).same().no_bias())
        .add(batch_norm)
        .add(Flatten::default())
        .add(Dense::new(16).activation(Activation::Relu))
        .add(Dense::new(10))
        .build(1)
        .unwrap()
}

async fn open(model: &Model, adapters: &str, fallback: CpuFallback) -> Scheduler {
    let losses = vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY];
    let objective = Objective { clip_norm: 1.0, ..Objective::new(losses, Optimizer::adam(1e-3)) };
    let adapters = adapters::choose(&adapters::list().await, adapters).unwrap();
    let settings =
        RigSettings { adapters, split: SplitMode::Even, capacity: 96, cpu_fallback: fallback, accumulation_steps: 1 };
    let state = TrainingState::new(model.weights.clone(), &objective.optimizer);
    let (plan, layout) = (model.plan(&objective).unwrap(), model.layout().clone());
    Scheduler::open(Arc::new(Native), settings, plan, layout, Some(&objective), state).await.unwrap()
}

/// Losses of 12 steps, and the final weights; before each step `disturb` may do something to the rig.
async fn run(scheduler: &mut Scheduler, disturb: impl Fn(&mut Scheduler, u64)) -> (Vec<f64>, Vec<f32>) {
    let data = digits::train().unwrap();
    let mut losses = Vec::new();
    for step in 0..12 {
        let first = usize::try_from(step).unwrap() * 96;
        let rows: Vec<usize> = (first..first + 96).map(|row| row % data.len()).collect();
        let batch = Batch::fetch(&data, &rows).unwrap();
        disturb(scheduler, step);
        let numbers = Step { step, seed: 3, learning_rate: 1e-3, loss_scales: vec![1.0 / 96.0] };
        let report = scheduler.train(&batch, &numbers).await.unwrap();
        assert!(report.is_applied);
        losses.push(report.reports[0].iter().step_by(2).map(|loss| f64::from(*loss)).sum());
    }
    let weights = &scheduler.sync().await.unwrap().weights;
    (losses, [weights.parameters[0].clone(), weights.statistics.clone()].concat())
}

fn assert_close(got: &[f64], wanted: &[f64]) {
    for (step, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!((got - wanted).abs() <= 1e-4 * wanted.abs(), "step {step}: {got} is not {wanted}");
    }
}

#[test]
fn a_lost_cpu_adapter_changes_no_bit() {
    pollster::block_on(async {
        let model = model(BatchNormalization::new());
        let undisturbed = run(&mut open(&model, "cpu,cpu,cpu", CpuFallback::Refused).await, |_, _| ()).await;
        let mut rig = open(&model, "cpu,cpu,cpu", CpuFallback::Refused).await;
        // Lost while the step is under way: the request stands before the run. An even split keeps its slots.
        let disturbed = run(&mut rig, |rig, step| {
            if step == 5 {
                rig.lose(1)
            }
        })
        .await;
        assert_eq!(disturbed, undisturbed);
        assert_eq!(rig.adapters().count(), 3);
    });
}

#[test]
fn losing_all_but_one_adapter_keeps_the_losses() {
    pollster::block_on(async {
        // Over the whole batch, the result does not depend on the split.
        let model = model(BatchNormalization::new().synchronized());
        let undisturbed = run(&mut open(&model, "cpu,cpu,cpu", CpuFallback::Refused).await, |_, _| ()).await;
        let disturb = |rig: &mut Scheduler, step| match step {
            3 => rig.lose(2),
            7 => rig.lose(0),
            _ => (),
        };
        let disturbed = run(&mut open(&model, "cpu,cpu,cpu", CpuFallback::Refused).await, disturb).await;
        assert_close(&disturbed.0, &undisturbed.0);
        assert!(disturbed.1.iter().all(|value| value.is_finite()));
    });
}

#[test]
fn the_cpu_adapter_takes_over_when_all_are_lost() {
    pollster::block_on(async {
        let model = model(BatchNormalization::new());
        let undisturbed = run(&mut open(&model, "cpu,cpu", CpuFallback::Refused).await, |_, _| ()).await;
        let mut rig = open(&model, "cpu,cpu", CpuFallback::Allowed).await;
        let disturbed = run(&mut rig, |rig, step| {
            if step == 4 {
                rig.lose(0);
                rig.lose(1);
            }
        })
        .await;
        assert_eq!(disturbed, undisturbed);
        assert_eq!(rig.adapters().count(), 3, "the CPU adapter joined");
    });
}

#[test]
fn a_lost_gpu_changes_no_loss() {
    pollster::block_on(async {
        let list = adapters::list().await;
        let gpus: Vec<String> =
            list.iter().filter(|info| info.kind != Kind::Cpu).map(|info| info.index.to_string()).collect();
        if gpus.is_empty() {
            eprintln!("NOT RUN: no GPU or software adapter here");
            return;
        }
        let model = model(BatchNormalization::new().synchronized());
        let rig = format!("{},cpu", gpus.join(","));
        let undisturbed = run(&mut open(&model, &rig, CpuFallback::Refused).await, |_, _| ()).await;
        for lost in 0..gpus.len() {
            let disturb = |rig: &mut Scheduler, step| {
                if step == 4 {
                    rig.lose(lost)
                }
            };
            let disturbed = run(&mut open(&model, &rig, CpuFallback::Refused).await, disturb).await;
            assert_close(&disturbed.0, &undisturbed.0);
        }
    });
}

#[test]
fn an_adapter_that_hangs_is_given_up() {
    pollster::block_on(async {
        let model = model(BatchNormalization::new().synchronized());
        let undisturbed = run(&mut open(&model, "cpu,cpu", CpuFallback::Refused).await, |_, _| ()).await;
        let mut rig = open(&model, "cpu,cpu", CpuFallback::Refused).await;
        let disturbed = run(&mut rig, |rig, step| {
            if step == 4 {
                rig.throttle(1, 1e12)
            }
        })
        .await;
        assert_close(&disturbed.0, &undisturbed.0);
    });
}
