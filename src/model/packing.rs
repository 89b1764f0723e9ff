//! Packed weights of a model that is built: which parameters can be packed, and their initial values.

use super::NamedLayer;
use crate::error::Result;
use crate::layers::{Built, Problem};
use crate::packed::BLOCK;
use crate::plan::PlacedTensor;
use crate::shown;

pub(super) const CAN_BE_PACKED: &str =
    "the kernel of `Dense` and the tables of `Embedding` and `ReversibleEmbedding` can be packed";
const FREEZE: &str = "freeze the layer, or train low-rank factors beside it (`enable_lora`)";

/// Refuses packed parameters that the layer reads as floats, that training may change, or that have no whole blocks.
pub(super) fn check(named: &NamedLayer, built: &Built) -> Result<(), Problem> {
    for name in named.packed.keys() {
        let parameter = built.parameters.iter().find(|parameter| parameter.name == name);
        let (Some(parameter), Some(packing)) = (parameter, named.packing(name)) else {
            let problem = format!("needs `{}` as floats, but it is to be packed", shown(name));
            return Err(Problem::new(problem, CAN_BE_PACKED));
        };
        if named.trains(name) {
            return Err(Problem::new(
                format!("needs `{name}` to be frozen to keep it packed, but training may change it"),
                FREEZE,
            ));
        }
        let [_, len] = packing.lines(&parameter.shape);
        if !len.is_multiple_of(BLOCK) {
            return Err(Problem::new(
                format!("needs blocks of {BLOCK} values to keep `{name}` packed, but its lines have {len}"),
                "leave it as floats",
            ));
        }
    }
    Ok(())
}

/// Fills the places of a parameter with the floats that `fill` writes, or with their blocks.
pub(super) fn fill(placed: &PlacedTensor, places: &mut [f32], mut fill: impl FnMut(&mut [f32])) -> Result<()> {
    let Some(packing) = placed.packing else {
        fill(places);
        return Ok(());
    };
    let mut floats = vec![0.0; placed.len()];
    fill(&mut floats);
    packing.quantize(&placed.shape, &floats)?.put_words(places);
    Ok(())
}
