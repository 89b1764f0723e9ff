//! The ONNX form of a layer, to which it writes itself.

use super::graph::{Attribute, Graph, Order, TensorValues, signed};
use crate::shape::Shape;

/// A value between operators, a stored tensor, or an input that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value(String);

impl Value {
    /// For an input of an operator that is left out.
    pub const NONE: Self = Self(String::new());

    /// The value of a name, such as an input of the graph.
    pub(crate) fn named(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Its name in the graph.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

/// The ONNX form of one use of a layer: its inputs and tensors, the operators that it adds, and its output.
///
/// Values have the batch axis first. A model's own order is channels last; convolutions of ONNX take channels first. A layer
/// takes each input in the order that it needs, and says in which order its output is: so axes are moved only between layers
/// of two orders. A row of one axis has no order.
#[derive(Debug)]
pub struct Form<'g> {
    graph: &'g mut Graph,
    /// Name of the node, before those of its operators.
    node: String,
    /// Name of the layer, before those of its tensors.
    layer: String,
    /// Numbers of the tensors that it reads, and their shapes.
    inputs: Vec<(usize, Shape)>,
    output: Shape,
    value: Option<(Value, Order)>,
}

impl<'g> Form<'g> {
    pub(crate) fn new(
        graph: &'g mut Graph,
        [node, layer]: [&str; 2],
        inputs: Vec<(usize, Shape)>,
        output: Shape,
    ) -> Self {
        Self { graph, node: node.to_owned(), layer: layer.to_owned(), inputs, output, value: None }
    }

    /// The tensors that it reads. Without the feature `onnx` nothing makes a form, and the compiler drops what layers write after this.
    fn inputs(&self) -> &[(usize, Shape)] {
        if cfg!(feature = "onnx") { &self.inputs } else { unreachable!("no model is exported") }
    }

    /// Number of inputs.
    pub fn n_inputs(&self) -> usize {
        self.inputs().len()
    }

    /// Shape of a row of an input.
    pub fn input_shape(&self, input: usize) -> &Shape {
        &self.inputs()[input].1
    }

    /// Shape of a row of the output.
    pub fn output_shape(&self) -> &Shape {
        &self.output
    }

    /// An input, channels last.
    pub fn input(&mut self, input: usize) -> Value {
        self.input_in(input, Order::Last)
    }

    /// An input with its channels as the first axis behind the batch.
    pub fn channels_first(&mut self, input: usize) -> Value {
        self.input_in(input, Order::First)
    }

    /// The order in which an input was written: the one that costs nothing.
    pub fn order(&self, input: usize) -> Order {
        self.graph.known[self.inputs()[input].0].first().map_or(Order::Last, |(order, _)| *order)
    }

    /// An input in an order.
    pub fn input_in(&mut self, input: usize, order: Order) -> Value {
        let (tensor, shape) = self.inputs()[input].clone();
        let order = if shape.rank() < 2 { Order::Last } else { order };
        let known = &self.graph.known[tensor];
        if let Some((_, name)) = known.iter().find(|(known, _)| *known == order) {
            return Value(name.clone());
        }
        let from = Value(known.first().map(|(_, name)| name.clone()).unwrap_or_default());
        let moved = if shape.positions() == 1 || shape.last() == 1 {
            // The elements stay where they are.
            self.reshape(&from, &order.axes_of(shape.axes()))
        } else {
            let axes: Vec<usize> = (1..=shape.rank()).collect();
            let axes = match order {
                Order::First => order.axes_of(&axes),
                // Of channels first, the channels are axis 1.
                Order::Last => axes[1..].iter().chain(&axes[..1]).copied().collect(),
            };
            self.transpose(&from, std::iter::once(0).chain(axes))
        };
        self.graph.known[tensor].push((order, moved.0.clone()));
        moved
    }

    /// An input whose elements are in the order of channels last, on whatever axes: to be given other ones.
    pub fn elements(&mut self, input: usize) -> Value {
        let shape = self.input_shape(input);
        let is_any = shape.positions() == 1 || shape.last() == 1;
        let order = if is_any { self.order(input) } else { Order::Last };
        self.input_in(input, order)
    }

    /// Adds an operator with one output.
    pub fn op(&mut self, kind: &'static str, inputs: &[&Value], attributes: &[(&'static str, Attribute)]) -> Value {
        self.ops(kind, inputs, attributes, 1).swap_remove(0)
    }

    /// Adds an operator with several outputs.
    pub fn ops(
        &mut self,
        kind: &'static str,
        inputs: &[&Value],
        attributes: &[(&'static str, Attribute)],
        n_outputs: usize,
    ) -> Vec<Value> {
        let given = inputs.iter().rposition(|value| **value != Value::NONE).map_or(0, |last| last + 1);
        // Behind the last one that is given there is none: onnxruntime 1.32 ends at an empty name there.
        let inputs = inputs[..given].iter().map(|value| value.0.clone()).collect();
        let outputs = self.graph.operator(&self.node, kind, inputs, attributes.to_vec(), n_outputs);
        outputs.into_iter().map(Value).collect()
    }

    /// An operator of a value and a number.
    pub fn op_with(&mut self, kind: &'static str, value: &Value, number: f32) -> Value {
        let number = self.scalar(number);
        self.op(kind, &[value, &number], &[])
    }

    /// A number.
    pub fn scalar(&mut self, value: f32) -> Value {
        self.floats(&[], &[value])
    }

    /// Numbers that are no tensor of the layer.
    pub fn floats(&mut self, dims: &[usize], values: &[f32]) -> Value {
        Value(self.graph.floats(dims, values))
    }

    /// A list of whole numbers.
    pub fn ints(&mut self, values: &[i64]) -> Value {
        Value(self.graph.ints(&[values.len()], values))
    }

    /// A whole number.
    pub(crate) fn whole(&mut self, value: i64) -> Value {
        Value(self.graph.ints(&[], &[value]))
    }

    /// A list of 64-bit floats.
    pub(crate) fn doubles(&mut self, values: &[f64]) -> Value {
        Value(self.graph.doubles(values))
    }

    /// A list of strings.
    pub(crate) fn names(&mut self, names: Vec<String>) -> Value {
        Value(self.graph.names(names))
    }

    /// A list of sizes.
    pub fn sizes(&mut self, sizes: impl IntoIterator<Item = usize>) -> Value {
        let sizes: Vec<i64> = sizes.into_iter().map(signed).collect();
        self.ints(&sizes)
    }

    /// Other axes for each row.
    pub fn reshape(&mut self, value: &Value, row: &[usize]) -> Value {
        // 0 keeps the batch axis.
        let shape = self.sizes(std::iter::once(0).chain(row.iter().copied()));
        self.op("Reshape", &[value, &shape], &[])
    }

    /// The axes in another order; 0 is the batch.
    pub fn transpose(&mut self, value: &Value, axes: impl IntoIterator<Item = usize>) -> Value {
        self.op("Transpose", &[value], &[("perm", Attribute::sizes(axes))])
    }

    /// Axes of length 1 at these places, of which 0 is the batch.
    pub fn unsqueeze(&mut self, value: &Value, axes: &[i64]) -> Value {
        let axes = self.ints(axes);
        self.op("Unsqueeze", &[value, &axes], &[])
    }

    /// A part of an axis, from `start` up to `end`.
    pub fn slice(&mut self, value: &Value, axis: usize, [start, end]: [usize; 2]) -> Value {
        let [start, end, axis] = [start, end, axis].map(|at| self.sizes([at]));
        self.op("Slice", &[value, &start, &end, &axis], &[])
    }

    /// A parameter or statistic of the layer, as it is.
    pub fn tensor(&mut self, name: &str) -> Value {
        let tensor = format!("{}/{name}", self.layer);
        let dims = self.dims(name).to_vec();
        Value(self.graph.store(&tensor, "", dims, TensorValues::Same(tensor.clone())))
    }

    /// A parameter or statistic of the layer with other axes for the same elements.
    pub fn tensor_of(&mut self, name: &str, dims: &[usize]) -> Value {
        let tensor = format!("{}/{name}", self.layer);
        Value(self.graph.store(&tensor, "", dims.to_vec(), TensorValues::Same(tensor.clone())))
    }

    /// Shape of a parameter or statistic of the layer.
    pub fn dims(&self, name: &str) -> &[usize] {
        self.graph.stored.get(&format!("{}/{name}", self.layer)).map_or(&[], Vec::as_slice)
    }

    /// A parameter or statistic of the layer whose elements `arrange` puts into another order, when the file is written.
    /// `what` tells this order from others of the same tensor.
    pub fn arranged(
        &mut self,
        name: &str,
        what: &str,
        dims: &[usize],
        arrange: impl Fn(&[f32]) -> Vec<f32> + 'static,
    ) -> Value {
        let tensor = format!("{}/{name}", self.layer);
        let values = TensorValues::Arranged(tensor.clone(), Box::new(arrange));
        Value(self.graph.store(&tensor, what, dims.to_vec(), values))
    }

    /// A parameter or statistic of the layer, of which `axes` is the shape, with its axes in another order, and then as
    /// `dims`.
    pub fn transposed(&mut self, name: &str, axes: &[usize], order: &[usize], dims: &[usize]) -> Value {
        let what = format!("{axes:?} by {order:?}");
        let (axes, order) = (axes.to_vec(), order.to_vec());
        self.arranged(name, &what, dims, move |values| transposed(values, &axes, &order))
    }

    /// A parameter or statistic of the layer that goes with a row in an order: its axes are those of a row, or 1.
    pub fn spread(&mut self, name: &str, row: &[usize], order: Order) -> Value {
        if order == Order::Last || row.len() < 2 || row[..row.len() - 1].iter().all(|size| *size == 1) {
            return self.tensor_of(name, &order.axes_of(row));
        }
        let axes: Vec<usize> = (0..row.len()).collect();
        self.transposed(name, row, &order.axes_of(&axes), &order.axes_of(row))
    }

    /// Number of the axis of a value in an order, the batch included, for an axis of a row.
    pub fn axis(order: Order, axis: usize, rank: usize) -> usize {
        match order {
            Order::First if rank > 1 => (axis + 1) % rank + 1,
            _ => axis + 1,
        }
    }

    /// Runs operators step by step along axis 1 of `items`, of which each step sees its own: ONNX' `Scan`.
    ///
    /// `body` takes the states and the items of a step; it gives the next states, and what is collected along axis 1. With
    /// `backwards`, steps run from the last to the first, and what is collected stands where its step stands. Gives the last
    /// states, and what was collected.
    pub fn scan(
        &mut self,
        [states, items]: [&[Value]; 2],
        direction: Direction,
        body: impl FnOnce(&mut Self, &[Value], &[Value]) -> [Vec<Value>; 2],
    ) -> [Vec<Value>; 2] {
        let first = self.graph.operators.len();
        let mut own = |what: &str, count: usize| -> Vec<Value> {
            let stem = format!("/{}/{what}", self.node);
            (0..count).map(|_| Value(self.graph.unique(&stem))).collect()
        };
        let (own_states, own_items) = (own("state", states.len()), own("item", items.len()));
        let [next, collected] = body(self, &own_states, &own_items);
        // Each output has a name of its own, and is none of the inputs.
        let outputs: Vec<Value> =
            next.iter().chain(&collected).map(|value| self.op("Identity", &[value], &[])).collect();
        let names = |values: &[Value]| values.iter().map(|value| value.0.clone()).collect::<Vec<_>>();
        let inputs = [names(&own_states), names(&own_items)].concat();
        let body = self.graph.cut(first, &format!("{}_step", self.node), &inputs, &names(&outputs));
        let [input, output] = direction.codes();
        let each = |value: i64, count: usize| Attribute::Ints(vec![value; count]);
        let attributes = [
            ("body", body),
            ("num_scan_inputs", Attribute::Int(signed(items.len()))),
            ("scan_input_axes", each(1, items.len())),
            ("scan_input_directions", each(input, items.len())),
            ("scan_output_axes", each(1, collected.len())),
            ("scan_output_directions", each(output, collected.len())),
        ];
        let attributes: Vec<_> = attributes
            .into_iter()
            .filter(|(_, value)| !matches!(value, Attribute::Ints(values) if values.is_empty()))
            .collect();
        let inputs: Vec<&Value> = states.iter().chain(items).collect();
        let mut outputs = self.ops("Scan", &inputs, &attributes, next.len() + collected.len());
        let collected = outputs.split_off(next.len());
        [outputs, collected]
    }

    /// Says what the output is. Of a layer that writes nothing, it is its input.
    pub fn output(&mut self, value: Value, order: Order) {
        self.value = Some((value, if self.output.rank() < 2 { Order::Last } else { order }));
    }

    /// Lets the first input be the output: of a layer that does nothing but in training.
    pub fn pass(&mut self) {
        let order = self.order(0);
        let value = self.input_in(0, order);
        self.output(value, order);
    }

    /// Ends the node: its output is known to others. False if there is none.
    pub(crate) fn end(self) -> bool {
        let Some((Value(name), order)) = self.value else { return false };
        self.graph.known.push(vec![(order, name)]);
        true
    }
}

/// Direction of the steps of a [`Form::scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first step to the last.
    Forwards,
    /// From the last step to the first; what is collected stands where its step stands.
    Backwards,
    /// From the last step to the first; what is collected stands in the order in which it was computed.
    BackwardsInOrder,
}

impl Direction {
    /// Of the inputs, and of the outputs.
    fn codes(self) -> [i64; 2] {
        match self {
            Self::Forwards => [0, 0],
            Self::Backwards => [1, 1],
            Self::BackwardsInOrder => [1, 0],
        }
    }
}

/// Elements of a tensor with its axes in another order: axis `order[0]` comes first.
pub(crate) fn transposed(values: &[f32], axes: &[usize], order: &[usize]) -> Vec<f32> {
    let mut strides = vec![1; axes.len()];
    for axis in (1..axes.len()).rev() {
        strides[axis - 1] = strides[axis] * axes[axis];
    }
    let mut out = Vec::with_capacity(values.len());
    let (sizes, strides): (Vec<usize>, Vec<usize>) = order.iter().map(|axis| (axes[*axis], strides[*axis])).unzip();
    let (mut at, mut place) = (0, vec![0; sizes.len()]);
    for _ in 0..values.len() {
        out.push(values[at]);
        for axis in (0..sizes.len()).rev() {
            place[axis] += 1;
            at += strides[axis];
            if place[axis] < sizes[axis] {
                break;
            }
            at -= strides[axis] * sizes[axis];
            place[axis] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_change_their_places() {
        let values: Vec<f32> = (0..6_u8).map(f32::from).collect();
        assert_eq!(transposed(&values, &[2, 3], &[1, 0]), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(transposed(&values, &[1, 2, 3], &[2, 0, 1]), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(transposed(&values, &[2, 3], &[0, 1]), values);
        assert_eq!(transposed(&[7.0], &[], &[]), [7.0]);
        assert_eq!([0, 1, 2].map(|axis| Form::axis(Order::First, axis, 3)), [2, 3, 1]);
        assert_eq!([0, 1, 2].map(|axis| Form::axis(Order::Last, axis, 3)), [1, 2, 3]);
        assert_eq!((Form::axis(Order::First, 0, 1), Order::First.axes_of(&[4, 5, 6])), (1, vec![6, 4, 5]));
    }

    /// Two layers of channels first, with one of any order between them: axes are moved before the first and behind the last.
    #[test]
    fn axes_are_moved_between_orders_alone() {
        let shape = Shape::new([2, 3, 4]);
        let mut graph = Graph::new(&["x"], std::iter::empty());
        for (node, name) in ["a", "b", "c"].into_iter().enumerate() {
            let mut form = Form::new(&mut graph, [name, name], vec![(node, shape.clone())], shape.clone());
            let order = if name == "b" { form.order(0) } else { Order::First };
            let x = form.input_in(0, order);
            let y = form.op("Relu", &[&x], &[]);
            form.output(y, order);
            assert!(form.end());
        }
        let mut form = Form::new(&mut graph, ["d", "d"], vec![(3, shape.clone())], Shape::new([24]));
        let x = form.elements(0);
        let y = form.reshape(&x, &[24]);
        form.output(y, Order::Last);
        assert!(form.end());
        let kinds: Vec<&str> = graph.operators.iter().map(|operator| operator.kind).collect();
        assert_eq!(kinds, ["Transpose", "Relu", "Relu", "Relu", "Transpose", "Reshape"]);
    }
}
