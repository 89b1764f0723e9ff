//! Is an adapter found that begins to compute wrong numbers, at a hundredth of the time, and with the right result of that step? In virtual time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stands outside the engine: it panics")]

use std::sync::Arc;

use manyhands::data::Batch;
use manyhands::layers::{Activation, BatchNormalization, Dense, Relu};
use manyhands::model::Objective;
use manyhands::scheduler::{AdapterStatus, Scheduler, Step, TrainingState};
use manyhands::simulator::{AdapterSpec, FaultKind, InjectedFault, Trigger, World};
use manyhands::{Loss, Model, Optimizer, Sequential, SplitMode};

use crate::close::assert_close;
use crate::simulated;

const ROWS: u32 = 48;
const STEPS: u64 = 1_500;

fn normalized() -> Model {
    let wide = Sequential::new([6]).add(Dense::new(16)).add(BatchNormalization::new());
    wide.add(Relu::default()).add(Dense::new(3)).build(1).unwrap()
}

/// A model whose result is that of one adapter alone.
fn plain() -> Model {
    Sequential::new([6]).add(Dense::new(16).activation(Activation::Relu)).add(Dense::new(3)).build(1).unwrap()
}

fn objective() -> Objective {
    Objective::new(vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], Optimizer::sgd(0.05, 0.0))
}

/// Adapters of which a row takes 1, 2 and 3 ms; one of them computes wrong numbers from its run of that number on.
fn adapters(wrong: Option<(usize, u64)>) -> Vec<AdapterSpec> {
    let spec = |idx: usize, row_ms: f64| AdapterSpec {
        faults: wrong
            .filter(|(of, _)| *of == idx)
            .map(|(_, number)| InjectedFault {
                at: Trigger::Run { number, progress: 0.0 },
                what: FaultKind::WrongNumbers,
            })
            .into_iter()
            .collect(),
        ..AdapterSpec::new(format!("sim {idx}"), 0.0, row_ms)
    };
    (0..3).zip([1.0, 2.0, 3.0]).map(|(idx, row_ms)| spec(idx, row_ms)).collect()
}

#[allow(clippy::cast_precision_loss, reason = "the numbers are small")]
fn batch(step: u64) -> Batch {
    let value = |at: u64| ((at * 7919 + step * 31) % 101) as f32 / 50.0 - 1.0;
    let inputs: Arc<[f32]> = (0..u64::from(ROWS) * 6).map(value).collect();
    let targets: Arc<[f32]> = (0..u64::from(ROWS)).map(|row| ((row * 13 + step) % 3) as f32).collect();
    Batch { rows: ROWS as usize, inputs: vec![inputs], targets: vec![targets], sample_weights: None }
}

#[allow(clippy::cast_precision_loss, reason = "the numbers are small")]
fn numbers(step: u64) -> Step {
    Step { step, learning_rate: 0.05, loss_scales: vec![1.0 / ROWS as f32], ..Step::default() }
}

/// What some steps gave.
struct Ran {
    ms: f64,
    statuses: Vec<AdapterStatus>,
    state: TrainingState,
    /// The step that lost an adapter, and the states before and after it.
    lost: Option<(u64, TrainingState, TrainingState)>,
}

fn run(model: &Model, specs: Vec<AdapterSpec>, is_sampled: bool, split: SplitMode) -> Ran {
    let mut world = World::new(specs);
    let objective = objective();
    let rig = simulated::rig(&world, model, &objective).split(split).capacity(ROWS);
    let rig = if is_sampled { rig.sampled() } else { rig };
    let runtime = world.runtime();
    let steps = async {
        let mut scheduler = rig.open().await.unwrap();
        let start_ms = runtime.now_ms();
        let mut lost = None;
        let mut before = scheduler.sync().await.unwrap().clone();
        for step in 0..STEPS {
            assert!(scheduler.train(&batch(step), &numbers(step)).await.unwrap().is_applied);
            let after = scheduler.sync().await.unwrap().clone();
            if lost.is_none() && scheduler.statuses().iter().any(|it| matches!(it, AdapterStatus::Lost { .. })) {
                lost = Some((step, before, after.clone()));
            }
            before = after;
        }
        let ms = runtime.now_ms() - start_ms;
        Ran { ms, statuses: scheduler.statuses().clone(), state: before, lost }
    };
    world.run(36_000_000.0, steps).unwrap()
}

/// One step on the CPU alone, from a state.
fn alone(state: TrainingState, step: u64) -> TrainingState {
    let (model, objective) = (plain(), objective());
    let rig = Scheduler::builder(&model, &objective).capacity(ROWS).state(state);
    pollster::block_on(async {
        let mut scheduler = rig.open().await.unwrap();
        scheduler.train(&batch(step), &numbers(step)).await.unwrap();
        scheduler.sync().await.unwrap().clone()
    })
}

#[test]
fn an_adapter_that_computes_wrong_numbers_is_left_out_whichever_it_is() {
    for wrong in 0..3 {
        for split in [SplitMode::Learned, SplitMode::Even] {
            let ran = run(&normalized(), adapters(Some((wrong, 150))), true, split);
            for (idx, status) in ran.statuses.iter().enumerate() {
                let is_right = match status {
                    AdapterStatus::Lost { again_ms: None } => idx == wrong,
                    AdapterStatus::Active { is_excluded: false } => idx != wrong,
                    _ => false,
                };
                assert!(is_right, "adapter {wrong} is wrong: {:?}", ran.statuses);
            }
            let (step, ..) = ran.lost.unwrap();
            assert!(step >= 145, "no other one before: step {step}");
        }
    }
}

#[test]
fn the_step_that_finds_it_has_the_right_result() {
    let ran = run(&plain(), adapters(Some((1, 150))), true, SplitMode::Learned);
    let (step, before, after) = ran.lost.unwrap();
    let undisturbed = alone(before, step);
    for (after, undisturbed) in after.weights.parameters.iter().zip(&undisturbed.weights.parameters) {
        assert_close("weights after the step", after, undisturbed, 1e-6);
    }
}

#[test]
fn samples_cost_a_hundredth_of_the_time_and_change_no_bit() {
    let [with, without] =
        [true, false].map(|is_sampled| run(&normalized(), adapters(None), is_sampled, SplitMode::Even));
    assert!(with.statuses.iter().all(|status| matches!(status, AdapterStatus::Active { .. })), "{:?}", with.statuses);
    assert!(with.ms > without.ms, "no sample was taken");
    assert!(with.ms < 1.011 * without.ms, "{} ms, {} without samples", with.ms, without.ms);
    assert_eq!(with.state, without.state);
}

/// Steps of one adapter that keeps the parameters: virtual milliseconds, and the last state, or the step that failed with what it said.
fn run_only(wrong_from: Option<u64>, is_sampled: bool) -> (f64, Result<TrainingState, (u64, String)>) {
    let spec = adapters(wrong_from.map(|number| (0, number))).swap_remove(0);
    let mut world = World::new(vec![spec]);
    let (model, objective) = (normalized(), objective());
    let rig = simulated::rig(&world, &model, &objective).capacity(ROWS);
    let rig = if is_sampled { rig.sampled() } else { rig };
    let runtime = world.runtime();
    let steps = async {
        let mut scheduler = rig.open().await.unwrap();
        assert!(scheduler.is_on_device());
        let start_ms = runtime.now_ms();
        for step in 0..STEPS {
            if let Err(error) = scheduler.train(&batch(step), &numbers(step)).await {
                return (runtime.now_ms() - start_ms, Err((step, error.to_string())));
            }
        }
        let ms = runtime.now_ms() - start_ms;
        (ms, Ok(scheduler.sync().await.unwrap().clone()))
    };
    world.run(36_000_000.0, steps).unwrap()
}

#[test]
fn the_only_adapter_is_found_by_the_cpu() {
    let (_, outcome) = run_only(Some(600), true);
    let (step, text) = outcome.unwrap_err();
    // It has run two passes a step, and those of the samples.
    assert!((250..450).contains(&step), "step {step}: {text}");
    assert!(text.contains("sim 0"), "{text}");
    let (_, unnoticed) = run_only(Some(600), false);
    assert!(unnoticed.is_ok(), "without samples nobody looks");
}

#[test]
fn samples_of_the_only_adapter_cost_a_hundredth_and_change_no_bit() {
    let [(with_ms, with), (without_ms, without)] = [true, false].map(|is_sampled| run_only(None, is_sampled));
    assert!(with_ms > without_ms, "no sample was taken");
    assert!(with_ms < 1.011 * without_ms, "{with_ms} ms, {without_ms} without samples");
    assert_eq!(with.unwrap(), without.unwrap());
}
