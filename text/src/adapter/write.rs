//! Writes PEFT folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::json;

use super::{Adapter, CONFIG, LoraPair, WEIGHTS};
use crate::architecture::{Architecture, Family};
use crate::layout::{Planned, planned};
use crate::write::{prepare, single, write_json, write_safetensors};
use crate::{Error, Result, Tensor};

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
    write_json(&folder.join(CONFIG), &config(architecture, adapter, &all, &kernels)?)
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
