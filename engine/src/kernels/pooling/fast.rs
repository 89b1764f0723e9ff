//! Pooling in f32, vectorised over channels, images shared out to threads.

use super::super::Call;
use super::super::parallel;
use super::super::rounding::float;
use super::PoolingSizes;

/// Calls `f(position of y, offset of a position of x)` for each window's positions in turn, in one image.
fn each_position(sizes: &PoolingSizes, mut f: impl FnMut(usize, usize)) {
    for (output, (line, column)) in sizes.outputs().enumerate() {
        sizes.positions(line, column).for_each(|position| f(output * sizes.channels, position));
    }
}

/// Calls `f(image of y, image of the input)` for each image.
fn each_image(
    call: &Call<'_>,
    output: &mut [f32],
    [out_len, in_len]: [usize; 2],
    f: impl Fn(&mut [f32], &[f32]) + Sync,
) {
    let rows = PoolingSizes::of(&call.params()).rows;
    let input = call.inputs[0];
    parallel::slabs(&mut output[..rows * out_len], out_len, rows * out_len.max(in_len), |row, output| {
        f(output, &input[row * in_len..(row + 1) * in_len]);
    });
}

pub(super) fn forward_max(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let sizes = PoolingSizes::of(&call.params());
    each_image(call, outputs[0], [sizes.out_len(), sizes.in_len()], |y, x| {
        y.fill(-3.4e38);
        each_position(&sizes, |to, at| {
            let y = &mut y[to..to + sizes.channels];
            y.iter_mut().zip(&x[at..]).for_each(|(y, x)| *y = if *x > *y || x.is_nan() { *x } else { *y });
        });
    });
}

/// Channels whose shares stay in registers and the L1 cache.
const BLOCK: usize = 64;

pub(super) fn backward_max(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let sizes = PoolingSizes::of(&call.params());
    let (in_len, out_len) = (sizes.in_len(), sizes.out_len());
    let [x, y, dy] = [0, 1, 2].map(|input: usize| call.inputs[input]);
    parallel::slabs(&mut outputs[0][..sizes.rows * in_len], in_len, sizes.rows * in_len, |row, d_x| {
        d_x.fill(0.0);
        let outputs = row * out_len..(row + 1) * out_len;
        image_backward_max(&sizes, [&x[row * in_len..(row + 1) * in_len], &y[outputs.clone()], &dy[outputs]], d_x);
    });
}

fn image_backward_max(sizes: &PoolingSizes, [x, y, dy]: [&[f32]; 3], d_x: &mut [f32]) {
    let mut rest = [0.0f32; BLOCK];
    for (output, (line, column)) in sizes.outputs().enumerate() {
        for first in (0..sizes.channels).step_by(BLOCK) {
            let last = (first + BLOCK).min(sizes.channels);
            let outputs = output * sizes.channels + first..output * sizes.channels + last;
            // What no position has taken yet: the first that holds the maximum takes it all.
            let rest = &mut rest[..last - first];
            rest.copy_from_slice(&dy[outputs.clone()]);
            for position in sizes.positions(line, column) {
                let inputs = position + first..position + last;
                take(&mut d_x[inputs.clone()], rest, &x[inputs], &y[outputs.clone()]);
            }
        }
    }
}

fn take(d_x: &mut [f32], rest: &mut [f32], x: &[f32], y: &[f32]) {
    for ((d_x, rest), (x, y)) in d_x.iter_mut().zip(rest).zip(x.iter().zip(y)) {
        let taken = if x == y { *rest } else { 0.0 };
        *d_x += taken;
        *rest = if x == y { 0.0 } else { *rest };
    }
}

/// 1 / number of positions in each window of an image.
fn shares(sizes: &PoolingSizes) -> Vec<f32> {
    let count = |(line, column): (usize, usize)| sizes.window(0, line).len() * sizes.window(1, column).len();
    sizes.outputs().map(|window| 1.0 / float(count(window).max(1))).collect()
}

pub(super) fn forward_average(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let sizes = PoolingSizes::of(&call.params());
    let shares = shares(&sizes);
    each_image(call, outputs[0], [sizes.out_len(), sizes.in_len()], |y, x| {
        y.fill(0.0);
        each_position(&sizes, |to, at| {
            y[to..to + sizes.channels].iter_mut().zip(&x[at..]).for_each(|(y, x)| *y += x);
        });
        for (y, share) in y.chunks_exact_mut(sizes.channels).zip(&shares) {
            y.iter_mut().for_each(|y| *y *= share);
        }
    });
}

pub(super) fn backward_average(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let sizes = PoolingSizes::of(&call.params());
    let shares = shares(&sizes);
    each_image(call, outputs[0], [sizes.in_len(), sizes.out_len()], |d_x, dy| {
        d_x.fill(0.0);
        each_position(&sizes, |source, at| {
            let share = shares[source / sizes.channels];
            d_x[at..at + sizes.channels].iter_mut().zip(&dy[source..]).for_each(|(d_x, dy)| *d_x += dy * share);
        });
    });
}

pub(super) fn forward_global_average(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let sizes = PoolingSizes::of(&call.params());
    let share = 1.0 / float(sizes.input[0] * sizes.input[1]);
    each_image(call, outputs[0], [sizes.channels, sizes.in_len()], |y, x| {
        y.fill(0.0);
        for x in x.chunks_exact(sizes.channels) {
            y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
        }
        y.iter_mut().for_each(|y| *y *= share);
    });
}

pub(super) fn backward_global_average(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let sizes = PoolingSizes::of(&call.params());
    let share = 1.0 / float(sizes.input[0] * sizes.input[1]);
    each_image(call, outputs[0], [sizes.in_len(), sizes.channels], |d_x, dy| {
        for d_x in d_x.chunks_exact_mut(sizes.channels) {
            d_x.iter_mut().zip(dy).for_each(|(d_x, dy)| *d_x = dy * share);
        }
    });
}
