//! Weights of a language model from its files, tensor by tensor.

use std::collections::BTreeSet;

use manyhands::Model;

use crate::{Error, ModelFiles, Result, Tensor};

/// Names of the layers that compute their tensors.
pub(super) const ROTARY: &str = "rotary";
pub(super) const QUERY_ROTARY: &str = "query_rotary";

/// Whether a layer computes a tensor, instead of taking it from a file.
fn is_computed(name: &str) -> bool {
    [ROTARY, QUERY_ROTARY].iter().any(|layer| name.strip_prefix(layer) == Some("/turns"))
}

/// Puts the tensors of the files into a model. One tensor at a time is unpacked.
pub(super) fn fill(model: &mut Model, files: &ModelFiles) -> Result<()> {
    let mut empty = to_fill(model);
    for tensor in files.tensors() {
        for name in put(model, &tensor?)? {
            empty.remove(&name);
        }
    }
    match empty.first() {
        None => Ok(()),
        Some(name) => Err(defect(format!("needs a tensor for `{name}`, but its files have none"))),
    }
}

/// Copies the weights of a model of the same network.
pub(super) fn copy(model: &mut Model, from: &Model) -> Result<()> {
    for name in to_fill(model) {
        let (values, places) = (from.tensor(&name), model.tensor_mut(&name));
        match (values, places) {
            (Some(values), Some(places)) if values.len() == places.len() => places.copy_from_slice(values),
            _ => return Err(defect(format!("needs a tensor for `{name}`, but the other model has none"))),
        }
    }
    Ok(())
}

fn to_fill(model: &Model) -> BTreeSet<String> {
    model.tensors().map(|(name, ..)| name).filter(|name| !is_computed(name)).map(ToOwned::to_owned).collect()
}

/// Puts a tensor into the model, and names its places there: none for a part that the model was built without.
fn put(model: &mut Model, tensor: &Tensor) -> Result<Vec<String>> {
    let Some((layer, parameter)) = tensor.name.rsplit_once('.') else { return Ok(Vec::new()) };
    let (_, values) = tensor.in_keras_order();
    let mut rest = values.as_slice();
    let mut filled = Vec::new();
    // A large table lies in parts, one behind the other.
    let names = (0..).map(|part| if part == 0 { parameter.to_owned() } else { format!("{parameter}_{part}") });
    for name in names.map(|name| format!("{layer}/{name}")) {
        let Some(places) = model.tensor_mut(&name) else { break };
        let (values, others) = rest.split_at_checked(places.len()).ok_or_else(|| {
            defect(format!("needs {} values for `{name}`, but its files have {}", places.len(), rest.len()))
        })?;
        places.copy_from_slice(values);
        rest = others;
        filled.push(name);
    }
    match filled.is_empty() || rest.is_empty() {
        true => Ok(filled),
        false => Err(defect(format!("has {} values too many for `{}`", rest.len(), tensor.name))),
    }
}

fn defect(problem: String) -> Error {
    Error::checkpoint("the language model", problem, "this is a defect of manyhands: please report it")
}
