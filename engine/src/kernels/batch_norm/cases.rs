//! The sizes at which batch normalization is tested.

use super::super::activation_functions::Function;
use super::super::cases::{Case, InputFill};
use super::super::rounding::{index, single};
use super::{PIXELS, Params};

/// Pixels, channels, slabs.
const SIZES: [[u32; 3]; 8] =
    [[1, 1, 1], [63, 1, 4], [64, 64, 3], [65, 65, 8], [257, 3, 100], [0, 5, 4], [4096, 2, 1], [5000, 16, 64]];

fn params([pixels, channels, splits]: [u32; 3]) -> Params {
    // A count of its own: that of a whole batch, twice as large.
    Params { pixels, channels, count: 2 * pixels, epsilon: 1e-3, momentum: 0.9, splits, correction: channels % 2 }
}

/// A case for each size; `len` gives the elements of the grid.
fn each_size(len: fn(&Params) -> u32, buffers: fn(Case, &BufferLengths) -> Case) -> Vec<Case> {
    SIZES
        .map(|size| {
            let params = params(size);
            let [pixels, channels, splits] = size;
            let case = Case::elements(format!("{pixels} x {channels}, {splits} slabs"), params.words(), len(&params));
            buffers(
                case,
                &BufferLengths {
                    all: index(pixels * channels),
                    parts: index(2 * splits * channels),
                    channels: index(channels),
                    count: params.count,
                },
            )
        })
        .into()
}

/// Lengths of the buffers of a case.
struct BufferLengths {
    all: usize,
    parts: usize,
    channels: usize,
    count: u32,
}

impl BufferLengths {
    /// Means, then an M2 of about `count`.
    fn moments(&self) -> InputFill {
        let means = InputFill::Normal(self.channels).values(7);
        let spread = InputFill::Uniform(self.channels, 0.5, 2.0).values(8);
        let m2s = spread.iter().map(|variance| single(f64::from(*variance) * f64::from(self.count)));
        InputFill::Values(means.into_iter().chain(m2s).collect())
    }
}

pub(super) fn statistics() -> Vec<Case> {
    let mut cases = each_size(
        |params| params.splits * params.channels,
        |case, sizes| case.input(InputFill::Normal(sizes.all)).output(sizes.parts),
    );
    // Here the mean of squares less the square of the mean has no digit left.
    let mut offset = Case::elements("4096 x 2 about 1000", params([4096, 2, 1]).words(), 2);
    let values = InputFill::Normal(4096 * 2).values(9).iter().map(|x| 1000.0 + x).collect();
    offset = offset.input(InputFill::Values(values)).output(4);
    cases.push(offset);
    cases
}

pub(super) fn combine_statistics() -> Vec<Case> {
    each_size(
        |params| params.channels,
        |case, sizes| {
            // Means of about 100 and M2 of about 50; both positive.
            case.input(InputFill::Uniform(sizes.parts, 50.0, 100.0)).output(2 * sizes.channels)
        },
    )
}

/// Adds a case for each activation, and for scale and center left out.
fn with_constants(mut cases: Vec<Case>) -> Vec<Case> {
    let applying = |case: &Case, function: Function| {
        let label = format!("{}, {:?}", case.label, function.activation);
        Case { label, ..case.clone() }.function(function)
    };
    let (sizes, small) = (cases.len(), cases[2].clone());
    for (case, function) in cases.iter_mut().zip(Function::examples()) {
        *case = applying(case, function);
    }
    cases.extend(Function::examples().skip(sizes).map(|function| applying(&small, function)));
    for (scale, center) in [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)] {
        let mut bare = cases[2].clone();
        bare.constants = vec![("USE_SCALE", scale), ("USE_CENTER", center)];
        bare.label = format!("USE_SCALE {scale}, USE_CENTER {center}");
        cases.push(bare);
    }
    cases
}

pub(super) fn forward() -> Vec<Case> {
    with_constants(each_size(
        |params| params.pixels.div_ceil(PIXELS) * params.channels,
        |case, sizes| {
            let case = case.input(InputFill::Normal(sizes.all)).input(sizes.moments());
            case.input(InputFill::Normal(sizes.channels)).input(InputFill::Normal(sizes.channels)).output(sizes.all)
        },
    ))
}

pub(super) fn inference() -> Vec<Case> {
    with_constants(each_size(
        |params| params.pixels.div_ceil(PIXELS) * params.channels,
        |case, sizes| {
            let case = case.input(InputFill::Normal(sizes.all)).input(InputFill::Normal(sizes.channels));
            let case = case.input(InputFill::Uniform(sizes.channels, 0.5, 2.0));
            case.input(InputFill::Normal(sizes.channels)).input(InputFill::Normal(sizes.channels)).output(sizes.all)
        },
    ))
}

pub(super) fn backward_sums() -> Vec<Case> {
    each_size(
        |params| params.splits * params.channels,
        |case, sizes| {
            let case = case.input(InputFill::Normal(sizes.all)).input(InputFill::Normal(sizes.all));
            case.input(sizes.moments()).output(sizes.parts)
        },
    )
}

pub(super) fn backward_parameters() -> Vec<Case> {
    each_size(
        |params| params.channels,
        |case, sizes| {
            let case = case.input(InputFill::Normal(sizes.parts)).output(2 * sizes.channels);
            case.output(sizes.channels).output(sizes.channels)
        },
    )
}

pub(super) fn backward_input() -> Vec<Case> {
    let mut cases = each_size(
        |params| params.pixels.div_ceil(PIXELS) * params.channels,
        |case, sizes| {
            let case =
                case.input(InputFill::Normal(sizes.all)).input(InputFill::Normal(sizes.all)).input(sizes.moments());
            case.input(InputFill::Normal(sizes.channels)).input(InputFill::Normal(2 * sizes.channels)).output(sizes.all)
        },
    );
    let mut bare = cases[2].clone().constant("USE_SCALE", 0.0);
    bare.label = "USE_SCALE 0".into();
    cases.push(bare);
    cases
}

pub(super) fn backward_inference() -> Vec<Case> {
    let mut cases = each_size(
        |params| params.pixels.div_ceil(PIXELS) * params.channels,
        |case, sizes| {
            let case = case.input(InputFill::Normal(sizes.all)).input(InputFill::Uniform(sizes.channels, 0.5, 2.0));
            case.input(InputFill::Normal(sizes.channels)).output(sizes.all)
        },
    );
    let mut bare = cases[2].clone().constant("USE_SCALE", 0.0);
    bare.label = "USE_SCALE 0".into();
    cases.push(bare);
    cases
}

pub(super) fn update() -> Vec<Case> {
    let mut cases = each_size(
        |params| params.channels,
        |case, sizes| {
            let case = case.input(sizes.moments()).input(InputFill::Values(vec![1.0, 1.0, 0.0, 0.0]));
            case.in_place(InputFill::Normal(sizes.channels)).in_place(InputFill::Uniform(sizes.channels, 0.0, 2.0))
        },
    );
    let mut held = cases[2].clone();
    held.inputs[1] = InputFill::Values(vec![1.0, 0.0, 0.0, 0.0]);
    held.label = "not applied".into();
    cases.push(held);
    cases
}
