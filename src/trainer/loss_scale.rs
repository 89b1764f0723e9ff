//! The loss scale of mixed precision.

use serde::{Deserialize, Serialize};

use crate::size::power_of_two;

/// Power of 2 at the beginning, as in Keras.
const INITIAL: i32 = 15;
/// Steps with finite gradients after which the scale is doubled, as in Keras.
const GROWTH_STEPS: u32 = 2000;
/// Smallest power of 2. Gradients that are not finite even then were not too large for 16 bits: something else is wrong.
const LEAST: i32 = -14;
/// Largest power of 2, so that no scaled loss leaves the range of f32 where all gradients are 0.
const MOST: i32 = 60;

/// Factor of the loss, and thereby of all gradients, under mixed precision: it keeps small gradients within what 16-bit floats hold.
///
/// It begins at 2^15. A step whose gradients are not finite is not applied, and halves it; 2000 steps in a row that are applied double it.
/// Gradients are divided by it before they are clipped, penalized or reported, so a run sees it only in what is rounded.
///
/// Source: Micikevicius et al. 2018, arXiv:1710.03740; numbers of Keras 3.15, `LossScaleOptimizer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// The scale is 2 to this power.
    exponent: i32,
    /// Steps that were applied since it changed.
    finite_steps: u32,
    /// Steps of the run that were not applied.
    skipped_steps: u64,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { exponent: INITIAL, finite_steps: 0, skipped_steps: 0 }
    }
}

impl LossScale {
    /// The factor.
    pub fn scale(self) -> f32 {
        power_of_two(self.exponent)
    }

    /// The power of 2 that it is.
    pub(super) fn exponent(self) -> i32 {
        self.exponent
    }

    /// Steps that were not applied. They are no steps of the optimizer.
    pub fn skipped_steps(self) -> u64 {
        self.skipped_steps
    }

    /// Whether it can't fall any more, so that a step that is not applied is an error.
    pub(super) fn is_least(self) -> bool {
        self.exponent <= LEAST
    }

    /// After a step that is applied.
    #[must_use]
    pub(super) fn after_applied(self) -> Self {
        match self.finite_steps + 1 {
            GROWTH_STEPS.. => Self { exponent: (self.exponent + 1).min(MOST), finite_steps: 0, ..self },
            finite_steps => Self { finite_steps, ..self },
        }
    }

    /// After a step that is not applied.
    #[must_use]
    pub(super) fn after_skipped(self) -> Self {
        let exponent = (self.exponent - 1).max(LEAST);
        Self { exponent, finite_steps: 0, skipped_steps: self.skipped_steps + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps, and whether each is applied.
    fn after(start: LossScale, steps: u32, is_applied: bool) -> LossScale {
        let step = |scale: LossScale, _| if is_applied { scale.after_applied() } else { scale.after_skipped() };
        (0..steps).fold(start, step)
    }

    /// Keras 3.11's `LossScaleOptimizer` gives these numbers: `scripts/loss_scale_keras.py` prints them.
    #[test]
    fn it_follows_keras() {
        let numbers = |scale: LossScale| (scale.scale(), scale.finite_steps);
        let mut scale = LossScale::default();
        let mut seen = vec![numbers(scale)];
        for (steps, is_applied) in [
            (1, false),
            (1, false),
            (3, true),
            (1, false),
            (1999, true),
            (1, true),
            (1, true),
            (2000, true),
            (1, false),
        ] {
            scale = after(scale, steps, is_applied);
            seen.push(numbers(scale));
        }
        let keras = [
            (32_768.0, 0),
            (16_384.0, 0),
            (8192.0, 0),
            (8192.0, 3),
            (4096.0, 0),
            (4096.0, 1999),
            (8192.0, 0),
            (8192.0, 1),
            (16_384.0, 1),
            (8192.0, 0),
        ];
        assert_eq!(seen, keras);
        assert_eq!(scale.skipped_steps(), 4);
    }

    #[test]
    fn it_stays_within_what_an_f32_holds() {
        let least = after(LossScale::default(), 29, false);
        assert!(least.is_least() && !after(LossScale::default(), 28, false).is_least());
        assert_eq!(after(least, 5, false).scale(), 2.0_f32.powi(-14));
        let most = after(LossScale::default(), 50 * GROWTH_STEPS, true);
        assert_eq!(most.scale(), 2.0_f32.powi(60));
    }
}
