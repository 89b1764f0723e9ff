//! Does a rig use fewer adapters where that is faster, and all of them where it is not? In virtual time.

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use manyhands::data::Batch;
use manyhands::layers::{Activation, Dense};
use manyhands::model::Objective;
use manyhands::scheduler::Step;
use manyhands::simulator::AdapterSpec;
use manyhands::simulator::World;
use manyhands::{Loss, Model, Optimizer, Sequential, SplitMode};

use crate::simulated;

const ROWS: usize = 96;

fn model() -> Model {
    Sequential::new([4]).add(Dense::new(64).activation(Activation::Tanh)).add(Dense::new(3)).build(1).unwrap()
}

fn batch() -> Batch {
    let inputs = vec![(0..ROWS * 4).map(|idx| (idx % 7) as f32 / 7.0).collect()];
    let targets = vec![(0..ROWS).map(|row| (row % 3) as f32).collect()];
    Batch { rows: ROWS, inputs, targets, sample_weights: None }
}

/// What a run gave: rows of each adapter by step, the milliseconds of each step, and the last weights.
struct Outcome {
    rows: Vec<Vec<u32>>,
    ms: Vec<f64>,
    weights: Vec<f32>,
}

fn train(adapters: Vec<AdapterSpec>, split: SplitMode, steps: u64) -> Outcome {
    train_in(World::new(adapters), split, steps)
}

fn train_in(mut world: World, split: SplitMode, steps: u64) -> Outcome {
    let n_adapters = world.adapters().len();
    let (model, loss) = (model(), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let objective = Objective::new(vec![loss], Optimizer::sgd(0.1, 0.0));
    let runtime = world.runtime();
    let rig = simulated::rig(&world, &model, &objective).split(split).capacity(96);
    let run = async move {
        let mut scheduler = rig.open().await.unwrap();
        let mut outcome = Outcome { rows: Vec::new(), ms: Vec::new(), weights: Vec::new() };
        for step in 0..steps {
            let begin_ms = runtime.now_ms();
            let numbers =
                Step { step, seed: 1, learning_rate: 0.1, loss_scales: vec![1.0 / ROWS as f32], ..Step::default() };
            let report = scheduler.train(&batch(), &numbers).await.unwrap();
            let mut rows = vec![0; n_adapters];
            report.shards.iter().for_each(|shard| rows[shard.adapter_idx] = shard.rows);
            outcome.rows.push(rows);
            outcome.ms.push(runtime.now_ms() - begin_ms);
        }
        outcome.weights = scheduler.sync().await.unwrap().weights.parameters[0].clone();
        outcome
    };
    world.run(36e6, run).unwrap()
}

/// Two equally fast adapters on a host so slow that adding the second one's gradients costs more than it gives. The
/// split knows nothing of the host: it shows only when the adapter rests.
fn slow_host() -> World {
    World::on_host(vec![AdapterSpec::new("fast", 0.1, 0.1); 2], 7e-5)
}

#[test]
fn an_adapter_that_hinders_rests_and_is_tried_again() {
    let run = train_in(slow_host(), SplitMode::Learned, 1_200);
    assert!(run.rows[..30].iter().all(|rows| rows[1] > 0), "at first it works: {:?}", run.rows[1]);
    assert!(run.rows[60..900].iter().all(|rows| *rows == [96, 0]), "then it rests");
    assert!(run.rows[900..].iter().any(|rows| rows[1] > 0), "it is tried again");
    let median = |ms: &[f64]| {
        let mut sorted = ms.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    let (before_ms, after_ms) = (median(&run.ms[5..30]), median(&run.ms[60..900]));
    assert!(after_ms * 1.05 < before_ms, "{before_ms} ms with it, {after_ms} ms without");
}

#[test]
fn trials_leave_the_result_as_it_is() {
    let (one, two) = (
        train_in(slow_host(), SplitMode::Fixed(vec![1.0, 0.0]), 1_100),
        train_in(slow_host(), SplitMode::Learned, 1_100),
    );
    for (one, two) in one.weights.iter().zip(&two.weights) {
        assert!((one - two).abs() <= 1e-3 * (1.0 + one.abs()), "{two} is not {one}");
    }
}

#[test]
fn adapters_that_help_are_used() {
    let adapters = [0.1, 0.1, 0.4].map(|per_row_ms| AdapterSpec::new("free", 0.1, per_row_ms)).to_vec();
    let run = train(adapters, SplitMode::Learned, 600);
    let without = run.rows.iter().filter(|rows| rows.contains(&0)).count();
    assert!(without <= 2 * 6, "trials in vain are short and rare: {without} of 600 steps without an adapter");
    assert!(run.rows[599].iter().all(|rows| *rows > 0));
}
