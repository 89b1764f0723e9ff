//! Norm of the whole gradient, whether it is finite, and the factor that clips it.
//!
//! Only bits that say Inf or NaN make a gradient not finite: a large one, whose sum of squares no f32 can hold, still
//! gives its norm, for the slabs hand on norms and the largest of them is taken out before squaring.

use super::cases::{Case, InputFill};
use super::family::family;
use super::parallel::{self, Slabs};
use super::rounding::{double, index, single};
use super::{Call, Kernel};
use crate::size::{Grid, Word};

crate::params! {
    /// Elements of the gradient; not read by `combine`. `scale` and `values` read nothing else but `max_norm`.
    len: u32,
    /// Slabs of this dispatch of `norm`; not read by `combine`.
    splits: u32,
    /// Largest norm that is let through, or largest value; 0 for no clipping. Not read by `norm` and `scale`.
    max_norm: f32,
    /// Slabs of all segments together; not read by `norm`.
    parts: u32,
    /// Factor of `unscale`; not read by the others.
    factor: f32,
    /// Number of the update, or 0; read by `combine` alone.
    update: u32,
}

impl Record {
    /// That of nothing, to which a kernel adds what it reads.
    pub const NONE: Self = {
        let (zero, none) = (Word::U32(0), Word::F32(0.0));
        Self { len: zero, splits: zero, max_norm: none, parts: zero, factor: none, update: zero }
    };
}

family!("clip", [Grid, Reduce], 256);

/// Sums of positive terms, some hundred additions a lane; the root halves their error.
const TOLERANCE: f32 = 1e-5;

/// The family.
pub static KERNELS: &[&Kernel] = &[&NORM, &COMBINE, &SCALE, &UNSCALE, &VALUES];

/// Slabs at most for a segment of the gradient, and values that a slab has at least where there are several.
const MOST_SPLITS: u32 = 64;
const SLAB: u32 = 4096;

/// Slabs in whose number the `partials` of several segments follow each other without gaps.
const ALIGNED: u32 = 32;

/// Slabs for a segment of `len` values: enough to keep a GPU busy, and no workgroup with next to nothing to add.
pub fn splits(len: u64) -> u32 {
    u32::try_from(len.div_ceil(SLAB.into())).map_or(MOST_SPLITS, |splits| splits.clamp(1, MOST_SPLITS))
}

/// Rows of `partials` for so many slabs.
pub fn slots(splits: u32) -> u32 {
    splits.next_multiple_of(ALIGNED)
}

/// `gradient [len]` → `partials [slots(splits), 2]`: the norm of each slab, and how many of its values are not finite;
/// zeros behind the last.
///
/// Values that are not finite are left out of the norm; so are those below 2^-63, on a device. Grid: `Items(splits)`.
pub static NORM: Kernel =
    kernel("norm", [&["gradient"], &["partials"], &[]], (norm_twin, norm_fast), TOLERANCE, norm_cases);

/// `parts [parts, 2]` → `control [4]` = `[scale, apply, norm, 0]`.
///
/// `scale` is `min(1, max_norm / norm)`, or 1 without clipping; `apply` is 1 if every value is finite, otherwise 0.
///
/// Updates with a number, counted from 1, are repeated if they are not applied. Then the last word is that number in place of 0, and
/// an update with the next number is void: it began before that was known. Its `apply` is 0, and the last word, too.
///
/// Grid: `Items(1)`. Source: Keras 3 `global_clipnorm`.
pub static COMBINE: Kernel =
    kernel("combine", [&["parts"], &["control"], &[]], (combine_twin, combine_twin), TOLERANCE, combine_cases);

/// `factors [4]`, of which the first is used → `clipped [len]` in place. Grid: `Elements(len)`.
pub static SCALE: Kernel =
    kernel("scale", [&["factors"], &["clipped"], &[]], (scale_twin, scale_fast), 1e-6, scale_cases);

/// → `unscaled [len]` in place: each value times `factor`. Grid: `Elements(len)`.
pub static UNSCALE: Kernel =
    kernel("unscale", [&[], &["unscaled"], &[]], (unscale_twin, unscale_fast), 1e-6, unscale_cases);

/// → `bounded [len]` in place: each value between `-max_norm` and `max_norm`. Grid: `Elements(len)`. Source: Keras 3
/// `clipvalue`.
pub static VALUES: Kernel = kernel("values", [&[], &["bounded"], &[]], (values_twin, values_fast), 0.0, values_cases);

/// Numbers of updates that an f32 holds.
const NUMBERS: u32 = 1 << 20;

/// Largest norm of a slab that the shader gives.
const LARGEST_SLAB: f64 = 2.8e14 * 1_208_925_819_614_629_174_706_176.0;

/// Largest norm of a gradient that the shader gives.
const LARGEST: f64 = 3.4e38;

/// Sum of the squares of the finite values, and how many are not finite. Never overflows.
pub fn sum_of_squares(values: &[f32]) -> (f64, usize) {
    let chunks = values.chunks_exact(8);
    let rest = chunks.remainder();
    let (mut sums, mut wrong) = ([0.0f64; 8], [0u32; 8]);
    for chunk in chunks {
        // Eight running sums, so that the loop is vectorised; always in the same order.
        for lane in 0..8 {
            let is_wrong = chunk[lane].to_bits() & 0x7f80_0000 == 0x7f80_0000;
            let value = f64::from(if is_wrong { 0.0 } else { chunk[lane] });
            sums[lane] += value * value;
            wrong[lane] += u32::from(is_wrong);
        }
    }
    let rest_sum: f64 = rest.iter().filter(|value| value.is_finite()).map(|value| f64::from(*value).powi(2)).sum();
    let rest_wrong = rest.iter().filter(|value| !value.is_finite()).count();
    (sums.iter().sum::<f64>() + rest_sum, wrong.iter().map(|count| index(*count)).sum::<usize>() + rest_wrong)
}

/// The factor of the gradient: `min(1, max_norm / norm)`, or 1 if `max_norm` is 0.
pub fn clip_scale(max_norm: f64, norm: f64) -> f64 {
    if max_norm > 0.0 && norm > max_norm { max_norm / norm } else { 1.0 }
}

fn norm_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len, splits, .. } = call.params();
    let slabs = Slabs::new(index(len), index(splits));
    for (split, partial) in outputs[0].chunks_exact_mut(2).enumerate().take(index(splits)) {
        let values = &call.inputs[0][slabs.range(split)];
        let finite = values.iter().filter(|value| value.is_finite());
        let norm = finite.map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        partial[0] = single(norm.min(LARGEST_SLAB));
        partial[1] = single(double(values.iter().filter(|value| !value.is_finite()).count()));
    }
    outputs[0][2 * index(splits)..].fill(0.0);
}

fn norm_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len, splits, .. } = call.params();
    let slabs = Slabs::new(index(len), index(splits));
    parallel::slabs(&mut outputs[0][..2 * index(splits)], 2, index(len), |split, partial| {
        let (squares, wrong) = sum_of_squares(&call.inputs[0][slabs.range(split)]);
        partial[0] = single(squares.sqrt().min(LARGEST_SLAB));
        partial[1] = single(double(wrong));
    });
    outputs[0][2 * index(splits)..].fill(0.0);
}

fn combine_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { max_norm, parts, update, .. } = call.params();
    let parts = &call.inputs[0][..2 * index(parts)];
    let squares: f64 = parts.iter().step_by(2).map(|norm| f64::from(*norm).powi(2)).sum();
    let is_finite = parts.iter().skip(1).step_by(2).all(|wrong| *wrong == 0.0);
    let norm = squares.sqrt().min(LARGEST);
    let number = |update: u32| single(double(index(update % NUMBERS)));
    let refused = outputs[0][3];
    let is_void = update > 0 && refused > 0.0 && refused.to_bits() == number(update - 1).to_bits();
    outputs[0][0] = single(clip_scale(f64::from(max_norm), norm));
    outputs[0][1] = if is_finite && !is_void { 1.0 } else { 0.0 };
    outputs[0][2] = single(norm);
    outputs[0][3] = if is_finite || is_void { 0.0 } else { number(update) };
}

fn scale_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len, .. } = call.params();
    let factor = f64::from(call.inputs[0][0]);
    outputs[0][..index(len)].iter_mut().for_each(|value| *value = single(f64::from(*value) * factor));
}

fn scale_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len, .. } = call.params();
    let factor = call.inputs[0][0];
    outputs[0][..index(len)].iter_mut().for_each(|value| *value *= factor);
}

fn unscale_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len, factor, .. } = call.params();
    outputs[0][..index(len)].iter_mut().for_each(|value| *value = single(f64::from(*value) * f64::from(factor)));
}

fn unscale_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len, factor, .. } = call.params();
    outputs[0][..index(len)].iter_mut().for_each(|value| *value *= factor);
}

/// Brings values between a limit and its negative.
pub fn bound(values: &mut [f32], limit: f32) {
    values.iter_mut().for_each(|value| *value = value.clamp(-limit, limit));
}

fn values_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len, max_norm, .. } = call.params();
    outputs[0][..index(len)].iter_mut().for_each(|value| *value = value.max(-max_norm).min(max_norm));
}

fn values_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len, max_norm, .. } = call.params();
    bound(&mut outputs[0][..index(len)], max_norm);
}

fn elementwise_cases(max_norm: f32, buffers: fn(Case) -> Case) -> Vec<Case> {
    let case = |len: u32| {
        let params = Params { len, splits: 0, max_norm, parts: 0, factor: 0.125, update: 0 };
        let case = Case::elements(format!("{len}, limit {max_norm}"), params.words(), len);
        buffers(case).in_place(InputFill::Normal(index(len)))
    };
    [1, 63, 64, 65, 257, 70_001].map(case).into()
}

fn scale_cases() -> Vec<Case> {
    elementwise_cases(0.0, |case| case.input(InputFill::Values(vec![0.3, 1.0, 5.0, 0.0])))
}

fn unscale_cases() -> Vec<Case> {
    elementwise_cases(0.0, |case| case)
}

fn values_cases() -> Vec<Case> {
    let mut cases = elementwise_cases(0.7, |case| case);
    let mut outside = cases[1].clone();
    outside.label = "all outside".into();
    outside.outputs = vec![InputFill::Values(vec![-3.0; 63])];
    cases.push(outside);
    cases
}

fn norm_cases() -> Vec<Case> {
    let case = |len: u32, splits: u32| {
        let params = Params { len, splits, max_norm: 0.0, parts: 0, factor: 0.0, update: 0 };
        Case::new(format!("{len} in {splits} slabs"), params.words(), Grid::Items(splits.into()))
            .input(InputFill::Normal(index(len)))
            .output(index(2 * slots(splits)))
    };
    let mut special = case(8, 3);
    special.label = "not finite, huge and tiny".into();
    special.inputs[0] = InputFill::Values(vec![f32::NAN, 3.0, f32::NEG_INFINITY, 1e30, -1e30, 5.0, f32::MAX, f32::MAX]);
    let mut huge = case(64, 1);
    huge.label = "norm past the largest float".into();
    huge.inputs[0] = InputFill::Values(vec![3e38; 64]);
    let mut mixed = case(65, 1);
    mixed.label = "on both sides of 2^50".into();
    mixed.inputs[0] = InputFill::Uniform(65, -3e15, 3e15);
    vec![case(1, 1), case(63, 32), case(64, 2), case(65, 64), case(257, 1), case(200_001, 128), special, huge, mixed]
}

fn combine_cases() -> Vec<Case> {
    let case = |parts: u32, max_norm: f32| {
        let values = (0..parts).flat_map(|part| [single(f64::from(part % 7)), 0.0]).collect();
        let params = Params { len: 0, splits: 0, max_norm, parts, factor: 0.0, update: 0 };
        Case::new(format!("{parts} parts, largest norm {max_norm}"), params.words(), Grid::Items(1.into()))
            .input(InputFill::Values(values))
            .output(4)
    };
    let with = |label: &str, max_norm: f32, values: Vec<f32>| {
        let mut case = case(1, max_norm);
        case.label = label.into();
        case.params[3] = if values.len() == 2 { 1 } else { 2 };
        case.inputs[0] = InputFill::Values(values);
        case
    };
    // An update with a number, behind one that was refused.
    let numbered = |label: &str, update: u32, refused: f32, wrong: f32| {
        let mut case = with(&format!("{label}: {update} behind {refused}"), 1.0, vec![3.0, wrong]);
        case.params[5] = update;
        case.outputs = vec![InputFill::Values(vec![1.0, 0.0, 9.0, refused])];
        case
    };
    vec![
        case(1, 1.0),
        case(64, 0.0),
        case(257, 1.0),
        case(600, 1e6),
        with("not finite", 1.0, vec![3.0, 0.0, 4.0, 2.0]),
        with("huge", 1.0, vec![3e30, 0.0, 4e30, 0.0]),
        with("past the largest float", 1.0, vec![3.3e38, 0.0, 3.3e38, 0.0]),
        numbered("refused", 7, 5.0, 1.0),
        numbered("void", 8, 7.0, 0.0),
        numbered("void and not finite", 8, 7.0, 1.0),
        numbered("repeated", 7, 7.0, 0.0),
        numbered("number past those of an f32", (1 << 24) + 3, 2.0, 0.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(gradient: &[f32], splits: u32, max_norm: f32) -> [f32; 4] {
        let len = u32::try_from(gradient.len()).unwrap();
        let params = Params { len, splits, max_norm, parts: slots(splits), factor: 0.0, update: 0 }.words();
        let (mut partials, mut control) = (vec![9.0; index(2 * slots(splits))], [9.0; 4]);
        norm_twin(&Call { params: &params, constants: &[], inputs: &[gradient] }, &mut [&mut partials]);
        combine_twin(&Call { params: &params, constants: &[], inputs: &[&partials] }, &mut [&mut control]);
        control
    }

    #[test]
    fn three_four_five() {
        assert_eq!(control(&[3.0, 0.0, -4.0], 2, 1.0), [0.2, 1.0, 5.0, 0.0]);
        assert_eq!(control(&[3.0, 0.0, -4.0], 2, 0.0), [1.0, 1.0, 5.0, 0.0]);
        assert_eq!(control(&[3.0, 0.0, -4.0], 7, 6.0), [1.0, 1.0, 5.0, 0.0]);
        assert_eq!(control(&[0.0, 0.0], 1, 1.0), [1.0, 1.0, 0.0, 0.0]);
    }

    /// One number is refused; the next, already on its way, is void; then the first comes again.
    #[test]
    fn what_began_behind_a_refused_update_is_void() {
        let mut control = [0.0; 4];
        let mut run = |update: u32, wrong: f32| {
            let params = Params { len: 0, splits: 0, max_norm: 0.0, parts: 1, factor: 0.0, update }.words();
            combine_twin(&Call { params: &params, constants: &[], inputs: &[&[3.0, wrong]] }, &mut [&mut control]);
            [control[1], control[3]]
        };
        assert_eq!([run(4, 0.0), run(5, 1.0), run(6, 0.0)], [[1.0, 0.0], [0.0, 5.0], [0.0, 0.0]]);
        assert_eq!([run(5, 1.0), run(5, 0.0), run(6, 0.0)], [[0.0, 5.0], [1.0, 0.0], [1.0, 0.0]]);
        assert_eq!([run(0, 1.0), run(0, 0.0)], [[0.0, 0.0], [1.0, 0.0]]);
    }

    #[test]
    fn only_bits_make_it_not_finite() {
        assert_eq!(control(&[3.0, f32::NAN, -4.0], 2, 1.0)[1], 0.0);
        assert_eq!(control(&[f32::INFINITY], 1, 0.0)[1], 0.0);
        let [scale, apply, norm, _] = control(&[3e30, -4e30], 2, 1.0);
        assert_eq!(apply, 1.0);
        assert!((norm / 5e30 - 1.0).abs() < 1e-6 && (scale * 5e30 - 1.0).abs() < 1e-6, "{norm} {scale}");
    }
}
