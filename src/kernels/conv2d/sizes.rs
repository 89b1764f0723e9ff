//! The sizes of a convolution: as the shader reads them, as a layer records them, and as plain numbers.

use std::ops::Range;

use super::super::Call;
use super::super::product::width;
use super::super::rounding::index;
use crate::size::{Grid, Word};

crate::params! {
    /// Images.
    rows: u32,
    /// Height of the input.
    in_h: u32,
    /// Width of the input.
    in_w: u32,
    /// Channels of the input.
    in_c: u32,
    /// Height of the output.
    out_h: u32,
    /// Width of the output.
    out_w: u32,
    /// Channels of the output.
    out_c: u32,
    /// Height of the kernel.
    k_h: u32,
    /// Width of the kernel.
    k_w: u32,
    /// Input pixels from output pixel to output pixel, down.
    stride_h: u32,
    /// Input pixels from output pixel to output pixel, across.
    stride_w: u32,
    /// Zeros above the input. Those below follow from the sizes.
    pad_top: u32,
    /// Zeros left of the input. Those to the right follow from the sizes.
    pad_left: u32,
    /// Parts into which the sum of `backward_weights` is split; 1 for the others.
    splits: u32,
}

impl Params {
    /// The same sizes for the rows of a run, as a layer records them; `rows` is not looked at.
    pub fn record(&self) -> Record {
        let fixed = Word::U32;
        Record {
            rows: Word::Rows(1),
            in_h: fixed(self.in_h),
            in_w: fixed(self.in_w),
            in_c: fixed(self.in_c),
            out_h: fixed(self.out_h),
            out_w: fixed(self.out_w),
            out_c: fixed(self.out_c),
            k_h: fixed(self.k_h),
            k_w: fixed(self.k_w),
            stride_h: fixed(self.stride_h),
            stride_w: fixed(self.stride_w),
            pad_top: fixed(self.pad_top),
            pad_left: fixed(self.pad_left),
            splits: fixed(self.splits),
        }
    }

    /// The grid of [`FORWARD`](super::FORWARD); `rows` gives the rows times a factor: [`Word::Rows`] in a plan.
    pub fn forward_grid(&self, rows: impl Fn(u32) -> Word) -> Grid {
        let (m, k) = (rows(self.out_h * self.out_w), self.k_h * self.k_w * self.in_c);
        Grid::Tiles { m, n: self.out_c.into(), k: k.into(), depth: 1, width: self.width() }
    }

    /// The grid of [`BACKWARD_INPUT`](super::BACKWARD_INPUT): a product for each phase of the strides.
    pub fn backward_input_grid(&self, rows: impl Fn(u32) -> Word) -> Grid {
        let phase = self.in_h.div_ceil(self.stride_h) * self.in_w.div_ceil(self.stride_w);
        // Both factors are loaded along the filters.
        let width = width(&[self.out_c.into()]);
        let k = self.k_h.div_ceil(self.stride_h) * self.k_w.div_ceil(self.stride_w) * self.out_c;
        let depth = self.stride_h * self.stride_w;
        Grid::Tiles { m: rows(phase), n: self.in_c.into(), k: k.into(), depth, width }
    }

    /// The grid of [`BACKWARD_WEIGHTS`](super::BACKWARD_WEIGHTS).
    pub fn backward_weights_grid(&self, rows: impl Fn(u32) -> Word) -> Grid {
        let (m, k) = ((self.k_h * self.k_w * self.in_c).into(), rows(self.out_h * self.out_w));
        Grid::Tiles { m, n: self.out_c.into(), k, depth: self.splits, width: self.width() }
    }

    fn width(&self) -> u32 {
        width(&[self.in_c.into(), self.out_c.into()])
    }
}

/// [`Params`] with plain sizes.
pub(super) struct Sizes {
    pub(super) rows: usize,
    pub(super) in_h: usize,
    pub(super) in_w: usize,
    pub(super) in_c: usize,
    pub(super) out_h: usize,
    pub(super) out_w: usize,
    pub(super) out_c: usize,
    pub(super) k_h: usize,
    pub(super) k_w: usize,
    pub(super) stride_h: usize,
    pub(super) stride_w: usize,
    pub(super) pad_top: usize,
    pub(super) pad_left: usize,
    pub(super) splits: usize,
}

impl Sizes {
    pub(super) fn of_call(call: &Call<'_>) -> Self {
        let p: Params = call.params();
        Self {
            rows: index(p.rows),
            in_h: index(p.in_h),
            in_w: index(p.in_w),
            in_c: index(p.in_c),
            out_h: index(p.out_h),
            out_w: index(p.out_w),
            out_c: index(p.out_c),
            k_h: index(p.k_h),
            k_w: index(p.k_w),
            stride_h: index(p.stride_h),
            stride_w: index(p.stride_w),
            pad_top: index(p.pad_top),
            pad_left: index(p.pad_left),
            splits: index(p.splits),
        }
    }

    /// Pixels of an image of the input.
    pub(super) fn in_pixels(&self) -> usize {
        self.in_h * self.in_w
    }

    /// Pixels of an image of the output.
    pub(super) fn out_pixels(&self) -> usize {
        self.out_h * self.out_w
    }

    /// Pixels of the output.
    pub(super) fn pixels(&self) -> usize {
        self.rows * self.out_pixels()
    }

    /// Places in the kernel.
    pub(super) fn taps(&self) -> usize {
        self.k_h * self.k_w
    }

    /// Values that one pixel of the output sees.
    pub(super) fn patch(&self) -> usize {
        self.taps() * self.in_c
    }

    /// Index in `x` of what a pixel of the output sees at a tap, or `None` in the padding.
    pub(super) fn seen(&self, [row, oy, ox]: [usize; 3], tap: usize) -> Option<usize> {
        let (kh, kw) = (tap / self.k_w, tap % self.k_w);
        let iy = (oy * self.stride_h + kh).checked_sub(self.pad_top).filter(|iy| *iy < self.in_h)?;
        let ix = (ox * self.stride_w + kw).checked_sub(self.pad_left).filter(|ix| *ix < self.in_w)?;
        Some(((row * self.in_h + iy) * self.in_w + ix) * self.in_c)
    }

    /// Row, line and column of a pixel of the output.
    pub(super) fn at(&self, pixel: usize) -> [usize; 3] {
        [pixel / self.out_pixels(), pixel / self.out_w % self.out_h, pixel % self.out_w]
    }

    /// Is it a plain product of pixels and weights?
    pub(super) fn is_product(&self) -> bool {
        let [size, stride, pad] = [(self.k_h, self.k_w), (self.stride_h, self.stride_w), (self.pad_top, self.pad_left)];
        size == (1, 1) && stride == (1, 1) && pad == (0, 0) && self.in_pixels() == self.out_pixels()
    }

    /// Lines of an image of the input that lines `first` to `last` of the output see.
    pub(super) fn lines_seen(&self, first: usize, last: usize) -> Range<usize> {
        let [start, end] = [first * self.stride_h, last * self.stride_h + self.k_h];
        let [start, end] = [start, end].map(|line| line.saturating_sub(self.pad_top).min(self.in_h));
        start..end
    }

    /// Of `run` neighbours in a line of the output, which see the image and not the padding at a tap, and the first
    /// pixel that they see. `place` is what the first neighbour sees of the padded line.
    pub(super) fn reach(&self, place: usize, run: usize) -> (Range<usize>, usize) {
        let reach = |edge: usize| edge.saturating_sub(place).div_ceil(self.stride_w).min(run);
        let (low, high) = (reach(self.pad_left), reach(self.pad_left + self.in_w));
        if low < high { (low..high, place + low * self.stride_w - self.pad_left) } else { (run..run, 0) }
    }

    /// Calls `f(run in the patches, its place in x)` for each run of values that patches take from x, and with no
    /// place for each run in the padding. Only `taps` of each patch are there.
    pub(super) fn each_run(
        &self,
        pixels: Range<usize>,
        taps: &Range<usize>,
        mut f: impl FnMut(Range<usize>, Option<usize>),
    ) {
        let mut at = 0;
        for pixel in pixels {
            let (line, ox) = (pixel / self.out_w, pixel % self.out_w);
            let (image, oy) = (line / self.out_h, line % self.out_h);
            for kh in taps.start / self.k_w..taps.end.div_ceil(self.k_w) {
                let first = kh * self.k_w;
                let [from, to] = [taps.start.max(first), taps.end.min(first + self.k_w)].map(|tap| tap - first);
                let iy = (oy * self.stride_h + kh).checked_sub(self.pad_top).filter(|iy| *iy < self.in_h);
                let end = at + (to - from) * self.in_c;
                match iy {
                    None => f(at..end, None),
                    Some(iy) => {
                        // Taps from `low` on are right of the image's left edge, those from `high` past its right one.
                        let low = self.pad_left.saturating_sub(ox * self.stride_w).clamp(from, to);
                        let high = (self.in_w + self.pad_left).saturating_sub(ox * self.stride_w).clamp(low, to);
                        let [inside, outside] = [low, high].map(|tap| at + (tap - from) * self.in_c);
                        let ix = (ox * self.stride_w + low).saturating_sub(self.pad_left);
                        f(at..inside, None);
                        f(inside..outside, Some(((image * self.in_h + iy) * self.in_w + ix) * self.in_c));
                        f(outside..end, None);
                    }
                }
                at = end;
            }
        }
    }
}
