//! Low-rank adaptation: two thin trainable factors beside a frozen kernel.

use std::sync::Arc;

use super::activation;
use super::dropout::{DroppedElements, check_rate};
use super::linear::Linear;
use super::{Initializer, Layer, Parameter, Problem};
use crate::kernels::activation_functions::{Activation, Function, FunctionNumbers};
use crate::kernels::add;
use crate::plan::{Length, Recorder, View};

/// Settings of a low-rank adaptation: `y += alpha / rank · dropout(x) A B` beside a frozen kernel.
///
/// Source: Hu et al. 2021, arXiv:2106.09685. Names and initial values are those of Keras' `enable_lora`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lora {
    /// Columns of `A` and rows of `B`.
    pub rank: usize,
    /// Factor of the product, times `rank`.
    pub alpha: f32,
    /// Part of the elements of `x` that are dropped before `A` in training, in `[0, 1)`.
    pub dropout: f32,
    /// Whether the layer's bias stays trainable, as in Keras. PEFT freezes it.
    pub trains_bias: bool,
}

impl Lora {
    /// Factors of this rank, whose product is added as it is.
    #[allow(clippy::cast_precision_loss, reason = "ranks are far below 2^24")]
    pub fn new(rank: usize) -> Self {
        Self { rank, alpha: rank as f32, dropout: 0.0, trains_bias: true }
    }

    /// Sets `alpha`.
    #[must_use]
    pub fn alpha(mut self, alpha: f32) -> Self {
        self.alpha = alpha;
        self
    }

    /// Drops a part of the elements before `A` in training, as PEFT's `lora_dropout`.
    #[must_use]
    pub fn dropout(mut self, rate: f32) -> Self {
        self.dropout = rate;
        self
    }

    /// Freezes the layer's bias, too, as PEFT does.
    #[must_use]
    pub fn frozen_bias(mut self) -> Self {
        self.trains_bias = false;
        self
    }

    /// The settings as a layer has them: none without a rank.
    pub(super) fn of_settings(rank: Option<usize>, alpha: Option<f32>, dropout: f32) -> Option<Self> {
        let plain = Self::new(rank?);
        Some(Self { alpha: alpha.unwrap_or(plain.alpha), dropout, ..plain })
    }

    /// Factor of the product.
    #[allow(clippy::cast_precision_loss, reason = "ranks are far below 2^24")]
    pub(super) fn scale(self) -> f32 {
        self.alpha / self.rank as f32
    }
}

/// Refuses settings of a layer that are out of their range, and those that say nothing without a rank.
pub(super) fn check_lora(rank: Option<usize>, alpha: Option<f32>, dropout: f32) -> Result<(), Problem> {
    check_rate(dropout)?;
    match (rank, alpha) {
        (None, None) if dropout == 0.0 => Ok(()),
        (None, _) => Err(Problem::new(
            "needs `lora_rank` with `lora_alpha` and `lora_dropout`, but has none",
            "set `lora_rank`; 8 is usual",
        )),
        (Some(0), _) => Err(Problem::new("needs a `lora_rank` of at least 1, but got 0", "8 is usual")),
        (Some(_), Some(alpha)) if !alpha.is_finite() => Err(Problem::new(
            format!("needs a finite `lora_alpha`, but got {alpha}"),
            "without it, the product is added as it is",
        )),
        _ => Ok(()),
    }
}

/// A frozen kernel, or a part of its rows, and the factors beside it: `kernel + scale · A B`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowRank {
    /// Name of the frozen kernel, `[rows, units]`.
    pub kernel: &'static str,
    /// Its first row among those of `A`.
    pub first: usize,
    /// Name of `A`, `[inputs, rank]`.
    pub a: &'static str,
    /// Name of `B`, `[rank, units]`.
    pub b: &'static str,
    /// Settings.
    pub lora: Lora,
}

impl LowRank {
    /// Whether a parameter of the layer stays as it is.
    pub(crate) fn freezes(&self, parameter: &str) -> bool {
        parameter == self.kernel || parameter == "bias" && !self.lora.trains_bias
    }

    /// Factors of a kernel `[inputs, units]`.
    pub(super) fn parameters(&self, [inputs, units]: [usize; 2]) -> [Parameter; 2] {
        let rank = self.lora.rank;
        [
            Parameter { name: self.a, shape: vec![inputs, rank], initializer: Initializer::HeUniform },
            Parameter { name: self.b, shape: vec![rank, units], initializer: Initializer::Zeros },
        ]
    }

    /// Adds the product to a kernel's rows, in f64.
    ///
    /// Factors and kernel are row-major; `b` has as many columns as the kernel.
    #[allow(clippy::cast_possible_truncation, reason = "weights, which are rounded once")]
    pub fn merge(&self, kernel: &mut [f32], a: &[f32], b: &[f32]) {
        let (rank, scale) = (self.lora.rank, f64::from(self.lora.scale()));
        let units = b.len() / rank;
        let rows = kernel.chunks_exact_mut(units).zip(a.chunks_exact(rank).skip(self.first));
        for (row, factors) in rows {
            for (column, value) in row.iter_mut().enumerate() {
                let terms = factors.iter().zip(b[column..].iter().step_by(units));
                let sum: f64 = terms.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                *value = (f64::from(*value) + scale * sum) as f32;
            }
        }
    }

    /// Records `scale · dropout(x) A`, and keeps it for backward.
    pub(super) fn forward_input(&self, rec: &mut Recorder<'_>, x: View, linear: Linear) -> View {
        let (x, a) = (self.dropped(rec, x), rec.parameter(self.a));
        let hidden = self.hidden(rec, linear.positions);
        let thin = Linear { units: self.lora.rank, ..linear };
        thin.forward(rec, [x, a], None, hidden).constants.extend(self.factor().constants());
        hidden
    }

    /// A buffer for `scale · x A`, which backward finds again.
    pub(super) fn hidden(&self, rec: &mut Recorder<'_>, positions: usize) -> View {
        let hidden = rec.scratch("lora_hidden", Length::per_row(positions * self.lora.rank));
        rec.keep("lora_hidden", hidden);
        hidden
    }

    /// Records `y = frozen + hidden B`.
    pub(super) fn forward_output(&self, rec: &mut Recorder<'_>, [frozen, hidden]: [View; 2], linear: Linear, y: View) {
        let (wide, b) = (self.wide(linear), rec.parameter(self.b));
        let update = rec.scratch("lora_update", y.len);
        wide.forward(rec, [hidden, b], None, update);
        let (record, grid) = add::Record::of(y.len);
        rec.dispatch(&add::FORWARD, record, [frozen, update], [y], grid);
    }

    /// Records the gradient of `B`; gives that of `x A`.
    pub(super) fn backward_output(&self, rec: &mut Recorder<'_>, dz: View, linear: Linear) -> View {
        let (wide, hidden) = (self.wide(linear), rec.kept("lora_hidden"));
        wide.backward_weights(rec, [hidden, dz], self.b);
        let [unscaled, d_hidden] =
            ["lora_hidden_unscaled", "lora_hidden_gradient"].map(|what| rec.scratch(what, hidden.len));
        let b = rec.parameter(self.b);
        wide.backward_input(rec, [dz, b], unscaled);
        activation::forward(rec, self.factor(), unscaled, d_hidden);
        d_hidden
    }

    /// Records the gradients of `A` and `x`, which the frozen kernel has given another part of.
    pub(super) fn backward_input(&self, rec: &mut Recorder<'_>, d_hidden: View, linear: Linear) {
        let thin = Linear { units: self.lora.rank, ..linear };
        let x = rec.input(0);
        let x = self.dropped(rec, x);
        thin.backward_weights(rec, [x, d_hidden], self.a);
        let Some(dx) = rec.input_gradient(0) else { return };
        let a = rec.parameter(self.a);
        match self.dropout(rec) {
            None => thin.backward_input(rec, [d_hidden, a], dx),
            Some(dropout) => {
                let kept = rec.scratch("lora_kept_gradient", dx.len);
                thin.backward_input(rec, [d_hidden, a], kept);
                dropout.record(rec, kept, dx);
            }
        }
    }

    fn wide(&self, linear: Linear) -> Linear {
        Linear { inputs: self.lora.rank, ..linear }
    }

    /// Multiplication by the scale.
    pub(super) fn factor(&self) -> Function {
        let numbers = FunctionNumbers { slope: self.lora.scale(), ..FunctionNumbers::NONE };
        Function { activation: Activation::Affine, numbers }
    }

    /// The elements that are dropped in this pass.
    fn dropout(&self, rec: &Recorder<'_>) -> Option<DroppedElements> {
        let drops = rec.is_training() && self.lora.dropout > 0.0;
        drops.then(|| DroppedElements::each(self.lora.dropout, rec.input_shape(0).len()))
    }

    /// The input without what is dropped, which is drawn again for backward.
    fn dropped(&self, rec: &mut Recorder<'_>, x: View) -> View {
        let Some(dropout) = self.dropout(rec) else { return x };
        let kept = rec.scratch("lora_input", x.len);
        dropout.record(rec, x, kept);
        kept
    }
}

/// A layer with other settings, to be used in its place.
pub(super) fn changed<L: Layer + Clone + 'static>(layer: &L, change: impl FnOnce(&mut L)) -> Arc<dyn Layer> {
    let mut changed = layer.clone();
    change(&mut changed);
    Arc::new(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole numbers, worked by hand: the second part of a kernel of three rows.
    #[test]
    fn a_merged_kernel_has_the_product_of_its_rows() {
        let low_rank = LowRank { kernel: "k", first: 1, a: "a", b: "b", lora: Lora::new(2).alpha(4.0) };
        let mut kernel = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        low_rank.merge(&mut kernel, &[9.0, 9.0, 1.0, 2.0, 0.0, -1.0], &[1.0, 0.0, 2.0, 0.0, 1.0, -1.0]);
        assert_eq!(kernel, [3.0, 6.0, 3.0, 4.0, 3.0, 8.0]);
    }

    #[test]
    fn settings_without_a_rank_are_refused() {
        assert!(check_lora(None, None, 0.0).is_ok());
        assert!(check_lora(Some(2), Some(0.5), 0.5).is_ok());
        for (rank, alpha, dropout) in [
            (None, Some(2.0), 0.0),
            (None, None, 0.5),
            (Some(0), None, 0.0),
            (Some(1), Some(f32::NAN), 0.0),
            (Some(1), None, 1.0),
        ] {
            assert!(check_lora(rank, alpha, dropout).is_err(), "{rank:?} {alpha:?} {dropout}");
        }
    }
}
