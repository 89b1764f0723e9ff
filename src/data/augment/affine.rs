//! Turns, zooms and shifts: an image seen through an affine map.

use serde::{Deserialize, Serialize};

use super::Size;

/// Pixels beyond the border of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FillMode {
    /// The image mirrored at its edge: `c b a | a b c | c b a`.
    #[default]
    Reflect,
    /// The nearest pixel: `a a a | a b c | c c c`.
    Nearest,
    /// The image again: `a b c | a b c | a b c`.
    Wrap,
    /// One value.
    Constant,
}

/// Pixels beyond the border, and their value for [`FillMode::Constant`].
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// Source of the pixels.
    pub mode: FillMode,
    /// Their value, if it is one for all.
    pub value: f32,
}

impl Fill {
    /// The index that stands in for one, of `len` in all; none for the one value.
    fn index(self, at: isize, len: usize) -> Option<usize> {
        let len = isize::try_from(len).unwrap_or(isize::MAX);
        let inside = match self.mode {
            FillMode::Constant => at,
            FillMode::Nearest => at.clamp(0, len - 1),
            FillMode::Wrap => at.rem_euclid(len),
            FillMode::Reflect => {
                let place = at.rem_euclid(2 * len);
                if place < len { place } else { 2 * len - 1 - place }
            }
        };
        usize::try_from(inside).ok().filter(|_| inside < len)
    }
}

/// The place in the old image of each pixel of the new one: `x · x[0] + y · x[1] + x[2]`, and the same for `y`.
#[derive(Clone, Copy, Debug)]
pub struct Affine {
    x: [f64; 3],
    y: [f64; 3],
}

#[allow(clippy::cast_precision_loss, reason = "images have fewer than 2^52 pixels a side")]
fn centre(pixels: usize) -> f64 {
    (pixels as f64 - 1.0) / 2.0
}

impl Affine {
    /// A turn around the centre, by parts of a full one.
    pub fn rotation(turn: f64, size: Size) -> Self {
        let (sin, cos) = (turn * std::f64::consts::TAU).sin_cos();
        let (x, y) = (centre(size.width), centre(size.height));
        Self { x: [cos, -sin, x - x * cos + y * sin], y: [sin, cos, y - x * sin - y * cos] }
    }

    /// A zoom around the centre: the new image shows so many times the old one's height and width.
    pub fn zoom(height: f64, width: f64, size: Size) -> Self {
        Self {
            x: [width, 0.0, centre(size.width) * (1.0 - width)],
            y: [0.0, height, centre(size.height) * (1.0 - height)],
        }
    }

    /// A shift by parts of height and width.
    #[allow(clippy::cast_precision_loss, reason = "images have fewer than 2^52 pixels a side")]
    pub fn translation(down: f64, right: f64, size: Size) -> Self {
        Self { x: [1.0, 0.0, -right * size.width as f64], y: [0.0, 1.0, -down * size.height as f64] }
    }

    /// Replaces an image by what is seen through the map, bilinear. `changed` is as large, for the new pixels.
    pub fn resample(&self, image: &mut [f32], changed: &mut [f32], size: Size, fill: Fill) {
        let Size { height, width, channels } = size;
        for (y, row) in changed.chunks_exact_mut(width * channels).enumerate() {
            for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                self.pixel(image, pixel, (x, y), (height, width), fill);
            }
        }
        image.copy_from_slice(changed);
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "places are within some widths of the image, and weights from 0 to 1"
    )]
    fn pixel(
        &self,
        image: &[f32],
        to: &mut [f32],
        (x, y): (usize, usize),
        (height, width): (usize, usize),
        fill: Fill,
    ) {
        let place = |[by_x, by_y, offset]: [f64; 3]| by_x * x as f64 + by_y * y as f64 + offset;
        let (x, y) = (place(self.x), place(self.y));
        let (left, top) = (x.floor(), y.floor());
        let (right_part, lower_part) = ((x - left) as f32, (y - top) as f32);
        let (left, top, channels) = (left as isize, top as isize, to.len());
        to.fill(0.0);
        for (y, y_part) in [(top, 1.0 - lower_part), (top + 1, lower_part)] {
            for (x, x_part) in [(left, 1.0 - right_part), (left + 1, right_part)] {
                let part = x_part * y_part;
                match fill.index(y, height).zip(fill.index(x, width)) {
                    Some((y, x)) => {
                        let from = &image[(y * width + x) * channels..][..channels];
                        to.iter_mut().zip(from).for_each(|(to, from)| *to += part * from);
                    }
                    None => to.iter_mut().for_each(|to| *to += part * fill.value),
                }
            }
        }
    }
}
