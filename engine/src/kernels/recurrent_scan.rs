//! Several steps of LSTM or GRU in one dispatch, forward and backward, with the products of the state.
//!
//! What a step computes is what [`recurrent`] computes after [`dense`]: twin and fast version call these, step by step.

mod cases;

use super::family::family;
use super::rounding::index;
use super::{Call, Kernel, Twin, dense, recurrent};
use crate::size::{Grid, Word};

crate::params! {
    /// Rows of a batch.
    rows: u32,
    /// Units of the layer, at most [`MOST_UNITS`].
    units: u32,
    /// Steps of a sequence.
    steps: u32,
    /// The first of these steps, in the order in which they are computed.
    first: u32,
    /// Number of these steps.
    count: u32,
    /// 1 if the last place of the sequence is the first step.
    go_backwards: u32,
    /// First element of the outputs in a row of `y`.
    y_first: u32,
    /// Elements from output to output; 0 if that of the last step alone is wanted.
    y_width: u32,
    /// Elements of a row of `y`.
    y_stride: u32,
    /// 1 if outputs stand in the order of the steps, 0 if they stand in that of the sequence.
    y_in_order: u32,
    /// 1 if the layer does not begin with zeros. Forward: `state`, and the first step's place in `states` and `cells`, hold
    /// what it begins with. Backward: `carried_h` and `carried_c` hold the gradients of the last state.
    is_given: u32,
    /// First element of the LSTM's last cell in a row of `y`; [`recurrent::NONE`] if it is not wanted.
    cell_offset: u32,
}

family!("recurrent_scan", [Grid, Activation, Gates], 128);

/// Most units whose states, and gradients of products, fit workgroup memory.
pub const MOST_UNITS: usize = 128;

/// The bound of one step's, 5e-6, for steps that build on each other.
const TOLERANCE: f32 = 2e-5;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD_LSTM, &FORWARD_GRU, &BACKWARD_LSTM, &BACKWARD_GRU];

const FORWARD: &[&str] = &["u", "bias", "mask"];
const BACKWARD: &[&str] = &["u_fours", "dy", "known", "before"];

/// `u [units, 4 units]`, and beside it what [`recurrent::FORWARD_LSTM`] has, with its constants. Grid: [`GRID`].
pub static FORWARD_LSTM: Kernel = kernel(
    "forward_lstm",
    [FORWARD, &["gates", "states", "state", "y", "cells"], recurrent::CONSTANTS],
    (
        |call, outputs| forward(call, outputs, 4, [&recurrent::FORWARD_LSTM, &dense::FORWARD].map(twin)),
        |call, outputs| forward(call, outputs, 4, [&recurrent::FORWARD_LSTM, &dense::FORWARD].map(fast)),
    ),
    TOLERANCE,
    cases::forward_lstm,
);

/// `u [units, 3 units]`, and beside it what [`recurrent::FORWARD_GRU`] has, with its constants. Grid: [`GRID`].
pub static FORWARD_GRU: Kernel = kernel(
    "forward_gru",
    [FORWARD, &["gates", "states", "state", "y"], recurrent::CONSTANTS],
    (
        |call, outputs| forward(call, outputs, 3, [&recurrent::FORWARD_GRU, &dense::FORWARD].map(twin)),
        |call, outputs| forward(call, outputs, 3, [&recurrent::FORWARD_GRU, &dense::FORWARD].map(fast)),
    ),
    TOLERANCE,
    cases::forward_gru,
);

/// `u_fours`, which is u, and beside it what [`recurrent::BACKWARD_LSTM`] has, with its constants. Grid: [`GRID`].
pub static BACKWARD_LSTM: Kernel = kernel(
    "backward_lstm",
    [BACKWARD, &["d_gates", "carried_h", "carried_c"], recurrent::CONSTANTS],
    (
        |call, outputs| {
            backward(call, outputs, [4, 0, 4], [&recurrent::BACKWARD_LSTM, &dense::BACKWARD_INPUT].map(twin))
        },
        |call, outputs| {
            backward(call, outputs, [4, 0, 4], [&recurrent::BACKWARD_LSTM, &dense::BACKWARD_INPUT].map(fast))
        },
    ),
    TOLERANCE,
    cases::backward_lstm,
);

/// `u_fours`, which is u, and beside it what [`recurrent::BACKWARD_GRU`] has, with its constants. Grid: [`GRID`].
pub static BACKWARD_GRU: Kernel = kernel(
    "backward_gru",
    [BACKWARD, &["d_gates", "carried_h"], recurrent::CONSTANTS],
    (
        |call, outputs| {
            backward(call, outputs, [3, 3, 6], [&recurrent::BACKWARD_GRU, &dense::BACKWARD_INPUT].map(twin))
        },
        |call, outputs| {
            backward(call, outputs, [3, 3, 6], [&recurrent::BACKWARD_GRU, &dense::BACKWARD_INPUT].map(fast))
        },
    ),
    TOLERANCE,
    cases::backward_gru,
);

/// The grid of all, for as many rows as a run has: 16 invocations a row.
pub const GRID: Grid = Grid::Elements(Word::Rows(16));

/// Multiplications and additions of the products of the state in a kernel of this family.
pub fn flops(kernel: &Kernel, params: &[u32]) -> Option<f64> {
    let [rows, units, _, _, count] = *params.first_chunk::<5>()?;
    let gates = if [FORWARD_LSTM.entry, BACKWARD_LSTM.entry].contains(&kernel.entry) { 4 } else { 3 };
    Some(2.0 * [rows, units, gates, units, count].into_iter().map(f64::from).product::<f64>())
}

fn twin(kernel: &Kernel) -> Twin {
    kernel.twin
}

fn fast(kernel: &Kernel) -> Twin {
    kernel.fast.unwrap_or(kernel.twin)
}

impl Params {
    /// Place in the sequence of a step.
    fn place(&self, step: u32) -> u32 {
        if self.go_backwards == 0 { step } else { self.steps - 1 - step }
    }

    /// First element of the output of a step.
    fn output(&self, step: u32) -> u32 {
        match self.y_width {
            0 if step + 1 < self.steps => recurrent::NONE,
            0 => self.y_first,
            width => self.y_first + width * if self.y_in_order == 0 { self.place(step) } else { step },
        }
    }

    /// Sizes of one step.
    fn of_step(&self, step: u32, is_backward: bool) -> recurrent::Params {
        let next = step + 1;
        // Backward asks only whether something comes after the step.
        let behind = if is_backward && self.is_given != 0 { 0 } else { recurrent::NONE };
        recurrent::Params {
            rows: self.rows,
            units: self.units,
            steps: self.steps,
            at: self.place(step),
            next: if next < self.steps { self.place(next) } else { behind },
            is_first: u32::from(step == 0 && self.is_given == 0),
            y_offset: self.output(step),
            y_stride: self.y_stride,
            cell_offset: if next < self.steps { recurrent::NONE } else { self.cell_offset },
        }
    }
}

/// Calls a product without a bias of `[m, n]` results over `k` terms; each matrix has its first element and a stride.
fn multiply(product: Twin, [m, n, k]: [u32; 3], [a, b]: [(&[f32], [u32; 2]); 2], y: &mut [f32]) {
    let params = dense::Params {
        m,
        n,
        k,
        a_offset: a.1[0],
        a_stride: a.1[1],
        b_offset: b.1[0],
        b_stride: b.1[1],
        y_offset: 0,
        y_stride: n,
        splits: 1,
    };
    let call = Call { params: &params.words(), constants: &[("USE_BIAS", 0.0)], inputs: &[a.0, b.0, b.0] };
    product(&call, &mut [y]);
}

/// Forward of a cell of so many products: for each step the product of the state, then the step.
fn forward(call: &Call<'_>, outputs: &mut [&mut [f32]], gates: u32, [step, product]: [Twin; 2]) {
    let (p, columns): (Params, _) = (call.params(), gates * call.params::<Params>().units);
    let &[u, bias, mask] = call.inputs else { return };
    let mut part = vec![0.0; index(p.rows) * index(columns)];
    for at in p.first..p.first + p.count {
        if at > 0 || p.is_given != 0 {
            let factors: [(&[f32], _); 2] = [(&*outputs[2], [0, p.units]), (u, [0, columns])];
            multiply(product, [p.rows, columns, p.units], factors, &mut part);
        }
        step(&Call { params: &p.of_step(at, false).words(), inputs: &[&part, bias, mask], ..*call }, outputs);
    }
}

/// Backward of a cell of so many products, of whose gradients the first is at a place among those of a unit: for each step,
/// from the last on, the product of the gradients behind, then the step.
fn backward(call: &Call<'_>, outputs: &mut [&mut [f32]], [gates, first, width]: [u32; 3], [step, product]: [Twin; 2]) {
    let p: Params = call.params();
    let (columns, width) = (gates * p.units, width * p.units);
    let &[u, dy, known, before] = call.inputs else { return };
    let mut d_part = vec![0.0; index(p.rows) * index(p.units)];
    for at in (p.first..p.first + p.count).rev() {
        if at + 1 == p.steps {
            // What the last state's gradient has is carried.
            d_part.fill(0.0);
        } else {
            let behind = p.place(at + 1) * width + first * p.units;
            let factors: [(&[f32], _); 2] = [(&*outputs[0], [behind, p.steps * width]), (u, [0, columns])];
            multiply(product, [p.rows, p.units, columns], factors, &mut d_part);
        }
        step(&Call { params: &p.of_step(at, true).words(), inputs: &[&d_part, dy, known, before], ..*call }, outputs);
    }
}
