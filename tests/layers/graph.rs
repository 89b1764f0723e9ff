//! Graphs of layers: are gradients right where tensors and layers are used several times, and does every split give
//! them? And what a plan, a layout and a summary say of a model. Needs the CPU alone.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stands outside the engine: it panics")]

use manyhands::layers::{
    Activation, Add, BatchNormalization, Concatenate, Conv2D, Dense, Dropout, Flatten, Layer, Reshape,
};
use manyhands::model::Objective;
use manyhands::model::TensorRef;
use manyhands::{GradientCompression, Loss, Model, ModelBuilder, Optimizer, Sequential, SplitMode};
use manyhands_engine::plan::{ALIGN, Command, Layout, MAX_BINDING, Pass, Role};

use crate::bench::Bench;
use crate::close::assert_close;

/// A graph under construction, with short names.
struct Graph {
    builder: ModelBuilder,
    x: TensorRef,
}

impl Graph {
    fn new(shape: &[usize]) -> Self {
        let mut builder = ModelBuilder::new();
        let x = builder.input("x", shape.to_vec());
        Self { builder, x }
    }

    fn add(&mut self, layer: impl Layer + 'static, inputs: &[TensorRef]) -> TensorRef {
        self.builder.add(layer, inputs)
    }

    fn dense(&mut self, units: usize, input: TensorRef) -> TensorRef {
        self.add(Dense::new(units).activation(Activation::Tanh), &[input])
    }

    fn build(self, outputs: &[TensorRef]) -> Model {
        self.builder.build(outputs, 4).unwrap()
    }
}

/// One layer used three times, once on its own output, with other parameters between.
fn shared_layer() -> Model {
    let mut g = Graph::new(&[3]);
    let shared = g.builder.layer("shared", Dense::new(3).activation(Activation::Tanh));
    let once = g.builder.call(shared, &[g.x]);
    let between = g.dense(3, once);
    let twice = g.builder.call(shared, &[between]);
    let thrice = g.builder.call(shared, &[twice]);
    let sum = g.add(Add::default(), &[once, thrice]);
    g.build(&[sum])
}

/// A layer that is first used after another's first use, but last before it.
fn shared_around_another() -> Model {
    let mut g = Graph::new(&[4]);
    let outer = g.builder.layer("outer", Dense::new(4).no_bias());
    let inner = g.builder.layer("inner", Dense::new(4));
    let a = g.builder.call(outer, &[g.x]);
    let b = g.builder.call(inner, &[a]);
    let c = g.builder.call(outer, &[b]);
    let d = g.builder.call(inner, &[c]);
    g.build(&[d])
}

fn shared_convolution() -> Model {
    let mut g = Graph::new(&[4, 3, 2]);
    let shared = g.builder.layer("shared", Conv2D::new(2, [3, 3]).same().activation(Activation::Gelu));
    let once = g.builder.call(shared, &[g.x]);
    let twice = g.builder.call(shared, &[once]);
    g.build(&[twice])
}

fn residual() -> Model {
    let mut g = Graph::new(&[3]);
    let mut x = g.dense(4, g.x);
    for order in [[0, 1], [1, 0]] {
        let inner = g.dense(5, x);
        let branch = g.dense(4, inner);
        x = g.add(Add::default(), &order.map(|idx| [x, branch][idx]));
    }
    g.build(&[x])
}

fn diamond() -> Model {
    let mut g = Graph::new(&[3]);
    let top = g.dense(4, g.x);
    let (left, right) = (g.dense(4, top), g.dense(4, top));
    let bottom = g.add(Concatenate::default(), &[left, right, top]);
    let out = g.dense(2, bottom);
    g.build(&[out])
}

fn two_inputs_two_outputs() -> Model {
    let mut g = Graph::new(&[3]);
    let image = g.builder.input("image", [2, 2, 1]);
    let flat = g.add(Flatten::default(), &[image]);
    let joined = g.add(Concatenate::default(), &[g.x, flat]);
    let hidden = g.dense(4, joined);
    let first = g.dense(2, hidden);
    let second = g.add(Reshape::new([2, 2]), &[hidden]);
    g.build(&[first, second])
}

/// An output that other nodes read, too.
fn output_within() -> Model {
    let mut g = Graph::new(&[3]);
    let hidden = g.dense(4, g.x);
    let out = g.dense(4, hidden);
    g.build(&[hidden, out])
}

/// One tensor that is two outputs.
fn output_twice() -> Model {
    let mut g = Graph::new(&[3]);
    let hidden = g.dense(4, g.x);
    g.build(&[hidden, hidden])
}

/// A flattened tensor whose unflattened form is used again: both share values, and must not share gradients.
fn flatten_and_reuse() -> Model {
    let mut g = Graph::new(&[3]);
    let wide = g.dense(6, g.x);
    let square = g.add(Reshape::new([2, 3]), &[wide]);
    let flat = g.add(Flatten::default(), &[square]);
    let again = g.add(Flatten::default(), &[square]);
    let rows = g.add(Dense::new(3), &[square]);
    let rows = g.add(Flatten::default(), &[rows]);
    let sum = g.add(Add::default(), &[flat, rows, again, wide]);
    let out = g.dense(2, sum);
    g.build(&[out, flat, square])
}

/// Reshapes alone between an output and what others read.
fn reshaped_outputs() -> Model {
    let mut g = Graph::new(&[4]);
    let hidden = g.dense(4, g.x);
    let shaped = g.add(Reshape::new([2, 2]), &[hidden]);
    let flat = g.add(Flatten::default(), &[shaped]);
    let sum = g.add(Add::default(), &[flat, hidden]);
    g.build(&[shaped, flat, hidden, sum])
}

fn sum_with_itself() -> Model {
    let mut g = Graph::new(&[3]);
    let a = g.dense(4, g.x);
    let twice = g.add(Add::default(), &[a, a]);
    let b = g.dense(4, a);
    let mixed = g.add(Add::default(), &[b, twice, b, a, twice]);
    g.build(&[mixed])
}

fn concatenation_with_itself() -> Model {
    let mut g = Graph::new(&[3]);
    let a = g.dense(2, g.x);
    let pair = g.add(Concatenate::default(), &[a, a, g.x]);
    let out = g.dense(3, pair);
    g.build(&[out])
}

/// A sum whose first input is used by nodes before and after it, through tensors that are passed on.
fn passed_on() -> Model {
    let mut g = Graph::new(&[4]);
    let a = g.dense(4, g.x);
    let b = g.dense(4, a);
    let linear = g.add(manyhands::layers::ActivationLayer { activation: Activation::Linear }, &[a]);
    let none = g.add(Dropout::new(0.0), &[linear]);
    let sum = g.add(Add::default(), &[none, b]);
    let next = g.add(Add::default(), &[sum, a]);
    let out = g.add(Add::default(), &[next, sum, linear]);
    g.build(&[out])
}

/// Branches that no loss reaches, and one without parameters.
fn dead_branches() -> Model {
    let mut g = Graph::new(&[3]);
    let plain = g.add(Activation::Tanh.layer(), &[g.x]);
    let a = g.dense(3, g.x);
    let dead = g.dense(5, a);
    let _ = g.dense(2, dead);
    let sum = g.add(Add::default(), &[plain, a]);
    let out = g.dense(2, sum);
    g.build(&[out, plain])
}

/// An activation as a layer.
trait AsLayer {
    fn layer(self) -> manyhands::layers::ActivationLayer;
}

impl AsLayer for Activation {
    fn layer(self) -> manyhands::layers::ActivationLayer {
        manyhands::layers::ActivationLayer { activation: self }
    }
}

/// Nothing to train.
fn no_parameters() -> Model {
    let mut g = Graph::new(&[3]);
    let out = g.add(Activation::Tanh.layer(), &[g.x]);
    g.build(&[out])
}

/// Batch normalization over the whole batch, twice through one layer.
fn shared_normalization() -> Model {
    let mut g = Graph::new(&[3]);
    let shared = g.builder.layer("shared", BatchNormalization::new().synchronized());
    let a = g.dense(3, g.x);
    let once = g.builder.call(shared, &[a]);
    let b = g.dense(3, once);
    let twice = g.builder.call(shared, &[b]);
    let sum = g.add(Add::default(), &[twice, once]);
    g.build(&[sum])
}

/// Batch normalization that applies the activation behind it, and one whose values others read, too.
fn activated_normalization() -> Model {
    let mut g = Graph::new(&[3]);
    let whole = || BatchNormalization::new().synchronized();
    let hidden = g.add(Dense::new(4), &[g.x]);
    let normal = g.add(whole(), &[hidden]);
    let fused = g.add(Activation::Tanh.layer(), &[normal]);
    let normal = g.add(whole(), &[fused]);
    let apart = g.add(Activation::Sigmoid.layer(), &[normal]);
    let sum = g.add(Add::default(), &[apart, normal]);
    let normal = g.add(whole(), &[sum]);
    let gelu = g.add(Activation::Gelu.layer(), &[normal]);
    let out = g.add(whole(), &[gelu]);
    let read = g.add(Activation::Tanh.layer(), &[out]);
    g.build(&[out, read])
}

/// A graph under its name.
type Named = (&'static str, fn() -> Model);

const GRAPHS: &[Named] = &[
    ("shared layer", shared_layer),
    ("shared around another", shared_around_another),
    ("shared convolution", shared_convolution),
    ("residual", residual),
    ("diamond", diamond),
    ("two inputs, two outputs", two_inputs_two_outputs),
    ("output within", output_within),
    ("output twice", output_twice),
    ("flatten and reuse", flatten_and_reuse),
    ("reshaped outputs", reshaped_outputs),
    ("sum with itself", sum_with_itself),
    ("concatenation with itself", concatenation_with_itself),
    ("passed on", passed_on),
    ("dead branches", dead_branches),
    ("no parameters", no_parameters),
    ("shared normalization", shared_normalization),
    ("activated normalization", activated_normalization),
];

#[test]
fn gradients_are_difference_quotients() {
    for (name, model) in GRAPHS {
        println!("{name}");
        Bench::of_normals(model(), 5).check_loss_gradients();
    }
}

#[test]
fn any_split_gives_the_result_of_one_adapter() {
    for (name, model) in GRAPHS {
        let bench = Bench::of_normals(model(), 5);
        let (needed, state) = bench.step(1, SplitMode::Even);
        for (n_adapters, split) in
            [(2, SplitMode::Even), (3, SplitMode::Even), (3, SplitMode::Fixed(vec![2.0, 0.0, 1.0]))]
        {
            let what = format!("{name}, {n_adapters} adapters, {split:?}");
            let (report, split_state) = bench.step(n_adapters, split);
            for (got, needed) in report.reports.iter().zip(&needed.reports) {
                assert_close(&format!("{what}: report"), got, needed, 1e-5);
            }
            let (got, needed) = (&split_state.weights, &state.weights);
            assert_close(&what, &got.parameters.concat(), &needed.parameters.concat(), 1e-5);
            assert_close(&format!("{what}: statistics"), &got.statistics, &needed.statistics, 1e-5);
        }
    }
}

/// Two steps in one memory: nothing of the first is left in the gradients of the second.
#[test]
fn a_second_run_gives_the_same_gradients() {
    for (name, model) in GRAPHS {
        let bench = Bench::of_normals(model(), 5);
        let mut machine = bench.machine();
        let gradients = |machine: &manyhands_engine::adapters::cpu::Interpreter| {
            let names = bench.parameters().into_iter();
            names.map(|name| bench.gradient(machine, &name).to_vec()).collect::<Vec<_>>()
        };
        bench.run(&mut machine, Pass::Train);
        let first = gradients(&machine);
        bench.run(&mut machine, Pass::Evaluate);
        bench.run(&mut machine, Pass::Train);
        assert_eq!(first, gradients(&machine), "{name}");
    }
}

#[test]
fn a_graph_goes_through_a_file() {
    for (name, model) in GRAPHS {
        let model = model();
        let loaded = Model::from_bytes(&model.to_bytes().unwrap(), name, &[]).unwrap();
        assert_eq!(loaded.config(), model.config(), "{name}");
        assert_eq!(loaded.weights, model.weights, "{name}");
        let [before, after] = [model, loaded].map(|model| Bench::of_normals(model, 2).outputs(Pass::Predict));
        assert_eq!(before, after, "{name}");
    }
}

/// No kernel may read and write one buffer, or bind one for writing twice where the parts overlap.
#[test]
fn no_dispatch_reads_what_it_writes() {
    for (name, model) in GRAPHS {
        let bench = Bench::of_normals(model(), 5);
        for (pass, commands) in &bench.plan.passes {
            for command in commands {
                let Command::Dispatch(dispatch) = command else { continue };
                let writes = |buffer| dispatch.outputs.iter().any(|view| view.buffer == buffer);
                let clash = dispatch.inputs.iter().find(|view| writes(view.buffer));
                assert!(
                    clash.is_none(),
                    "{name}, {pass:?}, `{}`: {:?} reads and writes one buffer",
                    dispatch.node,
                    dispatch.kernel
                );
                for view in dispatch.inputs.iter().chain(&dispatch.outputs) {
                    assert!(view.offset.is_multiple_of(ALIGN), "{name}: {view:?} is not aligned");
                }
            }
        }
    }
}

/// Kernels that apply an activation on their own, by node.
fn activations(model: &Model, pass: Pass) -> Vec<String> {
    let plan = Bench::of_normals(model.clone(), 2).plan;
    let dispatches = plan.commands(pass).iter().filter_map(|command| match command {
        Command::Dispatch(dispatch) => Some((dispatch.kernel.name(), dispatch.node.clone())),
        Command::Exchange(_) => None,
    });
    dispatches.filter(|(kernel, _)| kernel == "activation.forward").map(|(_, node)| node).collect()
}

/// Only where no one else reads the value before the activation, and its slope follows from the value behind it.
#[test]
fn batch_norm_applies_the_activation_of_its_only_reader() {
    let model = activated_normalization();
    for pass in [Pass::Train, Pass::Evaluate, Pass::Predict] {
        assert_eq!(activations(&model, pass), ["activation_1", "activation_2", "activation_3"], "{pass:?}");
    }
    let text = Bench::of_normals(model, 2).plan.to_string();
    let fused = "batch_normalization: batch_norm.forward(";
    let line = text.lines().find(|line| line.trim_start().starts_with(fused)).unwrap();
    assert!(line.contains("-> batch_normalization.output [") && line.ends_with("ACTIVATION=4]"), "{line}");
}

/// A fused activation gives the CPU adapter's bits of one with a pass of its own.
#[test]
fn a_fused_activation_gives_the_bits_of_one_apart() {
    for activation in [Activation::Relu, Activation::LeakyRelu, Activation::Sigmoid, Activation::Tanh] {
        let model = |is_read: bool| {
            let mut g = Graph::new(&[5, 7]);
            let normal = g.add(BatchNormalization::new(), &[g.x]);
            let out = g.add(activation.layer(), &[normal]);
            let outputs = if is_read { vec![out, normal] } else { vec![out] };
            g.build(&outputs)
        };
        let [fused, apart] = [false, true].map(|is_read| Bench::of_normals(model(is_read), 9));
        assert_eq!(
            (activations(&fused.model, Pass::Train).len(), activations(&apart.model, Pass::Train).len()),
            (0, 1)
        );
        for pass in [Pass::Train, Pass::Predict] {
            assert_eq!(fused.outputs(pass)[0], apart.outputs(pass)[0], "{activation:?}, {pass:?}");
        }
    }
}

#[test]
fn every_gradient_is_exchanged_once() {
    for (_, model) in GRAPHS {
        Bench::of_normals(model(), 2).check_exchanges();
    }
}

/// Layers above a megabyte leave for the host one by one, while backward goes on.
#[test]
fn large_gradients_leave_in_several_buckets() {
    let mut wide = Sequential::new([300]);
    for _ in 0..6 {
        wide = wide.add(Dense::new(600)).add(Dense::new(300));
    }
    let bench = Bench::of_normals(wide.build(0).unwrap(), 1);
    bench.check_exchanges();
    let commands = bench.plan.commands(Pass::Train);
    let exchanges: Vec<usize> =
        (0..commands.len()).filter(|idx| matches!(commands[*idx], Command::Exchange(_))).collect();
    assert!(exchanges.len() > 3, "2.1 million gradients in {} buckets", exchanges.len());
    assert!(exchanges[0] < commands.len() / 2, "the first bucket leaves in the first half of the pass");
}

#[test]
fn gradients_as_halves_are_half_the_bytes() {
    let model = Sequential::new([300]).add(Dense::new(600)).add(Dense::new(300)).build(0).unwrap();
    let sent = |gradient_compression| {
        let objective = Objective::new(vec![Loss::MEAN_SQUARED_ERROR], Optimizer::sgd(0.1, 0.0));
        let plan = model.plan(&Objective { gradient_compression, ..objective }).unwrap();
        let commands = plan.commands(Pass::Train).iter();
        let lengths = commands.filter_map(|command| match command {
            Command::Exchange(exchange) => Some(exchange.sent().len.fixed),
            Command::Dispatch(_) => None,
        });
        lengths.sum::<u64>()
    };
    let (whole, halves) = (sent(GradientCompression::None), sent(GradientCompression::Fp16));
    assert_eq!(whole, model.layout().segments[0]);
    assert_eq!(halves, whole / 64 * 33);
}

#[test]
fn a_layout_is_aligned_and_segments_fit_a_binding() {
    let mut layout = Layout::default();
    let lens = [1, 64, 65, MAX_BINDING, 3, MAX_BINDING - 64, 64, 1];
    for (idx, len) in lens.iter().enumerate() {
        layout.add_parameter(format!("p{idx}"), vec![usize::try_from(*len).unwrap()]).unwrap();
    }
    let places: Vec<(u32, u64)> = layout.parameters.iter().map(|placed| (placed.segment, placed.offset)).collect();
    // The sixth fills the third segment to its end.
    assert_eq!(places, [(0, 0), (0, 64), (0, 128), (1, 0), (2, 0), (2, 64), (3, 0), (3, 64)]);
    assert_eq!(layout.segments, [256, MAX_BINDING, MAX_BINDING, 128]);
    assert_eq!(layout.n_parameters() as u64, lens.iter().sum::<u64>());
    assert!(layout.segments.iter().all(|len| *len <= MAX_BINDING && len.is_multiple_of(ALIGN)));

    layout.add_statistic("s0".into(), vec![5]).unwrap();
    layout.add_statistic("s1".into(), vec![7]).unwrap();
    assert_eq!((layout.statistics[1].offset, layout.statistics_len, layout.n_statistics()), (64, 128, 12));
}

#[test]
fn a_tensor_above_webgpu_s_binding_has_a_segment_of_its_own() {
    let mut layout = Layout::default();
    for (name, len) in [("a", 64), ("b", 3 * MAX_BINDING + 1), ("c", 64), ("d", 1)] {
        layout.add_parameter(name.into(), vec![usize::try_from(len).unwrap()]).unwrap();
    }
    let places: Vec<(u32, u64)> = layout.parameters.iter().map(|placed| (placed.segment, placed.offset)).collect();
    assert_eq!(places, [(0, 0), (1, 0), (2, 0), (2, 64)]);
    assert_eq!(layout.segments, [64, 3 * MAX_BINDING + 64, 128]);
}

#[test]
fn a_tensor_larger_than_any_binding_is_refused() {
    let error = Sequential::new([131_072]).add(Dense::new(4097)).build(0).unwrap_err();
    let needed = "parameter `dense/kernel` needs at most 536870848 elements (2 GiB, the largest binding of wgpu), \
                  but has 537001984 (2,148,007,936 bytes)\n  help: make the layer narrower, or split it into two layers and \
                  concatenate their outputs";
    assert_eq!(error.to_string(), needed);
}

fn tiny() -> Model {
    Sequential::new([2, 3]).add(Flatten::default()).add(Dense::new(4).activation(Activation::Relu)).build(0).unwrap()
}

#[test]
fn a_plan_reads_as_text() {
    let objective =
        Objective { clip_norm: 1.0, ..Objective::new(vec![Loss::MEAN_SQUARED_ERROR], Optimizer::sgd(0.1, 0.9)) };
    let text = tiny().plan(&objective).unwrap().to_string();
    let needed = "\
Train
  dense: dense.forward(input, parameters0, parameters0+64) -> dense.output \
    [m=rows n=4 k=6 a_offset=0 a_stride=6 b_offset=0 b_stride=4 y_offset=0 y_stride=4 splits=1 ACTIVATION=1]
  loss:dense: pointwise_loss.forward(dense.output, loss0.Target(0), loss0.SampleWeight(0)) -> loss0.Report(0), \
    loss:dense.gradient [rows=rows cols=4 positions=1 scale=loss_scale[0] smoothing=0.0 delta=0.0 gamma=0.0 positive=1.0 \
    negative=1.0 LANES=1 LOSS=0]
  dense: activation.backward(dense.output, loss:dense.gradient) -> dense.before_activation_gradient \
    [len=rows*4 ACTIVATION=1]
  dense: reduce.column_sums(dense.before_activation_gradient) -> dense.bias_partials [rows=rows cols=4 splits=128]
  dense: reduce.combine(dense.bias_partials) -> gradients0+64 [rows=0 cols=4 splits=128]
  dense: dense_backward_weights.backward_weights(input, dense.before_activation_gradient) -> gradients0 \
    [m=6 n=4 k=rows a_offset=0 a_stride=6 b_offset=0 b_stride=4 y_offset=0 y_stride=4 splits=1]
  exchange gradients0 (128): sum, before the update
Evaluate
  dense: dense.forward(input, parameters0, parameters0+64) -> dense.output \
    [m=rows n=4 k=6 a_offset=0 a_stride=6 b_offset=0 b_stride=4 y_offset=0 y_stride=4 splits=1 ACTIVATION=1]
  loss:dense: pointwise_loss.forward(dense.output, loss0.Target(0), loss0.SampleWeight(0)) -> loss0.Report(0), \
    loss:dense.gradient [rows=rows cols=4 positions=1 scale=loss_scale[0] smoothing=0.0 delta=0.0 gamma=0.0 positive=1.0 \
    negative=1.0 LANES=1 LOSS=0]
Predict
  dense: dense.forward(input, parameters0, parameters0+64) -> dense.output \
    [m=rows n=4 k=6 a_offset=0 a_stride=6 b_offset=0 b_stride=4 y_offset=0 y_stride=4 splits=1 ACTIVATION=1]
  dense: add.copy(dense.output) -> dense.result [len=rows*4]
Update
  update: clip.norm(gradients0) -> update.norm_partials [len=128 splits=1 max_norm=1.0 parts=32 factor=0.0 update=update]
  update: clip.combine(update.norm_partials) -> update.control [len=0 splits=0 max_norm=1.0 parts=32 factor=0.0 update=update]
  update: sgd.update(gradients0, update.control) -> parameters0, update.State(0, 0) \
    [len=128 learning_rate=hyper[0] weight_decay=0.0 momentum=0.9 l2_decay=0.0]
";
    assert_eq!(text, needed);
}

#[test]
fn a_summary_is_a_table() {
    let needed = "\
layer (type)       output shape   parameters  reads    bytes/row
────────────────────────────────────────────────────────────────
input (input)      [batch, 2, 3]           0                  24
flatten (Flatten)  [batch, 6]              0  input           24
dense (Dense)      [batch, 4]             28  flatten         16
28 trainable parameters (0.1 kB), 0 moving statistics";
    let summary = tiny().summary();
    let lines: Vec<&str> = summary.lines().map(str::trim_end).collect();
    assert_eq!(lines.join("\n"), needed);
    let shared = shared_layer().summary();
    let uses: Vec<&str> = shared.lines().filter(|line| line.starts_with("shared")).collect();
    assert!(uses[0].contains(" 12 ") && uses[1..].iter().all(|line| line.contains(" shared ")), "{shared}");
}

#[test]
fn names_and_tensors_are_found() {
    let model = shared_layer();
    assert_eq!(model.tensor("shared/kernel").unwrap().len(), 9);
    assert!(model.tensor("shared:1/kernel").is_none(), "a second use has no weights of its own");
    let bench = Bench::of_normals(model, 2);
    assert!(bench.plan.find(Role::Output(0)).is_some() && bench.plan.find(Role::Output(1)).is_none());
}

#[test]
fn a_layer_without_parameters_has_statistics_of_one_width_too() {
    let mut graph = ModelBuilder::new();
    let (narrow, wide) = (graph.input("narrow", [4]), graph.input("wide", [5]));
    let norm = graph.layer("norm", BatchNormalization { center: false, scale: false, ..BatchNormalization::new() });
    let outputs = [graph.call(norm, &[narrow]), graph.call(norm, &[wide])];
    let error = graph.build(&outputs, 0).err().unwrap().to_string();
    assert!(error.contains("needs inputs of the same width at each use"), "{error}");
}

#[test]
fn a_layer_that_is_used_again_has_the_settings_that_it_has() {
    for more in ["type = \"Dense\"", "units = 3", "name = \"b\""] {
        let text = format!(
            "input = [4]\nlayers = [{{ type = \"Dense\", units = 4, name = \"a\" }}, {{ reuse = \"a\", {more} }}]"
        );
        let config: manyhands::model::ModelConfig = toml::from_str(&text).unwrap();
        let error = config.build(0).err().unwrap().to_string();
        assert!(error.contains("reuses `a` and can have only `inputs` and `reverse`, but also has `"), "{error}");
    }
}

#[test]
fn names_that_a_file_could_not_tell_apart_are_refused() {
    let named = |name: &str| Sequential::new([4]).add_named(name, Dense::new(2)).build(0).map(|_| ()).unwrap_err();
    for name in ["", "a/b", "a:1", "input"] {
        assert!(named(name).to_string().contains("needs to be unique and without `/` or `:`"), "`{name}`");
    }
    for name in ["optimizer", "best"] {
        let error = named(name).to_string();
        assert!(error.starts_with(&format!("layer `{name}` needs another name")), "{error}");
    }
}
