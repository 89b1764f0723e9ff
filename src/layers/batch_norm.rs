//! Batch normalization, over each shard or over the whole batch.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Initializer, Layer, MaskUse, Parameter, Problem, Statistic, to_config, with_channels, yes};
use crate::kernels::activation_functions::Function;
use crate::kernels::{batch_norm as kernel, concatenate, reduce, whole};
use crate::onnx::{Attribute, Form, Order};
use crate::plan::{BatchStatistics, Combine, Grid, Length, Moving, Recorder, View, When, Word, length_word};
use crate::shape::Shape;

/// Normalizes each channel to mean 0 and variance 1, then scales and shifts it.
///
/// `y = gamma * (x - mean) / sqrt(variance + epsilon) + beta`. In training, mean and (biased) variance are those of
/// the rows at hand, and the moving statistics follow them:
/// `moving = momentum * moving + (1 - momentum) * batch`. At inference they are the moving statistics.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input, output | `[batch, ..., channels]` | |
/// | `gamma` (if `scale`) | `[channels]` | 1 |
/// | `beta` (if `center`) | `[channels]` | 0 |
/// | `moving_mean` | `[channels]` | 0 |
/// | `moving_variance` | `[channels]` | 1 |
///
/// **Across adapters**: by default each adapter normalizes by the statistics of its own rows, so the result depends
/// on how the batch is split (as in Keras and PyTorch); a shard gets at least 8 rows while another split exists. With
/// `synchronized`, the statistics are those of the whole batch, at the cost of two exchanges a layer, and any split
/// gives the result of one adapter, up to rounding. In both forms the moving statistics follow the whole batch:
/// (count, mean, sum of squared deviations) of all shards, merged by count; an empty shard adds nothing.
///
/// A frozen layer normalizes by the moving statistics in training, too, and leaves them as they are, as in Keras. With
/// `fixed_statistics` so does one whose `gamma` and `beta` are trained.
///
/// Positions that a mask leaves out count in the statistics of training, which they do not in Keras. The output has the mask.
///
/// Kept for backward: input and moments. Source: Ioffe & Szegedy 2015, arXiv:1502.03167; merging: Chan, Golub,
/// LeVeque 1979. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchNormalization {
    /// Part of the old moving statistics that stays in each step.
    #[serde(default = "momentum")]
    pub momentum: f32,
    /// Added to the variance.
    #[serde(default = "epsilon")]
    pub epsilon: f32,
    /// Whether `beta` is added.
    #[serde(default = "yes")]
    pub center: bool,
    /// Whether the result is multiplied by `gamma`.
    #[serde(default = "yes")]
    pub scale: bool,
    /// Whether statistics are those of the whole batch instead of each shard.
    #[serde(default)]
    pub synchronized: bool,
    /// Subtracted from the count in the divisor of the batch's variance that the moving variance follows: 0 as in Keras, 1 for
    /// the unbiased variance, as in PyTorch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub correction: u32,
    /// Whether training, too, normalizes by the moving statistics and leaves them as they are, while `gamma` and `beta` learn:
    /// to train on from a trained network with small batches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed_statistics: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(correction: &u32) -> bool {
    *correction == 0
}

fn momentum() -> f32 {
    0.99
}

fn epsilon() -> f32 {
    1e-3
}

impl Default for BatchNormalization {
    fn default() -> Self {
        Self {
            momentum: momentum(),
            epsilon: epsilon(),
            center: true,
            scale: true,
            synchronized: false,
            correction: 0,
            fixed_statistics: false,
        }
    }
}

impl BatchNormalization {
    /// Keras' defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Part of the old moving statistics that stays in each step: 0.9 for runs of a few hundred steps.
    #[must_use]
    pub fn momentum(mut self, momentum: f32) -> Self {
        self.momentum = momentum;
        self
    }

    /// Sets the number that is added to the variance.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f32) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Without the shift by `beta`.
    #[must_use]
    pub fn no_center(mut self) -> Self {
        self.center = false;
        self
    }

    /// Without the factor `gamma`.
    #[must_use]
    pub fn no_scale(mut self) -> Self {
        self.scale = false;
        self
    }

    /// Takes the statistics of the whole batch in place of each shard's.
    #[must_use]
    pub fn synchronized(mut self) -> Self {
        self.synchronized = true;
        self
    }

    /// The moving variance follows the unbiased variance, as in PyTorch.
    #[must_use]
    pub fn unbiased(mut self) -> Self {
        self.correction = 1;
        self
    }

    /// Normalizes by the moving statistics in training, too.
    #[must_use]
    pub fn fixed_statistics(mut self) -> Self {
        self.fixed_statistics = true;
        self
    }

    fn params(&self, rec: &Recorder<'_>) -> kernel::Record {
        let shape = rec.input_shape(0);
        let pixels = length_word(Length::per_row(shape.positions()));
        let count = match pixels {
            Word::Rows(factor) if self.is_whole(rec) => Word::BatchRows(factor),
            same => same,
        };
        kernel::Record {
            pixels,
            channels: whole(shape.last()),
            count,
            epsilon: Word::F32(self.epsilon),
            momentum: Word::F32(self.momentum),
            splits: whole(reduce::splits(shape.last())),
            correction: Word::U32(self.correction),
        }
    }

    /// Whether the statistics are those of the whole batch.
    fn is_whole(&self, rec: &Recorder<'_>) -> bool {
        self.synchronized || rec.batch_statistics() == BatchStatistics::Batch
    }

    fn set_options(&self, dispatch: &mut crate::plan::Dispatch) {
        if !self.scale {
            dispatch.constants.push(("USE_SCALE", 0.0));
        }
        if !self.center && dispatch.kernel.constants.contains(&"USE_CENTER") {
            dispatch.constants.push(("USE_CENTER", 0.0));
        }
    }

    /// Views of `gamma` and `beta`, or a dummy for each that is switched off.
    fn scale_and_center(&self, rec: &Recorder<'_>) -> [View; 2] {
        let dummy = rec.statistic("moving_mean");
        let gamma = if self.scale { rec.parameter("gamma") } else { dummy };
        let beta = if self.center { rec.parameter("beta") } else { dummy };
        [gamma, beta]
    }

    /// Whether this run takes the statistics of its rows, which then move.
    fn takes_batch(&self, rec: &Recorder<'_>) -> bool {
        rec.is_trainable() && !self.fixed_statistics
    }

    /// Backward where mean and variance are fixed: the moving ones.
    fn record_fixed_backward(&self, rec: &mut Recorder<'_>) {
        let (dy, variance, params) = (rec.output_gradient(), rec.statistic("moving_variance"), self.params(rec));
        let ([gamma, _], grid) = (self.scale_and_center(rec), normalizing_grid(&rec.input_shape(0)));
        if rec.is_trainable() && (self.scale || self.center) {
            let moments = moving_moments(rec);
            self.record_sums(rec, moments, kernel::Record { count: Word::U32(1), ..self.params(rec) });
        }
        if let Some(dx) = rec.input_gradient(0) {
            let dispatch = rec.dispatch(&kernel::BACKWARD_INFERENCE, params, [dy, variance, gamma], [dx], grid);
            self.set_options(dispatch);
        }
    }

    /// The gradients of `gamma` and `beta`, and the sums that they are.
    fn record_sums(&self, rec: &mut Recorder<'_>, moments: View, params: kernel::Record) -> View {
        let (x, dy, channels) = (rec.input(0), rec.output_gradient(), rec.input_shape(0).last());
        let partials = rec.scratch("gradient_partials", Length::fixed(2 * channels * reduce::splits(channels)));
        let grid = Grid::Elements(whole(channels * reduce::splits(channels)));
        rec.dispatch(&kernel::BACKWARD_SUMS, params, [x, dy, moments], [partials], grid);
        let sums = rec.scratch("gradient_sums", Length::fixed(2 * channels));
        let mut gradient = |on: bool, name: &'static str| {
            if on { rec.parameter_gradient(name) } else { rec.scratch("unused", Length::fixed(channels)) }
        };
        let (dgamma, dbeta) = (gradient(self.scale, "gamma"), gradient(self.center, "beta"));
        let grid = Grid::Elements(whole(channels));
        rec.dispatch(&kernel::BACKWARD_PARAMETERS, params, [partials], [sums, dgamma, dbeta], grid);
        sums
    }

    fn record_moments(&self, rec: &mut Recorder<'_>) -> View {
        let channels = rec.input_shape(0).last();
        let (x, params) = (rec.input(0), self.params(rec));
        let partials = rec.scratch("moment_partials", Length::fixed(2 * channels * reduce::splits(channels)));
        let moments = rec.control("moments", 2 * channels);
        rec.dispatch(
            &kernel::STATISTICS,
            params,
            [x],
            [partials],
            Grid::Elements(whole(channels * reduce::splits(channels))),
        );
        let grid = Grid::Elements(whole(channels));
        rec.dispatch(&kernel::COMBINE_STATISTICS, params, [partials], [moments], grid);
        let count_per_row = u32::try_from(rec.input_shape(0).positions()).unwrap_or(u32::MAX);
        let when = if self.is_whole(rec) { When::NextCommand } else { When::Update };
        rec.exchange(moments, Combine::Moments { count_per_row }, when);
        let (mean, variance) = (rec.statistic("moving_mean"), rec.statistic("moving_variance"));
        let (momentum, correction) = (self.momentum, self.correction);
        rec.moving(Moving { moments, channels, count_per_row, mean, variance, momentum, correction });
        moments
    }
}

/// The moving statistics as moments of one value: with a count of 1, M2 is the variance.
fn moving_moments(rec: &mut Recorder<'_>) -> View {
    let channels = rec.input_shape(0).last();
    let moments = rec.scratch("moving_moments", Length::fixed(2 * channels));
    for (name, offset) in [("moving_mean", 0), ("moving_variance", channels)] {
        let params = concatenate::Record {
            rows: Word::U32(1),
            cols: whole(channels),
            total: whole(2 * channels),
            offset: whole(offset),
        };
        let statistic = rec.statistic(name);
        rec.dispatch(&concatenate::FORWARD, params, [statistic], [moments], Grid::Elements(whole(channels)));
    }
    moments
}

/// The grid of kernels that take 16 pixels at a time: parts of a row, or several small rows.
fn normalizing_grid(shape: &Shape) -> Grid {
    let [pixels, channels] = [shape.positions(), shape.last()].map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    let rows = (kernel::PIXELS / pixels.max(1)).max(1);
    Grid::Elements(Word::RowGroups(rows, (rows * pixels).div_ceil(kernel::PIXELS) * channels))
}

impl Layer for BatchNormalization {
    fn kind(&self) -> &'static str {
        "BatchNormalization"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = with_channels(inputs)?;
        if !(0.0..=1.0).contains(&self.momentum) || self.epsilon <= 0.0 {
            return Err(Problem::new(
                format!(
                    "needs a momentum from 0 to 1 and a positive epsilon, but got {} and {}",
                    self.momentum, self.epsilon
                ),
                "Keras' defaults are 0.99 and 0.001",
            ));
        }
        let shape = vec![input.last()];
        let mut parameters = Vec::new();
        if self.scale {
            parameters.push(Parameter { name: "gamma", shape: shape.clone(), initializer: Initializer::Ones });
        }
        if self.center {
            parameters.push(Parameter { name: "beta", shape: shape.clone(), initializer: Initializer::Zeros });
        }
        let statistics = vec![
            Statistic { name: "moving_mean", shape: shape.clone(), initial: 0.0.into() },
            Statistic { name: "moving_variance", shape, initial: 1.0.into() },
        ];
        Ok(Built { output: input.clone(), parameters, statistics })
    }

    fn has_batch_statistics(&self) -> bool {
        !self.fixed_statistics
    }

    fn can_fuse(&self) -> bool {
        true
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let ([gamma, beta], fused) = (self.scale_and_center(rec), rec.fused());
        let (x, y, params) = (rec.input(0), rec.output(), self.params(rec));
        let grid = normalizing_grid(&rec.input_shape(0));
        let dispatch = if rec.is_training() && self.takes_batch(rec) {
            let moments = self.record_moments(rec);
            rec.keep("moments", moments);
            rec.dispatch(&kernel::FORWARD, params, [x, moments, gamma, beta], [y], grid)
        } else {
            let (mean, variance) = (rec.statistic("moving_mean"), rec.statistic("moving_variance"));
            rec.dispatch(&kernel::INFERENCE, params, [x, mean, variance, gamma, beta], [y], grid)
        };
        self.set_options(dispatch);
        dispatch.constants.extend(fused.into_iter().flat_map(Function::constants));
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        if !self.takes_batch(rec) {
            return self.record_fixed_backward(rec);
        }
        let (x, dy, moments, params) = (rec.input(0), rec.output_gradient(), rec.kept("moments"), self.params(rec));
        let sums = self.record_sums(rec, moments, params);
        if self.is_whole(rec) {
            rec.exchange(sums, Combine::Sum, When::NextCommand);
        }
        let [gamma, _] = self.scale_and_center(rec);
        if let Some(dx) = rec.input_gradient(0) {
            let grid = normalizing_grid(&rec.input_shape(0));
            let dispatch = rec.dispatch(&kernel::BACKWARD_INPUT, params, [x, dy, moments, gamma, sums], [dx], grid);
            self.set_options(dispatch);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let (order, rank, channels) = (form.order(0), form.input_shape(0).rank(), form.input_shape(0).last());
        let x = form.input_in(0, order);
        let [mean, variance] = ["moving_mean", "moving_variance"].map(|name| form.tensor(name));
        if order == Order::First || rank == 1 {
            let gamma = if self.scale { form.tensor("gamma") } else { form.floats(&[channels], &vec![1.0; channels]) };
            let beta = if self.center { form.tensor("beta") } else { form.floats(&[channels], &vec![0.0; channels]) };
            let epsilon = [("epsilon", Attribute::Float(self.epsilon))];
            let y = form.op("BatchNormalization", &[&x, &gamma, &beta, &mean, &variance], &epsilon);
            form.output(y, order);
            return Ok(());
        }
        // The operator takes channels first alone; all but the first and the last step are of stored numbers.
        let mut y = form.op("Sub", &[&x, &mean], &[]);
        let deviation = form.op_with("Add", &variance, self.epsilon);
        let deviation = form.op("Sqrt", &[&deviation], &[]);
        let numerator = if self.scale { form.tensor("gamma") } else { form.scalar(1.0) };
        let factor = form.op("Div", &[&numerator, &deviation], &[]);
        y = form.op("Mul", &[&y, &factor], &[]);
        if self.center {
            let beta = form.tensor("beta");
            y = form.op("Add", &[&y, &beta], &[]);
        }
        form.output(y, order);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Scalars;

    /// Too small a grid would leave pixels out; one twice as large would cost time.
    #[test]
    fn the_grid_holds_all_pixels_and_few_more() {
        for (side, rows) in [1, 2, 3, 4, 5, 24].into_iter().flat_map(|side| (0..70).map(move |rows| (side, rows))) {
            let Grid::Elements(count) = normalizing_grid(&Shape::new(vec![side, side, 3])) else { panic!() };
            let count = count.bits(&Scalars { rows, ..Scalars::default() });
            let needed = (rows * u32::try_from(side * side).unwrap()).div_ceil(kernel::PIXELS) * 3;
            assert!((needed..=2 * needed).contains(&count), "{rows} of {side} x {side}: {count}, {needed} needed");
        }
    }
}
