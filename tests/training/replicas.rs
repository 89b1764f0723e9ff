//! Does training give the same on any number of adapters, and do all adapters hold the same bits?

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that fails may panic, and says what it could not run"
)]

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use manyhands::adapters::{self, Info};
use manyhands::data::{Batch, Dataset, digits};
use manyhands::layers::{Activation, BatchNormalization, Conv2D, Dense, Flatten, MaxPooling2D};
use manyhands::model::Objective;
use manyhands::scheduler::{Scheduler, Step, StepReport};
use manyhands::{
    BatchStatistics, Compile, CpuFallback, GradientCompression, Loss, Model, Optimizer, Sequential, SplitMode, Trainer,
};
use manyhands_engine::plan::Role;

use crate::close::assert_relative;
use crate::needed;

fn perceptron() -> Model {
    Sequential::new([8, 8, 1])
        .add(Flatten::default())
        .add(Dense::new(24).activation(Activation::Tanh))
        .add(Dense::new(10))
        .build(7)
        .unwrap()
}

fn convolutional() -> Model {
    Sequential::new([8, 8, 1])
        .add(Conv2D::new(6, [3, 3]).same().activation(Activation::Relu))
        .add(MaxPooling2D::new([2, 2]))
        .add(Flatten::default())
        .add(Dense::new(10))
        .build(7)
        .unwrap()
}

fn normalized() -> Model {
    Sequential::new([8, 8, 1])
        .add(Conv2D::new(6, [3, 3]).same().no_bias())
        .add(BatchNormalization::new())
        .add(Flatten::default())
        .add(Dense::new(10))
        .build(7)
        .unwrap()
}

fn open(model: &Model, adapters: &str, split: SplitMode, capacity: u32) -> Scheduler {
    open_compressed(GradientCompression::None, model, adapters, split, capacity)
}

fn objective() -> Objective {
    Objective::new(vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], Optimizer::sgd(0.1, 0.0))
}

fn open_compressed(
    gradient_compression: GradientCompression,
    model: &Model,
    adapters: &str,
    split: SplitMode,
    capacity: u32,
) -> Scheduler {
    open_with(&Objective { gradient_compression, ..objective() }, model, adapters, split, capacity)
}

fn open_with(objective: &Objective, model: &Model, adapters: &str, split: SplitMode, capacity: u32) -> Scheduler {
    pollster::block_on(async {
        let adapters = adapters::choose(&adapters::list_async().await, adapters).unwrap();
        let builder = Scheduler::builder(model, objective).adapters(adapters).split(split).capacity(capacity);
        builder.cpu_fallback(CpuFallback::Refused).open().await.unwrap()
    })
}

#[allow(clippy::cast_precision_loss, reason = "batches are small")]
fn step(scheduler: &mut Scheduler, data: &dyn Dataset, step: u64, rows: usize) -> (f64, StepReport) {
    let first = usize::try_from(step).unwrap() * rows;
    let rows: Vec<usize> = (first..first + rows).map(|row| row % data.len()).collect();
    let batch = Batch::fetch(data, &rows).unwrap();
    let scale = 1.0 / rows.len() as f32;
    let numbers = Step { step, seed: 3, learning_rate: 0.1, loss_scales: vec![scale], ..Step::default() };
    let report = pollster::block_on(scheduler.train(&batch, &numbers)).unwrap();
    assert!(report.is_applied);
    let loss = report.reports[0].iter().step_by(2).map(|loss| f64::from(*loss)).sum::<f64>() * f64::from(scale);
    (loss, report)
}

fn hash(values: &[f32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.iter().for_each(|value| value.to_bits().hash(&mut hasher));
    hasher.finish()
}

/// Losses of some steps. After each, the weights read back from all adapters are the same bits, and finite.
fn losses(model: &Model, adapters: &str, split: SplitMode, rows: usize, steps: u64) -> Vec<f64> {
    losses_of(open(model, adapters, split, u32::try_from(rows).unwrap()), model, rows, steps)
}

fn losses_of(mut scheduler: Scheduler, model: &Model, rows: usize, steps: u64) -> Vec<f64> {
    let data = digits::train().unwrap();
    let n_adapters = scheduler.adapters().count();
    let mut losses = Vec::new();
    for number in 0..steps {
        losses.push(step(&mut scheduler, &data, number, rows).0);
        let has_statistics = !model.weights.statistics.is_empty();
        for role in [Some(Role::Parameters(0)), has_statistics.then_some(Role::Statistics)].into_iter().flatten() {
            let copies: Vec<Vec<f32>> =
                (0..n_adapters).map(|idx| pollster::block_on(scheduler.read(idx, role)).unwrap()).collect();
            assert!(copies[0].iter().all(|value| value.is_finite()), "{role:?} is not finite after step {number}");
            assert!(copies.iter().all(|copy| hash(copy) == hash(&copies[0])), "{role:?} differs after step {number}");
        }
    }
    losses
}

/// The losses of several adapters are those of one: rounding grows from step to step.
fn assert_as_one(what: &str, several: &[f64], one: &[f64]) {
    assert_relative(&format!("{what}: first loss"), &several[..1], &one[..1], 1e-5);
    assert_relative(&format!("{what}: losses"), several, one, 1e-3);
}

/// The rigs of one, two and three adapters: CPU adapters always, and the machine's GPUs or software adapters.
fn rigs() -> Vec<String> {
    let gpus = needed::gpu_indices();
    let mut rigs: Vec<String> = ["cpu", "cpu,cpu", "cpu,cpu,cpu"].map(String::from).into();
    match gpus.as_slice() {
        [] => {}
        [one] => rigs.extend([one.clone(), format!("{one},cpu"), format!("{one},{one},cpu")]),
        [one, two, ..] => rigs.extend([one.clone(), format!("{one},{two}"), format!("{two},{one},cpu")]),
    }
    rigs
}

fn check_any_number_of_adapters(steps: u64) {
    for (model, what) in [(perceptron(), "perceptron"), (convolutional(), "convolutional")] {
        for rows in [100, 2] {
            let one = losses(&model, "cpu", SplitMode::Learned, rows, steps);
            for rig in rigs() {
                let several = losses(&model, &rig, SplitMode::Even, rows, steps);
                assert_as_one(&format!("{what}, {rows} rows, adapters {rig}"), &several, &one);
            }
        }
    }
}

fn check_batch_norm_with_empty_shards(steps: u64) {
    let model = normalized();
    for rows in [100, 2] {
        let one = losses(&model, "cpu", SplitMode::Learned, rows, steps);
        for rig in rigs() {
            let n_adapters = rig.split(',').count();
            let mut parts = vec![0.0; n_adapters];
            parts[n_adapters - 1] = 1.0;
            let several = losses(&model, &rig, SplitMode::Fixed(parts), rows, steps);
            assert_as_one(&format!("{rows} rows, adapters {rig}"), &several, &one);
        }
    }
}

#[test]
fn any_number_of_adapters_gives_the_losses_of_one() {
    check_any_number_of_adapters(12);
}

#[test]
fn batch_norm_with_all_shards_but_one_empty_is_that_of_one_adapter() {
    check_batch_norm_with_empty_shards(12);
}

/// One switch for all layers: the losses of one adapter, for any split. With the layers' own statistics they differ.
#[test]
fn batch_norm_over_the_whole_batch_is_that_of_one_adapter() {
    let model = normalized();
    let whole = Objective { batch_statistics: BatchStatistics::Batch, ..objective() };
    let one = losses(&model, "cpu", SplitMode::Learned, 100, 12);
    for rig in rigs() {
        let scheduler = open_with(&whole, &model, &rig, SplitMode::Even, 100);
        assert_as_one(&format!("adapters {rig}"), &losses_of(scheduler, &model, 100, 12), &one);
    }
    let shards = losses(&model, "cpu,cpu", SplitMode::Even, 100, 1);
    assert!((shards[0] - one[0]).abs() > 1e-4 * one[0], "shards give {shards:?}, one adapter {one:?}");
}

#[test]
#[ignore = "takes a minute"]
fn fifty_steps_of_any_number_of_adapters_give_the_losses_of_one() {
    check_any_number_of_adapters(50);
    check_batch_norm_with_empty_shards(50);
}

/// Parameters after each of some steps, read back from all adapters, which hold the same bits.
fn trained(compression: GradientCompression, model: &Model, adapters: &str, steps: u64) -> Vec<Vec<f32>> {
    let data = digits::train().unwrap();
    let mut scheduler = open_compressed(compression, model, adapters, SplitMode::Even, 50);
    let n_adapters = scheduler.adapters().count();
    let mut parameters = Vec::new();
    for number in 0..steps {
        step(&mut scheduler, &data, number, 50);
        let copies: Vec<Vec<f32>> =
            (0..n_adapters).map(|idx| pollster::block_on(scheduler.read(idx, Role::Parameters(0))).unwrap()).collect();
        assert!(copies.iter().all(|copy| hash(copy) == hash(&copies[0])), "weights differ after step {number}");
        parameters.extend(copies.into_iter().next());
    }
    parameters
}

fn norm(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn gradients_as_halves_move_weights_as_whole_ones_do() {
    for model in [perceptron(), convolutional()] {
        for rig in rigs().iter().filter(|rig| rig.contains(',')) {
            let start = &model.weights.parameters[0];
            let whole = trained(GradientCompression::None, &model, rig, 8);
            let halves = trained(GradientCompression::Fp16, &model, rig, 8);
            // One step: each gradient lost at most one unit of its 10 bits. More steps: a few times that.
            for (step, allowed) in [(0, 1.0 / 1024.0), (7, 1.0 / 200.0)] {
                let moved = norm(whole[step].iter().zip(start).map(|(end, start)| end - start));
                let off = norm(halves[step].iter().zip(&whole[step]).map(|(half, whole)| half - whole));
                assert!(off > 0.0, "adapters {rig}: nothing was rounded");
                assert!(
                    off <= allowed * moved,
                    "adapters {rig}, step {step}: {off} off where weights moved by {moved}"
                );
            }
        }
    }
}

#[test]
fn one_adapter_keeps_its_gradients_whole() {
    for rig in rigs().iter().filter(|rig| !rig.contains(',')) {
        let whole = trained(GradientCompression::None, &perceptron(), rig, 3);
        let halves = trained(GradientCompression::Fp16, &perceptron(), rig, 3);
        assert_eq!(whole, halves, "adapter {rig}");
    }
}

/// A gradient that is not finite is seen through the packing, and nothing moves.
#[test]
fn a_step_that_is_not_finite_is_not_applied_with_halves_either() {
    let (data, model) = (digits::train().unwrap(), perceptron());
    for rig in rigs().iter().filter(|rig| rig.contains(',')) {
        let mut scheduler = open_compressed(GradientCompression::Fp16, &model, rig, SplitMode::Even, 50);
        let batch = Batch::fetch(&data, &(0..50).collect::<Vec<_>>()).unwrap();
        let numbers =
            Step { step: 0, seed: 3, learning_rate: 0.1, loss_scales: vec![f32::INFINITY], ..Step::default() };
        let report = pollster::block_on(scheduler.train(&batch, &numbers)).unwrap();
        assert!(!report.is_applied, "adapters {rig}");
        let parameters = pollster::block_on(scheduler.read(0, Role::Parameters(0))).unwrap();
        assert_eq!(parameters, model.weights.parameters[0], "adapters {rig}");
    }
}

#[test]
fn batch_norm_by_shards_stays_finite() {
    for rows in [100, 20, 9, 2] {
        for rig in rigs() {
            losses(&normalized(), &rig, SplitMode::Even, rows, 5);
        }
    }
}

/// With PyTorch's correction the moving variance follows the unbiased one of the whole batch, on the device and on the host.
#[test]
fn the_moving_variance_is_unbiased_if_wanted() {
    let column: Vec<f32> = vec![1.0, 4.0, -2.0, 8.0, 0.5];
    let mean = column.iter().sum::<f32>() / 5.0;
    let squares = column.iter().map(|value| (value - mean).powi(2)).sum::<f32>();
    for (norm, divisor) in [(BatchNormalization::new(), 5.0), (BatchNormalization::new().unbiased(), 4.0)] {
        for n_adapters in [1, 3] {
            let model = Sequential::new([1]).add(norm.momentum(0.9)).build(0).unwrap();
            let compile = Compile::new(Optimizer::sgd(0.0, 0.0), Loss::MEAN_SQUARED_ERROR);
            let mut trainer = Trainer::new(model, compile).unwrap().on(vec![Info::cpu(); n_adapters]);
            let (inputs, targets) = (vec![column.clone().into()], vec![vec![0.0; 5].into()]);
            trainer.train_on_batch(Batch { rows: 5, inputs, targets, sample_weights: None }).unwrap();
            trainer.current_model().unwrap();
            let needed = [0.1 * mean, 0.9 + 0.1 * squares / divisor];
            let tensor = |name: &str| trainer.model().tensor(&format!("batch_normalization/{name}")).unwrap()[0];
            for (name, needed) in ["moving_mean", "moving_variance"].into_iter().zip(needed) {
                assert!(
                    (tensor(name) - needed).abs() < 1e-5,
                    "{name} on {n_adapters} adapters: {} {needed}",
                    tensor(name)
                );
            }
        }
    }
}
