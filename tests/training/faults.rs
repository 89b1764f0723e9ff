//! Does a run survive the loss of adapters, with the result of an undisturbed one?

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that fails may panic, and says what it could not run"
)]

use std::pin::Pin;
use std::sync::Arc;

use manyhands::data::{Batch, Dataset, digits};
use manyhands::layers::{Activation, BatchNormalization, Conv2D, Dense, Flatten};
use manyhands::model::Objective;
use manyhands::scheduler::{AdapterStatus, Scheduler, Step};
use manyhands::simulator::{AdapterSpec, FaultKind, InjectedFault, Trigger, World};
use manyhands::{Compile, CpuFallback, Fit, Loss, Model, Optimizer, Sequential, SplitMode, Trainer};
use manyhands_engine::adapters::{self, Opener};
use manyhands_engine::runtime::{LocalTask, Native, Runtime};

use crate::close::assert_relative;
use crate::{needed, simulated};

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

fn objective() -> Objective {
    let losses = vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY];
    Objective { clip_norm: 1.0, ..Objective::new(losses, Optimizer::adam(1e-3)) }
}

async fn open(model: &Model, adapters: &str, fallback: CpuFallback) -> Scheduler {
    let adapters = adapters::choose(&adapters::list_async().await, adapters).unwrap();
    let objective = objective();
    let builder = Scheduler::builder(model, &objective).adapters(adapters).split(SplitMode::Even).capacity(96);
    builder.cpu_fallback(fallback).open().await.unwrap()
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
        let numbers = Step { step, seed: 3, learning_rate: 1e-3, loss_scales: vec![1.0 / 96.0], ..Step::default() };
        let report = scheduler.train(&batch, &numbers).await.unwrap();
        assert!(report.is_applied);
        losses.push(report.reports[0].iter().step_by(2).map(|loss| f64::from(*loss)).sum());
    }
    let weights = &scheduler.sync().await.unwrap().weights;
    (losses, [weights.parameters[0].clone(), weights.statistics.clone()].concat())
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
        assert_relative("losses", &disturbed.0, &undisturbed.0, 1e-4);
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
    let gpus = needed::gpu_indices();
    if gpus.is_empty() {
        return;
    }
    pollster::block_on(async {
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
            assert_relative("losses", &disturbed.0, &undisturbed.0, 1e-4);
        }
    });
}

/// A run of two simulated adapters in virtual time: what [`run`] gives, and the statuses at its end.
fn run_simulated(hangs: Option<InjectedFault>) -> ((Vec<f64>, Vec<f32>), Vec<AdapterStatus>) {
    let spec = |name: &str| AdapterSpec::new(name, 1.0, 0.1);
    let second = AdapterSpec { faults: hangs.into_iter().collect(), ..spec("second") };
    let mut world = World::new(vec![spec("first"), second]);
    let (model, objective) = (model(BatchNormalization::new().synchronized()), objective());
    let rig = simulated::rig(&world, &model, &objective).split(SplitMode::Even).capacity(96);
    let all = async {
        let mut rig = rig.open().await.unwrap();
        (run(&mut rig, |_, _| ()).await, rig.statuses())
    };
    world.run(60_000.0, all).unwrap()
}

#[test]
fn an_adapter_that_hangs_is_given_up() {
    let (undisturbed, statuses) = run_simulated(None);
    assert_eq!(statuses, [AdapterStatus::Active { is_excluded: false }; 2]);
    let (disturbed, statuses) =
        run_simulated(Some(InjectedFault { at: Trigger::Run { number: 4, progress: 0.5 }, what: FaultKind::Hang }));
    assert!(matches!(statuses[1], AdapterStatus::Lost { .. } | AdapterStatus::Returning), "{statuses:?}");
    assert_relative("losses", &disturbed.0, &undisturbed.0, 1e-4);
    assert!(disturbed.1.iter().all(|value| value.is_finite()));
}

/// The native runtime, with a clock that panics in adapters' threads.
struct Broken;

impl Runtime for Broken {
    fn now_ms(&self) -> f64 {
        panic!("this clock is broken")
    }

    fn sleep(&self, ms: f64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Native.sleep(ms)
    }

    fn spawn(&self, name: &str, actor: Box<dyn FnOnce() -> LocalTask + Send>) {
        Native.spawn(name, actor);
    }
}

/// Opens adapters that panic as soon as they are given weights.
fn panicking() -> Opener {
    Arc::new(|info, actor, _, events| adapters::open(info, actor, Arc::new(Broken), events))
}

/// A panic in the CPU adapter's thread once let the run wait for ever; and it must not be retried for ever.
#[test]
fn adapters_that_panic_end_the_run() {
    for (n_adapters, said) in [(1, "was lost 6 times"), (2, "were lost, and so was the CPU adapter that replaced them")]
    {
        let compile = Compile::new(Optimizer::sgd(0.1, 0.0), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
        let trainer = Trainer::new(model(BatchNormalization::new()), compile).unwrap().opener(panicking());
        let mut trainer = trainer.on(vec![adapters::cpu::info(); n_adapters]);
        let error = trainer.fit(digits::train().unwrap(), &Fit::new(1).batch_size(64)).unwrap_err().to_string();
        assert!(error.contains(said), "{n_adapters} adapters: {error}");
    }
}
