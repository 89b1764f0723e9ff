//! A copy under other indices: padding with zeros, cropping, permuted axes, repeated elements.

use super::cases::{Case, InputFill};
use super::rounding::index;
use super::text::wgsl;
use super::{Call, Kernel, Library, parallel, whole};
use crate::size::{Length, Scalars, Word, length_word};

crate::params! {
    /// Elements of `y`.
    len: u32,
    /// Length of the innermost axis of `y`.
    size_1: u32,
    /// Length of the second axis from the inside; 1 where there is none.
    size_2: u32,
    /// Length of the third.
    size_3: u32,
    /// Length of the fourth.
    size_4: u32,
    /// Length of the fifth.
    size_5: u32,
    /// Elements of `x` from one place on the innermost axis to the next.
    stride_1: u32,
    /// The stride on the second axis.
    stride_2: u32,
    /// On the third.
    stride_3: u32,
    /// On the fourth.
    stride_4: u32,
    /// On the fifth.
    stride_5: u32,
    /// Zeros in front of `x` on the innermost axis.
    before_1: u32,
    /// Zeros on the second axis.
    before_2: u32,
    /// On the third.
    before_3: u32,
    /// On the fourth.
    before_4: u32,
    /// On the fifth.
    before_5: u32,
    /// Places of `x` on the innermost axis.
    extent_1: u32,
    /// Places on the second axis.
    extent_2: u32,
    /// On the third.
    extent_3: u32,
    /// On the fourth.
    extent_4: u32,
    /// On the fifth.
    extent_5: u32,
    /// Element of a row of `x` that comes first.
    first: u32,
    /// Elements of `x` from one row to the next.
    x_rows: u32,
}

/// Axes beside the rows, at most.
pub const MOST_AXES: usize = 5;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD];

/// `x [rows, …]` → `y [rows, size_5, …, size_1]`: `x` by strides, and 0 where it has nothing.
///
/// Constant: `AXES`, the number of axes in use (5 unless set). Grid: `Elements(len)`.
pub static FORWARD: Kernel = Kernel {
    stem: "remap",
    entry: "forward",
    source: wgsl!("remap"),
    uses: &[Library::Grid],
    params: Params::FIELDS,
    inputs: &["x"],
    outputs: &["y"],
    workgroup: 64,
    constants: &["AXES"],
    twin: forward_twin,
    fast: Some(forward_fast),
    // A copy.
    tolerance: 0.0,
    #[cfg(not(target_arch = "wasm32"))]
    cases,
}
.lean();

/// One axis of `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its length.
    pub size: usize,
    /// Elements of `x` from one place to the next; 0 repeats.
    pub stride: usize,
    /// Places of `y` that stand before `x`, and are 0.
    pub before: usize,
    /// Places of `x`.
    pub extent: usize,
}

impl Axis {
    /// An axis that `x` fills.
    pub fn full(size: usize, stride: usize) -> Self {
        Self { size, stride, before: 0, extent: size }
    }

    /// This axis and the one inside it as one, if they run on.
    fn joined(self, inner: Self) -> Option<Self> {
        let is_full = inner.before == 0 && inner.extent == inner.size;
        let runs_on = self.stride == inner.stride.saturating_mul(inner.size);
        let [size, before, extent] =
            [self.size, self.before, self.extent].map(|places| places.saturating_mul(inner.size));
        (is_full && runs_on).then_some(Self { size, stride: inner.stride, before, extent })
    }
}

/// The axes, the outermost first; neighbours that are contiguous in both arrays are merged into one.
pub fn joined(axes: &[Axis]) -> Vec<Axis> {
    let mut joined: Vec<Axis> = Vec::new();
    for axis in axes.iter().rev().filter(|axis| **axis != Axis::full(1, axis.stride)) {
        match joined.last_mut().and_then(|inner| axis.joined(*inner).map(|both| (inner, both))) {
            Some((inner, both)) => *inner = both,
            None => joined.push(*axis),
        }
    }
    joined.reverse();
    joined
}

/// Arguments of a layer's recording: `Params`, and the constants.
#[derive(Clone, Debug)]
pub struct RemapArguments {
    /// `Params`.
    pub params: Record,
    /// The constants.
    pub constants: [(&'static str, f64); 1],
}

impl RemapArguments {
    /// For axes of `y`, the outermost first; `first` is the element of a row of `x` that comes first, and `x_rows` that
    /// row's length. `None` if there are too many axes even after neighbours are merged.
    pub fn new(axes: &[Axis], first: usize, x_rows: usize) -> Option<Self> {
        let len = axes.iter().fold(1, |len: usize, axis| len.saturating_mul(axis.size));
        let joined = joined(axes);
        let in_use = u8::try_from(joined.len().max(1)).ok().filter(|count| usize::from(*count) <= MOST_AXES)?;
        let axis = |idx: usize| joined.iter().rev().nth(idx).copied().unwrap_or(Axis::full(1, 0));
        let [sizes, strides, before, extents]: [[Word; MOST_AXES]; 4] =
            [|axis: Axis| axis.size, |axis: Axis| axis.stride, |axis: Axis| axis.before, |axis: Axis| axis.extent]
                .map(|of| std::array::from_fn(|idx| whole(of(axis(idx)))));
        let params = Record {
            len: length_word(Length::per_row(len)),
            size_1: sizes[0],
            size_2: sizes[1],
            size_3: sizes[2],
            size_4: sizes[3],
            size_5: sizes[4],
            stride_1: strides[0],
            stride_2: strides[1],
            stride_3: strides[2],
            stride_4: strides[3],
            stride_5: strides[4],
            before_1: before[0],
            before_2: before[1],
            before_3: before[2],
            before_4: before[3],
            before_5: before[4],
            extent_1: extents[0],
            extent_2: extents[1],
            extent_3: extents[2],
            extent_4: extents[3],
            extent_5: extents[4],
            first: whole(first),
            x_rows: whole(x_rows),
        };
        Some(Self { params, constants: [("AXES", f64::from(in_use))] })
    }
}

impl Params {
    /// The axes, the innermost first.
    fn axes(&self) -> [Axis; MOST_AXES] {
        let axis = |size, stride, before, extent| Axis {
            size: index(size),
            stride: index(stride),
            before: index(before),
            extent: index(extent),
        };
        [
            axis(self.size_1, self.stride_1, self.before_1, self.extent_1),
            axis(self.size_2, self.stride_2, self.before_2, self.extent_2),
            axis(self.size_3, self.stride_3, self.before_3, self.extent_3),
            axis(self.size_4, self.stride_4, self.before_4, self.extent_4),
            axis(self.size_5, self.stride_5, self.before_5, self.extent_5),
        ]
    }

    /// Source of an element, by its position on the axes from `from` on; `None` outside of `x`.
    fn source(&self, from: usize, place: usize) -> Option<usize> {
        let (mut rest, mut source) = (place, index(self.first));
        for axis in &self.axes()[from..] {
            let at = (rest % axis.size).checked_sub(axis.before).filter(|at| *at < axis.extent)?;
            rest /= axis.size;
            source += at * axis.stride;
        }
        Some(source + rest * index(self.x_rows))
    }
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    for (i, y) in outputs[0].iter_mut().enumerate().take(index(params.len)) {
        *y = params.source(0, i).map_or(0.0, |source| call.inputs[0][source]);
    }
}

/// Line by line along the innermost axis, most of which are a copy.
fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (x, [inner, ..]) = (call.inputs[0], params.axes());
    parallel::rows(&mut outputs[0][..index(params.len)], inner.size, |first, y| {
        for (line, y) in (first..).zip(y.chunks_mut(inner.size)) {
            let Some(source) = params.source(1, line) else {
                y.fill(0.0);
                continue;
            };
            let (before, rest) = y.split_at_mut(inner.before);
            let (filled, behind) = rest.split_at_mut(inner.extent.min(rest.len()));
            before.fill(0.0);
            behind.fill(0.0);
            match inner.stride {
                0 => filled.fill(x[source]),
                1 => filled.copy_from_slice(&x[source..source + filled.len()]),
                stride => {
                    let values = x[source..].iter().step_by(stride);
                    filled.iter_mut().zip(values).for_each(|(y, x)| *y = *x);
                }
            }
        }
    });
}

fn cases() -> Vec<Case> {
    let case = |label: &str, rows: u32, axes: &[Axis], (first, x_len): (usize, usize)| {
        let recorded = RemapArguments::new(axes, first, x_len)?;
        let words: Vec<Word> = recorded.params.into();
        let scalars = Scalars { rows, ..Scalars::default() };
        let params: Vec<u32> = words.into_iter().map(|word| word.bits(&scalars)).collect();
        let label = format!("{label}, {rows} rows of {:?}", axes.iter().map(|axis| axis.size).collect::<Vec<_>>());
        let (len, [(name, count)]) = (params[0], recorded.constants);
        let case = Case::elements(label, params, len).constant(name, count);
        Some(case.input(InputFill::Normal(index(rows) * x_len)).output(index(len)))
    };
    let full = Axis::full;
    let padded = |size, stride, before, extent| Axis { size, stride, before, extent };
    let cases = [
        case("one", 1, &[full(1, 1)], (0, 1)),
        case("alike", 63, &[full(1, 1)], (0, 1)),
        case("alike", 1, &[full(64, 1)], (0, 64)),
        case("alike", 5, &[full(13, 1)], (0, 13)),
        case("cropped", 3, &[full(2, 12), full(3, 3), full(3, 1)], (15, 48)),
        case("padded", 2, &[padded(6, 12, 1, 4), padded(7, 3, 2, 4), full(3, 1)], (0, 48)),
        case("padded", 1, &[padded(257, 1, 100, 65)], (0, 65)),
        case("permuted", 2, &[full(4, 1), full(3, 20), full(5, 4)], (0, 60)),
        case("permuted", 1, &[full(2, 6), full(3, 1), full(2, 12), full(2, 3), full(3, 24)], (0, 72)),
        case("repeated", 3, &[full(65, 0), full(7, 1)], (0, 7)),
        case("repeated", 2, &[full(7, 1), full(9, 0)], (0, 7)),
        case("repeated both ways", 2, &[full(3, 8), full(2, 0), full(4, 2), full(3, 0), full(2, 1)], (0, 24)),
        case("folded", 2, &[full(2_097_217, 0)], (0, 1)),
        case("parallel", 3, &[padded(70, 640, 3, 64), padded(660, 1, 12, 640)], (0, 64 * 640)),
    ];
    cases.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_run_on_are_one() {
        let full = Axis::full;
        assert_eq!(joined(&[full(4, 15), full(5, 3), full(3, 1)]), [full(60, 1)]);
        assert_eq!(joined(&[full(1, 7), full(3, 1), full(1, 0)]), [full(3, 1)]);
        assert_eq!(joined(&[full(4, 0), full(5, 0), full(3, 1)]), [full(20, 0), full(3, 1)]);
        assert_eq!(joined(&[full(3, 1), full(4, 3)]), [full(3, 1), full(4, 3)]);
        // Columns and channels are one, also where columns are padded.
        let columns = Axis { size: 6, stride: 3, before: 1, extent: 4 };
        assert_eq!(joined(&[columns, full(3, 1)]), [Axis { size: 18, stride: 1, before: 3, extent: 12 }]);
        assert_eq!(joined(&[full(2, 12), columns, full(3, 1)]).len(), 2);
        assert!(
            RemapArguments::new(&[full(2, 1), full(2, 2), full(2, 4), full(2, 8), full(2, 16), full(2, 32)], 0, 64)
                .is_none()
        );
    }

    #[test]
    fn a_picture_is_padded_by_hand() {
        let axes =
            [Axis { size: 3, stride: 2, before: 1, extent: 1 }, Axis { size: 4, stride: 1, before: 0, extent: 2 }];
        let words: Vec<Word> = RemapArguments::new(&axes, 0, 2).unwrap().params.into();
        let scalars = Scalars { rows: 1, ..Scalars::default() };
        let params: Vec<u32> = words.into_iter().map(|word| word.bits(&scalars)).collect();
        for run in [forward_twin, forward_fast] {
            let mut y = [9.0; 12];
            run(&Call { params: &params, constants: &[], inputs: &[&[1.0, 2.0]] }, &mut [&mut y]);
            assert_eq!(y, [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        }
    }
}
