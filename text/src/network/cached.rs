//! Networks that keep keys and values, so that a token costs the same whatever stands before it.
//!
//! Rotary attention depends on the distance of two positions alone. So keys are kept as they are before their rotation, and lie at the
//! end of a window that is rotated at each step: the newest key always has the last place, and the query its angle.

use manyhands::Model;
use manyhands::layers::Lora;

use super::fill::{self, QUERY_ROTARY, ROTARY};
use super::{Output, check, enable_lora, graph, layers_of};
use crate::architecture::Architecture;
use crate::{ModelFiles, Result};

/// Builds the network that reads one token behind those of a window, with the weights of its files.
///
/// | input | shape |
/// | --- | --- |
/// | [`TOKENS`](super::TOKENS) | `[1]` |
/// | [`POSITION`](super::POSITION), if positions are learned | `[1]` |
/// | [`MASK`](super::MASK): 1 for a place that holds a token | `[window]`; the last place is the new token's |
/// | [`WINDOW_MASK`](super::WINDOW_MASK), if blocks see a part of them: 1 for a place that they see | `[window]` |
/// | keys, then values, of each block | `[window - 1, key_heads, head_width]`; empty places come first |
///
/// Outputs are the logits, `[1, vocabulary]`, then for each block the new key and value, `[1, key_heads, head_width]`.
///
/// # Errors
/// As [`build`](super::build).
pub fn next(files: &ModelFiles, window: usize) -> Result<Model> {
    let architecture = files.architecture();
    check(architecture, window, Output::Logits)?;
    let mut model = graph::build_next(architecture, &files.formats(), window)?;
    for names in ROTARY.into_iter().zip(QUERY_ROTARY) {
        turn_query(&mut model, names, architecture.head_width);
    }
    fill::fill(&mut model, files)?;
    Ok(model)
}

/// Builds the network that gives the keys and values of rows of `length` tokens, `[length, key_heads, head_width]` for each block, with
/// the weights of another model of the same network: packed where it keeps them packed, with its low-rank factors, if it has such.
///
/// # Errors
/// As [`build`](super::build).
pub fn beginning(architecture: &Architecture, weights: &Model, lora: Option<Lora>, length: usize) -> Result<Model> {
    check(architecture, length, Output::Logits)?;
    let mut model = graph::build_beginning(architecture, &fill::formats(weights), length)?;
    if let Some(lora) = lora {
        let mut layers = layers_of(architecture, &graph::linear_parts(architecture));
        let has_factors = |layer: &str| weights.tensor(&format!("{layer}/lora_kernel_a")).is_some();
        layers.retain(|layer| model.is_trainable(layer).is_some() && has_factors(layer));
        enable_lora(&mut model, layers.iter().map(String::as_str), lora, 0)?;
    }
    fill::copy(&mut model, weights)?;
    Ok(model)
}

/// Gives the query, the only one of its row, the angle of the last place of the window.
fn turn_query(model: &mut Model, (keys, query): (&str, &str), head_width: usize) {
    let turns = model.tensor(&format!("{keys}/turns")).unwrap_or_default();
    let last = turns[turns.len().saturating_sub(head_width)..].to_vec();
    if let Some(places) = model.tensor_mut(&format!("{query}/turns")) {
        places.copy_from_slice(&last);
    }
}
