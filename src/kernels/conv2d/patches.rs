//! Convolution on the CPU as matrix products of patches, a cache's worth at a time.
//!
//! A patch is what one pixel of the output sees of the input: `[k_h, k_w, in_c]`, with zeros for the padding.

use std::ops::Range;

use ndarray::s;

use super::super::Call;
use super::super::parallel::Slabs;
use super::super::product::{
    Epilogue, TASK, accumulate, for_each_chunk, matrix, matrix_mut, multiply, multiply_here, with_scratch,
};
use super::sizes::Sizes;

/// Values of patches that are made at a time: 1 MiB, within the L2 cache of today's cores.
const SCRATCH: usize = 1 << 18;

/// Pixels in a product at least, so that packing the weights for it pays.
const FEWEST_PIXELS: usize = 256;

/// Splits from which there are parts enough for every thread.
const MANY_SPLITS: usize = 8;

/// Pixels to take at a time: what fits [`SCRATCH`] and is no more than a task.
fn block(s: &Sizes) -> usize {
    (SCRATCH / s.patch()).min(TASK / (s.patch() * s.out_c)).max(FEWEST_PIXELS)
}

/// Multiplications of the whole convolution; making a value of a patch takes as long as some 32.
fn work(s: &Sizes) -> usize {
    s.pixels() * s.patch() * (s.out_c + 32)
}

/// Copies every `stride_w`th pixel.
fn copy_line(s: &Sizes, from: &[f32], to: &mut [f32]) {
    if s.stride_w == 1 {
        to.copy_from_slice(&from[..to.len()]);
    } else {
        to.iter_mut().zip(from.iter().step_by(s.stride_w)).for_each(|(to, from)| *to = *from);
    }
}

/// Writes the patches of `pixels`, of each patch only `taps`.
fn gather(s: &Sizes, x: &[f32], pixels: Range<usize>, taps: &Range<usize>, patches: &mut [f32]) {
    s.each_run(pixels, taps, |run, place| match place {
        Some(place) => patches[run.clone()].copy_from_slice(&x[place..place + run.len()]),
        None => patches[run].fill(0.0),
    });
}

/// Writes the patches of `pixels` as columns: `[patch, pixels]`, the order in which a product's first factor is packed
/// fastest, and in which runs are as long as the image is wide, however few its channels. `planes` has room for an image.
fn gather_columns(s: &Sizes, x: &[f32], pixels: Range<usize>, planes: &mut [f32], patches: &mut [f32]) {
    let columns = pixels.len();
    let (mut pixel, mut seen) = (pixels.start, 0..0);
    while pixel < pixels.end {
        let (line, ox) = (pixel / s.out_w, pixel % s.out_w);
        let (image, oy) = (line / s.out_h, line % s.out_h);
        if pixel == pixels.start || oy == 0 {
            let last = ((pixels.end - 1) / s.out_w - image * s.out_h).min(s.out_h - 1);
            seen = s.lines_seen(oy, last);
            let first = (image * s.in_h + seen.start) * s.in_w * s.in_c;
            transpose(&x[first..][..seen.len() * s.in_w * s.in_c], s.in_c, planes);
        }
        let run = (s.out_w - ox).min(pixels.end - pixel);
        for tap in 0..s.taps() {
            let columns = patches[tap * s.in_c * columns..].chunks_exact_mut(columns).take(s.in_c);
            let columns = columns.map(|column| &mut column[pixel - pixels.start..][..run]);
            let iy = (oy * s.stride_h + tap / s.k_w).checked_sub(s.pad_top).filter(|iy| *iy < s.in_h);
            let Some(iy) = iy else {
                columns.for_each(|column| column.fill(0.0));
                continue;
            };
            let (inside, first) = s.reach(ox * s.stride_w + tap % s.k_w, run);
            let planes = planes.chunks_exact(seen.len() * s.in_w);
            for (column, plane) in columns.zip(planes) {
                let line = &plane[(iy - seen.start) * s.in_w..][..s.in_w];
                column[..inside.start].fill(0.0);
                column[inside.end..].fill(0.0);
                copy_line(s, &line[first..], &mut column[inside.clone()]);
            }
        }
        pixel += run;
    }
}

/// `[pixels, channels]` to `[channels, pixels]`.
fn transpose(x: &[f32], channels: usize, planes: &mut [f32]) {
    let pixels = x.len() / channels;
    if pixels == 0 {
        return;
    }
    for (ci, plane) in planes.chunks_exact_mut(pixels).enumerate().take(channels) {
        plane.iter_mut().zip(x[ci..].iter().step_by(channels)).for_each(|(to, from)| *to = *from);
    }
}

/// Adds the patches of `pixels` to the input's gradient `d_x`, which begins with value `first` of the whole.
fn scatter(s: &Sizes, patches: &[f32], pixels: Range<usize>, first: usize, d_x: &mut [f32]) {
    s.each_run(pixels, &(0..s.taps()), |run, place| {
        if let Some(place) = place {
            let sums = &mut d_x[place - first..place - first + run.len()];
            sums.iter_mut().zip(&patches[run]).for_each(|(sum, value)| *sum += value);
        }
    });
}

/// The fast version of `conv2d.forward`.
pub(super) fn forward(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = Sizes::of_call(call);
    let (x, w) = (call.inputs[0], matrix(call.inputs[1], s.patch(), s.out_c, s.out_c));
    let epilogue = Epilogue::of_call(call, call.inputs[2], s.out_c);
    let y = &mut outputs[0][..s.pixels() * s.out_c];
    if s.is_product() {
        let x = matrix(x, s.pixels(), s.in_c, s.in_c);
        return multiply(x, w, matrix_mut(y, s.pixels(), s.out_c, s.out_c), epilogue);
    }
    let block = block(&s);
    for_each_chunk(y, block * s.out_c, work(&s), |index, y| {
        let pixels = y.len() / s.out_c;
        let plane = s.in_pixels() * s.in_c;
        with_scratch(plane + pixels * s.patch(), |scratch| {
            let (planes, patches) = scratch.split_at_mut(plane);
            gather_columns(&s, x, index * block..index * block + pixels, planes, patches);
            let patches = matrix(patches, s.patch(), pixels, pixels).reversed_axes();
            multiply_here(&patches, &w, matrix_mut(y, pixels, s.out_c, s.out_c), epilogue);
        });
    });
}

/// The fast version of `conv2d_backward_input.backward_input`.
pub(super) fn backward_input(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = Sizes::of_call(call);
    let dy = matrix(call.inputs[0], s.pixels(), s.out_c, s.out_c);
    let w = matrix(call.inputs[1], s.patch(), s.out_c, s.out_c).reversed_axes();
    let image = s.in_pixels() * s.in_c;
    let d_x = &mut outputs[0][..s.rows * image];
    if s.is_product() {
        return multiply(dy, w, matrix_mut(d_x, s.pixels(), s.in_c, s.in_c), Epilogue::NONE);
    }
    // Whole images: patches overlap, and nobody else adds to the same pixels.
    let images = FEWEST_PIXELS.div_ceil(s.out_pixels());
    for_each_chunk(d_x, images * image, work(&s), |index, d_x| {
        let first = index * images;
        let end = (first + d_x.len() / image) * s.out_pixels();
        d_x.fill(0.0);
        for start in (first * s.out_pixels()..end).step_by(block(&s)) {
            let pixels = start..(start + block(&s)).min(end);
            with_scratch(pixels.len() * s.patch(), |patches| {
                let dy = dy.slice(s![pixels.clone(), ..]);
                let result = matrix_mut(patches, pixels.len(), s.patch(), s.patch());
                multiply_here(&dy, &w, result, Epilogue::NONE);
                scatter(&s, patches, pixels, first * image, d_x);
            });
        }
    });
}

/// The fast version of `conv2d_backward_weights.backward_weights`.
pub(super) fn backward_weights(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = Sizes::of_call(call);
    let x = call.inputs[0];
    let dy = matrix(call.inputs[1], s.pixels(), s.out_c, s.out_c);
    let partials = &mut outputs[0][..s.splits * s.patch() * s.out_c];
    if s.is_product() && s.splits == 1 {
        let x = matrix(x, s.pixels(), s.in_c, s.in_c).reversed_axes();
        return multiply(x, dy, matrix_mut(partials, s.patch(), s.out_c, s.out_c), Epilogue::NONE);
    }
    // Few splits of a large kernel are cut further, by taps.
    let is_cut = s.splits < MANY_SPLITS && s.patch() * s.out_c >= SCRATCH;
    let taps = if is_cut { 1 } else { s.taps() };
    let parts = s.taps() / taps;
    let columns = taps * s.in_c;
    for_each_chunk(partials, columns * s.out_c, work(&s), |index, partial| {
        let range = Slabs::new(s.pixels(), s.splits).range(index / parts);
        let taps = index % parts * taps..(index % parts + 1) * taps;
        let mut partial = matrix_mut(partial, columns, s.out_c, s.out_c);
        partial.fill(0.0);
        let block = (SCRATCH / columns).max(FEWEST_PIXELS);
        for start in range.clone().step_by(block) {
            let pixels = start..(start + block).min(range.end);
            with_scratch(pixels.len() * columns, |patches| {
                gather(&s, x, pixels.clone(), &taps, patches);
                let patches = matrix(patches, pixels.len(), columns, columns).reversed_axes();
                accumulate(&patches, &dy.slice(s![pixels, ..]), &mut partial);
            });
        }
    });
}
