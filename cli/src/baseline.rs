//! Scores of a model that does not look at its inputs: a score says little without it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use manyhands::adapters::Info;
use manyhands::data::{Batch, BatchMut, Dataset, Schema};
use manyhands::layers::{Dense, Reshape};
use manyhands::logs::Values;
use manyhands::losses::Head;
use manyhands::metrics::Metric;
use manyhands::{Compile, Loss, Model, Optimizer, Result, Sequential, Shape, Trainer};
use manyhands_engine::shown::shown;

use super::classes::{Names, largest};
use super::report::judge::TargetsOnly;
use super::report::text::number;

/// Most numbers of outputs that are computed for it.
const MOST_NUMBERS: usize = 1 << 26;
/// The smallest probability of a class that training did not have.
const LEAST: f32 = 1e-7;

/// Loss and metrics of the same outputs for every row: the part of each class in training, or the mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    pub values: Values,
    /// The outputs in words: ``always `Never`, the most frequent class in training``.
    pub what: String,
}

/// ``loss 0.3927, accuracy 0.8667 (always `Never`, the most frequent class in training)``.
impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.values, self.what)
    }
}

impl Baseline {
    /// That of a model's losses and metrics on some rows. `None` where the model does not know the means of its training
    /// targets, where masks leave positions out, and where it would take long. What goes wrong here must end no run.
    pub fn of(model: &Model, compile: &Compile, dataset: &Arc<dyn Dataset>, batch_size: usize) -> Option<Self> {
        let means = &model.evaluation()?.target_means;
        let outputs = model.outputs();
        let numbers: usize = outputs.iter().map(|(_, shape)| shape.len()).sum();
        let is_known = means.len() == outputs.len() && means.iter().all(|means| !means.is_empty());
        let is_masked = model.position_masks(&compile.losses).iter().flatten().any(|mask| mask.input.is_some());
        if !is_known || is_masked || numbers.saturating_mul(dataset.len()) > MOST_NUMBERS {
            return None;
        }
        let evaluated = evaluate(&outputs, means, compile, dataset, batch_size);
        let values = evaluated.inspect_err(|error| log::debug!("no baseline: {error}")).ok()?;
        let what = match (&outputs[..], &compile.losses[..], &means[..]) {
            ([(_, shape)], [loss], [means]) => told(loss, shape, means, model.schema()),
            _ => "each output always its most frequent class or its mean in training".into(),
        };
        Some(Self { values, what })
    }

    /// The names of the values with a prefix: `val_`.
    pub fn prefixed(self, prefix: &str) -> Self {
        Self { values: self.values.prefixed(prefix), ..self }
    }
}

fn evaluate(
    outputs: &[(&str, &Shape)],
    means: &[Vec<f32>],
    compile: &Compile,
    dataset: &Arc<dyn Dataset>,
    batch_size: usize,
) -> Result<Values> {
    let (mut values, mut total) = (Values::default(), 0.0);
    values.set("loss", total);
    for (output, ((name, shape), means)) in outputs.iter().zip(means).enumerate() {
        let weight = compile.loss_weights.get(output).copied().unwrap_or(1.0);
        let prefix = if outputs.len() > 1 { format!("{name}_") } else { String::new() };
        let found = of_output(output, (shape, means), compile, dataset, batch_size)?;
        total += f64::from(weight) * found.get("loss").unwrap_or_default();
        values.extend(found.prefixed(&prefix));
    }
    values.set("loss", total);
    Ok(values)
}

/// Loss and metrics of an output: those of a model whose only number is 0, so that its bias alone counts.
fn of_output(
    output: usize,
    (shape, means): (&Shape, &[f32]),
    compile: &Compile,
    dataset: &Arc<dyn Dataset>,
    batch_size: usize,
) -> Result<Values> {
    let loss = &compile.losses[output];
    let layers = Sequential::new([1]).add_named("constant", Dense::new(shape.len()));
    let layers = if shape.rank() > 1 { layers.add(Reshape::new(shape.axes())) } else { layers };
    let mut model = layers.build(0)?;
    let constants = means.iter().map(|mean| constant(loss.head(), *mean)).cycle();
    if let Some(bias) = model.tensor_mut("constant/bias") {
        bias.iter_mut().zip(constants).for_each(|(to, from)| *to = from);
    }
    let of_output = Compile::new(Optimizer::sgd(0.01, 0.0), loss.clone())
        .metrics(metrics_of(compile, output))
        .reduction(compile.reduction);
    let rows = OneTarget { dataset: TargetsOnly(dataset.clone()), target: output };
    Trainer::new(model, of_output)?.on(vec![Info::cpu()]).evaluate(rows, batch_size)
}

/// The metrics of an output: those that are set, else the default of its loss.
pub fn metrics_of(compile: &Compile, output: usize) -> Vec<Metric> {
    let default = || vec![Metric::default_of(compile.losses[output].function())];
    compile.metrics.get(output).cloned().unwrap_or_else(default)
}

/// The output whose probability or value is the mean.
fn constant(head: Head, mean: f32) -> f32 {
    match head {
        Head::Softmax => mean.max(LEAST).ln(),
        Head::Sigmoid => {
            let probability = mean.clamp(LEAST, 1.0 - LEAST);
            (probability / (1.0 - probability)).ln()
        }
        Head::Values => mean,
    }
}

fn told(loss: &Loss, shape: &Shape, means: &[f32], schema: &Schema) -> String {
    let width = shape.last();
    let names = Names::of(loss.head(), width, schema.targets.first());
    let class = match loss.head() {
        Head::Softmax => Some(largest(means)),
        Head::Sigmoid if width == 1 => Some(usize::from(means[0] > 0.5)),
        Head::Sigmoid | Head::Values => None,
    };
    match class.map(|class| names.classes.get(class)) {
        Some(Some(name)) => format!("always `{}`, the most frequent class in training", shown(name)),
        Some(None) => "always the most frequent class in training".into(),
        None if loss.head() == Head::Sigmoid => "always the most frequent answer in training".into(),
        None if width == 1 => format!("always {}, the mean in training", number(f64::from(means[0]))),
        None => "always the means in training".into(),
    }
}

/// One target of a data set, with a 0 as the only input.
struct OneTarget {
    dataset: TargetsOnly,
    target: usize,
}

impl Dataset for OneTarget {
    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        vec![Shape::new([1])]
    }

    fn target_shapes(&self) -> Vec<Shape> {
        self.dataset.target_shapes().into_iter().skip(self.target).take(1).collect()
    }

    fn has_sample_weights(&self) -> bool {
        self.dataset.has_sample_weights()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        batch.input(0).fill(0.0);
        let whole = Batch::fetch(&self.dataset, rows)?;
        if !batch.target(0).is_empty() {
            batch.target(0).copy_from_slice(&whole.targets[self.target]);
        }
        if let (Some(from), false) = (&whole.sample_weights, batch.sample_weights().is_empty()) {
            batch.sample_weights().copy_from_slice(from);
        }
        Ok(())
    }
}
