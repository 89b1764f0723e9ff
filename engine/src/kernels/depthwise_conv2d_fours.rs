//! Depthwise convolution of channels that are a multiple of four, with one result each: four numbers a load.

use super::Kernel;
use super::depthwise_conv2d::{Params, backward_input_twin, backward_weights_twin, cases, fast, forward_twin};
use super::family::family;

family!("depthwise_conv2d_fours", [Grid, Activation, Depthwise]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD_INPUT, &BACKWARD_WEIGHTS];

/// [`FORWARD`](super::depthwise_conv2d::FORWARD) of sizes that have [`Params::in_fours`].
///
/// Constants: those of `FORWARD`, and [`Params::of_fours`]. Grid: [`Params::forward_grid`] of these sizes in fours.
pub static FORWARD: Kernel = kernel(
    "forward",
    [
        &["x4", "w4", "bias4"],
        &["y4"],
        &["ACTIVATION", "SLOPE", "OFFSET", "LIMIT", "USE_BIAS", "WIDE", "STRIDE", "DILATION"],
    ],
    (forward_twin, fast::forward),
    1e-5,
    cases::forward_fours,
);

/// [`BACKWARD_INPUT`](super::depthwise_conv2d::BACKWARD_INPUT) of sizes that have [`Params::in_fours`].
///
/// Constants: [`Params::of_fours`]. Grid: [`Params::backward_input_grid`] of these sizes in fours.
pub static BACKWARD_INPUT: Kernel = kernel(
    "backward_input",
    [&["slopes4", "w4"], &["d_x4"], &["WIDE", "STRIDE", "DILATION"]],
    (backward_input_twin, fast::backward_input),
    1e-5,
    cases::backward_input_fours,
);

/// [`BACKWARD_WEIGHTS`](super::depthwise_conv2d::BACKWARD_WEIGHTS) of sizes that have [`Params::in_fours`].
///
/// Constants: `ACROSS`, as there, and [`Params::of_fours`]. Grid: [`Params::backward_weights_grid`] of these sizes in fours.
pub static BACKWARD_WEIGHTS: Kernel = kernel(
    "backward_weights",
    [&["x4", "dy4"], &["partials4"], &["ACROSS", "WIDE", "STRIDE", "DILATION"]],
    (backward_weights_twin, fast::backward_weights),
    5e-5,
    cases::backward_weights_fours,
);
