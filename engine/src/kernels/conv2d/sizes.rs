//! The sizes of a convolution: as the shader reads them, as a layer records them, and as plain numbers.

use std::ops::Range;

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
    /// Parts into which each sum is split.
    splits: u32,
}

/// Groups and gaps of a convolution: `override` constants of its kernels, since mostly there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvForm {
    /// Groups of channels, each with filters of its own. They divide the channels of input and output.
    pub groups: u32,
    /// Input pixels from one weight of the window to the next, down and across. Where one is not 1, its stride is.
    pub dilation: [u32; 2],
}

impl ConvForm {
    /// One group, and no gaps.
    pub const PLAIN: Self = Self { groups: 1, dilation: [1, 1] };

    /// The constants of the kernels that are not 1.
    pub fn constants(self) -> impl Iterator<Item = (&'static str, f64)> {
        let [down, across] = self.dilation;
        let all = [("GROUPS", self.groups), ("DILATION_H", down), ("DILATION_W", across)];
        all.into_iter().filter(|(_, value)| *value != 1).map(|(name, value)| (name, f64::from(value)))
    }
}

impl Params {
    /// These sizes as a layer records them, for as many rows as a run has: `rows` is not looked at.
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

    /// Channels of a group, of input and output.
    fn group(&self, form: ConvForm) -> [u32; 2] {
        [self.in_c / form.groups, self.out_c / form.groups]
    }

    /// The grid of [`FORWARD`](super::FORWARD): a product for each group and split. `rows` gives the rows times a factor:
    /// [`Word::Rows`] in a plan.
    pub fn forward_grid(&self, form: ConvForm, rows: impl Fn(u32) -> Word) -> Grid {
        let [in_c, out_c] = self.group(form);
        let (m, k) = (rows(self.out_h * self.out_w), self.k_h * self.k_w * in_c);
        Grid::Tiles { m, n: out_c.into(), k: k.into(), depth: self.splits * form.groups }
    }

    /// The grid of [`BACKWARD_INPUT`](super::BACKWARD_INPUT): a product for each group, phase of the strides, and split.
    pub fn backward_input_grid(&self, form: ConvForm, rows: impl Fn(u32) -> Word) -> Grid {
        let [in_c, out_c] = self.group(form);
        let phase = self.in_h.div_ceil(self.stride_h) * self.in_w.div_ceil(self.stride_w);
        let k = self.k_h.div_ceil(self.stride_h) * self.k_w.div_ceil(self.stride_w) * out_c;
        let depth = self.splits * self.stride_h * self.stride_w * form.groups;
        Grid::Tiles { m: rows(phase), n: in_c.into(), k: k.into(), depth }
    }

    /// The grid of [`BACKWARD_WEIGHTS`](super::BACKWARD_WEIGHTS): a product for each group and split.
    pub fn backward_weights_grid(&self, form: ConvForm, rows: impl Fn(u32) -> Word) -> Grid {
        let [in_c, out_c] = self.group(form);
        let (m, k) = ((self.k_h * self.k_w * in_c).into(), rows(self.out_h * self.out_w));
        Grid::Tiles { m, n: out_c.into(), k, depth: self.splits * form.groups }
    }
}

/// [`Params`] and [`ConvForm`] with plain sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConvSizes {
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
    pub(super) groups: usize,
    pub(super) dilation: [usize; 2],
    /// The group whose channels [`each_run`](Self::each_run) takes.
    pub(super) group: usize,
}

impl ConvSizes {
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
            groups: constant(call, "GROUPS"),
            dilation: ["DILATION_H", "DILATION_W"].map(|name| constant(call, name)),
            group: 0,
        }
    }

    /// The sizes with each of the groups chosen, one after the other.
    pub(super) fn each_group(self) -> impl Iterator<Item = Self> {
        (0..self.groups).map(move |group| Self { group, ..self })
    }

    /// Channels of the input that a filter sees.
    pub(super) fn group_in(&self) -> usize {
        self.in_c / self.groups
    }

    /// Filters of a group.
    pub(super) fn group_out(&self) -> usize {
        self.out_c / self.groups
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
        self.taps() * self.group_in()
    }

    /// The part of the sum of a result of `backward_input` to which a tap and a filter of the group belong: parts are of the terms that
    /// the results of a phase of the strides have.
    pub(super) fn part_of_input(&self, tap: usize, filter: usize) -> usize {
        let [of_lines, of_columns] =
            [(tap / self.k_w, self.k_h, self.stride_h), (tap % self.k_w, self.k_w, self.stride_w)]
                .map(|(at, size, stride)| (at / stride, (size - at % stride).div_ceil(stride)));
        let terms = of_lines.1 * of_columns.1 * self.group_out();
        ((of_lines.0 * of_columns.1 + of_columns.0) * self.group_out() + filter) / terms.div_ceil(self.splits)
    }

    /// Index in `x` of what a pixel of the output sees at a tap, or `None` in the padding.
    pub(super) fn seen(&self, [row, oy, ox]: [usize; 3], tap: usize) -> Option<usize> {
        let iy = self.line_seen(oy, tap / self.k_w)?;
        let ix = self.column_seen(ox, tap % self.k_w)?;
        Some(((row * self.in_h + iy) * self.in_w + ix) * self.in_c)
    }

    /// Line of an image of the input that a line of the output sees at `kh`, or `None` in the padding.
    pub(super) fn line_seen(&self, oy: usize, kh: usize) -> Option<usize> {
        (oy * self.stride_h + kh * self.dilation[0]).checked_sub(self.pad_top).filter(|iy| *iy < self.in_h)
    }

    fn column_seen(&self, ox: usize, kw: usize) -> Option<usize> {
        (ox * self.stride_w + kw * self.dilation[1]).checked_sub(self.pad_left).filter(|ix| *ix < self.in_w)
    }

    /// Row, line and column of a pixel of the output.
    pub(super) fn at(&self, pixel: usize) -> [usize; 3] {
        [pixel / self.out_pixels(), pixel / self.out_w % self.out_h, pixel % self.out_w]
    }

    /// Whether it is a plain product of pixels and weights.
    pub(super) fn is_product(&self) -> bool {
        let [size, stride, pad] = [(self.k_h, self.k_w), (self.stride_h, self.stride_w), (self.pad_top, self.pad_left)];
        size == (1, 1) && stride == (1, 1) && pad == (0, 0) && self.in_pixels() == self.out_pixels()
    }

    /// Lines of an image of the input that lines `first` to `last` of the output see.
    pub(super) fn lines_seen(&self, first: usize, last: usize) -> Range<usize> {
        let [start, end] = [first * self.stride_h, last * self.stride_h + (self.k_h - 1) * self.dilation[0] + 1];
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
                let columns = taps.start.max(first) - first..taps.end.min(first + self.k_w) - first;
                let end = at + columns.len() * self.group_in();
                match self.line_seen(oy, kh) {
                    None => f(at..end, None),
                    Some(iy) => self.each_run_of_line(image * self.in_h + iy, ox, columns, at, &mut f),
                }
                at = end;
            }
        }
    }

    /// The runs of one line of the window, from `at` on in the patches.
    fn each_run_of_line(
        &self,
        line: usize,
        ox: usize,
        taps: Range<usize>,
        at: usize,
        f: &mut impl FnMut(Range<usize>, Option<usize>),
    ) {
        let place = |ix: usize| (line * self.in_w + ix) * self.in_c + self.group * self.group_in();
        if self.groups > 1 || self.dilation[1] > 1 {
            for (run, kw) in taps.enumerate() {
                let start = at + run * self.group_in();
                f(start..start + self.group_in(), self.column_seen(ox, kw).map(place));
            }
            return;
        }
        // Taps from `low` on are right of the image's left edge, those from `high` past its right one.
        let low = self.pad_left.saturating_sub(ox * self.stride_w).clamp(taps.start, taps.end);
        let high = (self.in_w + self.pad_left).saturating_sub(ox * self.stride_w).clamp(low, taps.end);
        let of_tap = |tap: usize| at + (tap - taps.start) * self.in_c;
        let (inside, outside, end) = (of_tap(low), of_tap(high), of_tap(taps.end));
        f(at..inside, None);
        f(inside..outside, Some(place((ox * self.stride_w + low).saturating_sub(self.pad_left))));
        f(outside..end, None);
    }
}

/// A whole number among the constants of a call; 1 if it is not set.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of a model, checked when it was built"
)]
fn constant(call: &Call<'_>, name: &str) -> usize {
    call.constant(name, 1.0) as usize
}
