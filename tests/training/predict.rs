//! Does prediction give the same rows in the same order on any number of adapters, and by each way to it?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use manyhands::adapters::list;
use manyhands::data::{Batch, Dataset, InMemory, digits};
use manyhands::layers::{
    Activation, ActivationLayer, Add, BatchNormalization, Conv2D, Dense, Flatten, GlobalAveragePooling1D, Relu,
    RepeatVector,
};
use manyhands::{Compile, ErrorKind, Loss, Model, ModelBuilder, Optimizer, Predictor, Sequential, Trainer};
use ndarray::{Array2, ArrayD};

use crate::close::assert_close;

fn values(outputs: &ArrayD<f32>) -> &[f32] {
    outputs.as_slice().unwrap()
}

fn model() -> Model {
    Sequential::new([8, 8, 1])
        .add(Conv2D::new(4, [3, 3]).same())
        .add(BatchNormalization::new())
        .add(Flatten::default())
        .add(Dense::new(16).activation(Activation::Tanh))
        .add(Dense::new(10))
        .build(1)
        .unwrap()
}

#[test]
fn a_predictor_gives_what_a_trainer_gives_on_any_number_of_adapters() {
    let compile = Compile::new(Optimizer::adam(1e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let mut trainer = Trainer::new(model(), compile).unwrap().adapters("cpu").unwrap();
    let wanted = trainer.predict(digits::test().unwrap(), 360).unwrap();
    for adapters in ["cpu", "cpu,cpu", "cpu,cpu,cpu"] {
        // 360 rows in batches of 100, and of fewer rows than adapters.
        for batch_size in [100, 2] {
            let mut predictor = Predictor::new(model()).adapters(adapters).unwrap();
            let got = predictor.predict(digits::test().unwrap(), batch_size).unwrap();
            assert_close("predictions", values(&got[0]), values(&wanted[0]), 1e-5);
        }
    }
}

/// Of a large negative number softplus is nearly 0; a Poisson loss then takes its logarithm.
#[test]
fn small_values_of_softplus_keep_their_digits_on_every_adapter() {
    let inputs: Vec<f32> = (-160..=20).map(|step| step as f32 * 0.1).collect();
    keeps_digits(Activation::Softplus, &inputs, |x| x.exp().ln_1p());
}

/// A driver's own tanh may be a difference of exponentials, which loses a small number.
#[test]
fn small_values_of_tanh_keep_their_digits_on_every_adapter() {
    let small = (0..=100).map(|step| 10_f32.powf(-8.0 + step as f32 * 0.08));
    let around = (29..=31).map(|step| step as f32 * 0.01);
    let inputs: Vec<f32> = small.chain(around).chain([3.0, 15.0, 90.0]).flat_map(|x| [x, -x]).collect();
    keeps_digits(Activation::Tanh, &inputs, f64::tanh);
}

/// Just below 0 both are nearly a multiple of their input, of which `exp(x) - 1` keeps few digits.
#[test]
fn small_values_of_elu_and_selu_keep_their_digits_on_every_adapter() {
    let inputs: Vec<f32> = (0..=100).map(|step| -10_f32.powf(-8.0 + step as f32 * 0.1)).collect();
    keeps_digits(Activation::Elu, &inputs, f64::exp_m1);
    keeps_digits(Activation::Selu, &inputs, |x| 1.050_700_987_4 * 1.673_263_242_4 * x.exp_m1());
}

/// An activation of every adapter against its closed form, relative to each value, none of which is 0.
fn keeps_digits(activation: Activation, inputs: &[f32], closed_form: impl Fn(f64) -> f64) {
    for (position, info) in list().iter().enumerate() {
        let model = Sequential::new([1]).add(ActivationLayer { activation }).build(0).unwrap();
        let rows = Array2::from_shape_vec((inputs.len(), 1), inputs.to_vec()).unwrap();
        let mut predictor = Predictor::new(model).adapters(&position.to_string()).unwrap();
        let got = predictor.predict(InMemory::without_targets(rows).unwrap(), 64).unwrap();
        for (x, got) in inputs.iter().zip(values(&got[0])) {
            let wanted = closed_form(f64::from(*x));
            let far = (f64::from(*got) / wanted - 1.0).abs();
            assert!(far < 1e-5, "{}: {activation:?}({x}) is {got}, not {wanted}", info.name);
        }
    }
}

#[test]
fn rows_come_in_order() {
    let identity = Sequential::new([1]).add(Dense::new(1).no_bias()).build(0).unwrap();
    let factor = identity.tensor("dense/kernel").unwrap()[0];
    let rows = InMemory::without_targets(Array2::from_shape_fn((1000, 1), |(row, _)| row as f32)).unwrap();
    let got = Predictor::new(identity).adapters("cpu,cpu,cpu").unwrap().predict(rows, 64).unwrap();
    let wanted: Vec<f32> = (0..1000_u16).map(|row| f32::from(row) * factor).collect();
    assert_eq!(got[0].shape(), [1000, 1]);
    assert_close("predictions", values(&got[0]), &wanted, 1e-5);
}

#[test]
fn a_larger_batch_later_is_no_matter() {
    let mut predictor = Predictor::new(model()).adapters("cpu,cpu").unwrap();
    let few = predictor.predict(digits::test().unwrap(), 10).unwrap();
    let many = predictor.predict(digits::test().unwrap(), 300).unwrap();
    assert_close("predictions", values(&many[0]), values(&few[0]), 1e-5);
}

#[test]
fn data_of_another_shape_is_refused() {
    let data = InMemory::without_targets(Array2::zeros((4, 63))).unwrap();
    let error = Predictor::new(model()).adapters("cpu").unwrap().predict(data, 4).unwrap_err();
    let wanted = "input `input` needs shape [batch, 8, 8, 1], but the dataset gives [batch, 63]";
    assert!(error.to_string().starts_with(wanted), "{error}");
}

#[test]
fn a_shared_dataset_is_a_dataset() {
    let shared: std::sync::Arc<dyn Dataset> = std::sync::Arc::new(digits::test().unwrap());
    assert_eq!(shared.len(), 360);
    assert_eq!(Batch::fetch(&shared, &[3, 5]).unwrap(), Batch::fetch(&digits::test().unwrap(), &[3, 5]).unwrap());
    let outputs = Predictor::new(model()).adapters("cpu").unwrap().predict(shared, 100).unwrap();
    assert_eq!(outputs[0].shape(), [360, 10]);
}

/// A model without weights whose values for a row are a terabyte.
fn wide() -> Model {
    let mut graph = ModelBuilder::new();
    let input = graph.input("x", [1]);
    let long = graph.add(RepeatVector { n: 1 << 28 }, &[input]);
    let all: Vec<_> = (0..1000).map(|_| graph.add(Relu::default(), &[long])).collect();
    let sum = graph.add(Add::default(), &all);
    let mean = graph.add(GlobalAveragePooling1D::default(), &[sum]);
    graph.build(&[mean], 0).unwrap()
}

/// Linux promises memory that it does not have, and ends the program that takes it.
#[cfg(target_os = "linux")]
#[test]
fn what_does_not_fit_in_the_memory_that_is_free_is_refused_before_it_is_taken() {
    let long = Sequential::new([1]).add(RepeatVector { n: 1 << 20 }).build(0).unwrap();
    let inner = "has too little memory for one row: one row needs ";
    for (model, n_rows, wanted) in [(wide(), 300, inner), (long, 300_000, "the outputs of 300000 rows need ")] {
        let rows = InMemory::new(Array2::<f32>::zeros((n_rows, 1)), Array2::<f32>::zeros((n_rows, 1))).unwrap();
        let mut predictor = Predictor::new(model).adapters("cpu").unwrap();
        let error = predictor.predict(rows, 32).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        let error = error.to_string();
        assert!(
            error.contains(wanted) && error.contains(", but the system has ") && error.contains("\n  help: "),
            "{error}"
        );
    }
}
