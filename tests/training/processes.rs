//! Do several processes train as one? Here they are threads of one process, each with a trainer of its own.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use manyhands::callbacks::{Callback, EpochEnd, Flow};
use manyhands::data::{BatchMut, Dataset, InMemory, digits};
use manyhands::layers::{Activation, BatchNormalization, Conv2D, Dense, Flatten, MaxPooling2D};
use manyhands::logs::{StepLog, Values};
use manyhands::metrics::{R2Score, RootMeanSquaredError};
use manyhands::processes::Group;
use manyhands::processes::memory;
use manyhands::{
    Checkpoint, Compile, Error, ErrorKind, Fit, GradientCompression, Loss, Metric, Model, Optimizer, Placement,
    Precision, Reduction, Result, Sequential, Shape, SplitMode, Trainer,
};
use ndarray::Array;

use crate::close::assert_relative;
use crate::largest_error::{LargestError, Merges};
use crate::watch::{Steps, StopAt};

/// Runs work in several processes; results by rank.
fn in_processes<T: Send>(size: usize, work: impl Fn(Group) -> T + Sync) -> Vec<T> {
    let groups = if size == 1 { vec![Group::alone()] } else { memory::groups(size) };
    std::thread::scope(|scope| {
        let threads: Vec<_> = groups.into_iter().map(|group| scope.spawn(|| work(group))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn perceptron() -> Model {
    let hidden = Dense::new(24).activation(Activation::Tanh);
    Sequential::new([8, 8, 1]).add(Flatten::default()).add(hidden).add(Dense::new(10)).build(7).unwrap()
}

fn convolutional() -> Model {
    Sequential::new([8, 8, 1])
        .add(Conv2D::new(6, [3, 3]).same().no_bias())
        .add(BatchNormalization::new().synchronized())
        .add(MaxPooling2D::new([2, 2]))
        .add(Flatten::default())
        .add(Dense::new(10))
        .build(7)
        .unwrap()
}

fn compile() -> Compile {
    Compile::new(Optimizer::adam(3e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY).clip_norm(1.0).seed(5)
}

fn hash(model: &Model) -> u64 {
    let mut hasher = DefaultHasher::new();
    let values = model.weights.parameters.iter().flatten().chain(&model.weights.statistics);
    values.for_each(|value| value.to_bits().hash(&mut hasher));
    hasher.finish()
}

/// The first rows of the digits.
fn some_digits(rows: usize) -> InMemory {
    let (images, labels) = digits_of(rows);
    InMemory::new(images, labels).unwrap()
}

fn digits_of(rows: usize) -> (Array<f32, ndarray::Ix4>, Array<f32, ndarray::Ix1>) {
    let wanted: Vec<usize> = (0..rows).collect();
    let batch = manyhands::data::Batch::fetch(&digits::train().unwrap(), &wanted).unwrap();
    let images = Array::from_shape_vec([rows, 8, 8, 1], batch.inputs[0].to_vec()).unwrap();
    (images, Array::from_vec(batch.targets[0].to_vec()))
}

/// One run in each of several processes: the losses of its steps, and all that follows from its end.
struct Ran {
    losses: Vec<f64>,
    steps: Vec<StepLog>,
    weights: u64,
    validation: Vec<f64>,
}

fn train(group: Group, model: Model, compile: Compile, data: InMemory, fit: &Fit) -> Ran {
    let mut trainer = Trainer::new(model, compile).unwrap().processes(group).adapters("cpu").unwrap();
    let mut steps = Steps::default();
    let history = trainer.fit_with(data, fit, &mut [&mut steps]).unwrap();
    let losses = steps.0.iter().map(|step| step.values.get("loss").unwrap()).collect();
    Ran { losses, steps: steps.0, weights: hash(trainer.model()), validation: history.of("val_loss") }
}

/// Compares several processes with one: losses of early steps, and of step 50.
fn assert_as_one(model: impl Fn() -> Model + Sync, compile: &Compile, rows: usize, fit: &Fit, sizes: &[usize]) {
    let run = |size: usize| in_processes(size, |group| train(group, model(), compile.clone(), some_digits(rows), fit));
    let one = run(1).remove(0);
    for size in sizes {
        let ran = run(*size);
        assert!(ran.iter().all(|it| it.weights == ran[0].weights && it.losses == ran[0].losses), "{size} processes");
        assert_eq!(ran[0].losses.len(), one.losses.len());
        for (step, (got, want)) in ran[0].losses.iter().zip(&one.losses).enumerate() {
            let tolerance = if step == 0 { 1e-5 } else { 1e-3 };
            assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "{size}, step {step}: {got} is not {want}");
        }
        for (own, whole) in ran[0].steps.iter().zip(&one.steps) {
            assert_eq!((own.rows, own.processes.len()), (whole.rows, *size));
            let told: u32 = own.processes.iter().map(|process| process.rows).sum();
            assert_eq!(told as usize, whole.rows);
        }
        for (got, want) in ran[0].validation.iter().zip(&one.validation) {
            assert!((got - want).abs() < 1e-3 * want.abs().max(1.0), "{size}: {got} is not {want}");
        }
    }
}

#[test]
fn processes_train_a_perceptron_as_one() {
    // 17 batches of 12 rows and one of 6 in each epoch: 54 steps.
    let fit = Fit::new(3).batch_size(12).validation(some_digits(37));
    assert_as_one(perceptron, &compile(), 210, &fit, &[2, 3, 4]);
}

#[test]
fn statistics_of_a_synchronized_batch_norm_are_those_of_all_processes() {
    let fit = Fit::new(2).batch_size(16);
    assert_as_one(convolutional, &compile(), 410, &fit, &[2, 3]);
}

#[test]
fn statistics_of_each_process_are_merged_by_their_rows() {
    // Inputs of the layer do not depend on the split, so the merged moments are those of the whole batch.
    let model = || {
        let layers = Sequential::new([8, 8, 1]).add(BatchNormalization::new().no_scale().no_center());
        layers.add(Flatten::default()).add(Dense::new(10)).build(7).unwrap()
    };
    let statistics = |size| {
        let trained = in_processes(size, |group| {
            let trainer = Trainer::new(model(), compile()).unwrap().processes(group).adapters("cpu").unwrap();
            let mut trainer = trainer.split(SplitMode::Even);
            trainer.fit(some_digits(70), &Fit::new(1).batch_size(32)).unwrap();
            trainer.model().weights.statistics.clone()
        });
        assert!(trained.iter().all(|it| *it == trained[0]));
        trained[0].clone()
    };
    assert_relative("moving statistics", &statistics(3), &statistics(1), 1e-5);
}

#[test]
fn fewer_rows_than_processes() {
    // Batches of 2 rows, and of 1 at the end.
    assert_as_one(perceptron, &compile(), 5, &Fit::new(3).batch_size(2), &[4]);
    assert_as_one(convolutional, &compile(), 5, &Fit::new(3).batch_size(2), &[4]);
    // A dataset that is smaller than the number of processes.
    assert_as_one(perceptron, &compile(), 3, &Fit::new(4).batch_size(8).validation(some_digits(1)), &[4]);
}

#[test]
fn weights_of_rows_and_metrics_count_over_all_processes() {
    let data = || {
        let (images, labels) = digits_of(50);
        let weights = Array::from_iter((0..50).map(|row| [0.0, 0.5, 3.0][row % 3]));
        InMemory::new(images, labels).unwrap().with_sample_weights(weights).unwrap()
    };
    let metrics = [Metric::Accuracy, Metric::TopKCategoricalAccuracy { k: 2 }];
    let compile = compile().reduction(Reduction::MeanWithSampleWeight).metrics(metrics);
    let values = |size| {
        let ran = in_processes(size, |group| {
            train(group, perceptron(), compile.clone(), data(), &Fit::new(1).batch_size(16)).steps
        });
        let numbers = |step: &StepLog| step.running.iter().map(|(_, value)| value).collect::<Vec<f64>>();
        assert_eq!(ran[0].last().map(numbers), ran[size - 1].last().map(numbers));
        ran[0].iter().flat_map(numbers).collect::<Vec<f64>>()
    };
    let (one, three) = (values(1), values(3));
    for (got, want) in three.iter().zip(&one) {
        assert!((got - want).abs() < 1e-4 * want.abs().max(1.0), "{three:?} is not {one:?}");
    }
}

/// Targets of two columns, of which the second is far from 0 against its variance.
fn numbers(rows: usize) -> InMemory {
    let (images, labels) = digits_of(rows);
    let targets = Array::from_shape_fn([rows, 2], |(row, col)| labels[row] + if col == 0 { 0.0 } else { 1000.0 });
    InMemory::new(images, targets).unwrap()
}

fn regression() -> (Model, Compile) {
    let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(2)).build(7).unwrap();
    let metrics: Vec<Metric> = vec![
        R2Score::default().into(),
        LargestError { merges: Merges::Largest }.into(),
        RootMeanSquaredError {}.into(),
    ];
    (model, Compile::new(Optimizer::sgd(0.0, 0.0), Loss::MEAN_SQUARED_ERROR).metrics(metrics))
}

/// Numbers that stand beside the loss.
fn counted(values: &Values) -> [f64; 3] {
    ["r2_score", "largest_error", "root_mean_squared_error"].map(|name| values.get(name).unwrap())
}

fn assert_near(got: [f64; 3], want: [f64; 3], what: &str) {
    for (got, want) in got.into_iter().zip(want) {
        assert!((got - want).abs() < 1e-6 * want.abs(), "{what}: {got} is not {want}");
    }
}

#[test]
fn counted_metrics_whose_sums_do_not_add_up_are_those_of_one_process() {
    // At a rate of 0 all batches see the same weights. Two rows leave processes without any.
    for (rows, batch) in [(37, 8), (5, 2)] {
        let run = |group: Group| {
            let (model, compile) = regression();
            let mut trainer = Trainer::new(model, compile).unwrap().processes(group).adapters("cpu").unwrap();
            let evaluated = trainer.evaluate(numbers(rows), batch).unwrap();
            let mut steps = Steps::default();
            trainer.fit_with(numbers(rows), &Fit::new(1).batch_size(batch), &mut [&mut steps]).unwrap();
            (counted(&evaluated), counted(&steps.0.last().unwrap().running))
        };
        let (one, trained) = in_processes(1, run).remove(0);
        assert_near(trained, one, "all rows of an epoch");
        for size in 2..=4 {
            let all = in_processes(size, run);
            assert!(all.iter().all(|values| *values == all[0]), "{all:?}");
            assert_near(all[0].0, one, &format!("{size} processes, evaluated"));
            assert_near(all[0].1, one, &format!("{size} processes, trained"));
        }
    }
}

#[test]
fn counted_metrics_go_on_from_a_checkpoint_in_the_middle_of_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.safetensors");
    let fit = Fit::new(1).batch_size(8);
    let trainer = |group: Group| {
        let (model, compile) = regression();
        Trainer::new(model, compile).unwrap().processes(group).adapters("cpu").unwrap()
    };
    let undisturbed = counted(&trainer(Group::alone()).evaluate(numbers(37), 8).unwrap());
    in_processes(2, |group| {
        let mut asked = StopAt::step(2);
        let fit = fit.clone().save(&file).stop(asked.stop.clone());
        trainer(group).fit_with(numbers(37), &fit, &mut [&mut asked]).unwrap();
    });
    for size in [1, 3] {
        let resumed = in_processes(size, |group| {
            let mut trainer = trainer(group);
            trainer.resume(Checkpoint::load(&file).unwrap()).unwrap();
            let mut steps = Steps::default();
            trainer.fit_with(numbers(37), &fit, &mut [&mut steps]).unwrap();
            // Five batches, of which two or three were there before.
            assert!((1..5).contains(&steps.0.len()));
            counted(&steps.0.last().unwrap().running)
        });
        assert_near(resumed[0], undisturbed, &format!("resumed in {size} processes"));
    }
}

#[test]
fn a_fixed_split_names_the_adapters_of_all_processes() {
    let rows = in_processes(2, |group| {
        let adapters = if group.rank() == 0 { "cpu,cpu" } else { "cpu" };
        let trainer = Trainer::new(perceptron(), compile()).unwrap().processes(group).adapters(adapters).unwrap();
        let mut trainer = trainer.split(SplitMode::Fixed(vec![1.0, 2.0, 5.0]));
        let mut steps = Steps::default();
        trainer.fit_with(some_digits(16), &Fit::new(1).batch_size(16), &mut [&mut steps]).unwrap();
        let of = |log: &manyhands::logs::ProcessLog| log.adapters.iter().map(|it| it.rows).collect::<Vec<_>>();
        steps.0[0].processes.iter().map(of).collect::<Vec<_>>()
    });
    assert_eq!(rows, [[vec![2, 4], vec![10]], [vec![2, 4], vec![10]]]);
}

#[test]
fn gradients_of_16_bits_train_in_several_processes() {
    let compile = compile().gradient_compression(GradientCompression::Fp16);
    let fit = Fit::new(2).batch_size(30);
    let one = in_processes(1, |group| train(group, perceptron(), compile.clone(), some_digits(90), &fit)).remove(0);
    let two = in_processes(2, |group| train(group, perceptron(), compile.clone(), some_digits(90), &fit));
    assert_eq!(two[0].weights, two[1].weights);
    for (got, want) in two[0].losses.iter().zip(&one.losses) {
        assert!((got - want).abs() < 5e-3 * want.abs().max(1.0), "{got} is not {want}");
    }
}

#[test]
fn the_loss_scale_of_mixed_precision_is_one_in_several_processes() {
    // So large a loss that the scale falls.
    let compile = compile().precision(Precision::MixedFloat16).loss_weights([200.0]);
    let fit = Fit::new(2).batch_size(30);
    let one = in_processes(1, |group| train(group, perceptron(), compile.clone(), some_digits(90), &fit)).remove(0);
    let two = in_processes(2, |group| train(group, perceptron(), compile.clone(), some_digits(90), &fit));
    assert_eq!(two[0].weights, two[1].weights);
    let scales = |ran: &Ran| ran.steps.iter().map(|log| log.loss_scale).collect::<Vec<_>>();
    assert!(one.steps.iter().any(|log| !log.is_applied) && one.steps.iter().any(|log| log.is_applied));
    assert_eq!([scales(&two[0]), scales(&two[1])], [scales(&one), scales(&one)]);
    for (got, want) in two[0].losses.iter().zip(&one.losses) {
        assert!((got - want).abs() < 5e-3 * want.abs().max(1.0), "{got} is not {want}");
    }
}

#[test]
fn evaluation_and_prediction_give_the_same_in_all_processes() {
    let run = |group: Group| {
        let mut trainer = Trainer::new(perceptron(), compile()).unwrap().processes(group).adapters("cpu").unwrap();
        let values = trainer.evaluate(some_digits(45), 16).unwrap();
        (values.get("loss").unwrap(), values.get("accuracy").unwrap(), trainer.predict(some_digits(45), 16).unwrap())
    };
    let one = in_processes(1, run).remove(0);
    for (loss, accuracy, outputs) in in_processes(3, run) {
        assert!((loss - one.0).abs() < 1e-6 * one.0 && (accuracy - one.1).abs() < 1e-9);
        assert_eq!(outputs[0].shape(), [45, 10]);
        assert_relative("outputs", outputs[0].as_slice().unwrap(), one.2[0].as_slice().unwrap(), 1e-5);
    }
}

/// Digits of which one row can't be read.
struct Unreadable {
    digits: InMemory,
    row: usize,
}

impl Dataset for Unreadable {
    fn len(&self) -> usize {
        self.digits.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        self.digits.input_shapes()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        self.digits.target_shapes()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        if rows.contains(&self.row) && !batch.input(0).is_empty() {
            return Err(Error::data("`nine.png`", "is no picture", "mend it"));
        }
        self.digits.fetch(rows, batch)
    }
}

#[test]
fn an_error_in_one_process_ends_all_with_the_same_message() {
    let errors = in_processes(3, |group| {
        let data = Unreadable { digits: some_digits(60), row: 41 };
        let trainer = Trainer::new(perceptron(), compile()).unwrap().processes(group).adapters("cpu").unwrap();
        // A learned split may have moved rows by then.
        let mut trainer = trainer.split(SplitMode::Even);
        trainer.fit(data, &Fit::new(2).batch_size(12).in_order()).unwrap_err()
    });
    // Row 41 is the sixth of the fourth batch, whose rows 4 to 7 are those of the second process.
    let wanted = "process 1: `nine.png` is no picture\n  help: mend it";
    assert!(errors.iter().all(|error| error.to_string() == wanted && error.kind() == ErrorKind::Data), "{errors:?}");
}

#[test]
fn a_mistake_of_all_processes_is_told_as_that_of_one() {
    let errors = in_processes(2, |group| {
        let trainer = Trainer::new(perceptron(), compile()).unwrap().processes(group).adapters("cpu").unwrap();
        trainer.split(SplitMode::Fixed(vec![1.0])).fit(some_digits(8), &Fit::new(1)).unwrap_err().to_string()
    });
    assert!(errors[0].starts_with("split needs 2 parts, one for each adapter of all processes"), "{errors:?}");
    assert_eq!(errors[0], errors[1]);
}

#[test]
fn unlike_settings_data_and_weights_are_refused() {
    let refused = |unlike: &(dyn Fn(usize) -> (Model, Compile, InMemory, Fit) + Sync)| {
        let errors = in_processes(2, |group| {
            let (model, compile, data, fit) = unlike(group.rank());
            let trainer = Trainer::new(model, compile).unwrap().processes(group);
            trainer.adapters("cpu").unwrap().fit(data, &fit).unwrap_err()
        });
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Process), "{errors:?}");
        assert_eq!(errors[0].to_string(), errors[1].to_string());
        errors[0].to_string()
    };
    let usual = |_: usize| (perceptron(), compile(), some_digits(20), Fit::new(1).batch_size(10));
    let sizes = refused(&|rank| (perceptron(), compile(), some_digits(20), usual(rank).3.batch_size(10 + 5 * rank)));
    assert_eq!(
        sizes,
        "process 1 of 2 needs the same batch size as process 0, `10`, but has `15`\n  \
         help: start all processes with the same version, settings and data"
    );
    let seeds = refused(&|rank| (perceptron(), compile().seed(rank as u64), some_digits(20), usual(rank).3));
    assert!(seeds.contains("needs the same seed as process 0, `0`, but has `1`"), "{seeds}");
    let rows = refused(&|rank| (perceptron(), compile(), some_digits(20 + rank), usual(rank).3));
    assert!(rows.contains("number of training rows"), "{rows}");
    let weights = refused(&|rank| {
        let mut model = perceptron();
        model.weights.parameters[0][0] += if rank == 0 { 0.0 } else { 1e-6 };
        (model, compile(), some_digits(20), usual(rank).3)
    });
    assert!(weights.contains("needs the same weights as process 0"), "{weights}");
    let data = refused(&|rank| {
        let (images, mut labels) = digits_of(20);
        labels[19] = if rank == 0 { 1.0 } else { 2.0 };
        (perceptron(), compile(), InMemory::new(images, labels).unwrap(), usual(rank).3)
    });
    assert!(data.contains("needs the same training data as process 0"), "{data}");
}

#[test]
fn stages_and_batches_of_ones_own_need_a_single_process() {
    let errors = in_processes(2, |group| {
        let trainer = Trainer::new(perceptron(), compile()).unwrap().processes(group).adapters("cpu,cpu").unwrap();
        let mut trainer = trainer.placement(Placement::Auto);
        trainer.fit(some_digits(16), &Fit::new(1)).unwrap_err().to_string()
    });
    let wanted = "placement in stages needs a single process, but the run has 2";
    assert!(errors.iter().all(|error| error.starts_with(wanted)), "{errors:?}");
    let errors = in_processes(2, |group| {
        let mut trainer = Trainer::new(perceptron(), compile()).unwrap().processes(group).adapters("cpu").unwrap();
        let batch = manyhands::data::Batch::fetch(&some_digits(8), &[0, 1]).unwrap();
        trainer.train_on_batch(batch).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|error| error.contains("needs a single process, but the run has 2")), "{errors:?}");
}

#[test]
fn a_run_is_saved_by_the_first_process_and_resumes_with_another_number() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.safetensors");
    let fit = Fit::new(2).batch_size(12);
    let undisturbed = in_processes(1, |group| train(group, perceptron(), compile(), some_digits(100), &fit)).remove(0);
    let stopped = in_processes(3, |group| {
        // The second process is asked; all stop after the same step.
        let mut asked = StopAt::step(if group.rank() == 1 { 4 } else { 0 });
        let mut trainer = Trainer::new(perceptron(), compile()).unwrap().processes(group).adapters("cpu").unwrap();
        let history = trainer
            .fit_with(some_digits(100), &fit.clone().save(&file).stop(asked.stop.clone()), &mut [&mut asked])
            .unwrap();
        assert!(history.is_interrupted);
        (trainer.progress().step, history.saved_step)
    });
    assert_eq!(stopped, [(5, Some(5)), (5, None), (5, None)]);
    let resumed = in_processes(2, |group| {
        let mut trainer = Trainer::new(perceptron(), compile()).unwrap().processes(group).adapters("cpu").unwrap();
        trainer.resume(Checkpoint::load(&file).unwrap()).unwrap();
        let mut steps = Steps::default();
        trainer.fit_with(some_digits(100), &fit, &mut [&mut steps]).unwrap();
        steps.0.iter().map(|step| step.values.get("loss").unwrap()).collect::<Vec<f64>>()
    });
    assert_eq!(resumed[0].len(), undisturbed.losses.len() - 5);
    for (got, want) in resumed[0].iter().zip(&undisturbed.losses[5..]) {
        assert!((got - want).abs() < 1e-4 * want.max(1.0), "{got} is not {want}");
    }
}

/// Changes the weights of one process only.
struct Meddling(bool);

impl Callback for Meddling {
    fn on_epoch(&mut self, end: &mut EpochEnd<'_>) -> Result<Flow> {
        if self.0 {
            end.model.weights.parameters[0][0] += 1.0;
        }
        Ok(Flow::Continue)
    }
}

#[test]
fn weights_that_differ_end_the_run() {
    let errors = in_processes(2, |group| {
        let mut meddling = Meddling(group.rank() == 1);
        let mut trainer = Trainer::new(perceptron(), compile()).unwrap().processes(group).adapters("cpu").unwrap();
        trainer.fit_with(some_digits(20), &Fit::new(2), &mut [&mut meddling]).unwrap_err().to_string()
    });
    let wanted = "process 1 needs the weights of process 0 after step 1, but has others";
    assert!(errors.iter().all(|error| error.starts_with(wanted)), "{errors:?}");
}
