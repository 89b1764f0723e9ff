//! Convolution on the CPU as matrix products of patches, a cache's worth at a time.
//!
//! A patch is what one pixel of the output sees of the input: `[k_h, k_w, in_c]`, with zeros for the padding.

use std::ops::Range;

use ndarray::{ArrayView2, ArrayViewMut2, s};

use super::super::Call;
use super::super::parallel::Slabs;
use super::super::product::{
    Epilogue, TASK, accumulate, for_each_chunk, matrix, matrix_mut, multiply, multiply_here, with_scratch,
};
use super::sizes::ConvSizes;

/// Values of patches that are made at a time: 1 MiB, within the L2 cache of today's cores.
const SCRATCH: usize = 1 << 18;

/// Pixels in a product at least, so that packing the weights for it pays.
const FEWEST_PIXELS: usize = 256;

/// Splits from which there are parts enough for every thread.
const MANY_SPLITS: usize = 8;

/// Pixels to take at a time: what fits [`SCRATCH`] and is no more than a task.
fn block(s: &ConvSizes) -> usize {
    (SCRATCH / s.patch()).min(TASK / (s.patch() * s.group_out())).max(FEWEST_PIXELS)
}

/// Multiplications of the whole convolution; making a value of a patch takes as long as some 32.
fn work(s: &ConvSizes) -> usize {
    s.pixels() * s.patch() * (s.out_c + 32 * s.groups)
}

/// Copies every `stride_w`th pixel.
fn copy_line(s: &ConvSizes, from: &[f32], to: &mut [f32]) {
    if s.stride_w == 1 {
        to.copy_from_slice(&from[..to.len()]);
    } else {
        to.iter_mut().zip(from.iter().step_by(s.stride_w)).for_each(|(to, from)| *to = *from);
    }
}

/// Writes the patches of `pixels`, of each patch only `taps`.
fn gather(s: &ConvSizes, x: &[f32], pixels: Range<usize>, taps: &Range<usize>, patches: &mut [f32]) {
    s.each_run(pixels, taps, |run, place| match place {
        Some(place) => patches[run.clone()].copy_from_slice(&x[place..place + run.len()]),
        None => patches[run].fill(0.0),
    });
}

/// Writes the patches of `pixels` as columns: `[patch, pixels]`, the order in which a product's first factor is packed
/// fastest, and in which runs are as long as the image is wide, however few its channels. `planes` has room for an image.
fn gather_columns(s: &ConvSizes, x: &[f32], pixels: Range<usize>, planes: &mut [f32], patches: &mut [f32]) {
    let columns = pixels.len();
    let (mut pixel, mut seen) = (pixels.start, 0..0);
    while pixel < pixels.end {
        let (line, ox) = (pixel / s.out_w, pixel % s.out_w);
        let (image, oy) = (line / s.out_h, line % s.out_h);
        if pixel == pixels.start || oy == 0 {
            let last = ((pixels.end - 1) / s.out_w - image * s.out_h).min(s.out_h - 1);
            seen = s.lines_seen(oy, last);
            let first = (image * s.in_h + seen.start) * s.in_w * s.in_c;
            transpose(s, &x[first..][..seen.len() * s.in_w * s.in_c], planes);
        }
        let run = (s.out_w - ox).min(pixels.end - pixel);
        for tap in 0..s.taps() {
            let columns = patches[tap * s.group_in() * columns..].chunks_exact_mut(columns).take(s.group_in());
            let columns = columns.map(|column| &mut column[pixel - pixels.start..][..run]);
            let Some(iy) = s.line_seen(oy, tap / s.k_w) else {
                columns.for_each(|column| column.fill(0.0));
                continue;
            };
            let (inside, first) = s.reach(ox * s.stride_w + tap % s.k_w * s.dilation[1], run);
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

/// `[pixels, channels]` to `[channels, pixels]`, the channels of the group alone.
fn transpose(s: &ConvSizes, x: &[f32], planes: &mut [f32]) {
    let pixels = x.len() / s.in_c;
    if pixels == 0 {
        return;
    }
    let channels = s.group * s.group_in()..(s.group + 1) * s.group_in();
    for (ci, plane) in channels.zip(planes.chunks_exact_mut(pixels)) {
        plane.iter_mut().zip(x.chunks_exact(s.in_c)).for_each(|(to, from)| *to = from[ci]);
    }
}

/// Adds the patches of `pixels` to the input's gradient `d_x`, which begins with value `first` of the whole.
fn scatter(s: &ConvSizes, patches: &[f32], pixels: Range<usize>, first: usize, d_x: &mut [f32]) {
    s.each_run(pixels, &(0..s.taps()), |run, place| {
        if let Some(place) = place {
            let sums = &mut d_x[place - first..place - first + run.len()];
            sums.iter_mut().zip(&patches[run]).for_each(|(sum, value)| *sum += value);
        }
    });
}

/// Weights of the group: `[patch, filters]`.
fn weights<'a>(s: &ConvSizes, w: &'a [f32]) -> ArrayView2<'a, f32> {
    matrix(&w[s.group * s.group_out()..], s.patch(), s.group_out(), s.out_c)
}

/// Channels of the group of each pixel of the input.
fn inputs<'a>(s: &ConvSizes, x: &'a [f32]) -> ArrayView2<'a, f32> {
    matrix(&x[s.group * s.group_in()..], s.pixels(), s.group_in(), s.in_c)
}

/// Channels of the group of each pixel of the output.
fn slopes<'a>(s: &ConvSizes, dy: &'a [f32]) -> ArrayView2<'a, f32> {
    matrix(&dy[s.group * s.group_out()..], s.pixels(), s.group_out(), s.out_c)
}

/// Channels of the group of lines of the output, or of the weights.
fn results<'a>(s: &ConvSizes, values: &'a mut [f32], lines: usize) -> ArrayViewMut2<'a, f32> {
    matrix_mut(&mut values[s.group * s.group_out()..], lines, s.group_out(), s.out_c)
}

/// The fast version of `conv2d.forward`.
pub(super) fn forward(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = ConvSizes::of_call(call);
    let (x, w) = (call.inputs[0], call.inputs[1]);
    let epilogue = Epilogue::of_call(call, call.inputs[2], s.out_c);
    let of_group = |s: &ConvSizes| epilogue.columns(s.group * s.group_out(), s.group_out());
    let y = &mut outputs[0][..s.pixels() * s.out_c];
    if s.is_product() {
        return s.each_group().for_each(|s| {
            let y = results(&s, y, s.pixels());
            multiply(inputs(&s, x), weights(&s, w), y, of_group(&s));
        });
    }
    let block = block(&s);
    for_each_chunk(y, block * s.out_c, work(&s), |index, y| {
        let pixels = y.len() / s.out_c;
        let plane = s.in_pixels() * s.group_in();
        with_scratch(plane + pixels * s.patch(), |scratch| {
            let (planes, patches) = scratch.split_at_mut(plane);
            for s in s.each_group() {
                gather_columns(&s, x, index * block..index * block + pixels, planes, patches);
                let patches = matrix(patches, s.patch(), pixels, pixels).reversed_axes();
                multiply_here(&patches, &weights(&s, w), results(&s, y, pixels), of_group(&s));
            }
        });
    });
}

/// The fast version of `conv2d_backward_input.backward_input`.
pub(super) fn backward_input(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = ConvSizes::of_call(call);
    let (dy, w) = (call.inputs[0], call.inputs[1]);
    let epilogue = Epilogue::of_transposed(call, call.inputs[2], s.in_c);
    let image = s.in_pixels() * s.in_c;
    let d_x = &mut outputs[0][..s.rows * image];
    if s.is_product() {
        return s.each_group().for_each(|s| {
            let (first, width) = (s.group * s.group_in(), s.group_in());
            let d_x = matrix_mut(&mut d_x[first..], s.pixels(), width, s.in_c);
            multiply(slopes(&s, dy), weights(&s, w).reversed_axes(), d_x, epilogue.columns(first, width));
        });
    }
    // Whole images: patches overlap, and nobody else adds to the same pixels.
    let images = FEWEST_PIXELS.div_ceil(s.out_pixels());
    for_each_chunk(d_x, images * image, work(&s), |index, d_x| {
        let first = index * images;
        let end = (first + d_x.len() / image) * s.out_pixels();
        match epilogue.bias.and_then(|bias| bias.to_slice()) {
            Some(bias) => d_x.chunks_exact_mut(s.in_c).for_each(|pixel| pixel.copy_from_slice(bias)),
            None => d_x.fill(0.0),
        }
        for start in (first * s.out_pixels()..end).step_by(block(&s)) {
            let pixels = start..(start + block(&s)).min(end);
            with_scratch(pixels.len() * s.patch(), |patches| {
                for s in s.each_group() {
                    let dy = slopes(&s, dy).slice_move(s![pixels.clone(), ..]);
                    let result = matrix_mut(patches, pixels.len(), s.patch(), s.patch());
                    multiply_here(&dy, &weights(&s, w).reversed_axes(), result, Epilogue::NONE);
                    scatter(&s, patches, pixels.clone(), first * image, d_x);
                }
            });
        }
        epilogue.function.activate_all(d_x);
    });
}

/// The fast version of `conv2d_backward_weights.backward_weights`.
pub(super) fn backward_weights(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = ConvSizes::of_call(call);
    let (x, dy) = (call.inputs[0], call.inputs[1]);
    let partials = &mut outputs[0][..s.splits * s.patch() * s.out_c];
    if s.is_product() && s.splits == 1 {
        return s.each_group().for_each(|s| {
            let partials = results(&s, partials, s.patch());
            multiply(inputs(&s, x).reversed_axes(), slopes(&s, dy), partials, Epilogue::NONE);
        });
    }
    // Few splits of a large kernel are cut further, by taps.
    let is_cut = s.splits < MANY_SPLITS && s.patch() * s.out_c >= SCRATCH;
    let taps = if is_cut { 1 } else { s.taps() };
    let parts = s.taps() / taps;
    let columns = taps * s.group_in();
    for_each_chunk(partials, columns * s.out_c, work(&s), |index, partial| {
        let range = Slabs::new(s.pixels(), s.splits).range(index / parts);
        let taps = index % parts * taps..(index % parts + 1) * taps;
        partial.fill(0.0);
        let block = (SCRATCH / columns).max(FEWEST_PIXELS);
        for start in range.clone().step_by(block) {
            let pixels = start..(start + block).min(range.end);
            with_scratch(pixels.len() * columns, |patches| {
                for s in s.each_group() {
                    gather(&s, x, pixels.clone(), &taps, patches);
                    let patches = matrix(patches, pixels.len(), columns, columns).reversed_axes();
                    let dy = slopes(&s, dy).slice_move(s![pixels.clone(), ..]);
                    accumulate(&patches, &dy, &mut results(&s, partial, columns));
                }
            });
        }
    });
}
