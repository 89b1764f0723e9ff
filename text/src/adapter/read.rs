//! Reads PEFT folders.

use std::collections::BTreeMap;
use std::path::Path;

use manyhands_engine::{files, shown};
use serde_json::{Map, Value};

use super::{Adapter, CONFIG, LoraPair, WEIGHTS};
use crate::architecture::Architecture;
use crate::folder::read_tensors;
use crate::layout::{Planned, planned};
use crate::{Error, Result, Tensor};

/// Settings that change nothing here: the names of the tensors say which kernels are adapted, and nothing is trained.
const WITHOUT_EFFECT: [&str; 15] = [
    "auto_mapping",
    "base_model_name_or_path",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "target_modules",
    "task_type",
    "runtime_config",
];
/// Initial values of factors that leave the base model as it is.
const PLAIN_INITIAL: [&str; 3] = ["eva", "gaussian", "orthogonal"];
/// Help for adapters that change more than is read here.
const MERGE: &str = "merge it by `model.merge_and_unload()` of PEFT, and save the whole model";

impl Adapter {
    /// Reads a folder as `peft.PeftModel.save_pretrained` writes it, for a model.
    ///
    /// # Errors
    /// If a file is missing or damaged, a setting changes the result in a way that is not known here, such as `use_dora`, or a tensor
    /// does not fit the model.
    pub fn read(folder: &Path, architecture: &Architecture) -> Result<Self> {
        let settings = Settings::read(folder)?;
        let path = folder.join(WEIGHTS);
        if !path.exists() {
            let problem = format!("lacks `{WEIGHTS}`");
            return Err(refuse(folder, problem, "save the adapter by `model.save_pretrained(folder)` of PEFT"));
        }
        let mut tensors: BTreeMap<String, Tensor> =
            read_tensors(&path)?.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        let mut pairs = BTreeMap::new();
        let mut used = Vec::new();
        for kernel in planned(architecture).into_iter().filter(|planned| planned.name.ends_with(".kernel")) {
            let Some(module) = module_of(&kernel, &tensors) else { continue };
            pairs.insert(kernel.name.clone(), pair(&path, &kernel, &module, settings.rank, &tensors)?);
            used.push(module);
        }
        for part in used.iter().flat_map(|module| [key(module, "A"), key(module, "B")]) {
            tensors.remove(&part);
        }
        if let Some(name) = tensors.keys().next() {
            let problem = format!("has a tensor `{}`, which changes no kernel of this model", shown(name));
            let is_end = ["embed_tokens", "lm_head", ".wte."].iter().any(|part| name.contains(part));
            let help = if is_end { MERGE } else { "take the model that the adapter was trained for" };
            return Err(refuse(&path, problem, help));
        }
        if pairs.is_empty() {
            return Err(refuse(&path, "needs tensors, but has none".into(), "take the folder as it was saved"));
        }
        Ok(Self {
            rank: settings.rank,
            alpha: settings.alpha,
            dropout: settings.dropout,
            rank_stabilized: settings.rank_stabilized,
            base: settings.base,
            pairs,
        })
    }
}

/// Whether a folder holds an adapter, by its settings.
pub fn is_adapter(folder: &Path) -> bool {
    folder.join(CONFIG).is_file()
}

/// Path or name of the model that an adapter in a folder was trained for, as the adapter says it.
///
/// # Errors
/// If the folder holds no adapter that can be read here.
pub fn base_of(folder: &Path) -> Result<String> {
    Ok(Settings::read(folder)?.base)
}

fn refuse(path: &Path, problem: String, help: &str) -> Error {
    Error::checkpoint(format!("the adapter `{}`", shown(path)), problem, help)
}

/// Settings in `adapter_config.json`.
struct Settings {
    rank: usize,
    alpha: f64,
    dropout: f64,
    rank_stabilized: bool,
    base: String,
}

impl Settings {
    fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(CONFIG);
        if !path.exists() {
            let problem = format!("lacks `{CONFIG}`");
            return Err(refuse(
                folder,
                problem,
                "name the folder that PEFT or `manyhands finetune` wrote, such as `runs/1/adapter`",
            ));
        }
        let damaged = |problem: String| refuse(&path, problem, "take the file as it was saved");
        let settings: Map<String, Value> = serde_json::from_str(&files::read_text(&path)?)
            .map_err(|error| damaged(format!("needs to be a JSON object, but: {error}")))?;
        if settings.get("peft_type").and_then(Value::as_str) != Some("LORA") {
            let kind = shown(&settings.get("peft_type").unwrap_or(&Value::Null).to_string()).to_string();
            return Err(refuse(
                &path,
                format!("needs `peft_type` LORA, but has {kind}"),
                "train it with `LoraConfig` of PEFT",
            ));
        }
        if let Some((name, value)) = settings.iter().find(|(name, value)| !is_known(name, value)) {
            let problem =
                format!("has the setting `{}` = {}, which is not supported", shown(name), shown(&value.to_string()));
            return Err(refuse(&path, problem, MERGE));
        }
        let rank = settings.get("r").and_then(Value::as_u64).and_then(|rank| usize::try_from(rank).ok());
        let rank =
            rank.filter(|rank| *rank > 0).ok_or_else(|| damaged("needs `r`, a whole number from 1 up".into()))?;
        let alpha = settings.get("lora_alpha").and_then(Value::as_f64).filter(|alpha| alpha.is_finite());
        Ok(Self {
            rank,
            alpha: alpha.ok_or_else(|| damaged("needs `lora_alpha`, a number".into()))?,
            dropout: settings.get("lora_dropout").and_then(Value::as_f64).unwrap_or(0.0),
            rank_stabilized: settings.get("use_rslora") == Some(&Value::Bool(true)),
            base: settings.get("base_model_name_or_path").and_then(Value::as_str).unwrap_or_default().to_owned(),
        })
    }
}

/// Whether a setting is read here, changes nothing, or is switched off.
fn is_known(name: &str, value: &Value) -> bool {
    let is_off = match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.is_empty(),
        _ => false,
    };
    match name {
        "peft_type" | "r" | "lora_alpha" | "use_rslora" => true,
        "bias" => value == "none",
        "init_lora_weights" => is_off || value == true || value.as_str().is_some_and(|it| PLAIN_INITIAL.contains(&it)),
        _ => is_off || WITHOUT_EFFECT.contains(&name),
    }
}

fn key(module: &str, factor: &str) -> String {
    format!("{module}.lora_{factor}.weight")
}

/// Path of a kernel's module in the file, if it is adapted: with the prefix of the whole model, or without.
fn module_of(kernel: &Planned, tensors: &BTreeMap<String, Tensor>) -> Option<String> {
    let path = kernel.folder_name.trim_end_matches(".weight");
    let bare = ["model.", "transformer."].iter().find_map(|prefix| path.strip_prefix(prefix));
    let modules = [Some(path), bare].into_iter().flatten().map(|path| format!("base_model.model.{path}"));
    modules.into_iter().find(|module| ["A", "B"].iter().any(|factor| tensors.contains_key(&key(module, factor))))
}

/// The factors of a kernel `[units, inputs]`, in the order of Keras. GPT-2 joins query, key and value, which share the first.
fn pair(
    path: &Path,
    kernel: &Planned,
    module: &str,
    rank: usize,
    tensors: &BTreeMap<String, Tensor>,
) -> Result<LoraPair> {
    let factor = |factor: &str, shape: [usize; 2]| {
        let name = key(module, factor);
        let found = tensors.get(&name).map(|tensor| tensor.shape.clone());
        match tensors.get(&name) {
            Some(tensor) if tensor.shape == shape => Ok(tensor.clone()),
            _ => {
                let found = found.map_or("none".into(), |found| format!("{found:?}"));
                let problem = format!("needs a tensor `{}` of the shape {shape:?}, but has {found}", shown(&name));
                Err(refuse(path, problem, "take the model that the adapter was trained for"))
            }
        }
    };
    let [units, inputs] = kernel.shape[..] else {
        return Err(refuse(path, format!("changes `{}`, which is no matrix", kernel.name), "adapt kernels alone"));
    };
    let joined = if kernel.third.is_some() { 3 } else { 1 };
    let (a, b) = (factor("A", [rank, inputs])?, factor("B", [joined * units, rank])?);
    let begin = kernel.third.unwrap_or(0) * units;
    let b = b.rows(units, |row| begin + row);
    Ok(LoraPair { a: a.transposed().values(), b: b.transposed().values() })
}
