//! Rotary positions as a layer has them.

use manyhands::layers::RotaryEmbedding;
use manyhands_engine::kernels::rounding::single;

use crate::architecture::{Architecture, Positions, RotaryScaling};
use crate::{Error, Result};

/// The layers that rotate queries and keys, if the network has rotary positions: of all blocks, and of those with a window where these have
/// a base of their own.
pub(super) fn layers(architecture: &Architecture) -> Result<[Option<RotaryEmbedding>; 2]> {
    let near = |base| RotaryEmbedding { max_wavelength: single(base), ..RotaryEmbedding::default() };
    Ok([layer(architecture)?, architecture.window_base.map(near)])
}

fn layer(architecture: &Architecture) -> Result<Option<RotaryEmbedding>> {
    let Positions::Rotary { base, scaling } = &architecture.position else { return Ok(None) };
    let plain = RotaryEmbedding { max_wavelength: single(*base), ..RotaryEmbedding::default() };
    let layer = match scaling {
        RotaryScaling::None => Some(plain),
        RotaryScaling::Linear { factor } => Some(RotaryEmbedding { scaling_factor: single(*factor), ..plain }),
        RotaryScaling::Llama3 { .. } => of_llama(plain, scaling),
        RotaryScaling::Factors(factors) => {
            llama_of(architecture, *base, factors).and_then(|scaling| of_llama(plain, &scaling))
        }
    };
    let refuse = || {
        let problem = "needs rotary frequencies by the rule of Llama 3.1, but its file has others";
        Error::checkpoint(
            "the language model",
            problem,
            "take its Hugging Face folder, whose `config.json` names the rule",
        )
    };
    Ok(Some(layer.ok_or_else(refuse)?))
}

fn of_llama(plain: RotaryEmbedding, scaling: &RotaryScaling) -> Option<RotaryEmbedding> {
    let RotaryScaling::Llama3 { factor, low, high, original_positions } = scaling else { return None };
    Some(RotaryEmbedding {
        frequency_adjustment_factor: Some(single(*factor)),
        low_freq_factor: Some(single(*low)),
        high_freq_factor: Some(single(*high)),
        pretraining_sequence_length: Some(whole(*original_positions)),
        ..plain
    })
}

/// The settings of Llama 3.1 that give the factors of a GGUF file. It keeps no settings; all models that are known have these bounds, and
/// were trained first on a power of two.
fn llama_of(architecture: &Architecture, base: f64, factors: &[f32]) -> Option<RotaryScaling> {
    let factor = factors.iter().copied().fold(1.0, f32::max);
    let frequencies = |scaling: RotaryScaling| {
        let position = Positions::Rotary { base, scaling };
        Architecture { position, windows: Vec::new(), ..architecture.clone() }.rotary_frequencies()
    };
    let usual = frequencies(RotaryScaling::None);
    let rules = (4..24).map(|power| RotaryScaling::Llama3 {
        factor: f64::from(factor),
        low: 1.0,
        high: 4.0,
        original_positions: f64::from(1_u32 << power),
    });
    rules.into_iter().find(|rule| {
        let adjusted = frequencies(rule.clone());
        let pairs = usual.iter().zip(&adjusted).zip(factors);
        usual.len() == factors.len()
            && pairs
                .into_iter()
                .all(|((usual, adjusted), factor)| (usual / adjusted / f64::from(*factor) - 1.0).abs() < 1e-5)
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length, which is checked to be positive")]
fn whole(number: f64) -> usize {
    number as usize
}
