//! The ONNX form of recurrent layers: its own operators where they compute the same, else a `Scan` over the steps.
//!
//! ONNX' operators know lengths of sequences, but no mask with gaps or padding in front, and few activations.

use super::Activation;
use super::activation::function_onnx;
use super::mask::counts_onnx;
use super::recurrence::{Cell, Recurrence, RecurrencePart};
use crate::onnx::{Attribute, Direction, Form, Value, transposed};

/// Order of ONNX' gates among ours: i, o, f, c among i, f, c, o; z, r, h have one order.
fn gates(cell: Cell) -> &'static [usize] {
    match cell {
        Cell::Lstm => &[0, 3, 1, 2],
        Cell::Gru => &[0, 1, 2],
        Cell::Simple => &[0],
    }
}

/// Parts of equal length in the order of ONNX' gates.
fn in_order(values: &[f32], cell: Cell) -> Vec<f32> {
    let len = values.len() / cell.gates();
    gates(cell).iter().flat_map(|gate| &values[gate * len..][..len]).copied().collect()
}

/// Writes the outputs.
pub(super) fn recurrence_onnx(it: &Recurrence, form: &mut Form<'_>) -> Value {
    match activation_of(it) {
        Some(activation) if form.n_inputs() == it.n_inputs() => operator(it, form, activation),
        _ => scan(it, form),
    }
}

/// Name of the activation, if ONNX' operators have it, and the usual gates.
fn activation_of(it: &Recurrence) -> Option<&'static str> {
    let activation = match it.activation {
        Activation::Tanh => "Tanh",
        Activation::Relu => "Relu",
        Activation::Sigmoid => "Sigmoid",
        _ => return None,
    };
    (it.cell == Cell::Simple || it.recurrent_activation == Activation::Sigmoid).then_some(activation)
}

fn operator(it: &Recurrence, form: &mut Form<'_>, activation: &'static str) -> Value {
    let ([time, features], x) = ([form.input_shape(0).axes()[0], form.input_shape(0).last()], form.input(0));
    let x = form.transpose(&x, [1, 0, 2]);
    let [w, r] = [(0, features), (1, it.units)].map(|(at, inputs)| weights(it, form, at, inputs));
    let bias = if it.use_bias { biases(it, form) } else { Value::NONE };
    let (kind, activations) = match it.cell {
        Cell::Lstm => ("LSTM", vec!["Sigmoid", activation, activation]),
        Cell::Gru => ("GRU", vec!["Sigmoid", activation]),
        Cell::Simple => ("RNN", vec![activation]),
    };
    let mut settings = vec![
        ("hidden_size", Attribute::size(it.units)),
        ("activations", Attribute::Texts(activations)),
        ("direction", Attribute::Text(if it.go_backwards { "reverse" } else { "forward" })),
    ];
    if it.cell == Cell::Gru {
        settings.push(("linear_before_reset", Attribute::Int(1)));
    }
    let mut inputs = vec![x, w, r, bias];
    if it.initial_state {
        // No lengths of the sequences.
        inputs.push(Value::NONE);
        inputs.extend(given(it, form).iter().map(|state| form.unsqueeze(state, &[0])).collect::<Vec<_>>());
    }
    // All states `[time, 1, batch, units]`, the last one `[1, batch, units]`, and the cell.
    let states = form.ops(kind, &inputs.iter().collect::<Vec<_>>(), &settings, 1 + it.cell.states());
    let axis = form.ints(&[0]);
    if !it.return_sequences && !it.return_state {
        return form.op("Squeeze", &[&states[1], &axis], &[]);
    }
    let mut parts = Vec::new();
    if it.return_sequences {
        parts.push(sequence(it, form, &states[0]));
    }
    if it.return_state {
        parts.extend(states[1..].iter().map(|state| form.transpose(state, [1, 0, 2])));
    }
    joined(it, form, &parts, time)
}

/// All states of a sequence, in the order of the output.
fn sequence(it: &Recurrence, form: &mut Form<'_>, states: &Value) -> Value {
    let axis = form.ints(&[1]);
    let y = form.op("Squeeze", &[states, &axis], &[]);
    let y = form.transpose(&y, [1, 0, 2]);
    if !it.go_backwards || it.part != RecurrencePart::Whole {
        return y;
    }
    // ONNX leaves each output at its step; here they stand in the order in which they are computed.
    let [start, end, axis, step] = [-1, i64::MIN, 1, -1].map(|at| form.ints(&[at]));
    form.op("Slice", &[&y, &start, &end, &axis, &step], &[])
}

/// The states before the first step.
fn given(it: &Recurrence, form: &mut Form<'_>) -> Vec<Value> {
    (1..it.n_inputs()).map(|i| form.input(i)).collect()
}

/// Parts of the output one behind the other.
fn joined(it: &Recurrence, form: &mut Form<'_>, parts: &[Value], time: usize) -> Value {
    let joined = match parts {
        [one] => one.clone(),
        _ => form.op("Concat", &parts.iter().collect::<Vec<_>>(), &[("axis", Attribute::Int(1))]),
    };
    form.reshape(&joined, &[it.steps_out(time), it.units])
}

/// Weights of the input (0) or the state (1), `[1, gates * units, inputs]`.
fn weights(it: &Recurrence, form: &mut Form<'_>, at: usize, inputs: usize) -> Value {
    let (cell, columns) = (it.cell, it.cell.gates() * it.units);
    form.arranged(it.part.names()[at], "gates", &[1, columns, inputs], move |values| {
        in_order(&transposed(values, &[inputs, columns], &[1, 0]), cell)
    })
}

/// Biases of the input, then of the state, `[1, 2 * gates * units]`.
fn biases(it: &Recurrence, form: &mut Form<'_>) -> Value {
    let (cell, columns) = (it.cell, it.cell.gates() * it.units);
    form.arranged(it.part.names()[2], "gates", &[1, 2 * columns], move |values| {
        let (input, state) = values.split_at(columns);
        let state = if state.is_empty() { vec![0.0; columns] } else { in_order(state, cell) };
        [in_order(input, cell), state].concat()
    })
}

fn scan(it: &Recurrence, form: &mut Form<'_>) -> Value {
    let (time, x) = (form.input_shape(0).axes()[0], form.input(0));
    let [kernel, recurrent_kernel, _] = it.part.names();
    let w = form.tensor(kernel);
    let mut gates = form.op("MatMul", &[&x, &w], &[]);
    if it.use_bias {
        let bias = bias_of(it, form, 0);
        gates = form.op("Add", &[&gates, &bias], &[]);
    }
    let states = if it.initial_state { given(it, form) } else { zeros(it, form, &x) };
    let mask = (form.n_inputs() > it.n_inputs()).then(|| {
        let mask = form.input(it.n_inputs());
        form.unsqueeze(&mask, &[2])
    });
    let items: Vec<Value> = std::iter::once(gates).chain(mask.clone()).collect();
    let direction = match (it.go_backwards, it.part) {
        (false, _) => Direction::Forwards,
        (true, RecurrencePart::Whole) => Direction::BackwardsInOrder,
        (true, _) => Direction::Backwards,
    };
    let u = form.tensor(recurrent_kernel);
    let [last, all] = form.scan([&states, &items], direction, |form, states, items| {
        let product = form.op("MatMul", &[&states[0], &u], &[]);
        let mut next = step(it, form, [&items[0], &product], states);
        let counts = items.get(1).map(|mask| counts_onnx(form, mask));
        if let Some(counts) = &counts {
            next = next.iter().zip(states).map(|(next, old)| form.op("Where", &[counts, next, old], &[])).collect();
        }
        let output = output(it, form, &next[0], counts.as_ref());
        [next, it.return_sequences.then_some(output).into_iter().collect()]
    });
    if it.return_state {
        let mut parts = if it.return_sequences { vec![form.reshape(&all[0], &[time, it.units])] } else { Vec::new() };
        parts.extend(last.iter().map(|state| form.reshape(state, &[1, it.units])));
        return joined(it, form, &parts, time);
    }
    if it.return_sequences {
        return form.reshape(&all[0], &[time, it.units]);
    }
    // The mask of the step that is computed last.
    let counts = mask.map(|mask| {
        let at = if it.go_backwards { 0 } else { time - 1 };
        let mask = form.slice(&mask, 1, [at, at + 1]);
        let mask = form.reshape(&mask, &[1]);
        counts_onnx(form, &mask)
    });
    let last = form.reshape(&last[0], &[it.units]);
    output(it, form, &last, counts.as_ref())
}

/// States of zeros, for as many rows as the input has.
fn zeros(it: &Recurrence, form: &mut Form<'_>, x: &Value) -> Vec<Value> {
    let rows = form.op("Shape", &[x], &[("start", Attribute::Int(0)), ("end", Attribute::Int(1))]);
    let units = form.sizes([it.units]);
    let shape = form.op("Concat", &[&rows, &units], &[("axis", Attribute::Int(0))]);
    // Zeros, by the operator's default.
    let zeros = form.op("ConstantOfShape", &[&shape], &[]);
    vec![zeros; it.cell.states()]
}

/// The output of a step: its state, or 0 where the mask leaves it out and the layer says so.
fn output(it: &Recurrence, form: &mut Form<'_>, state: &Value, counts: Option<&Value>) -> Value {
    let Some(counts) = counts.filter(|_| it.zero_output_for_mask) else { return state.clone() };
    let zero = form.scalar(0.0);
    form.op("Where", &[counts, state, &zero], &[])
}

/// The bias of the input (0), or of the state (1), which a GRU alone has.
fn bias_of(it: &Recurrence, form: &mut Form<'_>, at: usize) -> Value {
    let (columns, name) = (it.cell.gates() * it.units, it.part.names()[2]);
    let what = ["of the input", "of the state"][at];
    form.arranged(name, what, &[columns], move |values| values[at * columns..][..columns].to_vec())
}

/// The states after a step from the products of its input and of the state before.
fn step(it: &Recurrence, form: &mut Form<'_>, [input, product]: [&Value; 2], states: &[Value]) -> Vec<Value> {
    let split = |form: &mut Form<'_>, value: &Value| {
        let sizes = form.sizes(vec![it.units; it.cell.gates()]);
        form.ops("Split", &[value, &sizes], &[("axis", Attribute::Int(1))], it.cell.gates())
    };
    let apply = |form: &mut Form<'_>, activation: Activation, value: &Value| match activation.function() {
        Some(function) => function_onnx(form, function, value),
        None => value.clone(),
    };
    let gate = it.recurrent_activation;
    match it.cell {
        Cell::Simple => {
            let z = form.op("Add", &[input, product], &[]);
            vec![apply(form, it.activation, &z)]
        }
        Cell::Lstm => {
            let z = form.op("Add", &[input, product], &[]);
            let z = split(form, &z);
            let [i, f, o] = [0, 1, 3].map(|at| apply(form, gate, &z[at]));
            let candidate = apply(form, it.activation, &z[2]);
            let kept = form.op("Mul", &[&f, &states[1]], &[]);
            let new = form.op("Mul", &[&i, &candidate], &[]);
            let cell = form.op("Add", &[&kept, &new], &[]);
            let shown = apply(form, it.activation, &cell);
            vec![form.op("Mul", &[&o, &shown], &[]), cell]
        }
        Cell::Gru => {
            let mut product = product.clone();
            if it.use_bias {
                let bias = bias_of(it, form, 1);
                product = form.op("Add", &[&product, &bias], &[]);
            }
            let (x, p) = (split(form, input), split(form, &product));
            let [z, r] = [0, 1].map(|at| {
                let sum = form.op("Add", &[&x[at], &p[at]], &[]);
                apply(form, gate, &sum)
            });
            let inner = form.op("Mul", &[&r, &p[2]], &[]);
            let inner = form.op("Add", &[&x[2], &inner], &[]);
            let candidate = apply(form, it.activation, &inner);
            let one = form.scalar(1.0);
            let rest = form.op("Sub", &[&one, &z], &[]);
            let kept = form.op("Mul", &[&z, &states[0]], &[]);
            let new = form.op("Mul", &[&rest, &candidate], &[]);
            vec![form.op("Add", &[&kept, &new], &[])]
        }
    }
}
