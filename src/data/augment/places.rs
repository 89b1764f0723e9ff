//! Changes that move or cover pixels of an image at their places: flips and rectangles.

use super::Size;

/// Mirrors an image, left to right, top to bottom, or both.
pub(super) fn flip(image: &mut [f32], size: Size, is_mirrored: bool, is_overturned: bool) {
    let row_len = size.width * size.channels;
    if is_mirrored {
        for row in image.chunks_exact_mut(row_len) {
            match size.channels {
                1 => row.reverse(),
                3 => row.as_chunks_mut::<3>().0.reverse(),
                channels => {
                    // All numbers in reverse, then those of each pixel.
                    row.reverse();
                    row.chunks_exact_mut(channels).for_each(<[f32]>::reverse);
                }
            }
        }
    }
    if is_overturned {
        let (upper, lower) = image.split_at_mut(size.height / 2 * row_len);
        for (above, below) in upper.chunks_exact_mut(row_len).zip(lower.rchunks_exact_mut(row_len)) {
            above.swap_with_slice(below);
        }
    }
}

/// A rectangle: parts of width and height, and its place from 0 (left, top) to 1 (right, bottom).
pub(super) struct Patch {
    pub sides: [f32; 2],
    pub places: [f32; 2],
}

impl Patch {
    #[allow(clippy::cast_precision_loss, reason = "images have fewer than 2^24 pixels a side")]
    /// Gives each pixel of the rectangle new values.
    pub fn erase(&self, image: &mut [f32], size: Size, mut value: impl FnMut() -> f32) {
        let span = |axis: usize, pixels: usize| {
            let side = self.sides[axis] * pixels as f32;
            let first = self.places[axis] * (pixels as f32 - side);
            (0..pixels).filter(move |at| (first..first + side).contains(&(*at as f32)))
        };
        for y in span(1, size.height) {
            for x in span(0, size.width) {
                let at = (y * size.width + x) * size.channels;
                image[at..at + size.channels].fill_with(&mut value);
            }
        }
    }
}
