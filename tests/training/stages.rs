//! Is a model whose stages lie on different adapters trained as on one adapter?

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails may panic")]

use manyhands::adapters::Info;
use manyhands::data::{Batch, Dataset, digits};
use manyhands::layers::{
    Activation, Add, BatchNormalization, Concatenate, Conv2D, Dense, Dropout, Flatten, MaxPooling2D, Relu,
};
use manyhands::model::Objective;
use manyhands::scheduler::{Scheduler, Step};
use manyhands::{
    Checkpoint, Compile, CpuFallback, Fit, GradientCompression, Loss, Model, ModelBuilder, Optimizer, Placement,
    Sequential, SplitMode, Trainer,
};
use manyhands_engine::adapters::Request;

use crate::needed;

/// Dropout, batch normalization, a skip connection, a fused and a separate activation, penalties, two outputs.
fn residual() -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input("x", [8, 8, 1]);
    let stem = model.add(Conv2D::new(4, [3, 3]).same().activation(Activation::Relu), &[x]);
    let y = model.add(BatchNormalization::new(), &[stem]);
    let y = model.add(Relu::default(), &[y]);
    let y = model.add(Conv2D::new(4, [3, 3]).same(), &[y]);
    let sum = model.add(Add {}, &[stem, y]);
    let pooled = model.add(MaxPooling2D::new([2, 2]), &[sum]);
    let flat = model.add(Flatten::default(), &[pooled]);
    let early = model.add_named("early", Dense::new(10), &[flat]);
    let hidden = model.add(Dense::new(16).activation(Activation::Tanh), &[flat]);
    let hidden = model.add(Dropout::new(0.3), &[hidden]);
    let late = model.add_named("late", Dense::new(10), &[hidden]);
    model.build(&[late, early], 5).unwrap()
}

/// A layer that three nodes share, two of them joined.
fn shared() -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input("x", [8, 8, 1]);
    let flat = model.add(Flatten::default(), &[x]);
    let first = model.add(Dense::new(12).activation(Activation::Tanh), &[flat]);
    let tower = model.layer("tower", Dense::new(12).activation(Activation::Tanh));
    let a = model.call(tower, &[first]);
    let b = model.call(tower, &[a]);
    let joined = model.add(Concatenate::default(), &[a, b]);
    let c = model.add(Dense::new(12), &[joined]);
    let c = model.call(tower, &[c]);
    let out = model.add_named("late", Dense::new(10), &[c]);
    model.build(&[out], 5).unwrap()
}

fn objective(model: &Model) -> Objective {
    let losses = model.outputs().iter().map(|_| Loss::SPARSE_CATEGORICAL_CROSSENTROPY).collect();
    Objective { clip_norm: 0.5, ..Objective::new(losses, Optimizer::adam(0.01)) }
}

/// The stage of each node if the model is cut before some nodes.
fn cut(model: &Model, cuts: &[usize]) -> Vec<usize> {
    (0..model.n_nodes()).map(|node| cuts.iter().filter(|cut| **cut <= node).count()).collect()
}

/// Weights, statistics and losses after some steps.
struct Trained {
    losses: Vec<f32>,
    values: Vec<f32>,
}

/// A batch of the digits for a model, with the same targets for each output.
fn batch(model: &Model, first: usize, rows: usize) -> Batch {
    let data = digits::train().unwrap();
    let rows: Vec<usize> = (first..first + rows).map(|row| row % data.len()).collect();
    let mut batch = Batch::fetch(&data, &rows).unwrap();
    batch.targets = vec![batch.targets[0].clone(); model.outputs().len()];
    batch
}

/// Stages: that of each node, and that of each adapter.
type Division = (Vec<usize>, Vec<usize>);

fn open(model: &Model, adapters: Vec<Info>, division: Option<&Division>, rows: usize, pieces: u32) -> Scheduler {
    open_for(&objective(model), model, adapters, division, (rows, pieces))
}

fn open_for(
    objective: &Objective,
    model: &Model,
    adapters: Vec<Info>,
    division: Option<&Division>,
    (rows, pieces): (usize, u32),
) -> Scheduler {
    let builder = Scheduler::builder(model, objective)
        .adapters(adapters)
        .split(SplitMode::Even)
        .capacity(u32::try_from(rows).unwrap().div_ceil(pieces))
        .micro_batches(pieces)
        .cpu_fallback(CpuFallback::Allowed);
    let builder = match division {
        Some((nodes, adapters)) => builder.stages(nodes.clone(), adapters.clone()),
        None => builder,
    };
    pollster::block_on(builder.open()).unwrap()
}

/// Some steps; `between` is called before each.
fn steps(
    mut scheduler: Scheduler,
    model: &Model,
    rows: usize,
    n_steps: u64,
    mut between: impl FnMut(&mut Scheduler, u64),
) -> Trained {
    let n_outputs = model.outputs().len();
    let mut losses = Vec::new();
    for step in 0..n_steps {
        between(&mut scheduler, step);
        let scale = 1.0 / rows as f32;
        let numbers =
            Step { step, seed: 3, learning_rate: 0.01, loss_scales: vec![scale; n_outputs], ..Step::default() };
        let batch = batch(model, usize::try_from(step).unwrap() * rows, rows);
        let report = pollster::block_on(scheduler.train(&batch, &numbers)).unwrap();
        assert!(report.is_applied);
        losses.extend(report.reports.iter().map(|values| values.iter().step_by(2).sum::<f32>() * scale));
    }
    let weights = &pollster::block_on(scheduler.sync()).unwrap().weights;
    Trained { losses, values: weights.parameters.iter().flatten().chain(&weights.statistics).copied().collect() }
}

fn staged(model: &Model, division: &Division, rows: usize, pieces: u32, n_steps: u64) -> Trained {
    let scheduler = open(model, vec![Info::cpu(); division.1.len()], Some(division), rows, pieces);
    steps(scheduler, model, rows, n_steps, |_, _| {})
}

/// On one adapter, with the update on the host: on a device it has other roundings.
fn alone(model: &Model, rows: usize, pieces: u32, n_steps: u64) -> Trained {
    let mut scheduler = open(model, vec![Info::cpu(); 2], None, rows, pieces);
    scheduler.limit_active(1);
    steps(scheduler, model, rows, n_steps, |_, _| {})
}

fn assert_same_bits(got: &Trained, expected: &Trained, what: &str) {
    let differ = got.values.iter().zip(&expected.values).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    assert_eq!(differ, 0, "{differ} of {} weights differ: {what}", got.values.len());
    assert_eq!(got.losses, expected.losses, "losses of {what}");
}

fn assert_close(got: &Trained, expected: &Trained, tolerance: f64, what: &str) {
    let close = |got: &[f32], expected: &[f32]| {
        let pairs = got.iter().zip(expected);
        pairs.map(|(a, b)| f64::from((a - b).abs()) / f64::from(b.abs()).max(1.0)).fold(0.0, f64::max)
    };
    let (weights, losses) = (close(&got.values, &expected.values), close(&got.losses, &expected.losses));
    assert!(weights <= tolerance && losses <= tolerance, "{what}: weights {weights:e}, losses {losses:e}");
}

const STEPS: u64 = 20;

#[test]
fn two_stages_give_the_bits_of_one_adapter_wherever_they_are_cut() {
    let model = residual();
    for (rows, pieces) in [(1, 1), (5, 2), (32, 1), (32, 4), (33, 4)] {
        let expected = alone(&model, rows, pieces, STEPS);
        for at in 1..model.n_nodes() {
            let got = staged(&model, &(cut(&model, &[at]), vec![0, 1]), rows, pieces, STEPS);
            assert_same_bits(&got, &expected, &format!("cut before node {at}, {rows} rows in {pieces} pieces"));
        }
    }
}

#[test]
fn three_stages_give_the_bits_of_one_adapter_wherever_they_are_cut() {
    let model = residual();
    let expected = alone(&model, 33, 4, STEPS);
    for first in 1..model.n_nodes() {
        for second in first + 1..model.n_nodes() {
            let got = staged(&model, &(cut(&model, &[first, second]), vec![0, 1, 2]), 33, 4, STEPS);
            assert_same_bits(&got, &expected, &format!("cut before nodes {first} and {second}"));
        }
    }
}

#[test]
fn stages_that_share_a_layer_add_its_gradients() {
    let model = shared();
    let expected = alone(&model, 32, 4, STEPS);
    for at in 1..model.n_nodes() {
        let got = staged(&model, &(cut(&model, &[at]), vec![0, 1]), 32, 4, STEPS);
        assert_close(&got, &expected, 1e-5, &format!("cut before node {at}"));
    }
}

#[test]
fn a_stage_of_several_adapters_trains_as_one() {
    let model = residual();
    let expected = alone(&model, 33, 6, STEPS);
    for adapters in [vec![0, 1, 1], vec![0, 0, 1], vec![1, 0, 1, 0, 1]] {
        let got = staged(&model, &(cut(&model, &[5]), adapters.clone()), 33, 6, STEPS);
        assert_close(&got, &expected, 1e-5, &format!("adapters of stages {adapters:?}"));
    }
}

#[test]
fn towers_side_by_side_train_as_on_one_adapter() {
    let mut towers = ModelBuilder::new();
    let x = towers.input("x", [8, 8, 1]);
    let flat = towers.add(Flatten::default(), &[x]);
    let left = towers.add(Dense::new(12).activation(Activation::Tanh), &[flat]);
    let right = towers.add(Dense::new(14).activation(Activation::Relu), &[flat]);
    let joined = towers.add(Concatenate::default(), &[left, right]);
    let out = towers.add(Dense::new(10), &[joined]);
    let model = towers.build(&[out], 5).unwrap();
    // `flat` has no gradient, so that the towers have nothing of each other.
    let got = staged(&model, &(vec![0, 0, 1, 2, 2], vec![0, 1, 2]), 32, 2, STEPS);
    assert_same_bits(&got, &alone(&model, 32, 2, STEPS), "two towers and a head");
}

#[test]
fn stages_evaluate_and_predict_as_one_adapter() {
    let model = residual();
    let batch = batch(&model, 0, 13);
    let scales = vec![1.0 / 13.0; 2];
    let mut whole = open(&model, vec![Info::cpu()], None, 13, 1);
    let evaluated = pollster::block_on(whole.evaluate(&batch, scales.clone())).unwrap();
    let predicted = pollster::block_on(whole.predict(&batch)).unwrap();
    for cuts in [[3, 8], [5, 9], [1, 10]] {
        let mut stages = open(&model, vec![Info::cpu(); 3], Some(&(cut(&model, &cuts), vec![0, 1, 2])), 13, 3);
        assert_eq!(pollster::block_on(stages.evaluate(&batch, scales.clone())).unwrap(), evaluated, "{cuts:?}");
        assert_eq!(pollster::block_on(stages.predict(&batch)).unwrap(), predicted, "{cuts:?}");
    }
}

/// A stage holds its own parameters alone.
#[test]
fn each_adapter_takes_the_memory_of_its_stage() {
    let model = residual();
    let whole = open(&model, vec![Info::cpu()], None, 32, 4).bytes()[0];
    let stages = open(&model, vec![Info::cpu(); 3], Some(&(cut(&model, &[5, 9]), vec![0, 1, 2])), 32, 4).bytes();
    assert!(stages.iter().all(|bytes| *bytes < whole), "{stages:?} bytes in stages, {whole} as a whole");
    assert!(stages[2] < whole / 2, "{stages:?} bytes in stages, {whole} as a whole");
}

#[test]
fn a_stage_that_loses_its_adapter_goes_on_with_the_same_bits() {
    let model = residual();
    let division = (cut(&model, &[5, 9]), vec![0, 1, 1, 2]);
    let expected = staged(&model, &division, 33, 4, STEPS);
    for lost in [0, 1, 2, 3] {
        let scheduler = open(&model, vec![Info::cpu(); 4], Some(&division), 33, 4);
        // The request is served while the step runs.
        let got = steps(scheduler, &model, 33, STEPS, |scheduler, step| {
            if step == 7 {
                scheduler.lose(lost);
            }
        });
        assert_close(&got, &expected, 1e-5, &format!("adapter {lost} lost"));
    }
}

#[test]
fn divisions_that_make_no_sense_are_refused() {
    let model = residual();
    let objective = objective(&model);
    let refused = |nodes: Vec<usize>, adapters: Vec<usize>| {
        let builder = Scheduler::builder(&model, &objective).adapters(vec![Info::cpu(); 2]).stages(nodes, adapters);
        match pollster::block_on(builder.open()) {
            Ok(_) => panic!("a division that makes no sense was opened"),
            Err(error) => error.to_string(),
        }
    };
    let n_nodes = model.n_nodes();
    let mut backward = cut(&model, &[5]);
    backward.swap(0, 6);
    assert!(refused(backward, vec![0, 1]).contains("reads `"));
    assert!(refused(vec![0; n_nodes - 1], vec![0, 1]).contains("needs a stage for each of 11 nodes"));
    assert!(refused(cut(&model, &[5]), vec![0, 0]).contains("stage 1 has none"));
    assert!(refused(cut(&model, &[5]), vec![0]).contains("each of 2 adapters"));
    assert!(refused(cut(&model, &[5]), vec![0, 2]).contains("stage 1 has none"));
    assert!(refused(cut(&model, &[5]).into_iter().map(|stage| 2 * stage).collect(), vec![0, 1]).contains("stage 1"));
}

/// Layers and adapters of a stage, by name and position.
type Named<'a> = (&'a [&'a str], &'a [usize]);

#[test]
fn stages_of_named_layers_train_on_the_adapters_that_are_named() {
    let model = residual();
    let scheduler = |placement: Placement| {
        let objective = objective(&model);
        let builder = Scheduler::builder(&model, &objective).adapters(vec![Info::cpu(); 3]).placement(placement);
        pollster::block_on(builder.capacity(9).micro_batches(4).open())
    };
    let named = [(vec!["..re_lu"], vec![2]), (vec!["conv2d_1", "add..flatten"], vec![0]), (vec!["early.."], vec![1])];
    let got = steps(scheduler(Placement::stages(named)).unwrap(), &model, 33, 3, |_, _| {});
    assert_same_bits(&got, &alone(&model, 33, 4, 3), "stages by name");
    let wrong: [(&[Named], &str); 6] = [
        (&[(&["..relu"], &[0]), (&["conv2d_1.."], &[1, 2])], "`relu` is none"),
        (&[(&["..add"], &[0]), (&["early.."], &[1, 2])], "`max_pooling2d` has none"),
        (&[(&["..add"], &[0]), (&["add.."], &[1, 2])], "`add` is in stages 0 and 1"),
        (&[(&["..add"], &[0]), (&["max_pooling2d.."], &[1])], "adapter 2 has none"),
        (&[(&["..add"], &[0, 1]), (&["max_pooling2d.."], &[1, 2])], "1 is in stages 0 and 1"),
        (&[(&["..add"], &[0, 1]), (&["max_pooling2d.."], &[2, 3])], "but has 3"),
    ];
    for (stages, message) in wrong {
        let stages = stages.iter().map(|(layers, adapters)| (layers.iter().copied(), adapters.iter().copied()));
        let error = scheduler(Placement::stages(stages)).err().unwrap().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn gradients_as_halves_are_those_of_one_adapter() {
    let model = residual();
    let objective = Objective { gradient_compression: GradientCompression::Fp16, ..objective(&model) };
    let run = |adapters: usize, division: Option<&Division>| {
        let mut scheduler = open_for(&objective, &model, vec![Info::cpu(); adapters], division, (32, 4));
        if division.is_none() {
            scheduler.limit_active(1);
        }
        steps(scheduler, &model, 32, STEPS, |_, _| {})
    };
    let got = run(3, Some(&(cut(&model, &[4, 8]), vec![0, 1, 2])));
    assert_same_bits(&got, &run(2, None), "16-bit gradients");
}

#[test]
fn stages_on_adapters_of_different_kinds_train_as_on_one() {
    let gpus = needed::gpus();
    let (Some(first), Some(last)) = (gpus.first(), gpus.last()) else { return };
    for model in [residual(), shared()] {
        let expected = alone(&model, 33, 4, 8);
        let division = (cut(&model, &[3, 5]), vec![0, 1, 2]);
        let adapters = vec![first.clone(), Info::cpu(), last.clone()];
        let got = steps(open(&model, adapters, Some(&division), 33, 4), &model, 33, 8, |_, _| {});
        assert_close(&got, &expected, 2e-3, "stages on two software adapters and the CPU");
    }
}

/// Runs over epochs with a short last batch, evaluation and predictions; checkpoints know nothing of stages.
#[test]
fn a_run_in_stages_is_that_of_one_adapter() {
    let model = || {
        let model = Sequential::new([8, 8, 1]).add(Conv2D::new(4, [3, 3]).same()).add(BatchNormalization::new());
        let model = model.add(Relu::default()).add(Flatten::default()).add(Dropout::new(0.2));
        model.add_named("scores", Dense::new(10)).build(3).unwrap()
    };
    let compile = || Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let trainer = || Trainer::new(model(), compile()).unwrap().on(vec![Info::cpu(); 2]);
    let placement = Placement::stages([(["..re_lu"], [1]), (["flatten.."], [0])]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.safetensors");
    let fit = |epochs: u64| Fit::new(epochs).batch_size(400).micro_batches(4);
    let values = |trainer: &Trainer| -> Vec<u32> {
        trainer.model().tensors().flat_map(|(_, _, values)| values).map(|value| value.to_bits()).collect()
    };
    let (train, test) = (|| digits::train().unwrap(), || digits::test().unwrap());
    let mut alone = trainer().split(SplitMode::Fixed(vec![1.0, 0.0]));
    let mut staged = trainer().placement(placement);
    let expected = alone.fit(train(), &fit(2)).unwrap();
    let got = staged.fit(train(), &fit(2).save(&file)).unwrap();
    assert_eq!(got.of("loss"), expected.of("loss"));
    assert_eq!(values(&staged), values(&alone));
    assert_eq!(staged.evaluate(test(), 100).unwrap().to_string(), alone.evaluate(test(), 100).unwrap().to_string());
    assert_eq!(staged.predict(test(), 100).unwrap(), alone.predict(test(), 100).unwrap());

    let mut resumed = trainer().split(SplitMode::Fixed(vec![1.0, 0.0]));
    resumed.resume(Checkpoint::load(&file).unwrap()).unwrap();
    resumed.fit(train(), &fit(3)).unwrap();
    alone.fit(train(), &fit(3)).unwrap();
    assert_eq!(values(&resumed), values(&alone));
}

/// The device is destroyed while the run goes on, a little later each time.
#[test]
#[allow(clippy::disallowed_methods, reason = "a thread beside the run destroys the device")]
fn an_adapter_that_is_destroyed_at_any_moment_changes_no_bit() {
    let model = residual();
    let division = (cut(&model, &[4, 8]), vec![0, 1, 2]);
    let expected = staged(&model, &division, 33, 4, 8);
    for moment in 0..20 {
        let scheduler = open(&model, vec![Info::cpu(); 3], Some(&division), 33, 4);
        let requests = scheduler.handle(moment % 3).requests.clone();
        let destroyed = std::thread::spawn(move || {
            let wait = std::time::Duration::from_micros(1_300 * u64::try_from(moment).unwrap());
            std::thread::sleep(wait);
            // A run that has ended takes no more requests.
            drop(requests.try_send(Request::Lose));
        });
        let got = steps(scheduler, &model, 33, 8, |_, _| {});
        destroyed.join().unwrap();
        assert_same_bits(&got, &expected, &format!("moment {moment}"));
    }
}
