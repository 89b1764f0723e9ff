//! Turns, zooms and shifts: an image seen through an affine map.

use std::cell::RefCell;

use serde::{Deserialize, Serialize};

use super::Size;

/// Pixels beyond the border of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
            before.extend([0.0; LANES]);
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

    /// The new pixels of an image whose number of channels the compiler knows: most need no look at the border. Behind the
    /// image are [`LANES`] more values.
    fn see<const CHANNELS: usize>(&self, image: &[f32], changed: &mut [f32], size: Size, fill: Fill) {
        for (y, row) in changed.chunks_exact_mut(size.width * CHANNELS).enumerate() {
            for (block_idx, pixels) in row.as_chunks_mut::<CHANNELS>().0.chunks_mut(BLOCK).enumerate() {
                self.see_block(image, pixels, (block_idx * BLOCK, y), size, fill);
            }
        }
    }

    /// Some new pixels of a row, from a place on.
    fn see_block<const CHANNELS: usize>(
        &self,
        image: &[f32],
        pixels: &mut [[f32; CHANNELS]],
        (first, y): (usize, usize),
        size: Size,
        fill: Fill,
    ) {
        let block = PixelBlock::of(self, first, y, size, CHANNELS);
        for (lane, pixel) in pixels.iter_mut().enumerate() {
            if block.is_inside[lane] {
                *pixel = block.pixel(lane, image, size.width * CHANNELS);
            } else {
                blend(image, pixel, self.place(first + lane, y), size, fill);
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

/// Pixels of a row whose places are found at once, in loops that compile to vector instructions.
const BLOCK: usize = 16;
/// Values that are read at once: a pixel, and some of the next one.
const LANES: usize = 4;
/// A number below it, but not below 0, plus it has the number's nearest integer as its lowest bits.
const WHOLE: f64 = (1_u64 << 52) as f64;

/// The places of some pixels of a row in the old image. All is computed in the order of [`blend`], so with the same bits.
struct PixelBlock {
    /// Whether all four neighbours of a place lie in the image.
    is_inside: [bool; BLOCK],
    /// Index of the first value of the upper left neighbour, where that lies in the image.
    begin: [u64; BLOCK],
    /// Parts of the neighbours: upper left, upper right, lower left, lower right.
    parts: [[f32; BLOCK]; 4],
}

impl PixelBlock {
    /// The pixels from `first` on of a row.
    #[allow(clippy::cast_precision_loss, reason = "images have fewer than 2^52 pixels a side")]
    fn of(map: &Affine, first: usize, y: usize, size: Size, channels: usize) -> Self {
        let mut block = Self { is_inside: [false; BLOCK], begin: [0; BLOCK], parts: [[0.0; BLOCK]; 4] };
        let (mut x_places, mut y_places) = ([0.0; BLOCK], [0.0; BLOCK]);
        let lanes: [f64; BLOCK] = std::array::from_fn(|lane| lane as f64);
        for ([by_x, by_y, offset], places) in [(map.x, &mut x_places), (map.y, &mut y_places)] {
            let (first, of_row) = (first as f64, by_y * y as f64);
            for (place, lane) in places.iter_mut().zip(lanes) {
                *place = by_x * (first + lane) + of_row + offset;
            }
        }
        let last = [2.0 * centre(size.width), 2.0 * centre(size.height)];
        for (lane, is_inside) in block.is_inside.iter_mut().enumerate() {
            let (x, y) = (x_places[lane], y_places[lane]);
            *is_inside = (x >= 0.0) & (x < last[0]) & (y >= 0.0) & (y < last[1]);
        }
        block.find([x_places, y_places], [size.width as f64, channels as f64]);
        block
    }

    /// Indices and parts of the neighbours.
    #[allow(clippy::cast_possible_truncation, reason = "parts are from 0 to 1")]
    fn find(&mut self, [x_places, y_places]: [[f64; BLOCK]; 2], [width, channels]: [f64; 2]) {
        let (mut right_parts, mut lower_parts) = ([0.0; BLOCK], [0.0; BLOCK]);
        for lane in 0..BLOCK {
            let (x, y) = (x_places[lane], y_places[lane]);
            let (left, top) = (floor(x), floor(y));
            self.begin[lane] = ((top * width + left) * channels + WHOLE).to_bits() & (WHOLE.to_bits() ^ u64::MAX);
            (right_parts[lane], lower_parts[lane]) = ((x - left) as f32, (y - top) as f32);
        }
        for lane in 0..BLOCK {
            let (right, lower) = (right_parts[lane], lower_parts[lane]);
            let (left, upper) = (1.0 - right, 1.0 - lower);
            self.parts[0][lane] = left * upper;
            self.parts[1][lane] = right * upper;
            self.parts[2][lane] = left * lower;
            self.parts[3][lane] = right * lower;
        }
    }

    /// A pixel whose four neighbours all lie in the image.
    #[allow(clippy::cast_possible_truncation, reason = "an index of the image")]
    fn pixel<const CHANNELS: usize>(&self, lane: usize, image: &[f32], row_len: usize) -> [f32; CHANNELS] {
        let begin = self.begin[lane] as usize;
        let (upper, lower) = (&image[begin..][..CHANNELS + LANES], &image[begin + row_len..][..CHANNELS + LANES]);
        let neighbours = [&upper[..LANES], &upper[CHANNELS..], &lower[..LANES], &lower[CHANNELS..]];
        let mut sums = [0.0; LANES];
        for (neighbour, parts) in neighbours.into_iter().zip(&self.parts) {
            for (sum, value) in sums.iter_mut().zip(neighbour) {
                *sum += parts[lane] * value;
            }
        }
        std::array::from_fn(|channel| sums[channel])
    }
}

/// The largest whole number that is not larger, for numbers from 0 to 2^51. `f64::floor` is a call where the processor may lack
/// SSE 4.1.
fn floor(number: f64) -> f64 {
    let nearest = number + WHOLE - WHOLE;
    nearest - if nearest > number { 1.0 } else { 0.0 }
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
