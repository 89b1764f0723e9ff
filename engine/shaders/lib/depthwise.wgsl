// Sizes of depthwise convolutions, and the lines that windows see: for kernels of single channels, and of four at once.

struct Params {
    rows: u32,
    in_h: u32,
    in_w: u32,
    channels: u32,
    multiplier: u32,
    out_h: u32,
    out_w: u32,
    k_h: u32,
    k_w: u32,
    stride_h: u32,
    stride_w: u32,
    dilation_h: u32,
    dilation_w: u32,
    pad_top: u32,
    pad_left: u32,
    splits: u32,
}

// 0 leaves the bias unread: any buffer may be bound there.
override USE_BIAS: u32 = 1u;
// Neighbouring weights whose sums an invocation takes, at most 8.
override ACROSS: u32 = 8u;

// The line of its image that the top of the window of a line of results sees. Above the image it wraps; sums with a place in the
// window wrap back, or stay past the image's end.
fn top_of(line: u32) -> u32 {
    return line % params.out_h * params.stride_h - params.pad_top;
}

// The first line of an image's input.
fn input_of(line: u32) -> u32 {
    return line / params.out_h * params.in_h;
}

// Strips of four pixels in a line of results, and in one of the input, whose pixels are `stride` apart: those meet the same taps.
fn strips_of_results() -> u32 {
    return (params.out_w + 3u) / 4u;
}

fn strips_of_input(stride: u32) -> u32 {
    return ((params.in_w + stride - 1u) / stride + 3u) / 4u * stride;
}

// The first pixel of a strip of the input.
fn first_of_strip(strip: u32, stride: u32) -> u32 {
    return strip / stride * 4u * stride + strip % stride;
}

// Lines of a slab: the first, and that behind the last.
fn slab_of(split: u32) -> vec2<u32> {
    let lines = params.rows * params.out_h;
    let slab = (lines + params.splits - 1u) / params.splits;
    return vec2<u32>(split * slab, min((split + 1u) * slab, lines));
}
