//! The kinds of changes: their settings, as they stand in a file, and what each does to an image.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::Size;
use super::affine::{Affine, Fill, FillMode};
use super::colour::{brightness, contrast, saturation};
use super::draws::Draws;
use super::places::{Patch, flip};

/// A random change of training images, with the name and the settings of Keras' layer. Images are `[height, width, channels]`.
///
/// A `factor` is a number, or its smallest and largest value: `0.1` or `[-0.2, 0.1]`. Images are numbers from 0 to 1, where
/// `value_range` says nothing else. Source: Keras 3.15; the golden values come from there, too.
///
/// ```
/// use manyhands::Fit;
/// use manyhands::data::{Augmentation, Factor, FlipMode};
/// let fit = Fit::new(10).augment([
///     Augmentation::RandomFlip { mode: FlipMode::Horizontal },
///     Augmentation::random_rotation(Factor::One(0.02)),
/// ]);
/// assert_eq!(fit.augment.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", deny_unknown_fields)]
pub enum Augmentation {
    /// Mirrors every second image, left to right, top to bottom, or each of both.
    RandomFlip {
        /// `horizontal`, `vertical` or `horizontal_and_vertical`.
        #[serde(default)]
        mode: FlipMode,
    },
    /// Turns around the centre.
    RandomRotation {
        /// Parts of a full turn; one number is the most in both directions.
        factor: Factor,
        /// Pixels beyond the border.
        #[serde(default)]
        fill_mode: FillMode,
        /// Their value, for `constant`.
        #[serde(default)]
        fill_value: f32,
    },
    /// Shrinks or enlarges around the centre.
    RandomZoom {
        /// Part by which more of the height is seen (above 0) or less (below 0); one number is the most of both.
        height_factor: Factor,
        /// Part of the width, likewise; as `height_factor`, so that proportions stay, if not given.
        width_factor: Option<Factor>,
        /// Pixels beyond the border.
        #[serde(default)]
        fill_mode: FillMode,
        /// Their value, for `constant`.
        #[serde(default)]
        fill_value: f32,
    },
    /// Shifts.
    RandomTranslation {
        /// Parts of the height, downwards; one number is the most in both directions.
        height_factor: Factor,
        /// Parts of the width, to the right.
        width_factor: Factor,
        /// Pixels beyond the border.
        #[serde(default)]
        fill_mode: FillMode,
        /// Their value, for `constant`.
        #[serde(default)]
        fill_value: f32,
    },
    /// Multiplies the distance of each pixel from the mean of its channel.
    RandomContrast {
        /// Part by which it shrinks or grows, at most; of two numbers the first is that by which it shrinks.
        factor: Factor,
        /// Smallest and largest value of a pixel.
        #[serde(default = "unit")]
        value_range: [f32; 2],
    },
    /// Adds a number to all pixels.
    RandomBrightness {
        /// Parts of the value range; one number is the most in both directions.
        factor: Factor,
        /// Smallest and largest value of a pixel.
        #[serde(default = "unit")]
        value_range: [f32; 2],
    },
    /// Makes colours paler or stronger. Takes images of three channels, from 0 to 1.
    RandomSaturation {
        /// From 0 (gray) by 0.5 (unchanged) to 1 (strongest); one number is the largest, of which 0 is the smallest.
        factor: Factor,
    },
    /// Covers a rectangle with noise, or with one value.
    RandomErasing {
        /// Probability that an image is changed; of two numbers, one between both is drawn for each image.
        #[serde(default = "always")]
        factor: Factor,
        /// Part of the area: the root of a number between both is the part of the width, of another that of the height.
        #[serde(default = "patch")]
        scale: [f32; 2],
        /// Value of the rectangle; noise if not given.
        fill_value: Option<f32>,
        /// Smallest and largest value of a pixel.
        #[serde(default = "unit")]
        value_range: [f32; 2],
    },
    /// Mixes each image and its target with those of another row of the batch. It comes last; targets are numbers: `label_mode
    /// = "categorical"`.
    MixUp {
        /// Shape of the beta distribution of the row's own part: small values leave most images as they are.
        #[serde(default = "mix_alpha")]
        alpha: f32,
    },
}

fn unit() -> [f32; 2] {
    [0.0, 1.0]
}

fn always() -> Factor {
    Factor::One(1.0)
}

fn patch() -> [f32; 2] {
    [0.02, 0.33]
}

fn mix_alpha() -> f32 {
    0.2
}

/// Directions of a flip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FlipMode {
    /// Left to right.
    Horizontal,
    /// Top to bottom.
    Vertical,
    /// Each of both, by a draw of its own.
    #[default]
    HorizontalAndVertical,
}

/// Range of a random number.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "needs a number, or a list of the smallest and the largest")]
pub enum Factor {
    /// The most; the least follows from it.
    One(f32),
    /// The least and the most.
    Range([f32; 2]),
}

impl Factor {
    /// From the least to the most; one number goes in both directions.
    fn both_ways(self) -> [f32; 2] {
        match self {
            Self::One(most) => [-most.abs(), most.abs()],
            Self::Range(range) => range,
        }
    }

    /// From the least to the most; one number begins at 0.
    fn one_way(self) -> [f32; 2] {
        match self {
            Self::One(most) => [0.0, most],
            Self::Range(range) => range,
        }
    }

    /// Factors around 1: the least is 1 less the first number, the most 1 plus the second.
    fn around_one(self) -> [f32; 2] {
        let [less, more] = match self {
            Self::One(part) => [part; 2],
            Self::Range(parts) => parts,
        };
        [1.0 - less, 1.0 + more]
    }
}

impl Augmentation {
    /// Turns by these parts of a full turn; pixels beyond the border are mirrored.
    pub fn random_rotation(factor: Factor) -> Self {
        Self::RandomRotation { factor, fill_mode: FillMode::default(), fill_value: 0.0 }
    }

    /// Name of the kind.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::RandomFlip { .. } => "RandomFlip",
            Self::RandomRotation { .. } => "RandomRotation",
            Self::RandomZoom { .. } => "RandomZoom",
            Self::RandomTranslation { .. } => "RandomTranslation",
            Self::RandomContrast { .. } => "RandomContrast",
            Self::RandomBrightness { .. } => "RandomBrightness",
            Self::RandomSaturation { .. } => "RandomSaturation",
            Self::RandomErasing { .. } => "RandomErasing",
            Self::MixUp { .. } => "MixUp",
        }
    }

    /// Settings with the ranges in which they must be: name, least and most drawn, least and most allowed.
    pub(super) fn ranges(&self) -> Vec<(&'static str, [f32; 2], [f32; 2])> {
        const PART: [f32; 2] = [-1.0, 1.0];
        const FROM_ZERO: [f32; 2] = [0.0, 1.0];
        match self {
            Self::RandomFlip { .. } => Vec::new(),
            Self::RandomRotation { factor, .. } => vec![("factor", factor.both_ways(), PART)],
            // A factor of -1 would leave nothing to be seen.
            Self::RandomZoom { height_factor, width_factor, .. } => {
                let named = [("height_factor", Some(height_factor)), ("width_factor", width_factor.as_ref())];
                let range = |(name, factor): (_, Option<&Factor>)| Some((name, factor?.both_ways(), [-0.99, 1.0]));
                named.into_iter().filter_map(range).collect()
            }
            Self::RandomTranslation { height_factor, width_factor, .. } => {
                vec![
                    ("height_factor", height_factor.both_ways(), PART),
                    ("width_factor", width_factor.both_ways(), PART),
                ]
            }
            Self::RandomContrast { factor, .. } => vec![("factor", factor.around_one(), [0.0, 2.0])],
            Self::RandomBrightness { factor, .. } => vec![("factor", factor.both_ways(), PART)],
            Self::RandomSaturation { factor } => vec![("factor", factor.one_way(), FROM_ZERO)],
            Self::RandomErasing { factor, scale, .. } => {
                vec![("factor", factor.one_way(), FROM_ZERO), ("scale", *scale, FROM_ZERO)]
            }
            Self::MixUp { alpha } => vec![("alpha", [*alpha; 2], [0.01, 4.0])],
        }
    }

    /// Smallest and largest value of a pixel, where it matters.
    pub(super) fn value_range(&self) -> Option<[f32; 2]> {
        match self {
            Self::RandomContrast { value_range, .. }
            | Self::RandomBrightness { value_range, .. }
            | Self::RandomErasing { value_range, .. } => Some(*value_range),
            _ => None,
        }
    }

    /// Changes an image.
    pub(super) fn change(&self, image: &mut [f32], size: Size, draws: &mut Draws<ChaCha8Rng>) {
        let part = f64::from;
        match *self {
            Self::RandomFlip { mode } => {
                let (is_mirrored, is_overturned) = (draws.is_below(0.5), draws.is_below(0.5));
                flip(
                    image,
                    size,
                    is_mirrored && mode != FlipMode::Vertical,
                    is_overturned && mode != FlipMode::Horizontal,
                );
            }
            Self::RandomRotation { factor, fill_mode, fill_value } => {
                let turn = Affine::rotation(part(draws.between(factor.both_ways())), size);
                turn.resample(image, size, Fill { mode: fill_mode, value: fill_value });
            }
            Self::RandomZoom { height_factor, width_factor, fill_mode, fill_value } => {
                let height = 1.0 + part(draws.between(height_factor.both_ways()));
                let width = width_factor.map_or(height, |factor| 1.0 + part(draws.between(factor.both_ways())));
                Affine::zoom(height, width, size).resample(image, size, Fill { mode: fill_mode, value: fill_value });
            }
            Self::RandomTranslation { height_factor, width_factor, fill_mode, fill_value } => {
                let down = part(draws.between(height_factor.both_ways()));
                let right = part(draws.between(width_factor.both_ways()));
                let shift = Affine::translation(down, right, size);
                shift.resample(image, size, Fill { mode: fill_mode, value: fill_value });
            }
            Self::RandomContrast { factor, value_range } => {
                contrast(image, size.channels, draws.between(factor.around_one()), value_range);
            }
            Self::RandomBrightness { factor, value_range } => {
                let [low, high] = value_range;
                brightness(image, draws.between(factor.both_ways()) * (high - low), value_range);
            }
            Self::RandomSaturation { factor } => {
                let part = draws.between(factor.one_way());
                saturation(image, part / (1.0 - part + f32::EPSILON));
            }
            Self::RandomErasing { factor, scale, fill_value, value_range } => {
                let sides = [draws.between(scale).sqrt(), draws.between(scale).sqrt()];
                let places = [draws.uniform(), draws.uniform()];
                let probability = draws.between(factor.one_way());
                if draws.is_below(probability) {
                    let patch = Patch { sides, places };
                    patch.erase(image, size, || {
                        let value = fill_value.unwrap_or_else(|| draws.normal() * value_range[1]);
                        value.clamp(value_range[0], value_range[1])
                    });
                }
            }
            Self::MixUp { .. } => {}
        }
    }
}
