//! The sizes at which normalization in groups is tested.

use super::super::activation_functions::Function;
use super::super::cases::{Case, InputFill};
use super::super::rounding::index;
use super::{GroupNormSizes, Params, lanes};
use crate::size::Grid;

/// Items, positions, groups, width, slabs.
const SIZES: [[u32; 5]; 12] = [
    [1, 1, 1, 1, 1],
    [63, 1, 1, 10, 4],
    [64, 1, 1, 63, 3],
    [65, 1, 1, 64, 8],
    [257, 1, 1, 65, 100],
    [3, 1, 1, 4096, 2],
    // Groups: fewer and more channels than lanes, and one channel each.
    [3, 5, 4, 3, 4],
    [5, 13, 2, 20, 16],
    [4, 49, 3, 1, 5],
    [2, 300, 2, 6, 7],
    [7, 1, 3, 17, 3],
    [2, 2048, 2, 1, 1],
];

fn params([items, positions, groups, width, splits]: [u32; 5]) -> Params {
    Params { items, positions, groups, width, epsilon: 1e-3, splits }
}

/// Lengths of the buffers of a case.
struct Lens {
    all: usize,
    statistics: usize,
    channels: usize,
    sums: usize,
}

impl Lens {
    fn of(params: &Params) -> Self {
        let s = GroupNormSizes::of(params);
        Self {
            all: s.items * s.item(),
            statistics: 2 * s.items * s.groups,
            channels: s.channels,
            sums: 2 * s.splits * s.channels,
        }
    }

    /// Means, each with an inverse deviation from 0.5 to 2.
    fn statistics(&self) -> InputFill {
        let means = InputFill::Normal(self.statistics / 2).values(7);
        let inverses = InputFill::Uniform(self.statistics / 2, 0.5, 2.0).values(8);
        InputFill::Values(means.into_iter().zip(inverses).flat_map(|(mean, inverse)| [mean, inverse]).collect())
    }
}

fn label(p: &Params) -> String {
    format!("{} items, {} positions, {} groups of {}", p.items, p.positions, p.groups, p.width)
}

/// A case with `lanes` invocations for each group.
fn case_of_groups(p: &Params, lanes: u32) -> Case {
    Case::elements(label(p), p.words(), p.items * p.groups * lanes).constant("LANES", f64::from(lanes))
}

/// A case for each size; the last has so many groups that the grid is folded, an invocation each: barriers take long.
fn each_size(buffers: fn(Case, &Lens) -> Case) -> Vec<Case> {
    let case = |p: Params, lanes: u32| buffers(case_of_groups(&p, lanes), &Lens::of(&p));
    let sizes = SIZES.map(params).into_iter();
    let mut cases: Vec<Case> = sizes.map(|p| case(p, lanes(index(p.positions * p.width)))).collect();
    cases.push(case(params([65_600 * 64, 1, 1, 2, 1]), 1));
    cases
}

/// Adds a case for each setting that leaves something out.
fn with_less(mut cases: Vec<Case>, settings: &[[(&'static str, f64); 2]]) -> Vec<Case> {
    for setting in settings {
        for at in [4, 7] {
            let mut bare: Case = cases[at].clone();
            bare.constants.extend(setting);
            bare.label = format!("{}, {setting:?}", bare.label);
            cases.push(bare);
        }
    }
    cases
}

fn forward_buffers(case: Case, lens: &Lens) -> Case {
    let case = case
        .input(InputFill::Normal(lens.all))
        .input(InputFill::Normal(lens.channels))
        .input(InputFill::Normal(lens.channels));
    case.output(lens.all).output(lens.statistics)
}

pub(super) fn forward() -> Vec<Case> {
    let mut cases = each_size(forward_buffers);
    let small = cases[6].clone();
    for (case, function) in cases.iter_mut().zip(Function::examples()) {
        *case = case.clone().function(function).labelled(&format!("{:?}", function.activation));
    }
    let others = Function::examples().skip(cases.len());
    cases.extend(
        others.map(|function| small.clone().function(function).labelled(&format!("{:?}", function.activation))),
    );
    // Here the mean of squares less the square of the mean has few digits left.
    let p = params([20, 1, 1, 300, 1]);
    let mut offset = forward_buffers(case_of_groups(&p, 64), &Lens::of(&p)).labelled("about 100");
    offset.inputs[0] = InputFill::Values(InputFill::Normal(6000).values(9).iter().map(|x| 100.0 + x).collect());
    cases.push(offset);
    let [mean, scale, center] = [("USE_MEAN", 0.0), ("USE_SCALE", 0.0), ("USE_CENTER", 0.0)];
    with_less(cases, &[[mean, center], [scale, ("USE_CENTER", 1.0)], [center, ("USE_MEAN", 1.0)], [scale, center]])
}

pub(super) fn backward_sums() -> Vec<Case> {
    let case = |size: [u32; 5]| {
        let p = params(size);
        let (splits, lens) = (p.splits, Lens::of(&p));
        let case = Case::new(
            format!("{}, {splits} slabs", label(&p)),
            p.words(),
            Grid::Elements((splits * p.groups * p.width).into()),
        );
        let case = case.input(InputFill::Normal(lens.all)).input(InputFill::Normal(lens.all)).input(lens.statistics());
        case.output(lens.sums)
    };
    let mut cases: Vec<Case> = SIZES.into_iter().map(case).collect();
    cases.extend([[0, 3, 2, 2, 4], [4096, 1, 1, 2, 1]].map(case));
    cases
}

pub(super) fn backward_input() -> Vec<Case> {
    let cases = each_size(|case, lens| {
        let case = case.input(InputFill::Normal(lens.all)).input(InputFill::Normal(lens.all)).input(lens.statistics());
        case.input(InputFill::Normal(lens.channels)).output(lens.all)
    });
    with_less(cases, &[[("USE_MEAN", 0.0), ("USE_SCALE", 1.0)], [("USE_SCALE", 0.0), ("USE_MEAN", 1.0)]])
}
