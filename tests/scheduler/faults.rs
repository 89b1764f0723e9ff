//! Do silence, failure and abandoned runs mean the same to copies of a model and to stages? In virtual time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stands outside the engine: it panics")]

use std::sync::Arc;

use manyhands::data::Batch;
use manyhands::layers::{Activation, Dense};
use manyhands::model::Objective;
use manyhands::scheduler::{AdapterStatus, Scheduler, Step};
use manyhands::simulator::AdapterSpec;
use manyhands::simulator::{FaultKind, InjectedFault, Trigger, World};
use manyhands::{Loss, Model, Optimizer, Sequential, SplitMode};

use crate::close::assert_close;
use crate::simulated;

const ROWS: u32 = 8;

fn model() -> Model {
    Sequential::new([6]).add(Dense::new(5).activation(Activation::Tanh)).add(Dense::new(3)).build(1).unwrap()
}

/// A row takes 10 ms.
fn adapter<const N: usize>(faults: [(Trigger, FaultKind); N]) -> AdapterSpec {
    let faults = faults.map(|(at, what)| InjectedFault { at, what }).to_vec();
    AdapterSpec { faults, ..AdapterSpec::new("sim", 0.0, 10.0) }
}

/// The place of the adapters under test: they hold copies of the model, or are the adapters of its first stage, before one
/// that computes the last layer.
#[derive(Clone, Copy, Debug)]
enum Place {
    Copies,
    FirstStage,
}

const PLACES: [Place; 2] = [Place::Copies, Place::FirstStage];

/// What some steps gave, of the adapters under test alone.
#[derive(Debug, PartialEq)]
struct Ran {
    ms: f64,
    statuses: Vec<AdapterStatus>,
    /// Bytes of the plan on each before the first step, and after the last.
    bytes: Vec<(u64, u64)>,
    weights: Vec<f32>,
}

/// Steps whose rows run in `pieces`, by the first `n_active` copies, or by all adapters of the stage.
fn run(place: Place, tested: Vec<AdapterSpec>, pieces: u32, n_active: usize, n_steps: u64) -> Ran {
    let (n_tested, mut adapters) = (tested.len(), tested);
    if let Place::FirstStage = place {
        adapters.push(adapter([]));
    }
    let stage_of: Vec<usize> = (0..adapters.len()).map(|idx| idx / n_tested).collect();
    let mut world = World::new(adapters);
    let (model, objective) = (model(), Objective::new(vec![Loss::MEAN_SQUARED_ERROR], Optimizer::sgd(0.1, 0.0)));
    let rig = simulated::rig(&world, &model, &objective).split(SplitMode::Even).micro_batches(pieces);
    let rig = rig.capacity(ROWS / pieces);
    let rig = match place {
        Place::Copies => rig,
        Place::FirstStage => rig.stages(vec![0, 1], stage_of),
    };
    let runtime = world.runtime();
    let steps = async {
        let mut scheduler = rig.open().await.unwrap();
        if n_active < n_tested {
            scheduler.limit_active(n_active);
        }
        let before = scheduler.bytes();
        let start_ms = runtime.now_ms();
        for step in 0..n_steps {
            train(&mut scheduler, step).await;
        }
        let ms = runtime.now_ms() - start_ms;
        let bytes = before.into_iter().zip(scheduler.bytes()).take(n_tested).collect();
        let statuses = scheduler.statuses()[..n_tested].to_vec();
        let weights = scheduler.sync().await.unwrap().weights.parameters[0].clone();
        Ran { ms, statuses, bytes, weights }
    };
    world.run(3_600_000.0, steps).unwrap()
}

#[allow(clippy::cast_precision_loss, reason = "the numbers are small")]
async fn train(scheduler: &mut Scheduler, step: u64) {
    let values = |len: u32| -> Arc<[f32]> { (0..len).map(|at| ((at * 7 + 3) % 11) as f32 / 11.0 - 0.5).collect() };
    let (inputs, targets) = (vec![values(ROWS * 6)], vec![values(ROWS * 3)]);
    let batch = Batch { rows: ROWS as usize, inputs, targets, sample_weights: None };
    let numbers = Step { step, learning_rate: 0.1, loss_scales: vec![1.0 / ROWS as f32], ..Step::default() };
    assert!(scheduler.train(&batch, &numbers).await.unwrap().is_applied);
}

fn at_run(number: u64, progress: f64) -> Trigger {
    Trigger::Run { number, progress }
}

/// The second adapter has too little memory, so that the step begins again with smaller shards. By then the first one is at
/// the end of its run and pauses; it fails for want of memory before it reads that the run is abandoned. A loss at that moment
/// counts.
#[test]
fn a_late_failure_of_an_abandoned_run_changes_nothing() {
    for (place, pieces) in [(Place::Copies, 1), (Place::FirstStage, 2)] {
        let small = || adapter([(at_run(0, 0.5), FaultKind::OutOfMemory)]);
        let pause = (at_run(0, 1.0), FaultKind::Pause { ms: 50.0 });
        let then = |what| run(place, vec![adapter([pause, (at_run(0, 1.0), what)]), small()], pieces, 2, 2);
        let slow = run(place, vec![adapter([pause]), small()], pieces, 2, 2);
        let (late, lost) = (then(FaultKind::OutOfMemory), then(FaultKind::Lost));
        let (before, after) = slow.bytes[1];
        assert!(after < before, "{place:?}: {before} bytes, {after} for fewer rows");
        assert_eq!(slow.bytes[0].0, slow.bytes[0].1, "{place:?}: the first adapter takes fewer rows");
        assert_eq!(late, slow, "{place:?}");
        assert!(matches!(lost.statuses[0], AdapterStatus::Lost { .. }), "{place:?}: {:?}", lost.statuses);
    }
}

/// An adapter whose memory does not suffice for a single row is lost like any other: what the others have done stays.
#[test]
fn an_adapter_without_memory_for_one_row_counts_as_lost() {
    for place in PLACES {
        let fails = |what| run(place, vec![adapter([]), adapter([(at_run(3, 0.5), what)])], ROWS, 2, 1);
        let (lost, small) = (fails(FaultKind::Lost), fails(FaultKind::OutOfMemory));
        assert!(matches!(small.statuses[1], AdapterStatus::Lost { .. }), "{place:?}: {:?}", small.statuses);
        assert_eq!(small, lost, "{place:?}");
    }
}

/// An adapter whose run takes minutes, but gets on, is waited for, alone or beside another.
#[test]
fn an_adapter_that_gets_on_does_not_count_as_silent() {
    // A row takes a minute.
    let slow = || AdapterSpec::new("slow", 0.0, 60_000.0);
    for (place, tested) in [
        (Place::Copies, vec![slow()]),
        (Place::Copies, vec![adapter([]), slow()]),
        (Place::FirstStage, vec![slow()]),
        (Place::FirstStage, vec![adapter([]), slow()]),
    ] {
        let n_tested = tested.len();
        let fast = run(place, vec![adapter([]); n_tested], 2, n_tested, 2);
        let waited = run(place, tested, 2, n_tested, 2);
        assert!(waited.ms > 2.0 * 120_000.0, "{place:?}: {} ms", waited.ms);
        assert_eq!((waited.weights, waited.statuses), (fast.weights, fast.statuses), "{place:?}");
    }
}

/// An adapter that hangs is lost once, however many of its runs are open. One without rows owes no answer: its silence
/// means nothing.
#[test]
fn only_an_adapter_that_owes_an_answer_counts_as_silent() {
    let is_active = |status: &AdapterStatus| matches!(status, AdapterStatus::Active { .. });
    for place in PLACES {
        let undisturbed = run(place, vec![adapter([])], 4, 1, 2);
        let hangs = adapter([(at_run(0, 0.5), FaultKind::Hang)]);
        let hung = run(place, vec![adapter([]), hangs], 4, 2, 2);
        assert!(hung.ms > 120_000.0, "{place:?}: its first run may take two minutes, but it was given {} ms", hung.ms);
        assert!(is_active(&hung.statuses[0]), "{place:?}: {:?}", hung.statuses);
        // It is opened again after five seconds, and after ten if it was lost twice.
        let AdapterStatus::Lost { again_ms: Some(again_ms) } = hung.statuses[1] else {
            panic!("{place:?}: {:?}", hung.statuses)
        };
        assert!((4_000.0..=5_000.0).contains(&again_ms), "{place:?}: opened again in {again_ms} ms");
        assert_close(&format!("{place:?}"), &hung.weights, &undisturbed.weights, 1e-5);
    }
    let hangs = || adapter([(Trigger::Time { ms: 1.0 }, FaultKind::Hang)]);
    let idle = run(Place::Copies, vec![adapter([]), hangs()], 4, 1, 2);
    assert!(idle.statuses.iter().all(is_active), "{:?}", idle.statuses);
    // One piece is all that the stage computes, and its first adapter takes it.
    let idle = run(Place::FirstStage, vec![adapter([]), hangs()], 1, 2, 2);
    assert!(idle.statuses.iter().all(is_active), "{:?}", idle.statuses);
}
