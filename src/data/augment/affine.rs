//! Turns, zooms and shifts: an image seen through an affine map.

use std::cell::RefCell;

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

    /// Replaces an image by what is seen through the map, bilinear.
    pub fn resample(&self, image: &mut [f32], size: Size, fill: Fill) {
        thread_local! {
            /// The image before the change. Memory that is new to the process would cost about as much as the change.
            static BEFORE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
        }
        BEFORE.with_borrow_mut(|before| {
            before.clear();
            before.extend_from_slice(image);
            match size.channels {
                1 => self.see::<1>(before, image, size, fill),
                3 => self.see::<3>(before, image, size, fill),
                _ => self.see_slowly(before, image, size, fill),
            }
        });
    }

    /// The place in the old image of a pixel of the new one.
    #[allow(clippy::cast_precision_loss, reason = "images have fewer than 2^52 pixels a side")]
    fn place(&self, x: usize, y: usize) -> (f64, f64) {
        let place = |[by_x, by_y, offset]: [f64; 3]| by_x * x as f64 + by_y * y as f64 + offset;
        (place(self.x), place(self.y))
    }

    /// The new pixels of an image whose number of channels the compiler knows: most need no look at the border.
    fn see<const CHANNELS: usize>(&self, image: &[f32], changed: &mut [f32], size: Size, fill: Fill) {
        let Size { height, width, .. } = size;
        let last = |pixels: usize| 2.0 * centre(pixels);
        let (last_x, last_y) = (last(width), last(height));
        for (y, row) in changed.chunks_exact_mut(width * CHANNELS).enumerate() {
            for (x, pixel) in row.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate() {
                let place = self.place(x, y);
                let is_inside = place.0 >= 0.0 && place.0 < last_x && place.1 >= 0.0 && place.1 < last_y;
                if is_inside {
                    *pixel = inside(image, place, width);
                } else {
                    blend(image, pixel, place, size, fill);
                }
            }
        }
    }

    fn see_slowly(&self, image: &[f32], changed: &mut [f32], size: Size, fill: Fill) {
        for (y, row) in changed.chunks_exact_mut(size.width * size.channels).enumerate() {
            for (x, pixel) in row.chunks_exact_mut(size.channels).enumerate() {
                blend(image, pixel, self.place(x, y), size, fill);
            }
        }
    }
}

/// The pixel at a place whose four neighbours all lie in the image: in the order of [`blend`], so with the same bits.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "places lie within the image, and weights are from 0 to 1"
)]
fn inside<const CHANNELS: usize>(image: &[f32], (x, y): (f64, f64), width: usize) -> [f32; CHANNELS] {
    // Without `floor`, which is a call where the processor may lack SSE 4.1: places are not negative.
    let (left, top) = (x as u32, y as u32);
    let (right_part, lower_part) = ((x - f64::from(left)) as f32, (y - f64::from(top)) as f32);
    let begin = (top as usize * width + left as usize) * CHANNELS;
    let (upper, lower) = (&image[begin..][..2 * CHANNELS], &image[begin + width * CHANNELS..][..2 * CHANNELS]);
    let mut pixel = [0.0; CHANNELS];
    for (from, y_part) in [(upper, 1.0 - lower_part), (lower, lower_part)] {
        let (left_part, right_part) = ((1.0 - right_part) * y_part, right_part * y_part);
        for (channel, to) in pixel.iter_mut().enumerate() {
            *to += left_part * from[channel];
            *to += right_part * from[CHANNELS + channel];
        }
    }
    pixel
}

/// The pixel at any place, of any number of channels.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "places are within some widths of the image, and weights from 0 to 1"
)]
fn blend(image: &[f32], to: &mut [f32], (x, y): (f64, f64), size: Size, fill: Fill) {
    let (left, top) = (x.floor(), y.floor());
    let (right_part, lower_part) = ((x - left) as f32, (y - top) as f32);
    let (left, top, channels) = (left as isize, top as isize, to.len());
    to.fill(0.0);
    for (y, y_part) in [(top, 1.0 - lower_part), (top + 1, lower_part)] {
        for (x, x_part) in [(left, 1.0 - right_part), (left + 1, right_part)] {
            let part = x_part * y_part;
            match fill.index(y, size.height).zip(fill.index(x, size.width)) {
                Some((y, x)) => {
                    let from = &image[(y * size.width + x) * channels..][..channels];
                    to.iter_mut().zip(from).for_each(|(to, from)| *to += part * from);
                }
                None => to.iter_mut().for_each(|to| *to += part * fill.value),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Images of one and three channels have a loop of their own: bit by bit what the one for any number of channels gives.
    #[test]
    fn pixels_inside_have_the_same_bits_by_either_loop() {
        for (height, width, channels) in [(17, 23, 3), (16, 9, 1), (1, 5, 3), (2, 2, 3)] {
            let size = Size { height, width, channels };
            let image: Vec<f32> =
                (0..height * width * channels).map(|at| (at * 7919 % 251) as f32 / 250.0 - 0.3).collect();
            let maps = [
                Affine::rotation(0.03, size),
                Affine::rotation(-0.4, size),
                Affine::rotation(0.0, size),
                Affine::zoom(0.7, 1.3, size),
                Affine::translation(0.2, -0.35, size),
            ];
            for map in maps {
                for mode in [FillMode::Reflect, FillMode::Nearest, FillMode::Wrap, FillMode::Constant] {
                    let fill = Fill { mode, value: 0.4 };
                    let (mut fast, mut slow) = (image.clone(), vec![0.0; image.len()]);
                    map.resample(&mut fast, size, fill);
                    map.see_slowly(&image, &mut slow, size, fill);
                    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&fast), bits(&slow), "{map:?} {fill:?} {size:?}");
                }
            }
        }
    }
}
