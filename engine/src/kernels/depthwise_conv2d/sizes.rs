//! The sizes of a depthwise convolution: as the shader reads them, as a layer records them, and as plain numbers.

use super::super::Call;
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
    channels: u32,
    /// Channels of the output for each of the input.
    multiplier: u32,
    /// Height of the output.
    out_h: u32,
    /// Width of the output.
    out_w: u32,
    /// Height of the window.
    k_h: u32,
    /// Width of the window.
    k_w: u32,
    /// Input pixels from output pixel to output pixel, down.
    stride_h: u32,
    /// Input pixels from output pixel to output pixel, across.
    stride_w: u32,
    /// Input pixels from weight to weight, down.
    dilation_h: u32,
    /// Input pixels from weight to weight, across.
    dilation_w: u32,
    /// Zeros above the input. Those below follow from the sizes.
    pad_top: u32,
    /// Zeros left of the input. Those to the right follow from the sizes.
    pad_left: u32,
    /// Slabs into which the sum of `backward_weights` is split; not read by the others.
    splits: u32,
}

/// Neighbouring weights whose sums one invocation can take.
const MOST_ACROSS: u32 = 8;

/// Slabs for the gradient of `k_h` × `k_w` weights of each of `all` channels, over about `lines` lines: about 65,536
/// invocations, of which a fourth is left where each takes four channels, and at least 16 slabs for the threads of a CPU.
pub fn splits([k_h, k_w]: [usize; 2], all: usize, lines: usize) -> u32 {
    let one = k_h.saturating_mul(k_w.div_ceil(index(MOST_ACROSS))).saturating_mul(all);
    let wanted = 65_536_usize.div_ceil(one.max(1)).clamp(16, 512);
    u32::try_from(wanted.min(lines / 2).max(1)).unwrap_or(1)
}

impl Params {
    /// These sizes as a layer records them, for as many rows as a run has: `rows` is not looked at.
    pub fn record(&self) -> Record {
        let fixed = Word::U32;
        Record {
            rows: Word::Rows(1),
            in_h: fixed(self.in_h),
            in_w: fixed(self.in_w),
            channels: fixed(self.channels),
            multiplier: fixed(self.multiplier),
            out_h: fixed(self.out_h),
            out_w: fixed(self.out_w),
            k_h: fixed(self.k_h),
            k_w: fixed(self.k_w),
            stride_h: fixed(self.stride_h),
            stride_w: fixed(self.stride_w),
            dilation_h: fixed(self.dilation_h),
            dilation_w: fixed(self.dilation_w),
            pad_top: fixed(self.pad_top),
            pad_left: fixed(self.pad_left),
            splits: fixed(self.splits),
        }
    }

    /// These sizes with four channels as one, if [`depthwise_conv2d_fours`](super::super::depthwise_conv2d_fours) can take them: for the grids of these.
    pub fn in_fours(&self) -> Option<Self> {
        let are_fours = self.channels.is_multiple_of(4) && self.multiplier == 1;
        are_fours.then_some(Self { channels: self.channels / 4, ..*self })
    }

    /// The constants of [`depthwise_conv2d_fours`](super::super::depthwise_conv2d_fours).
    pub fn of_fours(&self) -> [(&'static str, f64); 3] {
        let constants = [("WIDE", self.k_w), ("STRIDE", self.stride_w), ("DILATION", self.dilation_w)];
        constants.map(|(name, value)| (name, f64::from(value)))
    }

    /// The constant of [`BACKWARD_WEIGHTS`](super::BACKWARD_WEIGHTS): about the same number of weights for each invocation.
    pub fn across(&self) -> u32 {
        self.k_w.div_ceil(self.k_w.div_ceil(MOST_ACROSS).max(1))
    }

    /// The grid of [`FORWARD`](super::FORWARD); `rows` gives the rows times a factor: [`Word::Rows`] in a plan.
    pub fn forward_grid(&self, rows: impl Fn(u32) -> Word) -> Grid {
        Grid::Elements(rows(self.out_h * self.out_w.div_ceil(4) * self.channels * self.multiplier))
    }

    /// The grid of [`BACKWARD_INPUT`](super::BACKWARD_INPUT).
    pub fn backward_input_grid(&self, rows: impl Fn(u32) -> Word) -> Grid {
        let strips = self.in_w.div_ceil(self.stride_w).div_ceil(4) * self.stride_w;
        Grid::Elements(rows(self.in_h * strips * self.channels))
    }

    /// The grid of [`BACKWARD_WEIGHTS`](super::BACKWARD_WEIGHTS).
    pub fn backward_weights_grid(&self) -> Grid {
        let across = self.k_w.div_ceil(self.across());
        Grid::Elements(Word::U32(self.splits * self.k_h * across * self.channels * self.multiplier))
    }
}

/// [`Params`] with plain sizes; pairs are of height and width.
#[derive(Clone, Copy, Debug)]
pub(super) struct DepthwiseSizes {
    pub(super) rows: usize,
    pub(super) in_h: usize,
    pub(super) in_w: usize,
    pub(super) channels: usize,
    pub(super) multiplier: usize,
    pub(super) out_h: usize,
    pub(super) out_w: usize,
    pub(super) k_h: usize,
    pub(super) k_w: usize,
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    pub(super) pad: [usize; 2],
    pub(super) splits: usize,
}

impl DepthwiseSizes {
    pub(super) fn of_call(call: &Call<'_>) -> Self {
        let p: Params = call.params();
        Self {
            rows: index(p.rows),
            in_h: index(p.in_h),
            in_w: index(p.in_w),
            channels: index(p.channels),
            multiplier: index(p.multiplier),
            out_h: index(p.out_h),
            out_w: index(p.out_w),
            k_h: index(p.k_h),
            k_w: index(p.k_w),
            stride: [p.stride_h, p.stride_w].map(index),
            dilation: [p.dilation_h, p.dilation_w].map(index),
            pad: [p.pad_top, p.pad_left].map(index),
            splits: index(p.splits),
        }
    }

    /// Channels of the output.
    pub(super) fn all(&self) -> usize {
        self.channels * self.multiplier
    }

    /// Places in the window.
    pub(super) fn taps(&self) -> usize {
        self.k_h * self.k_w
    }

    /// Line of an image of the input that a line of an image of the output sees at `kh`, or `None` in the padding.
    pub(super) fn line_seen(&self, oy: usize, kh: usize) -> Option<usize> {
        (oy * self.stride[0] + kh * self.dilation[0]).checked_sub(self.pad[0]).filter(|iy| *iy < self.in_h)
    }

    /// Taps at which a pixel of the output sees the input, and where in `x` those pixels begin.
    pub(super) fn seen(self, pixel: usize) -> impl Iterator<Item = (usize, usize)> {
        let (line, ox) = (pixel / self.out_w, pixel % self.out_w);
        let (image, oy) = (line / self.out_h, line % self.out_h);
        (0..self.taps()).filter_map(move |tap| {
            let iy = self.line_seen(oy, tap / self.k_w)?;
            let ix = (ox * self.stride[1] + tap % self.k_w * self.dilation[1]).checked_sub(self.pad[1])?;
            (ix < self.in_w).then(|| (tap, ((image * self.in_h + iy) * self.in_w + ix) * self.channels))
        })
    }
}
