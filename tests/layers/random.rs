//! Do layers that draw random numbers keep their contract, and have their numbers the asked rate, deviation and shape? There are no
//! golden values of these.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use manyhands_engine::plan::Pass;

use crate::bench::{Bench, spread};
use crate::contract::bench;
use crate::rows::{NO_IMAGE, Refusal, Row, TWO_INPUTS, Truth, row};
use crate::table::{config, settings};

const RATE: &str = "needs a rate of at least 0 and below 1, but got 1\n  help: the rate is the part that is dropped: 0.5 drops \
                    half; its input comes from `in0`";

pub static ROWS: &[Row] = &[
    Row {
        truth: Truth::Own,
        refuses: &[Refusal {
            settings: "rate = 0.5\nnoise_shape = [2, 1, 4]",
            inputs: &[&[2, 3, 4]],
            says: "needs a `noise_shape` with the length of each axis, or 1 before and behind them, but got [2, 1, 4] for \
                   [batch, 2, 3, 4]\n  help: leave the batch out: `[1, 1, 1]` drops whole images, `[1, 1, 64]` whole channels; \
                   its input comes from `in0`",
        }],
        ..row("Dropout", "rate = 0.5\nnoise_shape = [1, 3, 1]", &[&[2, 3, 4]])
    },
    Row {
        truth: Truth::Own,
        refuses: &[TWO_INPUTS_AND_RATE, Refusal { settings: "rate = 1.0", inputs: &[&[3]], says: RATE }],
        ..row("GaussianDropout", "rate = 0.4", &[&[3, 5]])
    },
    Row {
        truth: Truth::Own,
        refuses: &[Refusal {
            settings: "stddev = 2.0",
            inputs: &[&[3]],
            says: "needs a deviation from 0 to 1, but got 2\n  help: scale the input to a deviation of about 1, and add a part of \
                   that; its input comes from `in0`",
        }],
        ..row("GaussianNoise", "stddev = 0.5", &[&[3, 5]])
    },
    Row {
        truth: Truth::Own,
        refuses: &[
            Refusal { settings: "rate = 0.5", inputs: &[&[64]], says: NO_IMAGE },
            Refusal { settings: "rate = 1.0", inputs: &[&[2, 2, 3]], says: RATE },
        ],
        ..row("SpatialDropout2D", "rate = 0.4", &[&[2, 3, 5]])
    },
    Row {
        truth: Truth::Own,
        refuses: &[Refusal { settings: "drop_path_rate = 1.0", inputs: &[&[3]], says: RATE }],
        ..row("StochasticDepth", "drop_path_rate = 0.4", &[&[3, 5]])
    },
];

const TWO_INPUTS_AND_RATE: Refusal = Refusal { settings: "rate = 0.5", ..TWO_INPUTS };

/// The layer on rows of a shape, and what it is given.
fn layer(kind: &str, toml: &str, rows: usize, shape: &[usize]) -> (Bench, Vec<f32>) {
    let len = rows * shape.iter().product::<usize>();
    let mut model = config(&[(kind, settings(toml))], &[shape.to_vec()], rows).build(0).unwrap();
    model.tensor_mut("in0/kernel").unwrap().copy_from_slice(&spread(len, 4));
    let x = model.tensor("in0/kernel").unwrap().to_vec();
    (bench(model, rows, vec![0.0; len]), x)
}

/// What training makes of ones, forward and backward: both are the same factors.
fn factors(kind: &str, toml: &str, rows: usize, shape: &[usize]) -> Vec<f32> {
    let (bench, x) = layer(kind, toml, rows, shape);
    assert_eq!(bench.outputs(Pass::Predict)[0], x, "{kind}: inference");
    let y = bench.outputs(Pass::Train).remove(0);
    let mut machine = bench.machine();
    bench.run_with(&mut machine, Pass::Train, |_, len| Some(vec![1.0; len]));
    let factors = bench.gradient(&machine, "in0/kernel").to_vec();
    for ((x, y), factor) in x.iter().zip(&y).zip(&factors) {
        assert!((y - x * factor).abs() <= 1e-5 * (1.0 + y.abs()), "{kind}: {x} {y} {factor}");
    }
    factors
}

#[allow(clippy::cast_precision_loss, reason = "a few thousand numbers")]
fn assert_rate(kind: &str, kept: &[bool], rate: f32) {
    let n = kept.len() as f32;
    let dropped = kept.iter().filter(|kept| !**kept).count() as f32 / n;
    // Five standard deviations.
    assert!((dropped - rate).abs() < 5.0 * (rate * (1.0 - rate) / n).sqrt(), "{kind}: {dropped} is not {rate}");
}

#[test]
fn channels_are_dropped_together() {
    let factors = factors("SpatialDropout2D", "rate = 0.25", 20, &[2, 3, 100]);
    let mut kept = Vec::new();
    for image in factors.chunks(600) {
        let first = &image[..100];
        assert!(image.chunks(100).all(|pixel| pixel == first));
        assert!(first.iter().all(|factor| *factor == 0.0 || (factor - 4.0 / 3.0).abs() < 1e-6));
        kept.extend(first.iter().map(|factor| *factor != 0.0));
    }
    assert_rate("SpatialDropout2D", &kept, 0.25);
}

#[test]
fn rows_are_dropped_whole() {
    for (kind, toml) in [("StochasticDepth", "drop_path_rate = 0.2"), ("Dropout", "rate = 0.2\nnoise_shape = [1, 1]")] {
        let factors = factors(kind, toml, 400, &[2, 3]);
        let rows = factors.chunks(6);
        assert!(rows.clone().all(|row| row.iter().all(|factor| *factor == row[0])), "{kind}");
        let kept: Vec<bool> = rows.map(|row| row[0] != 0.0).collect();
        assert!(factors.iter().all(|factor| *factor == 0.0 || (factor - 1.25).abs() < 1e-6), "{kind}");
        assert_rate(kind, &kept, 0.2);
    }
}

#[allow(clippy::cast_precision_loss, reason = "a few thousand numbers")]
fn assert_normal(what: &str, values: &[f64], mean: f64, deviation: f64) {
    let n = values.len() as f64;
    let got = values.iter().sum::<f64>() / n;
    let spread = (values.iter().map(|value| (value - got).powi(2)).sum::<f64>() / n).sqrt();
    assert!((got - mean).abs() < 5.0 * deviation / n.sqrt(), "{what}: mean {got} is not {mean}");
    assert!((spread - deviation).abs() < 5.0 * deviation / (2.0 * n).sqrt(), "{what}: {spread} is not {deviation}");
    let within = values.iter().filter(|value| (**value - mean).abs() < deviation).count() as f64 / n;
    // Of a normal distribution 68.27 % lie within a standard deviation.
    assert!((within - 0.6827).abs() < 5.0 * (0.6827 * 0.3173 / n).sqrt(), "{what}: {within} within a deviation");
}

#[test]
fn factors_of_gaussian_dropout_are_normal() {
    let factors = factors("GaussianDropout", "rate = 0.2", 4, &[2000]);
    let factors: Vec<f64> = factors.into_iter().map(f64::from).collect();
    assert_normal("GaussianDropout", &factors, 1.0, 0.5);
}

#[test]
fn gaussian_noise_is_normal_and_has_no_slope() {
    let (bench, x) = layer("GaussianNoise", "stddev = 0.3", 4, &[2000]);
    assert_eq!(bench.outputs(Pass::Predict)[0], x, "inference");
    let y = bench.outputs(Pass::Train).remove(0);
    let noise: Vec<f64> = y.iter().zip(&x).map(|(y, x)| f64::from(*y) - f64::from(*x)).collect();
    assert_normal("GaussianNoise", &noise, 0.0, 0.3);
    let mut machine = bench.machine();
    bench.run_with(&mut machine, Pass::Train, |_, len| Some(vec![1.0; len]));
    assert!(bench.gradient(&machine, "in0/kernel").iter().all(|gradient| *gradient == 1.0));
}
