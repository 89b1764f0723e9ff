//! Two tensors element by element, each stretched along axes that it lacks, and the gradient of one of them.

mod alignment;
mod cases;

use super::family::family;
use super::rounding::{index, single};
use super::{Call, Kernel, parallel};

pub use alignment::{Alignment, MergeArguments};

crate::params! {
    /// Elements of the result.
    len: u32,
    /// Length of the innermost axis of the result.
    size_1: u32,
    /// Length of the second axis from the inside; 1 where there is none.
    size_2: u32,
    /// Length of the third.
    size_3: u32,
    /// Length of the fourth.
    size_4: u32,
    /// Length of the fifth.
    size_5: u32,
    /// Terms that are summed along the innermost axis; backward alone reads it.
    count_1: u32,
    /// Terms along the second axis.
    count_2: u32,
    /// Terms along the third.
    count_3: u32,
    /// Terms along the fourth.
    count_4: u32,
    /// Terms along the fifth.
    count_5: u32,
    /// Elements of `a` (backward: of `dy`) from one place on the innermost axis to the next.
    a_1: u32,
    /// The stride on the second axis.
    a_2: u32,
    /// On the third.
    a_3: u32,
    /// On the fourth.
    a_4: u32,
    /// On the fifth.
    a_5: u32,
    /// Elements from one row to the next.
    a_rows: u32,
    /// Elements of `b` (backward: of `z`) from one place on the innermost axis to the next.
    b_1: u32,
    /// The stride on the second axis.
    b_2: u32,
    /// On the third.
    b_3: u32,
    /// On the fourth.
    b_4: u32,
    /// On the fifth.
    b_5: u32,
    /// Elements from one row to the next.
    b_rows: u32,
    /// Elements of `x` from one row to the next: 0 for a parameter, which all rows share. Backward alone reads it.
    x_rows: u32,
    /// Factor of the result.
    scale: f32,
}

/// Axes beside the rows, at most.
pub const MOST_AXES: usize = 5;

/// Operation on two elements; the discriminant is the shader's `OPERATION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `a + b`
    Add = 0,
    /// `a - b`
    Subtract = 1,
    /// `a b`
    Multiply = 2,
    /// The larger; of equal ones, each has half of the gradient.
    Maximum = 3,
    /// The smaller; of equal ones, each has half of the gradient.
    Minimum = 4,
    /// `a` above 0, `a b` below.
    Prelu = 5,
    /// `a / max(√b, 1e-7)`: by the deviation of a variance, which gets no gradient.
    Standardize = 6,
    /// `a max(√b, 1e-7)`, which undoes that.
    Unstandardize = 7,
}

impl Operation {
    /// Every operation, by code.
    pub const ALL: [Self; 8] = [
        Self::Add,
        Self::Subtract,
        Self::Multiply,
        Self::Maximum,
        Self::Minimum,
        Self::Prelu,
        Self::Standardize,
        Self::Unstandardize,
    ];

    /// The code, as the constant `OPERATION` takes it.
    pub fn code(self) -> f64 {
        f64::from(self as u8)
    }

    fn of_call(call: &Call<'_>) -> Self {
        let code = call.constant("OPERATION", 0.0);
        Self::ALL.into_iter().find(|known| known.code().to_bits() == code.to_bits()).unwrap_or(Self::Add)
    }
}

family!("merge", [Grid]);

/// One or two roundings; sums of some hundred products.
const TOLERANCE: f32 = 5e-6;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD];

/// `a`, `b` → `y [rows, size_5, …, size_1]`, with the strides of `Params`.
///
/// Constants: `OPERATION`, and `AXES`, the number of axes in use (5 unless set; 0 where `a`, `b` and `y` are alike).
/// Grid: `Elements(len)`.
pub static FORWARD: Kernel = kernel(
    "forward",
    [&["a", "b"], &["y"], &["OPERATION", "AXES"]],
    (forward_twin, forward_fast),
    TOLERANCE,
    cases::forward,
);

/// `x`, `z`, `dy` → `d_x [rows, size_5, …, size_1]`, the gradient of the operand `x`; `z` is the other.
///
/// Sums along the axes that `x` lacks. Constants: as forward, and `OPERAND`: 1 where `x` is `b`. Grid: `Elements(len)`.
pub static BACKWARD: Kernel = kernel(
    "backward",
    [&["x", "z", "dy"], &["d_x"], &["OPERATION", "OPERAND", "AXES"]],
    (backward_twin, backward_fast),
    TOLERANCE,
    cases::backward,
);

/// One axis of the result, or one that is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MergedAxis {
    /// Its length; 1 where it is summed.
    size: usize,
    /// Terms that are summed; 1 where it is an axis of the result.
    count: usize,
    /// Stride of `a`, or of `dy` backward.
    a: usize,
    /// Stride of `b`, or of `z` backward.
    b: usize,
}

impl Params {
    fn axes(&self) -> [MergedAxis; MOST_AXES] {
        let axis = |size, count, a, b| MergedAxis { size: index(size), count: index(count), a: index(a), b: index(b) };
        [
            axis(self.size_1, self.count_1, self.a_1, self.b_1),
            axis(self.size_2, self.count_2, self.a_2, self.b_2),
            axis(self.size_3, self.count_3, self.a_3, self.b_3),
            axis(self.size_4, self.count_4, self.a_4, self.b_4),
            axis(self.size_5, self.count_5, self.a_5, self.b_5),
        ]
    }

    /// Elements of a row of the result.
    fn row_len(&self) -> usize {
        self.axes().iter().map(|axis| axis.size).product()
    }

    /// Positions in `a` and `b` at which an element of the result begins.
    fn starts(&self, element: usize) -> [usize; 2] {
        let (mut rest, mut a, mut b) = (element, 0, 0);
        for axis in self.axes() {
            let at = rest % axis.size;
            rest /= axis.size;
            a += at * axis.a;
            b += at * axis.b;
        }
        [a + rest * index(self.a_rows), b + rest * index(self.b_rows)]
    }

    /// Offsets in `a` and `b` of each term that is summed along the axes from `first` on.
    fn each_term(&self, first: usize, mut f: impl FnMut(usize, usize)) {
        let axes = self.axes();
        let terms: usize = axes[first..].iter().map(|axis| axis.count).product();
        for term in 0..terms {
            let (mut rest, mut a, mut b) = (term, 0, 0);
            for axis in &axes[first..] {
                a += rest % axis.count * axis.a;
                b += rest % axis.count * axis.b;
                rest /= axis.count;
            }
            f(a, b);
        }
    }
}

/// Calls `$then` with what is made of two elements, each operation compiled on its own, for any float.
macro_rules! with_operation {
    ($then:ident($call:expr, $outputs:expr)) => {
        match Operation::of_call($call) {
            Operation::Add => $then($call, $outputs, |a, b| a + b),
            Operation::Subtract => $then($call, $outputs, |a, b| a - b),
            Operation::Multiply => $then($call, $outputs, |a, b| a * b),
            Operation::Maximum => $then($call, $outputs, |a, b| if a >= b || a.is_nan() { a } else { b }),
            Operation::Minimum => $then($call, $outputs, |a, b| if a <= b || a.is_nan() { a } else { b }),
            Operation::Prelu => $then($call, $outputs, |a, b| if a <= 0.0 { a * b } else { a }),
            Operation::Standardize => {
                $then($call, $outputs, |a, b| a / if b.is_nan() { b } else { b.max(0.0).sqrt().max(1e-7) })
            }
            Operation::Unstandardize => {
                $then($call, $outputs, |a, b| a * if b.is_nan() { b } else { b.max(0.0).sqrt().max(1e-7) })
            }
        }
    };
}

/// Calls `$then` with the derivative by an operand, from that and the other.
macro_rules! with_slope {
    ($then:ident($call:expr, $outputs:expr)) => {{
        let is_second = $call.constant("OPERAND", 0.0) > 0.5;
        match Operation::of_call($call) {
            Operation::Subtract if is_second => $then($call, $outputs, |_, _| -1.0),
            Operation::Add | Operation::Subtract => $then($call, $outputs, |_, _| 1.0),
            Operation::Multiply => $then($call, $outputs, |_, other| other),
            Operation::Maximum => $then($call, $outputs, share),
            Operation::Minimum => $then($call, $outputs, |own, other| share(other, own)),
            Operation::Prelu if is_second => $then($call, $outputs, |_, other| if other < 0.0 { other } else { 0.0 }),
            Operation::Prelu => $then($call, $outputs, prelu_slope),
            Operation::Standardize | Operation::Unstandardize if is_second => $then($call, $outputs, |_, _| 0.0),
            Operation::Standardize => $then($call, $outputs, |_, other| 1.0 / deviation(other)),
            Operation::Unstandardize => $then($call, $outputs, |_, other| deviation(other)),
        }
    }};
}

/// The part of the gradient that goes to what should be the larger.
fn share(larger: f32, smaller: f32) -> f32 {
    if larger > smaller {
        1.0
    } else if larger < smaller {
        0.0
    } else {
        0.5
    }
}

fn deviation(variance: f32) -> f32 {
    variance.max(0.0).sqrt().max(1e-7)
}

fn prelu_slope(value: f32, alpha: f32) -> f32 {
    if value > 0.0 {
        1.0
    } else if value < 0.0 {
        alpha
    } else {
        0.0
    }
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    with_operation!(merge_each(call, outputs));
}

fn backward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    with_slope!(sum_each(call, outputs));
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    with_operation!(merge_lines(call, outputs));
}

fn backward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    with_slope!(sum_lines(call, outputs));
}

fn merge_each(call: &Call<'_>, outputs: &mut [&mut [f32]], merged: impl Fn(f64, f64) -> f64) {
    let params: Params = call.params();
    for (i, y) in outputs[0].iter_mut().enumerate().take(index(params.len)) {
        let [a, b] = params.starts(i);
        let (a, b) = (f64::from(call.inputs[0][a]), f64::from(call.inputs[1][b]));
        *y = single(f64::from(params.scale) * merged(a, b));
    }
}

fn sum_each(call: &Call<'_>, outputs: &mut [&mut [f32]], slope: impl Fn(f32, f32) -> f32) {
    let params: Params = call.params();
    let ([x, z, dy], row_len) = ([call.inputs[0], call.inputs[1], call.inputs[2]], params.row_len());
    for (j, d_x) in outputs[0].iter_mut().enumerate().take(index(params.len)) {
        let [from_dy, from_z] = params.starts(j);
        let own = x[j / row_len * index(params.x_rows) + j % row_len];
        let mut sum = 0.0;
        params.each_term(0, |a, b| sum += f64::from(dy[from_dy + a]) * f64::from(slope(own, z[from_z + b])));
        *d_x = single(f64::from(params.scale) * sum);
    }
}

/// Line by line along the innermost axis, so that strides are added and not worked out for each element.
fn merge_lines(call: &Call<'_>, outputs: &mut [&mut [f32]], merged: impl Fn(f32, f32) -> f32 + Sync) {
    let params: Params = call.params();
    let ([a, b], [inner, ..]) = ([call.inputs[0], call.inputs[1]], params.axes());
    parallel::rows(&mut outputs[0][..index(params.len)], inner.size, |first, y| {
        for (line, y) in (first..).zip(y.chunks_mut(inner.size)) {
            let [from_a, from_b] = params.starts(line * inner.size);
            let (a, b) = (&a[from_a..], &b[from_b..]);
            if inner.a == 1 && inner.b == 1 {
                let each = y.iter_mut().zip(a.iter().zip(b));
                each.for_each(|(y, (a, b))| *y = params.scale * merged(*a, *b));
            } else {
                let each = y.iter_mut().enumerate();
                each.for_each(|(i, y)| *y = params.scale * merged(a[i * inner.a], b[i * inner.b]));
            }
        }
    });
}

fn sum_lines(call: &Call<'_>, outputs: &mut [&mut [f32]], slope: impl Fn(f32, f32) -> f32 + Sync) {
    let params: Params = call.params();
    let ([x, z, dy], [inner, ..]) = ([call.inputs[0], call.inputs[1], call.inputs[2]], params.axes());
    let terms: usize = params.axes().iter().map(|axis| axis.count).product();
    let (row_len, len) = (params.row_len(), index(params.len));
    let lines = row_len / inner.size;
    parallel::slabs(&mut outputs[0][..len], row_len, len * terms, |row, d_x| {
        for (line, d_x) in d_x.chunks_mut(inner.size).enumerate() {
            let [from_dy, from_z] = params.starts((row * lines + line) * inner.size);
            let own = &x[row * index(params.x_rows) + line * inner.size..];
            d_x.fill(0.0);
            params.each_term(1, |a, b| {
                let (dy, z) = (&dy[from_dy + a..], &z[from_z + b..]);
                if inner.count == 1 && inner.a == 1 && inner.b == 1 {
                    let each = d_x.iter_mut().zip(own).zip(dy.iter().zip(z));
                    return each.for_each(|((d_x, own), (dy, z))| *d_x += dy * slope(*own, *z));
                }
                for (i, (d_x, own)) in d_x.iter_mut().zip(own).enumerate() {
                    let of = |term: usize| dy[(i + term) * inner.a] * slope(*own, z[(i + term) * inner.b]);
                    *d_x += (0..inner.count).map(of).sum::<f32>();
                }
            });
            d_x.iter_mut().for_each(|d_x| *d_x *= params.scale);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of the kernel and its fast version for `[2, 3]` and `[1, 3]` in one row.
    fn run(kernel: &Kernel, params: &Params, constants: &[(&'static str, f64)], inputs: &[&[f32]]) -> Vec<f32> {
        let call = Call { params: &params.words(), constants, inputs };
        let [twin, fast] = [kernel.twin, kernel.fast.unwrap()].map(|run| {
            let mut output = vec![9.0; index(params.len)];
            run(&call, &mut [&mut output]);
            output
        });
        assert_eq!(twin, fast);
        twin
    }

    fn params(len: u32, [size_1, size_2]: [u32; 2], [count_1, count_2]: [u32; 2]) -> Params {
        let none: Params = bytemuck::Zeroable::zeroed();
        let sizes = Params { size_1, size_2, size_3: 1, size_4: 1, size_5: 1, ..none };
        let counts = Params { count_1, count_2, count_3: 1, count_4: 1, count_5: 1, ..sizes };
        Params { len, a_1: 1, a_2: 3, b_1: 1, scale: 1.0, ..counts }
    }

    #[test]
    fn worked_by_hand() {
        let (a, b) = ([1.0, -2.0, 3.0, 4.0, 5.0, -6.0], [2.0, 5.0, -6.0]);
        let forward = params(6, [3, 2], [1, 1]);
        for (operation, y) in [
            (Operation::Add, [3.0, 3.0, -3.0, 6.0, 10.0, -12.0]),
            (Operation::Subtract, [-1.0, -7.0, 9.0, 2.0, 0.0, 0.0]),
            (Operation::Multiply, [2.0, -10.0, -18.0, 8.0, 25.0, 36.0]),
            (Operation::Maximum, [2.0, 5.0, 3.0, 4.0, 5.0, -6.0]),
            (Operation::Minimum, [1.0, -2.0, -6.0, 2.0, 5.0, -6.0]),
            (Operation::Prelu, [1.0, -10.0, 3.0, 4.0, 5.0, 36.0]),
            // Variances of 4, 0.25 and 1.
            (Operation::Standardize, [0.5, -4.0, 3.0, 2.0, 10.0, -6.0]),
            (Operation::Unstandardize, [2.0, -1.0, 3.0, 8.0, 2.5, -6.0]),
        ] {
            let of_variance = matches!(operation, Operation::Standardize | Operation::Unstandardize);
            let b = if of_variance { [4.0, 0.25, 1.0] } else { b };
            assert_eq!(run(&FORWARD, &forward, &[("OPERATION", operation.code())], &[&a, &b]), y, "{operation:?}");
        }
        // The gradient of `b`, which both lines of `a` share.
        let (dy, backward) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], params(3, [3, 1], [1, 2]));
        let backward = Params { b_2: 3, ..backward };
        for (operation, d_b) in [
            (Operation::Add, [5.0, 7.0, 9.0]),
            (Operation::Subtract, [-5.0, -7.0, -9.0]),
            (Operation::Multiply, [17.0, 21.0, -27.0]),
            (Operation::Maximum, [1.0, 4.5, 3.0]),
            (Operation::Minimum, [4.0, 2.5, 6.0]),
            (Operation::Prelu, [0.0, -4.0, -36.0]),
        ] {
            let constants = [("OPERATION", operation.code()), ("OPERAND", 1.0)];
            assert_eq!(run(&BACKWARD, &backward, &constants, &[&b, &a, &dy]), d_b, "{operation:?}");
        }
    }
}
