//! Recording: layers, losses and optimizers write their commands into a plan through a [`Recorder`].

use litemap::LiteMap;

use crate::kernels::activation_functions::Function;
use crate::kernels::product::HALF_FACTORS;
use crate::kernels::{self, Kernel, halves};
use crate::packed::Packing;
use crate::shape::Shape;
use crate::size::{Grid, Length, Word};

use super::unread::drop_unread;
use super::{
    Accumulation, BatchStatistics, Combine, Command, Dispatch, Exchange, GradientCompression, Layout, Pass, Penalty,
    Plan, Precision, Role, View, When,
};

/// Smallest number of elements at which finished gradients leave for the host while backward goes on: 1 MiB.
const BUCKET: u64 = 1 << 18;

/// A tensor of the graph while it is recorded.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Shape of a row.
    pub shape: Shape,
    /// Whether it depends on a trainable parameter.
    pub needs_gradient: bool,
}

/// The node that records: one use of a layer.
#[derive(Clone, Debug)]
pub struct Node {
    /// Index in the graph.
    pub idx: usize,
    /// Name of the node, the label of its dispatches.
    pub name: String,
    /// Name of the layer: prefix of its parameters.
    pub layer: String,
    /// Tensors it reads.
    pub inputs: Vec<usize>,
    /// Tensor it writes.
    pub output: usize,
    /// Whether training may change the layer.
    pub is_trainable: bool,
}

impl Node {
    /// A node that is no use of a layer.
    pub fn apart(idx: usize, name: impl Into<String>, inputs: Vec<usize>) -> Self {
        let output = inputs.first().copied().unwrap_or(0);
        Self { idx, name: name.into(), layer: String::new(), inputs, output, is_trainable: true }
    }
}

/// Recorder of a layer or a loss: it gives views of buffers, and takes kernels that read and write them.
///
/// Forward reads [`input`](Self::input) and [`parameter`](Self::parameter), and writes [`output`](Self::output). Backward
/// reads [`output_gradient`](Self::output_gradient), and writes [`input_gradient`](Self::input_gradient) where somebody
/// needs it and [`parameter_gradient`](Self::parameter_gradient). What backward needs of forward goes through
/// [`keep`](Self::keep) and [`kept`](Self::kept). Nothing runs while it is recorded.
#[derive(Debug)]
pub struct Recorder<'a> {
    plan: &'a mut Plan,
    layout: &'a Layout,
    pass: Pass,
    commands: Vec<Command>,
    tensors: &'a [Tensor],
    values: Vec<Option<View>>,
    gradients: Vec<Option<View>>,
    kept: LiteMap<(usize, &'static str, usize), View>,
    /// Place of each parameter's gradient in this pass; `None` for one that no loss reaches.
    written: Vec<Option<View>>,
    sums: Vec<(View, View)>,
    bucket_ends: Vec<u64>,
    compression: GradientCompression,
    accumulation: Accumulation,
    /// The first parameter whose gradient is part of the flat gradients.
    gathered: usize,
    statistics: BatchStatistics,
    precision: Precision,
    fused: Option<Function>,
    node: Node,
}

impl<'a> Recorder<'a> {
    /// Starts a pass. The plan must hold the buffers of parameters, gradients and statistics already.
    pub fn new(plan: &'a mut Plan, layout: &'a Layout, pass: Pass, tensors: &'a [Tensor]) -> Self {
        Self {
            plan,
            layout,
            pass,
            commands: Vec::new(),
            tensors,
            values: vec![None; tensors.len()],
            gradients: vec![None; tensors.len()],
            kept: LiteMap::new(),
            written: vec![None; layout.parameters.len()],
            sums: Vec::new(),
            bucket_ends: layout.trainable_segments().to_vec(),
            compression: GradientCompression::None,
            accumulation: Accumulation::Host,
            gathered: layout.trainable().len(),
            statistics: BatchStatistics::Shard,
            precision: Precision::Float32,
            fused: None,
            node: Node::apart(0, "", Vec::new()),
        }
    }

    /// Sets the form in which gradients are sent to the host.
    #[must_use]
    pub fn compressed(mut self, compression: GradientCompression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets the place where gradients of several runs are added.
    #[must_use]
    pub fn adding_on(mut self, accumulation: Accumulation) -> Self {
        self.accumulation = accumulation;
        self
    }

    /// Sets the rows over which batch statistics are taken.
    #[must_use]
    pub fn over(mut self, statistics: BatchStatistics) -> Self {
        self.statistics = statistics;
        self
    }

    /// Sets the numbers with which products compute.
    #[must_use]
    pub fn computing_in(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// The node that records from now on.
    pub fn enter(&mut self, node: Node) {
        self.node = node;
        self.fused = None;
    }

    /// Lets the node apply a function to its output: that of the only node that reads it.
    pub fn fuse(&mut self, function: Option<Function>) {
        self.fused = function;
    }

    /// The function to apply to the output.
    #[doc(hidden)]
    pub fn fused(&self) -> Option<Function> {
        self.fused
    }

    /// Rows over which batch normalization takes its statistics.
    pub fn batch_statistics(&self) -> BatchStatistics {
        self.statistics
    }

    /// Whether this pass is training; otherwise it is inference.
    pub fn is_training(&self) -> bool {
        matches!(self.pass, Pass::Train | Pass::Forward)
    }

    /// Whether training may change the layer. A frozen batch normalization normalizes as at inference.
    pub fn is_trainable(&self) -> bool {
        self.node.is_trainable
    }

    /// Index of the node, part of the key of random numbers.
    pub fn node_idx(&self) -> usize {
        self.node.idx
    }

    /// Number of inputs.
    pub fn n_inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// Shape of an input.
    pub fn input_shape(&self, i: usize) -> Shape {
        self.tensors[self.node.inputs[i]].shape.clone()
    }

    /// Shape of the output.
    pub fn output_shape(&self) -> Shape {
        self.tensors[self.node.output].shape.clone()
    }

    /// Values of a tensor of the graph.
    ///
    /// # Panics
    /// If the tensor was not recorded yet; nodes are recorded in topological order.
    #[allow(clippy::expect_used, reason = "the graph is recorded in topological order")]
    pub fn value(&self, tensor: usize) -> View {
        self.values[tensor].expect("a tensor is recorded before it is read")
    }

    /// Sets the values of a tensor of the graph: a model's input.
    pub fn set_value(&mut self, tensor: usize, view: View) {
        self.values[tensor] = Some(view);
    }

    /// Forgets the values of a tensor of the graph, which are about to be computed again.
    pub fn forget(&mut self, tensor: usize) {
        self.values[tensor] = None;
    }

    /// Sets the gradient of a tensor of the graph: by a loss.
    pub fn add_gradient(&mut self, tensor: usize, view: View) {
        match self.gradients[tensor] {
            None => self.gradients[tensor] = Some(view),
            Some(sum) => self.accumulate(view, sum),
        }
    }

    /// The gradient of a tensor of the graph; `None` if no loss has reached it.
    pub fn gradient(&self, tensor: usize) -> Option<View> {
        self.gradients[tensor]
    }

    /// Removes the exchanges recorded so far.
    pub fn drop_exchanges(&mut self) {
        self.commands.retain(|command| matches!(command, Command::Dispatch(_)));
    }

    /// Removes the exchanges recorded so far, but those that the next command waits for.
    pub fn keep_awaited_exchanges(&mut self) {
        self.commands.retain(|command| matches!(command, Command::Dispatch(_)) || command.is_awaited());
    }

    /// Whether any loss has reached this tensor.
    pub fn has_gradient(&self, tensor: usize) -> bool {
        self.gradients[tensor].is_some()
    }

    /// The values of an input.
    pub fn input(&self, i: usize) -> View {
        self.value(self.node.inputs[i])
    }

    /// The values of the output; the buffer is made at the first call.
    pub fn output(&mut self) -> View {
        let tensor = self.node.output;
        if let Some(view) = self.values[tensor] {
            return view;
        }
        let view = self.scratch("output", Length::per_row(self.tensors[tensor].shape.len()));
        self.values[tensor] = Some(view);
        view
    }

    /// The output is the input, under another shape.
    pub fn pass_value(&mut self) {
        self.values[self.node.output] = Some(self.input(0));
    }

    /// A buffer of this pass.
    pub fn scratch(&mut self, what: &str, len: Length) -> View {
        let name = format!("{}.{what}", self.node.name);
        self.plan.buffer(name, Role::Activation, len)
    }

    /// A small buffer that outlives the pass.
    pub fn control(&mut self, what: &str, len: usize) -> View {
        let name = format!("{}.{what}", self.node.name);
        self.plan.buffer(name, Role::Control, Length::fixed(len))
    }

    /// Keeps a view for backward.
    pub fn keep(&mut self, what: &'static str, view: View) {
        self.keep_each(what, 0, view);
    }

    /// Keeps one of several views of a name for backward.
    pub fn keep_each(&mut self, what: &'static str, i: usize, view: View) {
        self.kept.insert((self.node.idx, what, i), view);
    }

    /// A value that forward kept.
    ///
    /// # Panics
    /// If forward kept nothing under that name, which is an error in the layer.
    pub fn kept(&self, what: &'static str) -> View {
        self.kept_each(what, 0)
    }

    /// One of several views that forward kept under a name.
    ///
    /// # Panics
    /// If forward kept no such view, which is an error in the layer.
    #[allow(clippy::expect_used, reason = "an error in a layer, found by its first test")]
    pub fn kept_each(&self, what: &'static str, i: usize) -> View {
        *self.kept.get(&(self.node.idx, what, i)).expect("forward keeps what backward asks for")
    }

    /// A parameter of the layer: its floats, or the words of one that is [packed](Self::packing).
    pub fn parameter(&self, name: &str) -> View {
        self.flat_view(self.parameter_idx(name), Role::Parameters)
    }

    /// Form of a parameter's blocks, if it is packed: only of a layer that allows it.
    #[doc(hidden)]
    pub fn packing(&self, name: &str) -> Option<Packing> {
        self.layout.parameters[self.parameter_idx(name)].packing
    }

    /// Memory for the floats of a packed parameter, or a part of it, right before the kernel that reads them.
    #[doc(hidden)]
    pub fn unpacked(&mut self, what: &str, len: usize) -> View {
        let name = format!("{}.{what}", self.node.name);
        self.plan.buffer(name, Role::Unpacked, Length::fixed(len))
    }

    /// Dispatches of this pass that were recorded since there were `n_commands`.
    #[doc(hidden)]
    pub fn dispatches_since(&mut self, n_commands: usize) -> impl Iterator<Item = &mut Dispatch> {
        self.commands.iter_mut().skip(n_commands).filter_map(|command| match command {
            Command::Dispatch(dispatch) => Some(dispatch),
            Command::Exchange(_) => None,
        })
    }

    /// Commands of this pass so far.
    #[doc(hidden)]
    pub fn n_commands(&self) -> usize {
        self.commands.len()
    }

    /// Place of a parameter's gradient. Each use of a shared layer gets its own place, and all are added.
    ///
    /// That of a frozen layer goes where nobody reads it, and what computes nothing else is no part of the pass.
    pub fn parameter_gradient(&mut self, name: &str) -> View {
        let idx = self.parameter_idx(name);
        if !self.layout.is_trainable(idx) {
            let len = Length::fixed(self.layout.parameters[idx].len());
            return self.scratch(&format!("{name}_unread"), len);
        }
        let len = self.layout.parameters[idx].length();
        if let Some(sum) = self.written[idx] {
            let part = self.scratch(name, len);
            self.sums.push((part, sum));
            return part;
        }
        let place = match self.accumulation {
            Accumulation::Host => self.flat_view(idx, Role::Gradients),
            Accumulation::Adapter => self.scratch(&format!("{name}_gradient"), len),
        };
        self.written[idx] = Some(place);
        place
    }

    /// Whether the gradient of a parameter is computed in this pass; not if no loss reaches it.
    pub fn has_parameter_gradient(&self, idx: usize) -> bool {
        self.written[idx].is_some()
    }

    /// A moving statistic of the layer.
    ///
    /// # Panics
    /// If the layer did not declare it.
    #[allow(clippy::expect_used, reason = "an error in a layer, found by its first test")]
    pub fn statistic(&self, name: &str) -> View {
        let name = format!("{}/{name}", self.node.layer);
        let placed = &self.layout.statistics[self.layout.statistic(&name).expect("the layer declares its statistics")];
        let buffer = self.plan.find(Role::Statistics).expect("the plan holds the statistics");
        View { buffer, offset: placed.offset, len: placed.length() }
    }

    #[allow(clippy::expect_used, reason = "an error in a layer, found by its first test")]
    fn parameter_idx(&self, name: &str) -> usize {
        self.layout.parameter(&format!("{}/{name}", self.node.layer)).expect("the layer declares its parameters")
    }

    #[allow(clippy::expect_used, reason = "the plan is made with these buffers")]
    fn flat_view(&self, idx: usize, role: fn(u32) -> Role) -> View {
        let placed = &self.layout.parameters[idx];
        let buffer = self.plan.find(role(placed.segment)).expect("the plan holds the flat buffers");
        View { buffer, offset: placed.offset, len: placed.length() }
    }

    /// The gradient of the loss with respect to the output.
    ///
    /// # Panics
    /// Outside backward.
    #[allow(clippy::expect_used, reason = "only nodes that a loss reaches record backward")]
    pub fn output_gradient(&self) -> View {
        self.gradients[self.node.output].expect("a loss reached this node")
    }

    /// Whether the gradient with respect to an input is needed.
    pub fn needs_gradient(&self, i: usize) -> bool {
        self.tensors[self.node.inputs[i]].needs_gradient
    }

    /// Place of the gradient with respect to an input; `None` if it is not needed.
    pub fn input_gradient(&mut self, i: usize) -> Option<View> {
        if !self.needs_gradient(i) {
            return None;
        }
        let tensor = self.node.inputs[i];
        let view = self.scratch("input_gradient", Length::per_row(self.tensors[tensor].shape.len()));
        match self.gradients[tensor] {
            None => self.gradients[tensor] = Some(view),
            Some(sum) => self.sums.push((view, sum)),
        }
        Some(view)
    }

    /// The gradient with respect to an input is that of the output: no copy where it is the only one.
    ///
    /// For one input of a node at most; the others copy.
    pub fn pass_gradient(&mut self, i: usize) {
        let tensor = self.node.inputs[i];
        if self.tensors[tensor].needs_gradient {
            self.add_gradient(tensor, self.output_gradient());
        }
    }

    /// Records a kernel.
    pub fn dispatch(
        &mut self,
        kernel: &'static Kernel,
        params: impl Into<Vec<Word>>,
        inputs: impl Into<Vec<View>>,
        outputs: impl Into<Vec<View>>,
        grid: Grid,
    ) -> &mut Dispatch {
        self.commands.push(Command::Dispatch(Dispatch {
            kernel,
            node: self.node.name.clone(),
            constants: Vec::new(),
            params: params.into(),
            inputs: inputs.into(),
            outputs: outputs.into(),
            grid,
        }));
        match self.commands.last_mut() {
            Some(Command::Dispatch(dispatch)) => dispatch,
            _ => unreachable!("a dispatch was pushed just now"),
        }
    }

    /// Records that a view is to be combined over all adapters.
    #[doc(hidden)]
    pub fn exchange(&mut self, view: View, combine: Combine, when: When) {
        self.commands.push(Command::Exchange(Exchange { view, combine, when, halves: None }));
    }

    /// Records moving statistics that follow a view of moments.
    #[doc(hidden)]
    pub fn moving(&mut self, moving: super::Moving) {
        self.plan.moving.push(moving);
    }

    /// Records `to += from`, of values of one length.
    pub fn accumulate(&mut self, from: View, to: View) {
        let (record, grid) = kernels::add::Record::of(from.len);
        self.dispatch(&kernels::add::ACCUMULATE, record, [from], [to], grid);
    }

    /// Ends a node's backward: adds what several uses contributed.
    pub fn leave(&mut self) {
        for (from, to) in std::mem::take(&mut self.sums) {
            self.accumulate(from, to);
        }
    }

    /// Marks the gradients of all parameters from `first` on as complete, so that they may leave for the host.
    pub fn complete_gradients(&mut self, first: usize) {
        self.gather(first);
        let trainable = self.layout.trainable();
        let (Some(placed), Some(last)) = (trainable.get(first), trainable.last()) else {
            return;
        };
        // Parameters fill one segment after the other.
        for segment in (placed.segment..=last.segment).rev() {
            let start = if segment == placed.segment { placed.offset } else { 0 };
            self.send_bucket(segment, start, first == 0);
        }
    }

    /// Adds the gradients of the parameters from `first` on to those of the runs before, where this is done on the adapter.
    ///
    /// The first run stores them, so that nothing has to be cleared, and each bit is that of a sum on the host.
    #[allow(clippy::cast_possible_truncation, reason = "a segment is smaller than 2^25 elements")]
    fn gather(&mut self, first: usize) {
        let behind = self.gathered;
        self.gathered = first.min(behind);
        for idx in first..behind {
            let (Accumulation::Adapter, Some(from)) = (self.accumulation, self.written[idx]) else { continue };
            let to = self.flat_view(idx, Role::Gradients);
            let len = self.layout.parameters[idx].len() as u32;
            let vectors = len.div_ceil(4);
            for (kernel, len, vectors) in [
                (&kernels::add::COPY, Word::IsFirst(len), Word::IsFirst(vectors)),
                (&kernels::add::ACCUMULATE, Word::IsLater(len), Word::IsLater(vectors)),
            ] {
                self.dispatch(kernel, kernels::add::Record { len }, [from], [to], Grid::Elements(vectors));
            }
        }
    }

    #[allow(clippy::expect_used, reason = "the plan is made with these buffers")]
    #[allow(clippy::cast_possible_truncation, reason = "a segment is smaller than 2^25 elements")]
    fn send_bucket(&mut self, segment: u32, start: u64, last: bool) {
        let end = self.bucket_ends[segment as usize];
        let len = end - start;
        if len == 0 || (len < BUCKET && !last && start != 0) {
            return;
        }
        self.bucket_ends[segment as usize] = start;
        let buffer = self.plan.find(Role::Gradients(segment)).expect("the plan holds the gradients");
        let view = View { buffer, offset: start, len: Length::fixed(len as usize) };
        let halves = (self.compression == GradientCompression::Fp16).then(|| self.packed(segment, view));
        let when = match self.accumulation {
            Accumulation::Host => When::Update,
            Accumulation::Adapter => When::LastUpdate,
        };
        self.commands.push(Command::Exchange(Exchange { view, combine: Combine::Sum, when, halves }));
    }

    /// Records that values of a segment are packed as halves.
    #[allow(clippy::cast_possible_truncation, reason = "a segment is smaller than 2^25 elements")]
    fn packed(&mut self, segment: u32, values: View) -> View {
        let name = format!("gradients{segment}+{}.halves", values.offset);
        let blocks = values.len.fixed as usize / halves::BLOCK;
        let packed =
            self.plan.buffer(name, Role::Activation, Length::fixed(halves::packed_len(blocks * halves::BLOCK)));
        let blocks = match self.accumulation {
            Accumulation::Host => Word::U32(blocks as u32),
            Accumulation::Adapter => Word::IsLast(blocks as u32),
        };
        self.dispatch(&halves::PACK, halves::Record { blocks }, [values], [packed], Grid::Elements(blocks));
        packed
    }

    /// Gives the finished pass to the plan, without what nobody reads, and what each tensor's values are.
    pub fn finish(mut self) -> Vec<Option<View>> {
        drop_unread(self.plan, &mut self.commands);
        if self.precision == Precision::MixedFloat16 {
            // Here, whatever constants a layer has set.
            self.commands.iter_mut().for_each(round_factors);
        }
        self.plan.passes.insert(self.pass, self.commands);
        self.values
    }

    /// The plan, for buffers of other roles.
    #[doc(hidden)]
    pub fn plan(&mut self) -> &mut Plan {
        self.plan
    }

    /// Penalties of parameters.
    pub fn penalties(&self) -> &[Penalty] {
        &self.plan.penalties
    }

    /// The flat layout.
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }
}

/// Lets a product round its factors to 16-bit floats.
fn round_factors(command: &mut Command) {
    if let Command::Dispatch(dispatch) = command
        && dispatch.kernel.constants.contains(&HALF_FACTORS)
    {
        dispatch.constants.push((HALF_FACTORS, 1.0));
    }
}
