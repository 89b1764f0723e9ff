//! Does `Trainer::adapt` give normalizations mean and variance of what reaches them?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use manyhands::data::InMemory;
use manyhands::layers::{Dense, Flatten, Normalization, Rescaling};
use manyhands::{Compile, Loss, Model, Optimizer, Predictor, Sequential, Trainer};
use ndarray::{Array2, ArrayD};

use crate::bench::normal;
use crate::close::assert_close;
use crate::golden::Golden;

fn trainer(model: Model) -> Trainer {
    let compile = Compile::new(Optimizer::sgd(0.1, 0.0), Loss::MEAN_SQUARED_ERROR);
    Trainer::new(model, compile).unwrap().adapters("cpu").unwrap()
}

fn inputs(shape: &[usize], values: &[f32]) -> InMemory {
    InMemory::without_targets(ArrayD::from_shape_vec(shape, values.to_vec()).unwrap()).unwrap()
}

#[test]
fn mean_and_variance_are_those_of_keras() {
    for case in Golden::open("adapting").cases() {
        let axis = match &case.facts["config"]["axis"] {
            axis if axis.is_null() => serde_json::json!([]),
            axis => axis.clone(),
        };
        let normalization: Normalization = serde_json::from_value(serde_json::json!({ "axis": axis })).unwrap();
        let data = case.tensor("data");
        let model = Sequential::new(data.shape[1..].to_vec()).add(normalization).add(Flatten::default());
        let mut trainer = trainer(model.add(Dense::new(1)).build(0).unwrap());
        trainer.adapt(inputs(&data.shape, &data.values)).unwrap();
        for name in ["mean", "variance"] {
            let got = trainer.model().tensor(&format!("normalization/{name}")).unwrap();
            assert_close(&format!("{}: {name}", case.name), got, case.values(name), 1e-6);
        }
    }
}

/// Mean and variance of each column, in f64.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "some thousand values")]
fn moments(values: &[f32], columns: usize) -> [Vec<f32>; 2] {
    let rows = (values.len() / columns) as f64;
    let column = |at: usize| values[at..].iter().step_by(columns).map(|value| f64::from(*value));
    let mean = |at: usize| column(at).sum::<f64>() / rows;
    let variance = |at: usize| column(at).map(|value| (value - mean(at)).powi(2)).sum::<f64>() / rows;
    [(0..columns).map(|at| mean(at) as f32).collect(), (0..columns).map(|at| variance(at) as f32).collect()]
}

/// More rows than are read at once, and normalizations behind other layers and behind each other.
#[test]
fn each_layer_is_adapted_to_what_reaches_it() {
    let values: Vec<f32> = normal(1001 * 3, 4).iter().map(|value| 50.0 + 3.0 * value).collect();
    let chain = |last: bool| {
        let model = Sequential::new([3])
            .add(Rescaling { scale: 0.5.into(), offset: 1.0.into() })
            .add(Normalization::default())
            .add(Dense::new(2))
            .add(Normalization::default());
        if last { model.add(Dense::new(1)) } else { model }.build(7).unwrap()
    };
    let mut trainer = trainer(chain(true));
    trainer.adapt(inputs(&[1001, 3], &values)).unwrap();
    let adapted = trainer.model();
    let rescaled: Vec<f32> = values.iter().map(|value| 0.5 * value + 1.0).collect();
    for (name, wanted) in ["mean", "variance"].into_iter().zip(moments(&rescaled, 3)) {
        assert_close(name, adapted.tensor(&format!("normalization/{name}")).unwrap(), &wanted, 1e-5);
    }
    let mut part = chain(false);
    let names: Vec<String> = part.tensors().map(|(name, ..)| name.to_owned()).collect();
    for name in names {
        part.tensor_mut(&name).unwrap().copy_from_slice(adapted.tensor(&name).unwrap());
    }
    let outputs = Predictor::new(part).adapters("cpu").unwrap().predict(inputs(&[1001, 3], &values), 100).unwrap();
    let [mean, variance] = moments(outputs[0].as_slice().unwrap(), 2);
    assert_close("means behind the second", &mean, &[0.0, 0.0], 1e-4);
    assert_close("variances behind the second", &variance, &[1.0, 1.0], 1e-4);
}

#[test]
fn what_is_given_stays_and_training_moves_nothing() {
    let given = Normalization { mean: Some([1.0, 2.0].into()), variance: Some(4.0.into()), ..Normalization::default() };
    let model = Sequential::new([2]).add(given).add(Normalization::default()).add(Dense::new(1)).build(0).unwrap();
    let mut trainer = trainer(model);
    let (x, y) = (Array2::from_shape_vec((4, 2), normal(8, 1)).unwrap(), Array2::from_shape_vec((4, 1), normal(4, 2)));
    let data = InMemory::new(x, y.unwrap()).unwrap();
    trainer.adapt(data.clone()).unwrap();
    let before = trainer.model().weights.clone();
    assert_eq!(trainer.model().tensor("normalization/mean"), Some(&[1.0, 2.0][..]));
    assert_eq!(trainer.model().tensor("normalization/variance"), Some(&[4.0, 4.0][..]));
    trainer.fit(data, &manyhands::Fit::new(2).batch_size(2)).unwrap();
    let after = &trainer.model().weights;
    assert_eq!(after.statistics, before.statistics);
    assert_ne!(after.parameters, before.parameters);
}
