//! Adafactor: means of squared gradients by row and column.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rule::{Range, UpdateRule};
use super::tensor::WholeTensor;
use crate::kernels::Kernel;
use crate::kernels::rounding::single;
use crate::kind::Settings;

/// Steps in the size of the parameters, by means of squared gradients over rows and columns. Source: Shazeer & Stern 2018,
/// arXiv:1804.04235, as Keras 3 has it.
///
/// With `g` the gradient of a tensor, `t` the step from 1, and `β = 1 - t^beta_2_decay`, the rows' means `r` and the columns' means `c`
/// of `g² + epsilon_1` over the last two axes decay by `β`, and `v = r c / mean(r)`; a tensor of fewer axes has `v` itself. The step is
/// `max(epsilon_2, rms(w)) min(learning_rate, 1 / √t) u / max(1, rms(u) / clip_threshold)` with `u = g / √v`.
///
/// **Across adapters** the host updates, also for one adapter: means are those of whole tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Adafactor {
    /// Largest part of a parameter's size that a step can be; from some step on it is `1 / √step`.
    pub learning_rate: f32,
    /// Power of the step by which old means count less.
    pub beta_2_decay: f32,
    /// Added to squared gradients.
    pub epsilon_1: f32,
    /// Least size of a tensor, for steps in its unit.
    pub epsilon_2: f32,
    /// Root of the mean square of a step, in its unit, above which it is scaled down.
    pub clip_threshold: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Shapes of parameters by name, where rows and columns are those of another shape than the layer's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, Vec<usize>>,
}

impl Default for Adafactor {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            beta_2_decay: -0.8,
            epsilon_1: 1e-30,
            epsilon_2: 1e-3,
            clip_threshold: 1.0,
            weight_decay: 0.0,
            shapes: BTreeMap::new(),
        }
    }
}

impl UpdateRule for Adafactor {
    fn kind(&self) -> &'static str {
        "Adafactor"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn ranges(&self) -> Vec<(&'static str, f32, Range)> {
        vec![
            ("learning_rate", self.learning_rate, Range::AtLeastZero),
            ("beta_2_decay", self.beta_2_decay, Range::AtMostZero),
            ("epsilon_1", self.epsilon_1, Range::AboveZero),
            ("epsilon_2", self.epsilon_2, Range::AtLeastZero),
            ("clip_threshold", self.clip_threshold, Range::AboveZero),
            ("weight_decay", self.weight_decay, Range::AtLeastZero),
        ]
    }

    fn learning_rate(&self) -> f32 {
        self.learning_rate
    }

    fn with_learning_rate(&self, learning_rate: f32) -> Arc<dyn UpdateRule> {
        Arc::new(Self { learning_rate, ..self.clone() })
    }

    /// Means of rows and columns stand at the beginning of `r` and `c`, and `v` is that of every element.
    fn state_names(&self) -> &'static [&'static str] {
        &["r", "c", "v"]
    }

    /// `1 / √step`, and the part of the old means that stays.
    fn step_numbers(&self, step: u64) -> Vec<f32> {
        #[allow(clippy::cast_precision_loss, reason = "steps are far below 2^52")]
        let step = step as f64;
        [1.0 / step.sqrt(), 1.0 - step.powf(self.beta_2_decay.into())].map(single).into()
    }

    fn kernel(&self) -> Option<&'static Kernel> {
        None
    }

    fn update_tensor(&self, mut tensor: WholeTensor<'_>) {
        let shape = self.shapes.get(tensor.name).map_or(tensor.shape, Vec::as_slice);
        let &[learning_rate, most, stays] = tensor.numbers else { return };
        tensor.decay(self.weight_decay);
        let WholeTensor { gradient, parameter, states, .. } = tensor;
        let Ok([r, c, v]) = <[&mut [f32]; 3]>::try_from(states) else { return };
        let means = Means { stays: stays.into(), epsilon: self.epsilon_1.into() };
        match *shape {
            [.., rows, columns] => means.factored((rows, columns), gradient, [r, c, &mut *v]),
            _ => means.whole(gradient, v),
        }
        let direction = |(g, v): (&f32, &f32)| f64::from(*g) / f64::from(*v).sqrt();
        let squares = gradient.iter().zip(&*v).map(|pair| direction(pair).powi(2));
        let size = root_of_mean(squares, gradient.len());
        let unit = root_of_mean(parameter.iter().map(|w| f64::from(*w).powi(2)), parameter.len());
        let rate = f64::from(self.epsilon_2).max(unit) * f64::from(learning_rate.min(most));
        let factor = rate / (size / f64::from(self.clip_threshold)).max(1.0);
        for (w, pair) in parameter.iter_mut().zip(gradient.iter().zip(&*v)) {
            *w = single(f64::from(*w) - factor * direction(pair));
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a tensor is far below 2^52 elements")]
fn root_of_mean(squares: impl Iterator<Item = f64>, count: usize) -> f64 {
    (squares.sum::<f64>() / count as f64).sqrt()
}

/// Decaying means of squared gradients.
struct Means {
    /// Part of the old means that stays.
    stays: f64,
    /// Added to the squares.
    epsilon: f64,
}

impl Means {
    fn square(&self, gradient: f32) -> f64 {
        f64::from(gradient).powi(2) + self.epsilon
    }

    fn followed(&self, mean: f32, square: f64) -> f64 {
        self.stays * f64::from(mean) + (1.0 - self.stays) * square
    }

    /// Means of each element.
    fn whole(&self, gradient: &[f32], v: &mut [f32]) {
        for (v, g) in v.iter_mut().zip(gradient) {
            *v = single(self.followed(*v, self.square(*g)));
        }
    }

    /// Means of rows and columns of each matrix of the last two axes, and what both say of each element.
    #[allow(clippy::cast_precision_loss, reason = "a tensor is far below 2^52 elements")]
    fn factored(&self, (rows, columns): (usize, usize), gradient: &[f32], [r, c, v]: [&mut [f32]; 3]) {
        if rows * columns == 0 {
            return;
        }
        let matrices = gradient.chunks_exact(rows * columns).zip(v.chunks_exact_mut(rows * columns));
        let means = r.chunks_exact_mut(rows).zip(c.chunks_exact_mut(columns));
        for ((gradient, v), (r, c)) in matrices.zip(means) {
            let mut of_columns = vec![0.0; columns];
            for (row, r) in gradient.chunks_exact(columns).zip(&mut *r) {
                let squares = row.iter().map(|g| self.square(*g));
                of_columns.iter_mut().zip(squares.clone()).for_each(|(sum, square)| *sum += square);
                *r = single(self.followed(*r, squares.sum::<f64>() / columns as f64));
            }
            for (c, sum) in c.iter_mut().zip(of_columns) {
                *c = single(self.followed(*c, sum / rows as f64));
            }
            let mean = r.iter().map(|r| f64::from(*r)).sum::<f64>() / rows as f64;
            for (row, r) in v.chunks_exact_mut(columns).zip(&*r) {
                let part = f64::from(*r) / mean;
                row.iter_mut().zip(&*c).for_each(|(v, c)| *v = single(part * f64::from(*c)));
            }
        }
    }
}
