//! Normalization of each row by itself, in groups of channels.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Initializer, Layer, MaskUse, Parameter, Problem, as_built, to_config, with_channels, yes};
use crate::kernels::activation_functions::Function;
use crate::kernels::{batch_norm, group_norm as kernel, reduce, whole};
use crate::onnx::{Attribute, Form, Order};
use crate::plan::{Grid, Length, Recorder, View, Word, length_word};
use crate::shape::{Shape, elements};

/// Normalizes each row to mean 0 and variance 1 within groups of its channels, then scales and shifts each channel.
///
/// `y = gamma * (x - mean) / sqrt(variance + epsilon) + beta`. Mean and (biased) variance are over all positions and the
/// channels of a group. With as many groups as channels (`groups = -1`) it is instance normalization.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input, output | `[batch, ..., channels]` | |
/// | `gamma` (if `scale`) | `[channels]` | 1 |
/// | `beta` (if `center`) | `[channels]` | 0 |
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows. So it fits small batches and
/// batches that are split, where batch normalization does not. Kept for backward: input, and mean and deviation of each
/// group. Source: Wu & He 2018, arXiv:1803.08494. Golden values: Keras 3.
///
/// ```
/// use manyhands::{Shape, layers::{GroupNormalization, Layer}};
/// let built = GroupNormalization::new(8).build(&[Shape::new([5, 5, 16])]).unwrap();
/// assert_eq!(built.parameters[0].shape, [16]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupNormalization {
    /// Groups of channels, each as many; -1: a group for each channel.
    #[serde(default = "groups")]
    pub groups: i32,
    /// Added to the variance.
    #[serde(default = "epsilon")]
    pub epsilon: f32,
    /// Whether `beta` is added.
    #[serde(default = "yes")]
    pub center: bool,
    /// Whether the result is multiplied by `gamma`.
    #[serde(default = "yes")]
    pub scale: bool,
}

fn groups() -> i32 {
    32
}

fn epsilon() -> f32 {
    1e-3
}

impl Default for GroupNormalization {
    fn default() -> Self {
        Self { groups: groups(), epsilon: epsilon(), center: true, scale: true }
    }
}

impl GroupNormalization {
    /// Keras' defaults, with a number of groups.
    pub fn new(groups: i32) -> Self {
        Self { groups, ..Self::default() }
    }

    fn groups(&self, channels: usize) -> Result<usize, Problem> {
        let groups = if self.groups == -1 { Some(channels) } else { usize::try_from(self.groups).ok() };
        groups.filter(|groups| *groups > 0 && channels.is_multiple_of(*groups)).ok_or_else(|| {
            let problem = format!("needs groups of equal size, but got {} groups for {channels} channels", self.groups);
            Problem::new(problem, "let `groups` divide the channels; -1 is a group for each channel")
        })
    }

    fn recorded(&self, rec: &Recorder<'_>) -> Normalized {
        let shape = rec.input_shape(0);
        let groups = as_built(self.groups(shape.last()));
        Normalized {
            items: 1,
            positions: shape.positions(),
            groups,
            width: shape.last() / groups,
            epsilon: self.epsilon,
            is_centered: true,
            gamma: self.scale.then_some("gamma"),
            beta: self.center.then_some("beta"),
        }
    }
}

impl Layer for GroupNormalization {
    fn kind(&self) -> &'static str {
        "GroupNormalization"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = with_channels(inputs)?;
        self.groups(input.last())?;
        check_epsilon(self.epsilon, 1e-3)?;
        let names = [(self.scale, "gamma"), (self.center, "beta")];
        Ok(Built { output: input.clone(), parameters: parameters(names, &[input.last()]), statistics: Vec::new() })
    }

    fn can_fuse(&self) -> bool {
        true
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).forward(rec);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).backward(rec);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let shape = form.input_shape(0).clone();
        let groups = as_built(self.groups(shape.last()));
        let x = form.channels_first(0);
        let rows = form.reshape(&x, &[groups, shape.len() / groups]);
        let [ones, zeros] = [1.0, 0.0].map(|value| form.floats(&[groups], &vec![value; groups]));
        let epsilon = [("epsilon", Attribute::Float(self.epsilon))];
        let y = form.op("InstanceNormalization", &[&rows, &ones, &zeros], &epsilon);
        let mut y = form.reshape(&y, &Order::First.axes_of(shape.axes()));
        let row: Vec<usize> = vec![1; shape.rank() - 1].into_iter().chain([shape.last()]).collect();
        for (is_on, name, kind) in [(self.scale, "gamma", "Mul"), (self.center, "beta", "Add")] {
            if is_on {
                let tensor = form.spread(name, &row, Order::First);
                y = form.op(kind, &[&y, &tensor], &[]);
            }
        }
        form.output(y, Order::First);
        Ok(())
    }
}

/// Without it, a row of equal values would be divided by 0.
pub(super) fn check_epsilon(epsilon: f32, default: f32) -> Result<(), Problem> {
    if epsilon > 0.0 && epsilon.is_finite() {
        return Ok(());
    }
    let problem = format!("needs a positive `epsilon`, but got {epsilon}");
    Err(Problem::new(problem, format!("Keras' default is {default}")))
}

/// Scale and shift of a shape, as far as they are switched on.
pub(super) fn parameters(names: [(bool, &'static str); 2], shape: &[usize]) -> Vec<Parameter> {
    let initializers = [Initializer::Ones, Initializer::Zeros];
    let on = names.into_iter().zip(initializers).filter(|((is_on, _), _)| *is_on);
    on.map(|((_, name), initializer)| Parameter { name, shape: shape.to_vec(), initializer }).collect()
}

/// Sizes and parameters of the normalization kernels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Normalized {
    /// Items of a row, each of which is normalized by itself.
    pub items: usize,
    pub positions: usize,
    pub groups: usize,
    pub width: usize,
    pub epsilon: f32,
    /// Whether the mean is subtracted.
    pub is_centered: bool,
    /// Name of the scale, if it has one.
    pub gamma: Option<&'static str>,
    /// Name of the shift, if it has one.
    pub beta: Option<&'static str>,
}

impl Normalized {
    fn channels(&self) -> usize {
        self.groups * self.width
    }

    fn params(&self) -> kernel::Record {
        kernel::Record {
            items: length_word(Length::per_row(self.items)),
            positions: whole(self.positions),
            groups: whole(self.groups),
            width: whole(self.width),
            epsilon: Word::F32(self.epsilon),
            splits: whole(reduce::splits(self.channels())),
        }
    }

    /// The grid of kernels that share groups among invocations, and their constants.
    fn grid(&self) -> (Grid, Vec<(&'static str, f64)>) {
        let (grid, lanes) = kernel::grid(self.items * self.groups, elements(&[self.positions, self.width]));
        let is_off =
            [(!self.is_centered, "USE_MEAN"), (self.gamma.is_none(), "USE_SCALE"), (self.beta.is_none(), "USE_CENTER")];
        let off = is_off.into_iter().filter(|(is_off, _)| *is_off).map(|(_, name)| (name, 0.0));
        (grid, std::iter::once(lanes).chain(off).collect())
    }

    pub(super) fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, fused) = (rec.input(0), rec.output(), rec.fused());
        let statistics = rec.scratch("statistics", Length::per_row(2 * self.items * self.groups));
        rec.keep("statistics", statistics);
        // Where there is no parameter, any buffer will do.
        let [gamma, beta] = [self.gamma, self.beta].map(|name| name.map_or(x, |name| rec.parameter(name)));
        let (grid, constants) = self.grid();
        let dispatch = rec.dispatch(&kernel::FORWARD, self.params(), [x, gamma, beta], [y, statistics], grid);
        dispatch.constants.extend(constants.into_iter().chain(fused.into_iter().flat_map(Function::constants)));
    }

    pub(super) fn backward(&self, rec: &mut Recorder<'_>) {
        let (x, dy, statistics) = (rec.input(0), rec.output_gradient(), rec.kept("statistics"));
        if self.gamma.is_some() || self.beta.is_some() {
            self.record_parameter_gradients(rec, [x, dy, statistics]);
        }
        let gamma = self.gamma.map_or(x, |name| rec.parameter(name));
        if let Some(dx) = rec.input_gradient(0) {
            let (grid, mut constants) = self.grid();
            constants.retain(|(name, _)| kernel::BACKWARD_INPUT.constants.contains(name));
            let inputs = [x, dy, statistics, gamma];
            rec.dispatch(&kernel::BACKWARD_INPUT, self.params(), inputs, [dx], grid).constants = constants;
        }
    }

    fn record_parameter_gradients(&self, rec: &mut Recorder<'_>, inputs: [View; 3]) {
        let (channels, params) = (self.channels(), self.params());
        let splits = reduce::splits(channels);
        let partials = rec.scratch("gradient_partials", Length::fixed(2 * channels * splits));
        let grid = Grid::Elements(whole(channels * splits));
        rec.dispatch(&kernel::BACKWARD_SUMS, params, inputs, [partials], grid);
        let sums = rec.scratch("gradient_sums", Length::fixed(2 * channels));
        let [dgamma, dbeta] = [self.gamma, self.beta].map(|name| match name {
            Some(name) => rec.parameter_gradient(name),
            None => rec.scratch("unused", Length::fixed(channels)),
        });
        let (zero, none) = (Word::U32(0), Word::F32(0.0));
        let params = batch_norm::Record {
            pixels: zero,
            channels: whole(channels),
            count: zero,
            epsilon: none,
            momentum: none,
            splits: params.splits,
            correction: zero,
        };
        let grid = Grid::Elements(whole(channels));
        rec.dispatch(&batch_norm::BACKWARD_PARAMETERS, params, [partials], [sums, dgamma, dbeta], grid);
    }
}
