//! A layer of your own: its shader, the twin of the shader in plain Rust, and its place in a model.
//!
//!     cargo run --release --example 04_custom_layer
//!
//! The layer is Swish with a learnable slope for each channel, `y = x / (1 + exp(-beta x))`. Its gradients are checked
//! by finite differences, and against each other on every kind of adapter that the machine has. Then a network with
//! it is read from TOML, trained, saved and loaded.

#![allow(clippy::print_stdout, reason = "an example shows its numbers")]

use std::sync::Arc;

use manyhands::adapters::{self, Info, Kind};
use manyhands::data::{Subset, digits};
use manyhands::extend::onnx::{Form, Order};
use manyhands::extend::{
    Built, Call, Grid, Initializer, Kernel, Layer, Length, Parameter, Problem, Recorder, Twin, length_word, to_config,
    whole,
};
use manyhands::layers::{Entry, entry};
use manyhands::{Compile, Fit, Loss, Model, ModelConfig, Optimizer, Result, Shape, Trainer};
use serde::{Deserialize, Serialize};

// The struct of the shader: `Params` for the twins, and `Record` for the layer, which need not know the rows yet.
manyhands::params! {
    /// Rows, times positions.
    rows: u32,
    /// Length of the last axis.
    channels: u32,
}

static FORWARD: Kernel = kernel("forward", &["x", "beta"], &["y"], forward_twin);
static BACKWARD_INPUT: Kernel = kernel("backward_input", &["x", "beta", "dy"], &["dx"], backward_input_twin);
static BACKWARD_BETA: Kernel = kernel("backward_beta", &["x", "beta", "dy"], &["dbeta"], backward_beta_twin);

const fn kernel(
    entry: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    twin: Twin,
) -> Kernel {
    Kernel::new("swish", entry, include_str!("04_custom_layer.wgsl"), Params::FIELDS, inputs, outputs, twin)
}

fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

#[allow(clippy::cast_possible_truncation, reason = "the one rounding to f32")]
fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, channels } = call.params();
    for (i, out) in outputs[0].iter_mut().enumerate().take((rows * channels) as usize) {
        let (x, beta) = (f64::from(call.inputs[0][i]), f64::from(call.inputs[1][i % channels as usize]));
        *out = (x * sigmoid(beta * x)) as f32;
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the one rounding to f32")]
fn backward_input_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, channels } = call.params();
    for (i, out) in outputs[0].iter_mut().enumerate().take((rows * channels) as usize) {
        let z = f64::from(call.inputs[1][i % channels as usize]) * f64::from(call.inputs[0][i]);
        let s = sigmoid(z);
        *out = (f64::from(call.inputs[2][i]) * (s + z * s * (1.0 - s))) as f32;
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the one rounding to f32")]
fn backward_beta_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, channels } = call.params();
    for (c, out) in outputs[0].iter_mut().enumerate().take(channels as usize) {
        let term = |r: usize| {
            let i = r * channels as usize + c;
            let (x, dy) = (f64::from(call.inputs[0][i]), f64::from(call.inputs[2][i]));
            let s = sigmoid(f64::from(call.inputs[1][c]) * x);
            dy * x * x * s * (1.0 - s)
        };
        *out = (0..rows as usize).map(term).sum::<f64>() as f32;
    }
}

/// `y = x / (1 + exp(-beta x))` with a `beta` for each channel, which starts at 1.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Swish {}

impl Layer for Swish {
    fn kind(&self) -> &'static str {
        "Swish"
    }

    fn config(&self) -> serde_json::Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let [input] = inputs else {
            return Err(Problem::new(
                format!("needs one input, but got {}", inputs.len()),
                "merge them with `Add` first",
            ));
        };
        let beta = Parameter { name: "beta", shape: vec![input.last()], initializer: Initializer::Ones };
        Ok(Built { output: input.clone(), parameters: vec![beta], statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (record, elements) = sizes(rec);
        let (x, beta, y) = (rec.input(0), rec.parameter("beta"), rec.output());
        rec.dispatch(&FORWARD, record, [x, beta], [y], elements);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (record, elements) = sizes(rec);
        let inputs = [rec.input(0), rec.parameter("beta"), rec.output_gradient()];
        let dbeta = rec.parameter_gradient("beta");
        rec.dispatch(&BACKWARD_BETA, record, inputs, [dbeta], Grid::Elements(record.channels));
        if let Some(dx) = rec.input_gradient(0) {
            rec.dispatch(&BACKWARD_INPUT, record, inputs, [dx], elements);
        }
    }

    // With this, a model that has the layer can be exported.
    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let (x, beta) = (form.input(0), form.tensor("beta"));
        let gate = form.op("Mul", &[&x, &beta], &[]);
        let gate = form.op("Sigmoid", &[&gate], &[]);
        let y = form.op("Mul", &[&x, &gate], &[]);
        form.output(y, Order::Last);
        Ok(())
    }
}

fn sizes(rec: &Recorder<'_>) -> (Record, Grid) {
    let shape = rec.output_shape();
    let rows = length_word(Length::per_row(shape.positions()));
    (Record { rows, channels: whole(shape.last()) }, Grid::Elements(length_word(Length::per_row(shape.len()))))
}

/// The layers that files may name beside those of the crate.
const OWN: &[Entry] = &[entry::<Swish>("Swish")];

const MODEL: &str = r#"
input = [8, 8, 1]
layers = [
  { type = "Flatten" },
  { type = "Dense", units = 32 },
  { type = "Swish", name = "swish" },
  { type = "Dense", units = 10 },
]
"#;

fn main() -> Result<()> {
    let config: ModelConfig = toml::from_str(MODEL).map_err(|error| {
        manyhands::Error::setting("the model", format!("can't be read: {error}"), "see `ModelConfig`")
    })?;
    let mut model = config.build_with(OWN, 5)?;
    println!("{}", model.summary());
    // Slopes that differ, so that a mixed-up channel would be found.
    if let Some(beta) = model.tensor_mut("swish/beta") {
        (0_u8..).zip(beta).for_each(|(channel, beta)| *beta = 0.5 + f32::from(channel) / 16.0);
    }
    check_gradients(&model)?;

    let mut trainer = Trainer::new(model, compile(Optimizer::adam(3e-3)))?;
    trainer.fit(digits::train()?, &Fit::new(12))?;
    let before = trainer.evaluate(digits::test()?, 64)?;
    let folder = tempfile::tempdir().map_err(|error| manyhands::Error::writing(std::env::temp_dir(), error))?;
    let file = folder.path().join("swish.safetensors");
    trainer.model().save(&file)?;
    trainer.model().export(folder.path().join("swish.onnx"))?;
    let loaded = Model::load_with(&file, OWN)?;
    let after = Trainer::new(loaded, compile(Optimizer::adam(3e-3)))?.evaluate(digits::test()?, 64)?;
    println!("test: {before}; saved and loaded: {after}");
    assert_eq!(before, after);
    assert!(before.get("accuracy") > Some(0.94), "{before}");
    Ok(())
}

fn compile(optimizer: Optimizer) -> Compile {
    Compile::new(optimizer, Loss::SPARSE_CATEGORICAL_CROSSENTROPY)
}

/// Gradients of some parameters: by finite differences of the loss, and as each kind of adapter gives them.
fn check_gradients(model: &Model) -> Result<()> {
    let list = adapters::list();
    let (cpu, others): (Vec<Info>, Vec<Info>) = list.into_iter().partition(|info| info.kind == Kind::Cpu);
    if others.is_empty() {
        println!("no GPU and no software adapter: the shader is not run");
    }
    // The last three are weights of pixels that are ink in some images.
    let elements =
        [("swish/beta", 0), ("swish/beta", 31), ("dense/kernel", 643), ("dense/kernel", 903), ("dense/kernel", 1386)];
    for adapter in cpu.iter().chain(others.first()) {
        for (name, element) in elements {
            let (exact, numeric) = (gradient(model, name, adapter)?[element], finite_difference(model, name, element)?);
            println!("{}: d loss / d {name}[{element}] = {exact:.6}, numeric {numeric:.6}", adapter.name);
            assert!((exact - numeric).abs() < 1e-2 * numeric.abs() + 1e-5);
        }
    }
    Ok(())
}

fn some_rows() -> Result<Subset> {
    Subset::new(Arc::new(digits::train()?), (0..50).collect())
}

/// One step of gradient descent with learning rate 1 takes the gradient off the parameter.
fn gradient(model: &Model, name: &str, adapter: &Info) -> Result<Vec<f64>> {
    let mut trainer = Trainer::new(model.clone(), compile(Optimizer::sgd(1.0, 0.0)))?.on(vec![adapter.clone()]);
    trainer.fit(some_rows()?, &Fit::new(1).batch_size(50))?;
    let (before, after) = (model.tensor(name).unwrap_or_default(), trainer.model().tensor(name).unwrap_or_default());
    Ok(before.iter().zip(after).map(|(before, after)| f64::from(*before) - f64::from(*after)).collect())
}

fn finite_difference(model: &Model, name: &str, element: usize) -> Result<f64> {
    const STEP: f32 = 1e-2;
    let loss_at = |change: f32| -> Result<f64> {
        let mut model = model.clone();
        model.tensor_mut(name).unwrap_or_default()[element] += change;
        let values =
            Trainer::new(model, compile(Optimizer::sgd(1.0, 0.0)))?.adapters("cpu")?.evaluate(some_rows()?, 50)?;
        Ok(values.get("loss").unwrap_or(f64::NAN))
    };
    Ok((loss_at(STEP)? - loss_at(-STEP)?) / f64::from(2.0 * STEP))
}
