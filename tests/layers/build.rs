//! Are impossible sizes refused, unneeded layers left out, and 100,000 layers built in time that grows with their number? Needs the CPU alone.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test stands outside the engine: it panics, prints and reads the clock"
)]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use manyhands::data::InMemory;
use manyhands::layers::{
    Activation, Add, AveragePooling2D, BatchNormalization, Conv2D, Dense, Dropout, Flatten, Layer, MaxPooling2D,
    Padding, Relu, Reshape,
};
use manyhands::model::ModelConfig;
use manyhands::model::Objective;
use manyhands::{Loss, Model, ModelBuilder, Optimizer, Predictor, Sequential, Shape};
use manyhands_engine::plan::{Pass, Role};
use ndarray::arr2;

fn objective() -> Objective {
    Objective::new(vec![Loss::MEAN_SQUARED_ERROR], Optimizer::adam(1e-3))
}

fn refused(shape: impl Into<Shape>, layer: impl Layer + 'static) -> String {
    Sequential::new(shape).add(layer).build(0).unwrap_err().to_string()
}

#[test]
fn sizes_whose_product_does_not_fit_are_refused_by_the_layer() {
    let huge = 1usize << 31;
    let side = [huge, huge];
    let image = [8, 8, 1];
    let conv = |kernel_size, strides, padding| Conv2D { strides, padding, ..Conv2D::new(4, kernel_size) };
    let named = [
        (
            refused(image, conv(side, [1, 1], Padding::Same)),
            "layer 0 `conv2d` (Conv2D) needs a window of at most 32 × 32",
        ),
        (
            refused(image, conv([1_000_000, 1], [1, 1], Padding::Same)),
            "layer 0 `conv2d` (Conv2D) needs a window of at most",
        ),
        (refused(image, conv(side, [1, 1], Padding::Valid)), "layer 0 `conv2d` (Conv2D) needs an image of at least"),
        (refused(image, conv([1, 1], side, Padding::Same)), "layer 0 `conv2d` (Conv2D) needs strides of at most"),
        (
            refused(image, conv([usize::MAX, 1], [usize::MAX, 1], Padding::Same)),
            "layer 0 `conv2d` (Conv2D) needs strides",
        ),
        (
            refused(image, Conv2D::new(usize::MAX, [3, 3])),
            "layer 0 `conv2d` (Conv2D) needs an output of 1 to 268435456",
        ),
        (
            refused([1, 1, 1 << 20], Conv2D::new(1 << 10, [1, 1])),
            "parameter `conv2d/kernel` needs at most 536870848 elements",
        ),
        (
            refused(image, MaxPooling2D { pool_size: side, strides: None, padding: Padding::Same }),
            "layer 0 `max_pooling2d` (MaxPooling2D) needs strides of at most",
        ),
        (
            refused(image, AveragePooling2D { pool_size: side, strides: Some([1, 1]), padding: Padding::Same }),
            "layer 0 `average_pooling2d` (AveragePooling2D) needs a window of at most",
        ),
        (refused([4], Dense::new(usize::MAX)), "layer 0 `dense` (Dense) needs an output of 1 to 268435456 elements"),
        (refused([3, 2], Dense::new(usize::MAX / 2)), "layer 0 `dense` (Dense) needs an output of 1 to"),
        // 2^32 * 2^32 * 4 wraps to 0, and 2^63 * 2 + 4 axes of one to 4.
        (
            refused([4], Reshape::new([huge, huge, 4])),
            "layer 0 `reshape` (Reshape) needs 18446744073709551615 elements",
        ),
        (
            refused([0x8000_0000_0000_0001usize, 2, 2], Flatten::default()),
            "input `input` needs between 1 and 268435456",
        ),
        (refused([usize::MAX], Dense::new(1)), "input `input` needs between 1 and 268435456 elements a row"),
    ];
    for (error, needed) in named {
        assert!(error.starts_with(needed) && error.contains("\n  help: "), "{error}\n  needed: {needed}");
    }
}

#[test]
fn a_file_with_sizes_that_do_not_fit_is_refused() {
    let config = |layer: &str| format!("input = [8, 8, 1]\nlayers = [{layer}]\n");
    for layer in [
        r#"{ type = "Conv2D", filters = 1, kernel_size = [2147483648, 2147483648], padding = "same" }"#,
        r#"{ type = "Reshape", target_shape = [9223372036854775807, 9223372036854775807] }"#,
        r#"{ type = "Dense", units = 9223372036854775807 }"#,
    ] {
        let config: ModelConfig = toml::from_str(&config(layer)).unwrap();
        let error = config.build(0).unwrap_err().to_string();
        assert!(error.starts_with("layer 0 `"), "{error}");
    }
}

/// Windows that are larger than their image, as nets for small images have them, still build.
#[test]
fn a_window_larger_than_its_image_is_fine() {
    let model = Sequential::new([1, 2, 3]).add(Conv2D::new(4, [7, 7]).same()).build(0).unwrap();
    assert_eq!(model.outputs()[0].1.to_string(), "[batch, 1, 2, 4]");
}

fn with_unused(unused: bool) -> (ModelBuilder, manyhands::model::TensorRef) {
    let mut graph = ModelBuilder::new();
    let x = graph.input("x", [6]);
    let shared = graph.layer("shared", Dense::new(6).activation(Activation::Tanh));
    if unused {
        let side = graph.call(shared, &[x]);
        let side = graph.add_named("unused", Dense::new(50), &[side]);
        graph.add_named("unused_norm", BatchNormalization::new(), &[side]);
    }
    let hidden = graph.add_named("hidden", Dense::new(5).activation(Activation::Relu), &[x]);
    let back = graph.add_named("back", Dense::new(6), &[hidden]);
    let y = graph.call(shared, &[back]);
    (graph, y)
}

#[test]
fn layers_that_no_output_needs_are_left_out() {
    let (graph, y) = with_unused(true);
    let model = graph.build(&[y], 3).unwrap();
    let (graph, y) = with_unused(false);
    let lean = graph.build(&[y], 3).unwrap();
    assert_eq!(model.config(), lean.config());
    assert_eq!(model.layout(), lean.layout());
    assert_eq!(model.weights, lean.weights);
    assert_eq!(model.outputs()[0].0, "shared");
    let text = model.plan(&objective()).unwrap().to_string();
    assert_eq!(text, lean.plan(&objective()).unwrap().to_string());
    let summary = model.summary();
    let needed = "2 left out, since no output needs them: `unused` (Dense), `unused_norm` (BatchNormalization)";
    assert!(summary.trim_end().ends_with(needed), "{summary}");
    assert!(!lean.summary().contains("left out"));
    // What is wrong in them is still said.
    let mut graph = ModelBuilder::new();
    let x = graph.input("x", [6]);
    let y = graph.add(Dense::new(2), &[x]);
    graph.add_named("wrong", Conv2D::new(1, [3, 3]), &[y]);
    assert!(graph.build(&[y], 0).unwrap_err().to_string().starts_with("layer 1 `wrong` (Conv2D) needs an input"));
}

/// A file as `aa0a91b` wrote it: with the weights of layers that no output needs.
#[test]
fn a_file_that_holds_left_out_layers_loads() {
    let (graph, y) = with_unused(false);
    let model = graph.build(&[y], 3).unwrap();
    let bytes = model.to_bytes().unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let mut config: serde_json::Value =
        serde_json::from_str(&header.metadata().as_ref().unwrap()["manyhands.model"]).unwrap();
    let unused = serde_json::json!({"name": "unused", "type": "Dense", "inputs": ["hidden"], "units": 1});
    config["layers"].as_array_mut().unwrap().push(unused);
    let zeros = [0u8; 20];
    let view = |shape: &[usize]| {
        let bytes = &zeros[..4 * shape.iter().product::<usize>()];
        safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.to_vec(), bytes).unwrap()
    };
    let mut all = tensors.tensors();
    all.push(("unused/kernel".into(), view(&[5, 1])));
    all.push(("unused/bias".into(), view(&[1])));
    let file = |all: &Vec<(String, safetensors::tensor::TensorView<'_>)>| {
        let metadata = [("manyhands.model".to_owned(), config.to_string())].into_iter().collect();
        safetensors::serialize(all.clone(), Some(metadata)).unwrap()
    };
    let loaded = Model::from_bytes(&file(&all), "old", &[]).unwrap();
    assert_eq!(loaded.weights, model.weights);
    assert_eq!(loaded.config(), model.config());
    all.push(("nobody/bias".into(), view(&[1])));
    let error = Model::from_bytes(&file(&all), "old", &[]).unwrap_err().to_string();
    assert!(error.contains("tensor `nobody/bias`, belongs to no layer"), "{error}");
}

#[test]
fn memory_of_left_out_layers_is_not_taken() {
    let mut graph = ModelBuilder::new();
    let x = graph.input("x", [64]);
    let y = graph.add(Dense::new(2), &[x]);
    // 100 MB of activations a row, and 128 MB of weights each, if they ran.
    for _ in 0..100 {
        let wide = graph.add(Dense::new(1 << 18), &[x]);
        graph.add(Dropout::new(0.5), &[wide]);
    }
    let model = graph.build(&[y], 0).unwrap();
    assert_eq!(model.n_parameters(), 130);
    let plan = model.plan(&objective()).unwrap();
    let elements: u64 = plan.buffers.iter().map(|buffer| buffer.len.at(1)).sum();
    assert!(elements < 10_000, "{elements}");
}

/// A chain of blocks as in a residual net, with everything that needs a pass over all nodes.
fn deep(n_layers: usize) -> (ModelBuilder, manyhands::model::TensorRef) {
    let mut graph = ModelBuilder::new();
    let mut x = graph.input("x", [2]);
    let shared = graph.layer("shared", Dense::new(2).no_bias());
    for _ in 0..n_layers / 5 {
        let inner = graph.add(Dense::new(2), &[x]);
        let inner = graph.add(BatchNormalization::new(), &[inner]);
        let inner = graph.add(Relu::default(), &[inner]);
        let inner = graph.call(shared, &[inner]);
        x = graph.add(Add::default(), &[x, inner]);
    }
    (graph, x)
}

/// Seconds for which this thread has computed, where the system tells: what else the machine does is no matter then.
fn computed_s() -> f64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = spent.and_then(|spent| spent.split(' ').next()?.parse::<f64>().ok());
    ns.map_or_else(|| Instant::now().duration_since(*START).as_secs_f64(), |ns| ns / 1e9)
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What is done to a model of so many layers, and the seconds that each takes.
fn done_to(n_layers: usize) -> Vec<(&'static str, f64)> {
    let mut done = Vec::new();
    let mut last_s = computed_s();
    let mut note = |what| {
        let now_s = computed_s();
        done.push((what, now_s - std::mem::replace(&mut last_s, now_s)));
    };
    let (graph, y) = deep(n_layers);
    let model = graph.build(&[y], 0).unwrap();
    note("build");
    assert_eq!(model.layout().parameters.len(), n_layers / 5 * 4 + 1);
    let plan = model.plan(&objective()).unwrap();
    note("plan");
    assert!(plan.commands(Pass::Train).len() > n_layers * 3);
    assert_eq!(plan.moving.len(), n_layers / 5);
    assert!(plan.find(Role::Statistics).is_some());
    let text = plan.to_string();
    note("plan as text");
    assert!(text.lines().count() > n_layers * 3);
    let summary = model.summary();
    note("summary");
    assert!(summary.lines().count() > n_layers);
    let bytes = model.to_bytes().unwrap();
    note("to bytes");
    let loaded = Model::from_bytes(&bytes, "deep", &[]).unwrap();
    note("from bytes");
    assert_eq!(loaded.weights, model.weights);
    let text = toml::to_string(&model.config()).unwrap();
    note("to TOML");
    let read: ModelConfig = toml::from_str(&text).unwrap();
    let read = read.build(0).unwrap();
    note("from TOML");
    assert_eq!(read.layout(), model.layout());
    done
}

/// Five times the layers take about five times as long; what is quadratic would take 25 times.
#[test]
fn a_hundred_thousand_layers_take_five_times_as_long_as_twenty_thousand() {
    let (some, many) = (done_to(20_000), done_to(100_000));
    for ((what, some_s), (_, many_s)) in some.into_iter().zip(many) {
        println!("{what}: {some_s:.2} s, {many_s:.2} s");
        assert!(many_s < 10.0 * some_s.max(0.02), "{what}: {some_s} s for 20,000 layers, {many_s} s for 100,000");
    }
}

/// Depth is no recursion: a chain of a hundred thousand also runs, and its activations share memory.
#[test]
fn a_deep_chain_predicts() {
    let mut model = Sequential::new([1]);
    for _ in 0..20_000 {
        model = model.add(Dense::new(1)).add(Relu::default());
    }
    let mut model = model.build(0).unwrap();
    model.weights.parameters.iter_mut().for_each(|segment| segment.fill(1.0));
    for idx in 0..20_000 {
        let name = if idx == 0 { "dense/bias".to_owned() } else { format!("dense_{idx}/bias") };
        model.tensor_mut(&name).unwrap().fill(0.0);
    }
    let data = InMemory::without_targets(arr2(&[[3.0], [5.0]])).unwrap();
    let start = Instant::now();
    let mut predictor = Predictor::new(model).adapters("cpu").unwrap();
    assert_eq!(predictor.predict(data, 2).unwrap()[0].as_slice(), Some(&[3.0, 5.0][..]));
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}
