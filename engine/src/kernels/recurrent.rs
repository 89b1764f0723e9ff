//! One step of recurrent cells, forward and backward: what stands between the products with the weights.
//!
//! A layer records the product of the input for all steps at once, then for each step a product of the state and one of
//! these, so that a sequence of any length is cut into submissions like everything else.

mod cases;
mod fast;
mod twins;

use super::activation_functions::CONSTANTS as FUNCTION;
use super::family::family;
use super::rounding::index;
use super::{Call, Kernel};

crate::params! {
    /// Rows of a batch.
    rows: u32,
    /// Units of the layer.
    units: u32,
    /// Steps of a sequence.
    steps: u32,
    /// Place of this step in the sequence.
    at: u32,
    /// Place of the step that is computed after it; [`NONE`] for the last. Backward reads whether `d_part`, `carried_h`
    /// and `carried_c` hold the gradients of what comes after it: behind the last step those of the last state.
    next: u32,
    /// 1 for the step that is computed first, if it begins with zeros, else 0.
    is_first: u32,
    /// First element of this step in a row of `y`; [`NONE`] if its output is not wanted.
    y_offset: u32,
    /// Elements of a row of `y`.
    y_stride: u32,
    /// First element of the LSTM's cell after this step in a row of `y`; [`NONE`] if it is not wanted.
    cell_offset: u32,
}

/// No step, or no output.
pub const NONE: u32 = u32::MAX;

family!("recurrent", [Grid, Activation, Gates]);

/// A few exponentials of f32 after each other; 1e-6 was measured.
const TOLERANCE: f32 = 5e-6;

pub(super) const CONSTANTS: &[&str] =
    &[FUNCTION[0], FUNCTION[1], FUNCTION[2], FUNCTION[3], "USE_BIAS", "MASKED", "ZERO_OUTPUT", "HARD"];

/// The family.
pub static KERNELS: &[&Kernel] =
    &[&FORWARD_LSTM, &FORWARD_GRU, &FORWARD_SIMPLE, &BACKWARD_LSTM, &BACKWARD_GRU, &BACKWARD_SIMPLE];

const FORWARD: &[&str] = &["part", "bias", "mask"];
const BACKWARD: &[&str] = &["d_part", "dy", "known", "before"];

/// `part [rows, 4 units]`, `bias [4 units]`, `mask [rows, steps]` → `gates [rows, steps, 4 units]` (in place, first the
/// product of the input), `states`, `state`, `y`, `cells`: a step of the LSTM. Gates are i, f, c, o.
///
/// Constants: those of [`Function`](super::activation_functions::Function) for the activation; `HARD` 1 for hard
/// sigmoids as gates; `USE_BIAS` 0 and `MASKED` 0 leave these inputs unread; `ZERO_OUTPUT` 1 makes outputs of masked
/// steps 0. Grid of all: `Elements(rows * units)`.
pub static FORWARD_LSTM: Kernel = kernel(
    "forward_lstm",
    [FORWARD, &["gates", "states", "state", "y", "cells"], CONSTANTS],
    (twins::forward_lstm, fast::forward_lstm),
    TOLERANCE,
    cases::forward_lstm,
);

/// `part [rows, 3 units]`, `bias [2, 3 units]`, `mask` → `gates [rows, steps, 6 units]` (in place), `states`, `state`,
/// `y`: a step of the GRU, whose reset gate acts after the product. Gates are z, r, h.
pub static FORWARD_GRU: Kernel = kernel(
    "forward_gru",
    [FORWARD, &["gates", "states", "state", "y"], CONSTANTS],
    (twins::forward_gru, fast::forward_gru),
    TOLERANCE,
    cases::forward_gru,
);

/// `part [rows, units]`, `bias [units]`, `mask` → `gates [rows, steps, units]` (in place), `states`, `state`, `y`: a
/// step of the plain recurrent layer.
pub static FORWARD_SIMPLE: Kernel = kernel(
    "forward_simple",
    [FORWARD, &["gates", "states", "state", "y"], CONSTANTS],
    (twins::forward_simple, fast::forward_simple),
    TOLERANCE,
    cases::forward_simple,
);

/// `d_part [rows, units]`, `dy`, `known` (the mask), `before` (the cells) → `d_gates [rows, steps, 4 units]` (in place:
/// gates, then the gradients of what they are made of), `carried_h`, `carried_c [rows, units]` (in place).
pub static BACKWARD_LSTM: Kernel = kernel(
    "backward_lstm",
    [BACKWARD, &["d_gates", "carried_h", "carried_c"], CONSTANTS],
    (twins::backward_lstm, fast::backward_lstm),
    TOLERANCE,
    cases::backward_lstm,
);

/// `d_part`, `dy`, `known`, `before` (the states) → `d_gates [rows, steps, 6 units]` (in place: three gradients for the
/// input's product, three for the state's), `carried_h`.
pub static BACKWARD_GRU: Kernel = kernel(
    "backward_gru",
    [BACKWARD, &["d_gates", "carried_h"], CONSTANTS],
    (twins::backward_gru, fast::backward_gru),
    TOLERANCE,
    cases::backward_gru,
);

/// `d_part`, `dy`, `known`, `before` (what forward left in `gates`) → `d_gates [rows, steps, units]`, `carried_h`.
pub static BACKWARD_SIMPLE: Kernel = kernel(
    "backward_simple",
    [BACKWARD, &["d_gates", "carried_h"], CONSTANTS],
    (twins::backward_simple, fast::backward_simple),
    TOLERANCE,
    cases::backward_simple,
);

/// [`Params`] as plain sizes, with the values of the constants.
struct RecurrentStep {
    rows: usize,
    units: usize,
    steps: usize,
    at: usize,
    next: Option<usize>,
    is_first: bool,
    y_offset: Option<usize>,
    y_stride: usize,
    cell_offset: Option<usize>,
    is_masked: bool,
    is_zero_output: bool,
    is_hard: bool,
    has_bias: bool,
}

impl RecurrentStep {
    fn of_call(call: &Call<'_>) -> Self {
        let p: Params = call.params();
        let some = |word: u32| (word != NONE).then_some(index(word));
        let is = |name, default| call.constant(name, default) != 0.0;
        Self {
            rows: index(p.rows),
            units: index(p.units),
            steps: index(p.steps),
            at: index(p.at),
            next: some(p.next),
            is_first: p.is_first != 0,
            y_offset: some(p.y_offset),
            y_stride: index(p.y_stride),
            cell_offset: some(p.cell_offset),
            is_masked: is("MASKED", 0.0),
            is_zero_output: is("ZERO_OUTPUT", 0.0),
            is_hard: is("HARD", 0.0),
            has_bias: is("USE_BIAS", 1.0),
        }
    }

    /// Whether this step of a row counts.
    fn counts(&self, mask: &[f32], row: usize) -> bool {
        !self.is_masked || super::mask::counts(mask[row * self.steps + self.at])
    }

    /// First element of a row's numbers at a step, where each step has `width`.
    fn place(&self, row: usize, at: usize, width: usize) -> usize {
        (row * self.steps + at) * width
    }

    /// First element of a row's output, if it is wanted.
    fn output(&self, row: usize) -> Option<usize> {
        Some(row * self.y_stride + self.y_offset?)
    }
}
