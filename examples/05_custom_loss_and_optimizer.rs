//! A loss and an optimizer of your own: their shaders, the twins in plain Rust, and their place in a run.
//!
//!     cargo run --release --example 05_custom_loss_and_optimizer
//!
//! The loss is Huber's, which a few wild targets do not lead astray; the optimizer is Signum. The loss's gradient is checked
//! by finite differences, on every kind of adapter that the machine has. Then a curve with wild points in it is learned,
//! on one adapter and on two, and a checkpoint with both names in it is read again.

#![allow(clippy::print_stdout, reason = "an example shows its numbers")]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "one rounding to f32; small counts")]

use std::sync::Arc;

use manyhands::adapters::{self, Info, Kind};
use manyhands::data::InMemory;
use manyhands::extend::{
    Call, Domain, Grid, Head, Kernel, LEARNING_RATE, LossFunction, Named, Own, Problem, Range, Recorder, Recording,
    Score, Settings, Target, UpdateRule, Word,
};
use manyhands::layers::{Activation, Dense};
use manyhands::{
    Checkpoint, Compile, Error, Fit, Loss, Model, Optimizer, Result, Sequential, Shape, Trainer, losses, optimizers,
};
use ndarray::Array2;
use serde::{Deserialize, Serialize};

/// Huber's loss: `e² / 2` up to an error `e` of `delta`, a straight line from there. Mean over the last axis.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Huber {
    delta: f32,
}

impl LossFunction for Huber {
    fn kind(&self) -> &'static str {
        "Huber"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn check(&self) -> Result<(), Problem> {
        if self.delta > 0.0 && self.delta.is_finite() {
            return Ok(());
        }
        Err(Problem::new(format!("needs a `delta` above 0, but got {}", self.delta), "1 is usual"))
    }

    fn head(&self) -> Head {
        Head::Values
    }

    fn target(&self, output: &Shape) -> Target {
        Target { shape: output.clone(), domain: Domain::Numbers }
    }

    fn score(&self) -> Score {
        Score::Own("within_delta")
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        let Recording { rows, cols, positions, scale, .. } = *it;
        let params = huber::Record { rows, cols, positions, scale, delta: self.delta.into() };
        let inputs = [it.output, it.target, it.sample_weight];
        rec.dispatch(&huber::FORWARD, params, inputs, [it.report, it.gradient], Grid::Elements(rows));
    }
}

mod huber {
    use super::*;

    manyhands::params! {
        /// Rows, times positions.
        rows: u32,
        /// Length of the last axis.
        cols: u32,
        /// Rows that share a sample weight.
        positions: u32,
        /// Factor of the gradient.
        scale: f32,
        /// End of the parabola.
        delta: f32,
    }

    pub static FORWARD: Kernel = Kernel::new(
        "huber",
        "forward",
        include_str!("05_huber.wgsl"),
        Params::FIELDS,
        &["values", "targets", "sample_weights"],
        &["report", "gradient"],
        twin,
    );

    fn twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
        let Params { rows, cols, positions, scale, delta } = call.params();
        let (delta, scale) = (f64::from(delta), f64::from(scale));
        for row in 0..rows as usize {
            let weight = f64::from(call.inputs[2][row / positions as usize]);
            let (mut loss, mut inside) = (0.0, 0.0);
            let columns = outputs[1].iter_mut().enumerate().skip(row * cols as usize).take(cols as usize);
            for (at, gradient) in columns {
                let e = f64::from(call.inputs[0][at]) - f64::from(call.inputs[1][at]);
                let is_inside = e.abs() <= delta;
                loss += if is_inside { 0.5 * e * e } else { delta * (e.abs() - 0.5 * delta) };
                inside += if is_inside { 1.0 } else { 0.0 };
                *gradient = (e.clamp(-delta, delta) / f64::from(cols) * weight * scale) as f32;
            }
            outputs[0][2 * row] = (loss / f64::from(cols) * weight) as f32;
            outputs[0][2 * row + 1] = (inside / f64::from(cols)) as f32;
        }
    }
}

/// Signum: steps of one length, by the sign of a mean of gradients. Source: Bernstein et al. 2018, arXiv:1802.04434.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Signum {
    learning_rate: f32,
    beta: f32,
    weight_decay: f32,
}

impl Default for Signum {
    fn default() -> Self {
        Self { learning_rate: 1e-3, beta: 0.9, weight_decay: 0.0 }
    }
}

impl UpdateRule for Signum {
    fn kind(&self) -> &'static str {
        "Signum"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn ranges(&self) -> Vec<(&'static str, f32, Range)> {
        vec![
            ("learning_rate", self.learning_rate, Range::AtLeastZero),
            ("beta", self.beta, Range::BelowOne),
            ("weight_decay", self.weight_decay, Range::AtLeastZero),
        ]
    }

    fn learning_rate(&self) -> f32 {
        self.learning_rate
    }

    fn with_learning_rate(&self, learning_rate: f32) -> Arc<dyn UpdateRule> {
        Arc::new(Self { learning_rate, ..*self })
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["momentum"]
    }

    fn kernel(&self) -> Option<&'static Kernel> {
        Some(&signum::UPDATE)
    }

    fn params(&self, len: u32) -> Vec<Word> {
        let [beta, weight_decay] = [self.beta, self.weight_decay].map(Word::F32);
        signum::Record { len: len.into(), learning_rate: LEARNING_RATE, beta, weight_decay }.into()
    }
}

mod signum {
    use super::*;

    manyhands::params! {
        /// Number of elements.
        len: u32,
        /// Length of a step.
        learning_rate: f32,
        /// Part of the mean that stays.
        beta: f32,
        /// Part of the parameter that is taken off, for each unit of the learning rate.
        weight_decay: f32,
    }

    pub static UPDATE: Kernel = Kernel::new(
        "signum",
        "update",
        include_str!("05_signum.wgsl"),
        Params::FIELDS,
        &["gradient", "control"],
        &["parameter", "momentum"],
        twin,
    );

    fn twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
        let params: Params = call.params();
        let control = call.inputs[1];
        if control[1] == 0.0 {
            return;
        }
        let [rate, decay, beta] = [params.learning_rate, params.weight_decay, params.beta].map(f64::from);
        let [parameter, momentum] = outputs else { return };
        let states = parameter.iter_mut().zip(momentum.iter_mut()).zip(call.inputs[0]);
        for ((parameter, momentum), gradient) in states.take(params.len as usize) {
            let g = f64::from(*gradient) * f64::from(control[0]);
            let [w, m] = [*parameter, *momentum].map(f64::from);
            let mean = beta * m + (1.0 - beta) * g;
            let sign = if mean == 0.0 { 0.0 } else { mean.signum() };
            *parameter = (w * (1.0 - decay * rate) - rate * sign) as f32;
            *momentum = mean as f32;
        }
    }
}

/// Layers, losses and optimizers that files may name beside the crate's own.
const OWN: Own<'_> = Own {
    layers: &[],
    losses: &[losses::entry::<Huber>("Huber")],
    metrics: &[],
    optimizers: &[optimizers::entry::<Signum>("Signum")],
};

/// A loss as it may stand in a file of settings.
const LOSS: &str = r#"{ "type": "Huber", "delta": 0.25 }"#;

fn main() -> Result<()> {
    let loss = read_loss(LOSS)?;
    let list = adapters::list();
    let (cpu, others): (Vec<Info>, Vec<Info>) = list.into_iter().partition(|info| info.kind == Kind::Cpu);
    if others.is_empty() {
        println!("no GPU and no software adapter: the shaders are not run");
    }
    let rig: Vec<Info> = cpu.iter().chain(others.first()).cloned().collect();
    for adapter in &rig {
        check_gradient(&loss, adapter)?;
        fit(&loss, vec![adapter.clone()])?;
    }
    fit(&loss, [rig, cpu].concat())
}

fn read_loss(text: &str) -> Result<Loss> {
    let refuse = |problem: String| Error::setting("the loss", format!("can't be read: {problem}"), "see `Huber`");
    let named: Named = serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
    Loss::read(named, OWN.losses).map_err(|error| refuse(error.to_string()))
}

/// Points of a curve, every tenth of which is far off where `wild` is not 0.
fn curve(rows: usize, wild: f32) -> Result<Arc<InMemory>> {
    let x = |row: usize| 2.0 * row as f32 / rows as f32 - 1.0;
    let y = |row: usize| (3.0 * x(row)).sin() + if row % 10 == 3 { wild } else { 0.0 };
    let column = |f: &dyn Fn(usize) -> f32| Array2::from_shape_fn((rows, 1), |(row, _)| f(row)).into_dyn();
    Ok(Arc::new(InMemory::new(column(&x), column(&y))?))
}

fn model() -> Result<Model> {
    Sequential::new([1]).add(Dense::new(32).activation(Activation::Tanh)).add(Dense::new(1)).build(3)
}

/// Learns the curve, saves, and goes on from the checkpoint.
fn fit(loss: &Loss, adapters: Vec<Info>) -> Result<()> {
    let names: Vec<String> = adapters.iter().map(|info| info.name.clone()).collect();
    let folder = tempfile::tempdir().map_err(|error| Error::writing(std::env::temp_dir(), error))?;
    let file = folder.path().join("curve.safetensors");
    let trainer = || -> Result<Trainer> {
        let compile = Compile::new(Signum { learning_rate: 3e-3, ..Signum::default() }, loss.clone());
        Ok(Trainer::new(model()?, compile)?.on(adapters.clone()))
    };
    let data = curve(400, 4.0)?;
    let fit = |epochs: u64| Fit::new(epochs).batch_size(50).save(&file);
    trainer()?.fit(data.clone(), &fit(40))?;
    let mut resumed = trainer()?;
    resumed.resume(Checkpoint::load_with(&file, OWN)?)?;
    resumed.fit(data, &fit(80))?;
    let values = resumed.evaluate(curve(100, 0.0)?, 50)?;
    println!("{}: the curve without wild points: {values}", names.join(", "));
    assert!(values.get("within_delta") > Some(0.9), "{values}");
    Ok(())
}

/// The gradient of some parameters: by finite differences, and as an adapter gives it.
fn check_gradient(loss: &Loss, adapter: &Info) -> Result<()> {
    let (model, data) = (model()?, curve(40, 4.0)?);
    let trainer = |model: Model| -> Result<Trainer> {
        Ok(Trainer::new(model, Compile::new(Optimizer::sgd(1.0, 0.0), loss.clone()))?.on(vec![adapter.clone()]))
    };
    let mut stepped = trainer(model.clone())?;
    stepped.fit(data.clone(), &Fit::new(1).batch_size(40))?;
    for (name, element) in [("dense/kernel", 5), ("dense/bias", 20), ("dense_1/kernel", 31), ("dense_1/bias", 0)] {
        let value = |model: &Model| f64::from(model.tensor(name).unwrap_or_default()[element]);
        let exact = value(&model) - value(stepped.model());
        let loss_at = |change: f32| -> Result<f64> {
            let mut model = model.clone();
            model.tensor_mut(name).unwrap_or_default()[element] += change;
            Ok(trainer(model)?.evaluate(data.clone(), 40)?.get("loss").unwrap_or(f64::NAN))
        };
        let numeric = (loss_at(1e-2)? - loss_at(-1e-2)?) / 2e-2;
        println!("{}: d loss / d {name}[{element}] = {exact:.6}, numeric {numeric:.6}", adapter.name);
        assert!((exact - numeric).abs() < 2e-2 * numeric.abs() + 1e-4);
    }
    Ok(())
}
