//! A vector for each whole number, and the way back: logits from a vector.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::activation;
use super::embedding::{Embedding, TablePart, uniform};
use super::gradient_sums::{ROWS_HINT, sum_parts};
use super::logits::{LogitProduct, Stored};
use super::lora::changed;
use super::{Built, Initializer, Layer, MaskUse, Parameter, Problem, only, to_config, yes};
use crate::kernels::activation_functions::{Activation as Named, Function, FunctionNumbers};
use crate::kernels::dense as kernel;
use crate::names;
use crate::onnx::{Attribute, Form, Order};
use crate::packed::BlockAxis;
use crate::plan::Recorder;
use crate::shape::{Shape, elements};

/// Name of the weights of the way back, if it has its own.
const REVERSE: &str = "reverse_embeddings";

/// A vector for each whole number, and in reverse a logit for each: language models use one table at both ends.
///
/// Forward it is an [`Embedding`]: `y[p] = embeddings[x[p]]`. In reverse, `y = x · embeddingsᵀ`, without a bias.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, ...]`, whole numbers from 0 to `input_dim - 1` | |
/// | output | `[batch, ..., output_dim]` | |
/// | input in reverse | `[batch, ..., output_dim]` | |
/// | output in reverse | `[batch, ..., input_dim]`, which has no mask | |
/// | `embeddings` | `[input_dim, output_dim]` | `embeddings_initializer`, uniform in ±0.05 |
/// | `reverse_embeddings` (without `tie_weights`) | `[output_dim, input_dim]` | `embeddings_initializer` |
///
/// [`ModelBuilder::call_reversed`](crate::ModelBuilder::call_reversed) uses a layer in reverse, in Keras an argument of
/// the call; in a file, `reuse = "name"` with `reverse = true`. Parts of a large table are those of [`Embedding`].
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows. The gradient of a tied table
/// is the sum of the product's, then of the vectors'. Kept for backward: the input. Golden values: Keras 3.
///
/// ```
/// use manyhands::{ModelBuilder, layers::ReversibleEmbedding};
/// # fn main() -> manyhands::Result<()> {
/// let mut graph = ModelBuilder::new();
/// let words = graph.input("words", [7]);
/// let table = graph.layer("table", ReversibleEmbedding::new(100, 8));
/// let vectors = graph.call(table, &[words]);
/// let logits = graph.call_reversed(table, &[vectors]);
/// let model = graph.build(&[logits], 0)?;
/// assert_eq!((model.n_parameters(), model.outputs()[0].1.to_string().as_str()), (800, "[batch, 7, 100]"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReversibleEmbedding {
    /// Number of whole numbers, from 0 on.
    pub input_dim: usize,
    /// Length of a vector.
    pub output_dim: usize,
    /// Whether the way back has the weights of the way forward.
    #[serde(default = "yes")]
    pub tie_weights: bool,
    /// Initial values of the weights.
    #[serde(default = "uniform", deserialize_with = "names::read")]
    pub embeddings_initializer: Initializer,
    /// Whether 0 is padding. Later recurrent layers then skip such positions.
    #[serde(default)]
    pub mask_zero: bool,
    /// Bound of logits: `tanh(logits / logit_soft_cap) · logit_soft_cap` takes their place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logit_soft_cap: Option<f32>,
    /// Whether the layer goes the way back wherever it is used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reverse: bool,
}

impl ReversibleEmbedding {
    /// Vectors of length `output_dim` for the whole numbers below `input_dim`, with one table for both ways.
    pub fn new(input_dim: usize, output_dim: usize) -> Self {
        Self {
            input_dim,
            output_dim,
            tie_weights: true,
            embeddings_initializer: uniform(),
            mask_zero: false,
            logit_soft_cap: None,
            reverse: false,
        }
    }

    /// With other weights for the way back.
    #[must_use]
    pub fn untied(mut self) -> Self {
        self.tie_weights = false;
        self
    }

    /// Sets the bound of logits.
    #[must_use]
    pub fn logit_soft_cap(mut self, cap: f32) -> Self {
        self.logit_soft_cap = Some(cap);
        self
    }

    /// The way forward.
    fn embedding(&self) -> Embedding {
        Embedding {
            embeddings_initializer: self.embeddings_initializer,
            mask_zero: self.mask_zero,
            ..Embedding::new(self.input_dim, self.output_dim)
        }
    }

    /// Name and words of each tensor of the way back.
    fn weights(&self) -> Vec<TablePart> {
        if self.tie_weights { self.embedding().parts().collect() } else { vec![(REVERSE, 0, self.input_dim)] }
    }

    /// The product with each tensor of the way back.
    fn products(&self, rec: &Recorder<'_>) -> Vec<(&'static str, LogitProduct)> {
        let stored = if self.tie_weights { Stored::Rows } else { Stored::Columns };
        let positions = rec.input_shape(0).positions();
        let product = |(name, first, count): TablePart| {
            (name, LogitProduct { stored, positions, dim: self.output_dim, first, count, vocabulary: self.input_dim })
        };
        self.weights().into_iter().map(product).collect()
    }

    /// Functions that bound logits: division, tanh, multiplication.
    fn capping(&self) -> Option<[Function; 3]> {
        let cap = self.logit_soft_cap?;
        let factor = |slope: f32| {
            let numbers = FunctionNumbers { slope, ..FunctionNumbers::NONE };
            Function { activation: Named::Affine, numbers }
        };
        Some([factor(1.0 / cap), Function::plain(Named::Tanh), factor(cap)])
    }

    fn forward_reversed(&self, rec: &mut Recorder<'_>) {
        let (x, y, capping) = (rec.input(0), rec.output(), self.capping());
        let logits = if capping.is_some() { rec.scratch("logits", y.len) } else { y };
        for (name, product) in self.products(rec) {
            let weights = product.weights(rec, name);
            product.forward(rec, x, weights, logits);
        }
        if let Some([divided, bounded, multiplied]) = capping {
            let [parts, bounds] = ["divided", "bounded"].map(|what| rec.scratch(what, y.len));
            activation::forward(rec, divided, logits, parts);
            activation::forward(rec, bounded, parts, bounds);
            activation::forward(rec, multiplied, bounds, y);
            rec.keep("bounded", bounds);
        }
    }

    fn backward_reversed(&self, rec: &mut Recorder<'_>) {
        let (x, mut d_logits) = (rec.input(0), rec.output_gradient());
        if let Some([_, bounded, _]) = self.capping() {
            let bounds = rec.kept("bounded");
            d_logits = rec.scratch("logits_gradient", d_logits.len);
            activation::backward(rec, bounded, bounds, d_logits);
        }
        for (name, product) in self.products(rec) {
            let splits = self.splits(&product);
            sum_parts(rec, name, splits, |rec, splits, partials| {
                product.backward_weights(rec, [x, d_logits], partials, splits);
            });
            // Several parts of a table are several uses of the input, which are added.
            if let Some(dx) = rec.input_gradient(0) {
                let weights = product.weights(rec, name);
                product.backward_input(rec, d_logits, weights, dx);
            }
        }
    }

    fn splits(&self, product: &LogitProduct) -> u32 {
        kernel::splits(product.count, self.output_dim, elements(&[ROWS_HINT, product.positions]))
    }

    /// Refuses an input of the way back that has another length, and a bound that is none.
    fn check(&self, input: &Shape) -> Result<(), Problem> {
        if let Some(cap) = self.logit_soft_cap.filter(|cap| !(*cap > 0.0 && cap.is_finite())) {
            return Err(Problem::new(
                format!("needs a positive `logit_soft_cap`, but got {cap}"),
                "leave it out for logits without a bound; 30 is usual",
            ));
        }
        if self.reverse && (input.rank() == 0 || input.last() != self.output_dim) {
            return Err(Problem::new(
                format!("needs vectors of length {} in reverse, but got {input}", self.output_dim),
                "`output_dim` is the length of the vectors before it",
            ));
        }
        Ok(())
    }
}

impl Layer for ReversibleEmbedding {
    fn kind(&self) -> &'static str {
        "ReversibleEmbedding"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn indices(&self) -> Option<usize> {
        (!self.reverse).then_some(self.input_dim)
    }

    fn reversed(&self) -> Option<Arc<dyn Layer>> {
        Some(changed(self, |layer| layer.reverse = true))
    }

    fn is_by_position(&self) -> bool {
        self.reverse
    }

    fn masking(&self) -> MaskUse {
        if self.reverse { MaskUse::Drops } else { self.embedding().masking() }
    }

    fn block_axis(&self, parameter: &str) -> Option<BlockAxis> {
        if parameter == REVERSE { Some(BlockAxis::First) } else { self.embedding().block_axis(parameter) }
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = only(inputs)?;
        self.check(input)?;
        let mut built = self.embedding().build(inputs)?;
        if !self.tie_weights {
            let shape = vec![self.output_dim, self.input_dim];
            built.parameters.push(Parameter { name: REVERSE, shape, initializer: self.embeddings_initializer });
        }
        let output = if self.reverse { input.with_last(self.input_dim) } else { built.output };
        Ok(Built { output, ..built })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        if self.reverse { self.forward_reversed(rec) } else { self.embedding().forward(rec) }
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        if self.reverse { self.backward_reversed(rec) } else { self.embedding().backward(rec) }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        if !self.reverse {
            return self.embedding().onnx(form);
        }
        let x = form.input(0);
        let tensors: Vec<_> = self.weights().iter().map(|(name, ..)| form.tensor(name)).collect();
        let weights = match &tensors[..] {
            [one] => one.clone(),
            // Only a table has parts.
            parts => form.op("Concat", &parts.iter().collect::<Vec<_>>(), &[("axis", Attribute::Int(0))]),
        };
        let weights = if self.tie_weights { form.transpose(&weights, [1, 0]) } else { weights };
        let mut y = form.op("MatMul", &[&x, &weights], &[]);
        for function in self.capping().into_iter().flatten() {
            y = activation::function_onnx(form, function, &y);
        }
        form.output(y, Order::Last);
        Ok(())
    }
}
