//! Layers that make one tensor of several, element by element.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::gradient_sums::sum_columns;
use super::{Built, Layer, MaskUse, Problem, as_built, to_config};
use crate::kernels::add;
use crate::kernels::merge::{self as kernel, Alignment, MergeArguments, Operation};
use crate::onnx::{Form, Order, Value as Written};
use crate::plan::{Grid, Length, Recorder, View, Word, length_word};
use crate::shape::Shape;

/// The shapes of a layer that merges two or more inputs.
pub(super) fn several(inputs: &[Shape]) -> Result<(&Shape, &[Shape]), Problem> {
    match inputs {
        [first, rest @ ..] if !rest.is_empty() => Ok((first, rest)),
        _ => Err(Problem::new(
            format!("needs two inputs or more, but got {}", inputs.len()),
            "name at least two tensors as its inputs",
        )),
    }
}

/// Alignment of two shapes.
pub(super) fn aligned(a: &Shape, b: &Shape) -> Result<Alignment, Problem> {
    let Some(alignment) = Alignment::new(a.axes(), b.axes()) else {
        return Err(Problem::new(
            format!("needs inputs whose axes are equal or 1, but got {a} and {b}"),
            "bring them to one shape first, for example with a 1 × 1 `Conv2D` on the shorter branch",
        ));
    };
    if alignment.is_able() {
        return Ok(alignment);
    }
    Err(Problem::new(
        format!(
            "needs inputs whose axes are equal or 1, in at most {} groups of equal or stretched axes, but got {a} and {b}",
            kernel::MOST_AXES
        ),
        "bring axes that are stretched side by side with `Permute`, or merge in two steps",
    ))
}

/// Shapes of what the first one, two, … of the inputs make.
fn partial_shapes(inputs: &[Shape]) -> Result<Vec<Shape>, Problem> {
    let (first, rest) = several(inputs)?;
    let mut shapes = vec![first.clone()];
    for next in rest {
        let merged = aligned(&shapes[shapes.len() - 1], next)?;
        shapes.push(Shape::new(merged.output().to_vec()));
    }
    Ok(shapes)
}

/// A merge of two after the other: `op(op(a, b), c)`, and the whole times a scale.
#[derive(Clone, Copy, Debug)]
struct Fold {
    operation: Operation,
    scale: f32,
}

impl Fold {
    const fn new(operation: Operation) -> Self {
        Self { operation, scale: 1.0 }
    }

    fn shapes(rec: &Recorder<'_>) -> Vec<Shape> {
        let inputs: Vec<Shape> = (0..rec.n_inputs()).map(|i| rec.input_shape(i)).collect();
        as_built(partial_shapes(&inputs))
    }

    fn forward(self, rec: &mut Recorder<'_>) {
        let (shapes, last) = (Self::shapes(rec), rec.n_inputs() - 1);
        if self.operation == Operation::Add && self.scale == 1.0 && (0..=last).all(|i| rec.input_shape(i) == shapes[0])
        {
            return sum(rec);
        }
        let mut merged = rec.input(0);
        for i in 1..=last {
            rec.keep_each("merged", i, merged);
            let alignment = as_built(aligned(&shapes[i - 1], &rec.input_shape(i)));
            let next = rec.input(i);
            let y = if i == last { rec.output() } else { rec.scratch("merged", Length::per_row(shapes[i].len())) };
            let scale = if i == last { self.scale } else { 1.0 };
            dispatch(rec, &kernel::FORWARD, alignment.forward(self.operation, scale), &[merged, next], y);
            merged = y;
        }
    }

    fn backward(self, rec: &mut Recorder<'_>) {
        if matches!(self.operation, Operation::Add | Operation::Subtract) {
            // The first last, since a later sum into a gradient that was passed writes into the output's.
            return (0..rec.n_inputs()).rev().for_each(|i| self.linear_backward(rec, i));
        }
        let (shapes, mut dy) = (Self::shapes(rec), rec.output_gradient());
        for i in (1..rec.n_inputs()).rev() {
            let alignment = as_built(aligned(&shapes[i - 1], &rec.input_shape(i)));
            let (merged, next) = (rec.kept_each("merged", i), rec.input(i));
            if let Some(d_next) = rec.input_gradient(i) {
                let recorded = alignment.backward(self.operation, 1, self.scale);
                dispatch(rec, &kernel::BACKWARD, recorded, &[next, merged, dy], d_next);
            }
            let d_merged = match i {
                1 => rec.input_gradient(0),
                _ if (0..i).any(|input| rec.needs_gradient(input)) => {
                    Some(rec.scratch("merged_gradient", Length::per_row(shapes[i - 1].len())))
                }
                _ => None,
            };
            let Some(d_merged) = d_merged else { return };
            let recorded = alignment.backward(self.operation, 0, self.scale);
            dispatch(rec, &kernel::BACKWARD, recorded, &[merged, next, dy], d_merged);
            dy = d_merged;
        }
    }

    /// The gradient of input `i` is the output's times a factor, summed along the axes that the input lacks.
    fn linear_backward(self, rec: &mut Recorder<'_>, i: usize) {
        let (dy, shape, output) = (rec.output_gradient(), rec.input_shape(i), rec.output_shape());
        let is_same = shape == output && self.scale == 1.0;
        if is_same && i == 0 {
            return rec.pass_gradient(0);
        }
        let Some(dx) = rec.input_gradient(i) else { return };
        if is_same && self.operation == Operation::Add {
            let (record, grid) = add::Record::of(dy.len);
            rec.dispatch(&add::COPY, record, [dy], [dx], grid);
            return;
        }
        let alignment = if i == 0 { as_built(aligned(&shape, &output)) } else { as_built(aligned(&output, &shape)) };
        let recorded = alignment.backward(self.operation, i.min(1), self.scale);
        // Of neither operand the values matter.
        dispatch(rec, &kernel::BACKWARD, recorded, &[dy, dy, dy], dx);
    }
}

impl Fold {
    fn onnx(self, form: &mut Form<'_>) {
        let kind = match self.operation {
            Operation::Add => "Add",
            Operation::Subtract => "Sub",
            Operation::Multiply => "Mul",
            Operation::Maximum => "Max",
            Operation::Minimum => "Min",
            Operation::Prelu | Operation::Standardize | Operation::Unstandardize => {
                unreachable!("no layer folds these")
            }
        };
        let (rank, order) = (form.output_shape().rank(), any_order(form));
        let operand = |form: &mut Form<'_>, i: usize| {
            let (x, lacking) = (form.input_in(i, order), rank - form.input_shape(i).rank());
            let axes: Vec<i64> = (1..).take(lacking).collect();
            if axes.is_empty() { x } else { form.unsqueeze(&x, &axes) }
        };
        let mut y = operand(form, 0);
        for i in 1..form.n_inputs() {
            let next = operand(form, i);
            y = form.op(kind, &[&y, &next], &[]);
        }
        if self.scale != 1.0 {
            y = form.op_with("Mul", &y, self.scale);
        }
        form.output(y, order);
    }
}

/// Sums inputs of one shape into the output, without a place for what is between.
fn sum(rec: &mut Recorder<'_>) {
    let y = rec.output();
    let ((record, grid), a, b) = (add::Record::of(y.len), rec.input(0), rec.input(1));
    rec.dispatch(&add::FORWARD, record, [a, b], [y], grid);
    for i in 2..rec.n_inputs() {
        let x = rec.input(i);
        rec.accumulate(x, y);
    }
}

fn dispatch(
    rec: &mut Recorder<'_>,
    kernel: &'static crate::kernels::Kernel,
    recorded: MergeArguments,
    inputs: &[View],
    output: View,
) {
    let grid = Grid::Elements(length_word(output.len));
    rec.dispatch(kernel, recorded.params, inputs, [output], grid).constants.extend(recorded.constants);
}

macro_rules! merging_layer {
    ($(#[$doc:meta])* $name:ident {}, $kind:literal, $fold:expr $(, $check:expr)?) => {
        $(#[$doc])*
        ///
        /// | tensor | shape |
        /// | --- | --- |
        /// | each input | `[batch, ...]`; an axis of length 1, or one that is left out in front, is stretched |
        /// | output | `[batch, ...]`, each axis the longest of the inputs' |
        ///
        /// **Across adapters** nothing changes: each row stands alone. Golden values: Keras 3.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields)]
        pub struct $name {}

        impl $name {
            fn fold(n_inputs: usize) -> Fold {
                let fold: fn(usize) -> Fold = $fold;
                fold(n_inputs)
            }
        }

        impl Layer for $name {
            fn kind(&self) -> &'static str {
                $kind
            }

            fn config(&self) -> Value {
                to_config(self)
            }

            fn masking(&self) -> MaskUse {
                // Keras leaves masked values out of products, largest and smallest, which is not there.
                match Self::fold(2).operation {
                    Operation::Add | Operation::Subtract => MaskUse::Merges,
                    _ => MaskUse::Drops,
                }
            }

            fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
                $(
                    let check: fn(&[Shape]) -> Result<(), Problem> = $check;
                    check(inputs)?;
                )?
                let shapes = partial_shapes(inputs)?;
                Ok(Built::plain(shapes[shapes.len() - 1].clone()))
            }

            fn forward(&self, rec: &mut Recorder<'_>) {
                Self::fold(rec.n_inputs()).forward(rec);
            }

            fn backward(&self, rec: &mut Recorder<'_>) {
                Self::fold(rec.n_inputs()).backward(rec);
            }

            fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
                Self::fold(form.n_inputs()).onnx(form);
                Ok(())
            }
        }
    };
}

merging_layer! {
    /// Element-wise sum of two or more inputs: the join of a residual connection. Nothing is kept for backward.
    Add {}, "Add", |_| Fold::new(Operation::Add)
}

merging_layer! {
    /// The first of two inputs less the second, element by element. Nothing is kept for backward.
    Subtract {}, "Subtract", |_| Fold::new(Operation::Subtract), |inputs| match inputs {
        [_, _] => Ok(()),
        _ => Err(Problem::new(format!("needs two inputs, but got {}", inputs.len()), "name two tensors as its inputs")),
    }
}

merging_layer! {
    /// Element-wise product of two or more inputs. Kept for backward: the inputs, and the products of the first ones.
    Multiply {}, "Multiply", |_| Fold::new(Operation::Multiply)
}

merging_layer! {
    /// Element-wise mean of two or more inputs. Nothing is kept for backward.
    Average {}, "Average", |n_inputs| Fold { operation: Operation::Add, scale: 1.0 / n_inputs as f32 }
}

merging_layer! {
    /// The largest of two or more inputs, element by element. Kept for backward: the inputs; equal ones share the
    /// gradient.
    Maximum {}, "Maximum", |_| Fold::new(Operation::Maximum)
}

merging_layer! {
    /// The smallest of two or more inputs, element by element. Kept for backward: the inputs; equal ones share the
    /// gradient.
    Minimum {}, "Minimum", |_| Fold::new(Operation::Minimum)
}

/// Records the merge of two buffers of a shape, times a scale.
pub(super) fn merge_two(
    rec: &mut Recorder<'_>,
    (operation, scale): (Operation, f32),
    shape: &Shape,
    inputs: [View; 2],
    y: View,
) {
    let alignment = as_built(aligned(shape, shape));
    dispatch(rec, &kernel::FORWARD, alignment.forward(operation, scale), &inputs, y);
}

/// Records the gradient of `x`, one of the two that were merged, from `[x, the other, dy]`.
pub(super) fn merge_two_backward(
    rec: &mut Recorder<'_>,
    (operation, scale): (Operation, f32),
    shape: &Shape,
    inputs: [View; 3],
    dx: View,
) {
    let alignment = as_built(aligned(shape, shape));
    dispatch(rec, &kernel::BACKWARD, alignment.backward(operation, 0, scale), &inputs, dx);
}

/// Records the gradient of an input that was repeated along the axes that it lacks: the sum of the output's.
pub(super) fn sum_repeated(rec: &mut Recorder<'_>, output: &[usize], input: &[usize]) {
    let (dy, alignment) = (rec.output_gradient(), with_fixed(output, input));
    if let Some(dx) = rec.input_gradient(0) {
        // Of neither operand the values matter.
        dispatch(rec, &kernel::BACKWARD, alignment.backward(Operation::Add, 1, 1.0), &[dy, dy, dy], dx);
    }
}

/// Records a tensor of the layer, or its first elements, as the values of each row.
pub(super) fn repeated(rec: &mut Recorder<'_>, fixed: View, y: View) {
    let shape = rec.output_shape();
    let recorded = with_fixed(shape.axes(), shape.axes()).with_parameter().forward(Operation::Add, 0.5);
    // Half of it plus itself is exactly it.
    let params = kernel::Record { a_rows: Word::U32(0), ..recorded.params };
    dispatch(rec, &kernel::FORWARD, MergeArguments { params, ..recorded }, &[fixed, fixed], y);
}

/// Alignment of an input with a tensor of the layer, which `build` found possible.
fn with_fixed(input: &[usize], fixed: &[usize]) -> Alignment {
    Alignment::new(input, fixed).unwrap_or_else(|| unreachable!("`build` checks the shapes {input:?} and {fixed:?}"))
}

/// Records `op(x, parameter)`; the parameter has this shape, which is stretched to the input's.
pub(super) fn parameter_forward(rec: &mut Recorder<'_>, operation: Operation, (name, shape): (&str, &[usize])) {
    let alignment = with_fixed(rec.input_shape(0).axes(), shape).with_parameter();
    let (x, parameter, y) = (rec.input(0), rec.parameter(name), rec.output());
    dispatch(rec, &kernel::FORWARD, alignment.forward(operation, 1.0), &[x, parameter], y);
}

/// Records the gradients of input and parameter of `op(x, parameter)`.
pub(super) fn parameter_backward(rec: &mut Recorder<'_>, operation: Operation, (name, shape): (&str, &[usize])) {
    let alignment = with_fixed(rec.input_shape(0).axes(), shape).with_parameter();
    let (x, parameter, dy) = (rec.input(0), rec.parameter(name), rec.output_gradient());
    let len = alignment.len(1);
    let rows = rec.scratch(&format!("{name}_rows"), Length::per_row(len));
    dispatch(rec, &kernel::BACKWARD, alignment.backward(operation, 1, 1.0), &[parameter, x, dy], rows);
    sum_columns(rec, rows, 1, len, name);
    if let Some(dx) = rec.input_gradient(0) {
        dispatch(rec, &kernel::BACKWARD, alignment.backward(operation, 0, 1.0), &[x, parameter, dy], dx);
    }
}

/// Records `op(x, fixed)` for a tensor of the layer that no gradient moves, of this shape.
pub(super) fn fixed_forward(
    rec: &mut Recorder<'_>,
    operation: Operation,
    (name, shape): (&str, &[usize]),
    [x, y]: [View; 2],
) {
    let alignment = with_fixed(rec.input_shape(0).axes(), shape).with_parameter();
    let fixed = rec.statistic(name);
    dispatch(rec, &kernel::FORWARD, alignment.forward(operation, 1.0), &[x, fixed], y);
}

/// Records the gradient of the input of `op(x, fixed)`, an operation whose slope does not depend on `x`.
pub(super) fn fixed_backward(rec: &mut Recorder<'_>, operation: Operation, (name, shape): (&str, &[usize])) {
    let alignment = with_fixed(rec.input_shape(0).axes(), shape).with_parameter();
    let (dy, fixed) = (rec.output_gradient(), rec.statistic(name));
    if let Some(dx) = rec.input_gradient(0) {
        // Of the input the values don't matter.
        dispatch(rec, &kernel::BACKWARD, alignment.backward(operation, 0, 1.0), &[dy, fixed, dy], dx);
    }
}

/// Writes an operator of the input and a parameter or statistic of this shape, which is stretched to the input's.
pub(super) fn parameter_onnx(form: &mut Form<'_>, kind: &'static str, tensor: (&str, &[usize])) {
    let order = form.order(0);
    let x = form.input_in(0, order);
    let y = with_tensor_onnx(form, kind, (&x, order), tensor);
    form.output(y, order);
}

/// Writes an operator of a value of the input's shape and a parameter or statistic, which is stretched to it.
pub(super) fn with_tensor_onnx(
    form: &mut Form<'_>,
    kind: &'static str,
    (x, order): (&Written, Order),
    (name, shape): (&str, &[usize]),
) -> Written {
    let lacking = form.input_shape(0).rank().saturating_sub(shape.len());
    let row = [vec![1; lacking].as_slice(), shape].concat();
    let tensor = form.spread(name, &row, order);
    form.op(kind, &[x, &tensor], &[])
}

/// Channels first if an input of as many axes as the output is: then the others follow.
pub(super) fn any_order(form: &Form<'_>) -> Order {
    let rank = form.output_shape().rank();
    let is_alike = (0..form.n_inputs()).all(|i| form.input_shape(i).rank() == rank);
    let is_first = (0..form.n_inputs()).any(|i| form.order(i) == Order::First);
    if is_alike && is_first { Order::First } else { Order::Last }
}
