//! PEFT folders: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use manyhands::Model;
use manyhands::layers::Lora;
use serde_json::json;

use super::stored::{single, write_safetensors};
use super::{prepare, write_json};
use crate::architecture::{Architecture, Family};
use crate::layout::{Planned, planned};
use crate::{Error, Result, Tensor};

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
            return Err(refuse(
                "the model",
                "needs low-rank factors, but has none",
                "train it by `manyhands finetune`",
            ));
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
}

/// Writes an adapter as `peft.PeftModel.from_pretrained` reads it.
///
/// # Errors
/// If the folder has other files, a kernel is not one of the network, a matrix has another size, or a file can't be written.
pub fn write_adapter(folder: &Path, architecture: &Architecture, adapter: &Adapter) -> Result<()> {
    let all = planned(architecture);
    let kernels: Vec<&Planned> = all.iter().filter(|planned| adapter.pairs.contains_key(&planned.name)).collect();
    if let Some(name) = adapter.pairs.keys().find(|name| !kernels.iter().any(|kernel| kernel.name == **name)) {
        return Err(refuse(name, "is no tensor of the network", "take the names of `ModelFiles::shapes`"));
    }
    let mut tensors = BTreeMap::new();
    for kernel in &kernels {
        let module = module(kernel)?;
        let [units, inputs] = kernel.shape[..] else {
            return Err(refuse(&kernel.name, "is no matrix", "adapt kernels alone"));
        };
        let LoraPair { a, b } = &adapter.pairs[&kernel.name];
        if (Some(a.len()), Some(b.len())) != (inputs.checked_mul(adapter.rank), units.checked_mul(adapter.rank)) {
            let problem = format!("needs matrices [{inputs}, {0}] and [{0}, {units}]", adapter.rank);
            return Err(refuse(&kernel.name, &problem, "give both with the adapter's rank"));
        }
        for (part, values, shape) in [("lora_A", a, [inputs, adapter.rank]), ("lora_B", b, [adapter.rank, units])] {
            let name = format!("base_model.model.{module}.{part}.weight");
            let tensor = Tensor::from_values(name.clone(), shape, values).transposed();
            tensors.insert(name, tensor);
        }
    }
    prepare(folder, WEIGHTS)?;
    let stored: Vec<_> = tensors.iter().map(|(name, tensor)| single(name.clone(), tensor.shape.clone())).collect();
    write_safetensors(&folder.join(WEIGHTS), "adapter", &stored, &mut |name| Ok(tensors[name].clone()))?;
    write_json(&folder.join("adapter_config.json"), &config(architecture, adapter, &all, &kernels)?)
}

fn refuse(name: &str, problem: &str, help: &str) -> Error {
    Error::checkpoint(format!("the adapter of `{name}`"), problem, help)
}

/// Path of a kernel's module in transformers.
fn module(kernel: &Planned) -> Result<String> {
    if kernel.third.is_some() {
        let problem = "can't be a PEFT adapter of its own, since GPT-2 joins query, key and value";
        return Err(refuse(&kernel.name, problem, "adapt the other kernels, or write the merged model"));
    }
    Ok(kernel.folder_name.trim_end_matches(".weight").to_owned())
}

fn config(
    architecture: &Architecture,
    adapter: &Adapter,
    all: &[Planned],
    kernels: &[&Planned],
) -> Result<serde_json::Value> {
    let modules = kernels.iter().map(|kernel| module(kernel)).collect::<Result<BTreeSet<_>>>()?;
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let short: BTreeSet<String> = modules.iter().map(|module| last(module)).collect();
    // PEFT takes each module whose path ends so: short names are right if they mean no other module.
    let matrices = all.iter().filter(|planned| planned.shape.len() == 2);
    let meant =
        matrices.filter(|planned| short.contains(&last(planned.folder_name.trim_end_matches(".weight")))).count();
    let targets = if meant == kernels.len() { short } else { modules };
    let is_gpt2 = architecture.family == Family::Gpt2;
    Ok(json!({
        "peft_type": "LORA",
        "task_type": if architecture.causal { json!("CAUSAL_LM") } else { json!("FEATURE_EXTRACTION") },
        "base_model_name_or_path": adapter.base,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": adapter.dropout,
        "use_rslora": adapter.rank_stabilized,
        "target_modules": targets,
        "bias": "none",
        "fan_in_fan_out": is_gpt2,
        "inference_mode": true,
        "init_lora_weights": true,
        "modules_to_save": null,
    }))
}
