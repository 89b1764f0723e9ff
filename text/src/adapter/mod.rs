//! Adapters: low-rank changes of a model's kernels, in folders as PEFT has them.

// Files: `read.rs`: reads a folder; `write.rs`: writes one; `merged.rs`: writes a model with an adapter merged.

mod merged;
mod read;
mod write;

use std::collections::BTreeMap;
use std::path::Path;

use manyhands::Model;
use manyhands::layers::{Lora, LowRank};

pub use self::merged::write_merged;
pub use self::read::{base_of, is_adapter};
pub use self::write::write_adapter;
use crate::{Error, Result, Tensor, network};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

/// The two matrices of one kernel: y += alpha / rank · (x · a) · b.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraPair {
    /// `lora_kernel_a` of Keras, `[inputs, rank]`, row-major.
    pub a: Vec<f32>,
    /// `lora_kernel_b` of Keras, `[rank, units]`, row-major.
    pub b: Vec<f32>,
}

/// A trained adapter: low-rank changes of kernels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adapter {
    /// Rank.
    pub rank: usize,
    /// Scale: results are multiplied by `alpha / rank`, or by `alpha / √rank` if `rank_stabilized`.
    pub alpha: f64,
    /// Share of inputs that training dropped.
    pub dropout: f64,
    /// Whether the scale is `alpha / √rank`.
    pub rank_stabilized: bool,
    /// Path or name of the model that was tuned.
    pub base: String,
    /// Matrices by the name of the kernel, such as `blocks.0.attention.query.kernel`.
    pub pairs: BTreeMap<String, LoraPair>,
}

impl Adapter {
    /// The trained factors of a model that [`network::build`](crate::network::build) made, with their settings.
    ///
    /// # Errors
    /// If it has none.
    pub fn of(model: &Model, lora: Lora, base: &Path) -> Result<Self> {
        let mut pairs = BTreeMap::new();
        for (name, _, a) in model.tensors() {
            let Some(layer) = name.strip_suffix("/lora_kernel_a") else { continue };
            let Some(b) = model.tensor(&format!("{layer}/lora_kernel_b")) else { continue };
            pairs.insert(format!("{layer}.kernel"), LoraPair { a: a.to_vec(), b: b.to_vec() });
        }
        if pairs.is_empty() {
            let problem = "needs low-rank factors, but has none";
            return Err(Error::model("the model", problem, "train it by `manyhands finetune`"));
        }
        Ok(Self {
            rank: lora.rank,
            alpha: f64::from(lora.alpha),
            dropout: f64::from(lora.dropout),
            rank_stabilized: false,
            base: base.display().to_string(),
            pairs,
        })
    }

    /// Adds the changes to the kernels of a model whose layers have the names of [`network::build`]. Sums are in f64.
    ///
    /// # Errors
    /// If the model lacks a kernel, or has it with another shape.
    pub fn merge(&self, model: &mut Model) -> Result<()> {
        self.add(model)?;
        model.merge_lora()
    }

    /// Adds the matrices to a model whose layers have the names of [`network::build`], as factors to train, and freezes all else. Kernels
    /// stay as they are, packed or not.
    ///
    /// # Errors
    /// As [`merge`](Self::merge).
    pub fn add(&self, model: &mut Model) -> Result<()> {
        let layers: Vec<&str> = self.pairs.keys().map(|kernel| kernel.trim_end_matches(".kernel")).collect();
        network::enable_lora(model, layers, self.lora(), 0)?;
        for (kernel, pair) in &self.pairs {
            let layer = kernel.trim_end_matches(".kernel");
            for (factor, values) in [("lora_kernel_a", &pair.a), ("lora_kernel_b", &pair.b)] {
                match model.tensor_mut(&format!("{layer}/{factor}")) {
                    Some(places) if places.len() == values.len() => places.copy_from_slice(values),
                    _ => {
                        let problem = format!("needs a kernel `{layer}` of the adapter's size, but has none");
                        return Err(Error::model(
                            "the model",
                            problem,
                            "take the model that the adapter was trained for",
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// A tensor of the model's files with the adapter's changes: a kernel of 32-bit floats, or the tensor as it was, if the adapter leaves
    /// it alone. Sums are in f64.
    ///
    /// # Errors
    /// If the kernel has another size than the adapter's matrices, or a value of the sum is not finite.
    pub fn merged(&self, tensor: Tensor) -> Result<Tensor> {
        let Some(LoraPair { a, b }) = self.pairs.get(&tensor.name) else { return Ok(tensor) };
        let (shape, mut kernel) = tensor.in_keras_order();
        if shape.len() != 2 || (a.len(), b.len()) != (shape[0] * self.rank, self.rank * shape[1]) {
            let problem = format!("needs the shape of the adapter's matrices, but has {:?}", tensor.shape);
            let help = "take the model that the adapter was trained for";
            return Err(Error::checkpoint(format!("the tensor `{}`", tensor.name), problem, help));
        }
        LowRank { kernel: "kernel", first: 0, a: "a", b: "b", lora: self.lora() }.merge(&mut kernel, a, b);
        if let Some(value) = kernel.iter().find(|value| !value.is_finite()) {
            let problem = format!("needs to be finite with the adapter's changes, but has {value}");
            return Err(Error::non_finite(
                format!("the tensor `{}`", tensor.name),
                problem,
                "check the adapter: its training may have diverged",
            ));
        }
        Ok(Tensor::from_values(tensor.name, shape, &kernel).transposed())
    }

    /// Settings of the matrices as factors of layers, in which `alpha` holds the scale of either kind.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a scale, which is rounded once")]
    pub fn lora(&self) -> Lora {
        let alpha = if self.rank_stabilized { self.alpha * (self.rank as f64).sqrt() } else { self.alpha };
        Lora::new(self.rank).alpha(alpha as f32).dropout(self.dropout as f32)
    }
}
