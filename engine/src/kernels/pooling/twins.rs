//! The sums of `pooling.wgsl` in f64, each gradient scattered from its window.

use super::super::Call;
use super::super::rounding::{double, single};
use super::PoolingSizes;

/// Calls `f(offset of y, offsets of x)` for each window and channel.
fn each_window(call: &Call<'_>, mut f: impl FnMut(usize, Vec<usize>)) {
    let sizes = PoolingSizes::of(&call.params());
    for row in 0..sizes.rows {
        for (output, (line, column)) in sizes.outputs().enumerate() {
            for channel in 0..sizes.channels {
                let positions = sizes.positions(line, column);
                let inputs = positions.map(|position| row * sizes.in_len() + position + channel).collect();
                f(row * sizes.out_len() + output * sizes.channels + channel, inputs);
            }
        }
    }
}

/// Offset of the first largest; a NaN is larger than all numbers.
fn first_largest(x: &[f32], offsets: &[usize]) -> Option<usize> {
    let is_better = |best: usize, at: usize| x[at] > x[best] || (x[at].is_nan() && !x[best].is_nan());
    let better = |best: usize, at: usize| if is_better(best, at) { at } else { best };
    offsets.iter().copied().reduce(better)
}

pub(super) fn forward_max(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let x = call.inputs[0];
    each_window(call, |output, inputs| {
        outputs[0][output] = first_largest(x, &inputs).map_or(-3.4e38, |at| x[at]);
    });
}

/// Adds `share(y's offset, x's offsets)` to the elements of `d_x` that it names.
fn scatter(call: &Call<'_>, d_x: &mut [f32], mut share: impl FnMut(usize, Vec<usize>) -> (Vec<usize>, f64)) {
    let sizes = PoolingSizes::of(&call.params());
    let mut sums = vec![0.0f64; sizes.rows * sizes.in_len()];
    each_window(call, |output, inputs| {
        let (takers, value) = share(output, inputs);
        takers.iter().for_each(|at| sums[*at] += value);
    });
    d_x.iter_mut().zip(sums).for_each(|(d_x, sum)| *d_x = single(sum));
}

pub(super) fn backward_max(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let [x, dy] = [call.inputs[0], call.inputs[2]];
    scatter(call, outputs[0], |output, inputs| {
        let largest = first_largest(x, &inputs).filter(|at| !x[*at].is_nan());
        (largest.into_iter().collect(), f64::from(dy[output]))
    });
}

pub(super) fn forward_average(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let x = call.inputs[0];
    each_window(call, |output, inputs| {
        let sum: f64 = inputs.iter().map(|at| f64::from(x[*at])).sum();
        outputs[0][output] = single(sum / double(inputs.len().max(1)));
    });
}

pub(super) fn backward_average(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let dy = call.inputs[0];
    scatter(call, outputs[0], |output, inputs| {
        let value = f64::from(dy[output]) / double(inputs.len().max(1));
        (inputs, value)
    });
}

pub(super) fn forward_global_average(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let sizes = PoolingSizes::of(&call.params());
    let positions = sizes.input[0] * sizes.input[1];
    for (row, x) in call.inputs[0].chunks_exact(sizes.in_len()).enumerate().take(sizes.rows) {
        for channel in 0..sizes.channels {
            let sum: f64 = x[channel..].iter().step_by(sizes.channels).map(|x| f64::from(*x)).sum();
            outputs[0][row * sizes.channels + channel] = single(sum / double(positions));
        }
    }
}

pub(super) fn backward_global_average(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let sizes = PoolingSizes::of(&call.params());
    let positions = double(sizes.input[0] * sizes.input[1]);
    for (row, d_x) in outputs[0].chunks_exact_mut(sizes.in_len()).enumerate().take(sizes.rows) {
        for (i, d_x) in d_x.iter_mut().enumerate() {
            *d_x = single(f64::from(call.inputs[0][row * sizes.channels + i % sizes.channels]) / positions);
        }
    }
}
