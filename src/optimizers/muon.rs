//! Muon: momentum made orthogonal, for matrices, and Adam for the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rule::{Range, UpdateRule, correction};
use super::tensor::WholeTensor;
use crate::kernels::Kernel;
use crate::kernels::product::{Epilogue, matrix, matrix_mut, multiply};
use crate::kernels::rounding::single;
use crate::kind::Settings;

/// Matrices follow their momentum with all its directions made equally long, by Newton–Schulz products; other parameters and
/// embeddings follow Adam. Source: Jordan et al. 2024, <https://kellerjordan.github.io/posts/muon>; Liu et al. 2025,
/// arXiv:2502.16982, as Keras 3 has it.
///
/// For a matrix, `m = momentum m + g`, and `x = g + momentum m` with `nesterov`, else `m`. After `x / (‖x‖ + 1e-7)`, each of `ns_steps`
/// products gives `a x + (b x xᵀ + c (x xᵀ)²) x`; the step is `learning_rate √max(rows, columns) rms_rate x`.
///
/// **Across adapters** the host updates, also for one adapter: products are those of whole matrices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Muon {
    /// Step size.
    pub learning_rate: f32,
    /// Adam's decay of the mean of gradients.
    pub adam_beta_1: f32,
    /// Adam's decay of the mean of squared gradients.
    pub adam_beta_2: f32,
    /// Decoupled weight decay of the parameters that follow Adam.
    pub adam_weight_decay: f32,
    /// Added to the root of Adam's mean square.
    pub epsilon: f32,
    /// Decoupled weight decay of matrices.
    pub weight_decay: f32,
    /// Layers whose matrices follow Adam, such as the last; names of parameters (`dense/kernel`, `kernel`), too.
    pub exclude_layers: Vec<String>,
    /// Whether parameters with `embedding` in their names follow Adam.
    pub exclude_embeddings: bool,
    /// Factor of the matrix in a product.
    pub muon_a: f32,
    /// Factor of its third power.
    pub muon_b: f32,
    /// Factor of its fifth power.
    pub muon_c: f32,
    /// Part of the learning rate that Adam takes.
    pub adam_lr_ratio: f32,
    /// Part of the momentum that stays.
    pub momentum: f32,
    /// Number of Newton–Schulz products.
    pub ns_steps: u32,
    /// Whether to use Nesterov momentum.
    pub nesterov: bool,
    /// Size of a matrix's step beside Adam's; 0 for a step that is not scaled by the matrix's sides.
    pub rms_rate: f32,
    /// Shapes of parameters by name, where they are matrices in another shape than the layer's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, Vec<usize>>,
}

impl Default for Muon {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            adam_beta_1: 0.9,
            adam_beta_2: 0.999,
            adam_weight_decay: 4e-3,
            epsilon: 1e-7,
            weight_decay: 4e-3,
            exclude_layers: Vec::new(),
            exclude_embeddings: true,
            muon_a: 3.4445,
            muon_b: -4.775,
            muon_c: 2.0315,
            adam_lr_ratio: 1.0,
            momentum: 0.95,
            ns_steps: 5,
            nesterov: true,
            rms_rate: 0.2,
            shapes: BTreeMap::new(),
        }
    }
}

impl UpdateRule for Muon {
    fn kind(&self) -> &'static str {
        "Muon"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn ranges(&self) -> Vec<(&'static str, f32, Range)> {
        vec![
            ("learning_rate", self.learning_rate, Range::AtLeastZero),
            ("adam_beta_1", self.adam_beta_1, Range::BelowOne),
            ("adam_beta_2", self.adam_beta_2, Range::BelowOne),
            ("adam_weight_decay", self.adam_weight_decay, Range::AtLeastZero),
            ("epsilon", self.epsilon, Range::AboveZero),
            ("weight_decay", self.weight_decay, Range::AtLeastZero),
            ("muon_a", self.muon_a, Range::Finite),
            ("muon_b", self.muon_b, Range::Finite),
            ("muon_c", self.muon_c, Range::Finite),
            ("adam_lr_ratio", self.adam_lr_ratio, Range::AtLeastZero),
            ("momentum", self.momentum, Range::BelowOne),
            ("rms_rate", self.rms_rate, Range::AtLeastZero),
        ]
    }

    fn learning_rate(&self) -> f32 {
        self.learning_rate
    }

    fn with_learning_rate(&self, learning_rate: f32) -> Arc<dyn UpdateRule> {
        Arc::new(Self { learning_rate, ..self.clone() })
    }

    /// Matrices leave `velocity` at 0.
    fn state_names(&self) -> &'static [&'static str] {
        &["momentum", "velocity"]
    }

    /// The factor of Adam's step for each unit of the learning rate.
    fn step_numbers(&self, step: u64) -> Vec<f32> {
        let [first, second] = [self.adam_beta_1, self.adam_beta_2].map(|beta| correction(beta, step));
        vec![single(f64::from(self.adam_lr_ratio) * second.sqrt() / first)]
    }

    fn kernel(&self) -> Option<&'static Kernel> {
        None
    }

    /// Products of matrices are cut and fused by what the processor has.
    fn is_same_everywhere(&self) -> bool {
        false
    }

    fn update_tensor(&self, tensor: WholeTensor<'_>) {
        let shape = self.shapes.get(tensor.name).map_or(tensor.shape, Vec::as_slice);
        match *shape {
            [rows, columns] if !self.follows_adam(tensor.name) => self.update_matrix(tensor, (rows, columns)),
            _ => self.update_by_adam(tensor),
        }
    }
}

impl Muon {
    /// Whether a parameter follows Adam, if it is a matrix, too.
    fn follows_adam(&self, name: &str) -> bool {
        let (layer, last) = name.rsplit_once('/').unwrap_or((name, name));
        let is_named = |excluded: &String| [name, layer, last].contains(&excluded.as_str());
        self.exclude_layers.iter().any(is_named)
            || self.exclude_embeddings && name.to_ascii_lowercase().contains("embedding")
    }

    #[allow(clippy::cast_precision_loss, reason = "sides are far below 2^52")]
    fn update_matrix(&self, mut tensor: WholeTensor<'_>, (rows, columns): (usize, usize)) {
        tensor.decay(self.weight_decay);
        let rate = tensor.numbers[0];
        let WholeTensor { gradient, parameter, mut states, .. } = tensor;
        let Some(momentum) = states.first_mut() else { return };
        let mut x = Vec::with_capacity(gradient.len());
        for (m, g) in momentum.iter_mut().zip(gradient) {
            *m += g + *m * (self.momentum - 1.0);
            x.push(if self.nesterov { g + self.momentum * *m } else { *m });
        }
        let scale = if self.rms_rate == 0.0 {
            1.0
        } else {
            single((rows.max(columns) as f64).sqrt() * f64::from(self.rms_rate))
        };
        // The products of the shorter side are the smaller ones.
        let step = if rows > columns {
            let short = self.orthogonal(transposed(&x, rows, columns), columns, rows);
            transposed(&short, columns, rows)
        } else {
            self.orthogonal(x, rows, columns)
        };
        parameter.iter_mut().zip(step).for_each(|(w, x)| *w -= rate * x * scale);
    }

    /// The matrix with its directions made equally long: Newton–Schulz products.
    fn orthogonal(&self, mut x: Vec<f32>, rows: usize, columns: usize) -> Vec<f32> {
        let norm = x.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt() + 1e-7;
        x.iter_mut().for_each(|value| *value = single(f64::from(*value) / norm));
        let [mut second, mut fourth] = [(); 2].map(|()| vec![0.0; rows * rows]);
        let mut next = vec![0.0; x.len()];
        for _ in 0..self.ns_steps {
            let matrix_x = matrix(&x, rows, columns, columns);
            multiply(matrix_x, matrix_x.reversed_axes(), matrix_mut(&mut second, rows, rows, rows), Epilogue::NONE);
            let squares = matrix(&second, rows, rows, rows);
            multiply(squares, squares, matrix_mut(&mut fourth, rows, rows, rows), Epilogue::NONE);
            for (fourth, second) in fourth.iter_mut().zip(&second) {
                *fourth = self.muon_b * second + self.muon_c * *fourth;
            }
            let powers = matrix(&fourth, rows, rows, rows);
            multiply(powers, matrix_x, matrix_mut(&mut next, rows, columns, columns), Epilogue::NONE);
            x.iter_mut().zip(&next).for_each(|(x, next)| *x = self.muon_a * *x + next);
        }
        x
    }

    fn update_by_adam(&self, mut tensor: WholeTensor<'_>) {
        tensor.decay(self.adam_weight_decay);
        let &[rate, factor] = tensor.numbers else { return };
        let alpha = rate * factor;
        let WholeTensor { gradient, parameter, states, .. } = tensor;
        let Ok([momentum, velocity]) = <[&mut [f32]; 2]>::try_from(states) else { return };
        for (((w, m), v), g) in parameter.iter_mut().zip(momentum).zip(velocity).zip(gradient) {
            *m += (g - *m) * (1.0 - self.adam_beta_1);
            *v += (g * g - *v) * (1.0 - self.adam_beta_2);
            *w -= *m * alpha / (v.sqrt() + self.epsilon);
        }
    }
}

fn transposed(x: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| x[row * columns + column])).collect()
}
