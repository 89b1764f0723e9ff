//! Rotary positions: pairs of features turned by angles that grow with the position.

use super::cases::{Case, InputFill};
use super::family::family;
use super::rounding::{index, single};
use super::{Call, Kernel, parallel};

crate::params! {
    /// Pairs of features of this run: vectors times `half`.
    pairs: u32,
    /// Pairs of a vector.
    half: u32,
    /// Vectors of a position, which stand side by side.
    inner: u32,
    /// Positions of a sequence.
    time: u32,
    /// 1, or -1 for backward.
    direction: f32,
}

family!("rotary_embedding", [Grid]);

/// Two products, each within half a unit in the last place, and a sum.
const TOLERANCE: f32 = 1e-6;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD];

/// `turns [time, 2 half]`, cosines and then sines of each position, and `x [vectors, 2 half]` → `y [vectors, 2 half]`.
///
/// Feature `k` and feature `half + k` of a vector are a pair. Backward: `dy` → `d_x`, with the other direction. Grid:
/// `Elements(pairs)`. Source: Su et al. 2021, arXiv:2104.09864.
pub static FORWARD: Kernel =
    kernel("forward", [&["turns", "x"], &["y"], &[]], (forward_twin, forward_fast), TOLERANCE, cases);

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { pairs, half, inner, time, direction } = call.params();
    let (turns, x) = (call.inputs[0], call.inputs[1]);
    for pair in 0..pairs {
        let (vector, k) = (pair / half, pair % half);
        let [first, second] = [2 * half * vector + k, 2 * half * vector + half + k].map(index);
        let cosine = index(2 * half * (vector / inner % time) + k);
        let [one, other] = [first, second].map(|at| f64::from(x[at]));
        let (cosine, sine) = (f64::from(turns[cosine]), f64::from(direction * turns[cosine + index(half)]));
        outputs[0][first] = single(one * cosine - other * sine);
        outputs[0][second] = single(other * cosine + one * sine);
    }
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { pairs, half, inner, time, direction } = call.params();
    let (half, inner, time) = (index(half), index(inner), index(time));
    let (turns, x, len) = (call.inputs[0], call.inputs[1], 2 * index(pairs));
    parallel::rows(&mut outputs[0][..len], 2 * half, |first, y| {
        let vectors = x[2 * half * first..].chunks_exact(2 * half).zip(y.chunks_exact_mut(2 * half));
        for (vector, (x, y)) in (first..).zip(vectors) {
            let turns = &turns[2 * half * (vector / inner % time)..];
            let ((x1, x2), (y1, y2)) = (x.split_at(half), y.split_at_mut(half));
            for (((x1, x2), (y1, y2)), (cosine, sine)) in
                x1.iter().zip(x2).zip(y1.iter_mut().zip(y2)).zip(turns.iter().zip(&turns[half..]))
            {
                *y1 = x1 * cosine - x2 * (direction * sine);
                *y2 = x2 * cosine + x1 * (direction * sine);
            }
        }
    });
}

fn cases() -> Vec<Case> {
    let sizes: [[u32; 4]; 6] =
        [[1, 1, 1, 1], [3, 5, 1, 1], [2, 7, 3, 4], [5, 13, 2, 33], [1, 64, 9, 32], [40, 50, 4, 16]];
    let both = [1.0, -1.0].into_iter().flat_map(|direction| sizes.map(|size| (direction, size)));
    both.map(|(direction, [rows, time, inner, half])| {
        let params = Params { pairs: rows * time * inner * half, half, inner, time, direction };
        let label = format!("{rows} x {time} positions of {inner} x {half} pairs, direction {direction}");
        let (of_turns, len) = (2 * index(time * half), 2 * index(params.pairs));
        let case = Case::elements(label, params.words(), params.pairs);
        case.input(InputFill::Uniform(of_turns, -1.0, 1.0)).input(InputFill::Normal(len)).output(len)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(direction: f32, turns: &[f32], x: &[f32]) -> [f32; 4] {
        let mut y = [9.0; 4];
        let params = Params { pairs: 2, half: 1, inner: 1, time: 2, direction };
        forward_twin(&Call { params: &params.words(), constants: &[], inputs: &[turns, x] }, &mut [&mut y]);
        y
    }

    /// Position 0 is not turned, position 1 by a right angle.
    const QUARTER: [f32; 4] = [1.0, 0.0, 0.0, 1.0];

    #[test]
    fn a_quarter_turn_leads_from_the_first_axis_to_the_second() {
        assert_eq!(run(1.0, &QUARTER, &[1.0, 2.0, 1.0, 2.0]), [1.0, 2.0, -2.0, 1.0]);
    }

    #[test]
    fn backward_turns_back() {
        let x = [0.5, -3.0, 2.0, 0.25];
        assert_eq!(run(-1.0, &QUARTER, &run(1.0, &QUARTER, &x)), x);
    }
}
