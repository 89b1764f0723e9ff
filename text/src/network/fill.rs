//! Weights of a language model from its files, tensor by tensor.

use std::collections::BTreeSet;

use manyhands::Model;
use manyhands_engine::packed::{PackedFormat, PackedTensor, Packing};

use super::CLASSIFIER;
use crate::packed::Formats;
use crate::{Error, ModelFiles, Result, Tensor};

/// Names of the layers that compute their tensors.
pub(super) const ROTARY: [&str; 2] = ["rotary", "window_rotary"];
pub(super) const QUERY_ROTARY: [&str; 2] = ["query_rotary", "window_query_rotary"];

/// Whether a layer computes a tensor, or begins with it, instead of taking it from a file.
fn is_own(name: &str) -> bool {
    let is_new = name.strip_prefix(CLASSIFIER).is_some_and(|rest| rest.starts_with('/'));
    is_new || ROTARY.iter().chain(&QUERY_ROTARY).any(|layer| name.strip_prefix(layer) == Some("/turns"))
}

/// Puts the tensors of the files into a model. One tensor at a time is unpacked.
pub(super) fn fill(model: &mut Model, files: &ModelFiles) -> Result<()> {
    let mut empty = to_fill(model);
    for tensor in files.tensors() {
        for name in put(model, tensor?)? {
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
        if let Some(blocks) = from.packed(&name) {
            model.set_packed([(name.as_str(), blocks)])?;
            continue;
        }
        let (values, places) = (from.tensor(&name), model.tensor_mut(&name));
        match (values, places) {
            (Some(values), Some(places)) if values.len() == places.len() => places.copy_from_slice(values),
            _ => return Err(defect(format!("needs a tensor for `{name}`, but the other model has none"))),
        }
    }
    Ok(())
}

/// Formats of a model's packed parameters, by the names of their tensors.
pub(super) fn formats(model: &Model) -> Formats {
    packed_parameters(model).map(|(name, packing)| (name.replace('/', "."), packing.format)).collect()
}

fn packed_parameters(model: &Model) -> impl Iterator<Item = (&str, Packing)> {
    model.layout().parameters.iter().filter_map(|placed| Some((placed.name.as_str(), placed.packing?)))
}

fn to_fill(model: &Model) -> BTreeSet<String> {
    let names = model.tensors().map(|(name, ..)| name).chain(packed_parameters(model).map(|(name, _)| name));
    names.filter(|name| !is_own(name)).map(ToOwned::to_owned).collect()
}

/// Names of the places of a tensor. A large table lies in parts, one behind the other.
fn places_of(tensor: &str) -> impl Iterator<Item = String> {
    let (layer, parameter) = tensor.rsplit_once('.').unwrap_or((tensor, ""));
    (0..)
        .map(move |part| if part == 0 { format!("{layer}/{parameter}") } else { format!("{layer}/{parameter}_{part}") })
}

/// Lines, and values of a line, of a parameter that the model keeps packed, with its format.
fn packed_at(model: &Model, name: &str) -> Option<(PackedFormat, [usize; 2])> {
    let layout = model.layout();
    let placed = &layout.parameters[layout.parameter(name)?];
    placed.packing.map(|packing| (packing.format, packing.lines(&placed.shape)))
}

/// Puts a tensor into the model, and names its places there: none for a part that the model was built without.
fn put(model: &mut Model, tensor: Tensor) -> Result<Vec<String>> {
    let first = places_of(&tensor.name).next().and_then(|name| packed_at(model, &name));
    match first {
        Some((format, _)) => put_packed(model, tensor, format),
        None => put_floats(model, &tensor),
    }
}

fn put_packed(model: &mut Model, tensor: Tensor, format: PackedFormat) -> Result<Vec<String>> {
    let tensor_name = tensor.name.clone();
    let tensor = tensor.into_packed(format)?;
    let mut rest = tensor.bytes();
    let mut filled = Vec::new();
    for name in places_of(&tensor_name) {
        let Some((format, lines)) = packed_at(model, &name) else { break };
        let bytes = format.bytes(lines).and_then(|bytes| rest.split_off(..bytes));
        let bytes = bytes.ok_or_else(|| defect(format!("needs more blocks for `{name}` than its files have")))?;
        model.set_packed([(name.as_str(), PackedTensor::new(format, lines, bytes.to_vec())?)])?;
        filled.push(name);
    }
    match rest.is_empty() {
        true => Ok(filled),
        false => Err(defect(format!("has {} bytes too many for `{tensor_name}`", rest.len()))),
    }
}

fn put_floats(model: &mut Model, tensor: &Tensor) -> Result<Vec<String>> {
    let (_, values) = tensor.in_keras_order();
    let mut rest = values.as_slice();
    let mut filled = Vec::new();
    for name in places_of(&tensor.name) {
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
