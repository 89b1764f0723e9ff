//! Does each layer keep one contract: shapes, numbers of parameters, golden values, difference quotients, files, splits over
//! adapters, messages and settings? A row is a layer. Needs the CPU alone.
//!
//! Each input of the layer under test comes from a table: `Dense` without bias on a row that says which row it is
//! (one 1, else 0). So the table is the input, and its gradient is that of the input, exactly and for any split.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stands outside the engine: it panics")]

use std::collections::BTreeSet;
use std::sync::Arc;

use manyhands::data::Batch;
use manyhands::layers::LAYERS;
use manyhands::{Loss, Model, ModelConfig, SplitMode};
use manyhands_engine::plan::{Pass, Role};
use serde_json::{Map, Value, json};

use crate::bench::{Bench, normal, spread};
use crate::close::assert_close;
use crate::golden::{Case, Golden};
use crate::rows::{Across, Row, Truth, rows};
use crate::table::{self, Settings, config, settings};

/// Layers whose slope jumps: a difference quotient must not step over a kink.
const KINKED: &[&str] = &[
    "ELU",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "LeakyReLU",
    "MaxPooling1D",
    "MaxPooling2D",
    "Maximum",
    "Minimum",
    "PReLU",
    "ReLU",
];

/// A layer behind which there is no mask: a loss takes none that a layer computes.
fn unmasking(shape: &[usize]) -> (&'static str, Settings) {
    ("Reshape", Map::from_iter([("target_shape".to_owned(), json!(shape))]))
}

/// A name for messages.
fn name(row: &Row) -> String {
    format!("{} {:?}", row.kind, row.settings)
}

impl Row {
    fn layer(&self) -> Vec<(&str, Settings)> {
        let mut layers = vec![(self.kind, settings(self.settings))];
        if self.kind == "Masking" {
            layers.push(unmasking(self.output));
        }
        layers
    }

    /// The layer behind its tables, all filled with normal numbers, or with spread ones where it has kinks.
    fn model(&self, rows: usize) -> Model {
        let inputs: Vec<Vec<usize>> = self.inputs.iter().map(|shape| shape.to_vec()).collect();
        let mut model = table::config(&self.layer(), &inputs, rows).build(3).unwrap();
        let names: Vec<String> = model.layout().parameters.iter().map(|placed| placed.name.clone()).collect();
        for (seed, name) in (50..).zip(names) {
            let values = model.tensor_mut(&name).unwrap();
            let is_spread = name.starts_with("in") && KINKED.contains(&self.kind);
            let fill = if is_spread { spread } else { normal };
            values.copy_from_slice(&fill(values.len(), seed));
            if name.starts_with("it/") && ["MultiHeadAttention", "GroupQueryAttention"].contains(&self.kind) {
                // With larger ones, slopes change within the step of a quotient.
                values.iter_mut().for_each(|value| *value *= 0.5);
            }
            let takes_indices = self.kind.ends_with("Embedding") && self.settings.starts_with("input_dim");
            if name.starts_with("in") && takes_indices && !self.settings.contains("reverse") {
                // Far from the next index.
                values.iter_mut().for_each(|value| *value = value.abs().floor() + 0.5);
            }
        }
        model
    }

    /// The model in training, against normal targets.
    fn bench(&self, rows: usize) -> Bench {
        let model = self.model(rows);
        let targets = normal(rows * model.outputs()[0].1.len(), 9);
        bench(model, rows, targets)
    }
}

pub fn bench(model: Model, rows: usize, targets: Vec<f32>) -> Bench {
    let batch = Batch { rows, inputs: vec![table::rows(rows)], targets: vec![targets.into()], sample_weights: None };
    Bench::new(model, vec![Loss::MEAN_SQUARED_ERROR], batch)
}

#[test]
fn every_layer_has_a_row() {
    let told: BTreeSet<&str> = rows().map(|row| row.kind).collect();
    let known: BTreeSet<&str> = LAYERS.iter().map(|entry| entry.kind).collect();
    assert_eq!(told, known, "rows of this table (left) and `layers::LAYERS` (right)");
}

#[test]
fn shapes_and_numbers_of_parameters() {
    for row in rows() {
        let model = row.model(2);
        let mine = |name: &str| name.starts_with("it/");
        let layout = model.layout();
        let count = |list: &[manyhands_engine::plan::PlacedTensor]| -> usize {
            list.iter().filter(|placed| mine(&placed.name)).map(manyhands_engine::plan::PlacedTensor::len).sum()
        };
        assert_eq!(model.outputs()[0].1.axes(), row.output, "{}: output shape", name(row));
        let numbers = [count(&layout.parameters), count(&layout.statistics)];
        assert_eq!(numbers, row.numbers, "{}: parameters and moving statistics", name(row));
    }
}

#[test]
fn gradients_are_difference_quotients() {
    for row in rows() {
        let mut bench = row.bench(5);
        let upstream = normal(bench.outputs(Pass::Train)[0].len(), 77);
        let mut machine = bench.machine();
        bench.run_with(&mut machine, Pass::Train, |_, _| Some(upstream.clone()));
        let gradients: Vec<(String, Vec<f32>)> = bench
            .parameters()
            .into_iter()
            .map(|name| (name.clone(), bench.gradient(&machine, &name).to_vec()))
            .collect();
        println!("{}", name(row));
        bench.check_quotients(&gradients, 40, |bench| {
            let output = bench.outputs(Pass::Train).remove(0);
            output.iter().zip(&upstream).map(|(y, dy)| f64::from(*y) * f64::from(*dy)).sum()
        });
    }
}

#[test]
fn a_saved_layer_is_the_same_to_the_bit() {
    for row in rows() {
        let mut model = row.model(3);
        // Statistics that are not their initial values.
        let moved = normal(model.weights.statistics.len(), 8).iter().map(|value| value * value + 0.5).collect();
        model.weights.statistics = moved;
        let bytes = model.to_bytes().unwrap();
        let loaded = Model::from_bytes(&bytes, "file", &[]).unwrap();
        assert_eq!(loaded.config(), model.config(), "{}", name(row));
        let bits = |model: &Model| -> Vec<u32> {
            model.tensors().flat_map(|(.., values)| values.iter().map(|value| value.to_bits())).collect()
        };
        assert_eq!(bits(&loaded), bits(&model), "{}", name(row));
        assert_eq!(loaded.to_bytes().unwrap(), bytes, "{}: file of the loaded model", name(row));
        let predict = |model: Model| bench(model, 3, vec![0.0; 3 * row.output.iter().product::<usize>()]);
        let [before, after] = [model, loaded].map(|model| predict(model).outputs(Pass::Predict));
        assert_eq!(before, after, "{}: predictions", name(row));
    }
}

/// What the form computes is asked of onnxruntime by `python/tests/test_onnx.py`.
#[test]
fn every_layer_has_an_onnx_form() {
    for row in rows() {
        let model = row.model(2);
        // Low-rank factors are merged into their kernels.
        let mut merged = model.clone();
        merged.merge_lora().unwrap();
        let weights: usize = merged.tensors().map(|(.., values)| 4 * values.len()).sum();
        let bytes = model.to_onnx().unwrap_or_else(|error| panic!("{}: {error}", name(row)));
        assert!(bytes.starts_with(b"\x08\x08\x12\x09manyhands"), "{}", name(row));
        assert!((weights..weights + 40_000).contains(&bytes.len()), "{}: {} bytes", name(row), bytes.len());
    }
}

/// Splits of a batch over adapters, and parts in which each computes its rows. Some adapters get nothing.
fn splits() -> Vec<(usize, SplitMode, u32)> {
    vec![
        (1, SplitMode::Even, 1),
        (1, SplitMode::Even, 3),
        (2, SplitMode::Even, 1),
        (3, SplitMode::Even, 2),
        (2, SplitMode::Fixed(vec![0.0, 1.0]), 1),
        (3, SplitMode::Fixed(vec![5.0, 0.0, 1.0]), 2),
    ]
}

#[test]
fn a_split_batch_gives_the_result_of_one_adapter() {
    for row in rows().filter(|row| row.across == Across::Nothing) {
        let whole = row.bench(7);
        for rows in [1, 2, 7] {
            let mut bench = whole.first_rows(rows);
            let (needed, state) = bench.step(1, SplitMode::Even);
            for (n_adapters, split, parts) in splits() {
                // Statistics of the whole batch let shards wait for each other: none may stand behind another.
                bench.accumulation_steps = if row.numbers[1] > 0 { 1 } else { parts };
                let what = format!("{}, {rows} rows over {n_adapters} adapters, {split:?}, {parts} parts", name(row));
                let (report, split_state) = bench.step(n_adapters, split);
                assert!(report.is_applied, "{what}");
                assert_close(&format!("{what}: report"), &report.reports[0], &needed.reports[0], 1e-5);
                let (got, needed) = (&split_state.weights, &state.weights);
                assert_close(&format!("{what}: weights"), &got.parameters.concat(), &needed.parameters.concat(), 1e-5);
                assert_close(&format!("{what}: statistics"), &got.statistics, &needed.statistics, 1e-5);
            }
        }
    }
}

/// Where values follow the statistics of a shard, the moving statistics still follow the whole batch.
#[test]
fn moving_statistics_do_not_depend_on_the_split() {
    for row in rows().filter(|row| row.model(2).has_batch_statistics()) {
        let bench = row.bench(25);
        let (_, needed) = bench.step(1, SplitMode::Even);
        assert_ne!(needed.weights.statistics, bench.model.weights.statistics, "{}: they move", name(row));
        for n_adapters in [2, 3] {
            let (report, state) = bench.step(n_adapters, SplitMode::Even);
            assert_eq!(report.shards.len(), n_adapters, "{}: adapters with rows", name(row));
            let what = format!("{} over {n_adapters} adapters: moving statistics", name(row));
            assert_close(&what, &state.weights.statistics, &needed.weights.statistics, 1e-5);
        }
    }
}

#[test]
fn what_a_layer_refuses_it_says() {
    for row in rows() {
        for refusal in row.refuses {
            let layer = [(row.kind, settings(refusal.settings))];
            let inputs: Vec<Vec<usize>> = refusal.inputs.iter().map(|shape| shape.to_vec()).collect();
            let layer_settings = if row.kind == "Activation" { row.layer() } else { layer.to_vec() };
            let needed = format!("layer 0 `it` ({}) {}", row.kind, refusal.says);
            match table::bare(&layer_settings, &inputs).build(0) {
                Ok(_) => panic!("{} takes {:?} {:?}", row.kind, refusal.settings, refusal.inputs),
                Err(error) => assert_eq!(error.to_string(), needed),
            }
        }
    }
    let silent: Vec<&str> = LAYERS
        .iter()
        .map(|entry| entry.kind)
        .filter(|kind| rows().all(|row| row.kind != *kind || row.refuses.is_empty()))
        .collect();
    assert!(silent.is_empty(), "no row says what these refuse: {silent:?}");
}

#[test]
fn settings_go_through_json_and_toml() {
    for row in rows() {
        let model = row.model(2);
        let told = model.config();
        let json: ModelConfig = serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
        let toml: ModelConfig = toml::from_str(&toml::to_string(&told).unwrap()).unwrap();
        for (form, read) in [("JSON", json), ("TOML", toml)] {
            assert_eq!(read.build(0).unwrap().config(), told, "{}: {form}", name(row));
        }
        // What the row sets is what the model says of itself.
        let it = told.layers.iter().find(|layer| layer.name.as_deref() == Some("it")).unwrap();
        for (key, value) in settings(row.settings) {
            let (got, value) = (&it.settings[&key], value);
            let is_close = match (got.as_f64(), value.as_f64(), value.as_object()) {
                (Some(got), Some(value), _) => (got - value).abs() < 1e-6,
                // A layer within the layer, which says all its settings.
                (_, _, Some(inner)) => inner.iter().all(|(key, value)| got[key] == *value),
                _ => *got == value,
            };
            assert!(is_close, "{}: `{key}` is {got}", name(row));
        }
    }
}

#[test]
fn unknown_settings_are_refused() {
    for row in rows() {
        let mut layer = row.layer();
        layer[0].1.insert("untis".into(), json!(1));
        let inputs: Vec<Vec<usize>> = row.inputs.iter().map(|shape| shape.to_vec()).collect();
        let error =
            table::bare(&layer, &inputs).build(0).err().unwrap_or_else(|| panic!("{} takes `untis`", name(row)));
        assert!(error.to_string().contains("key `untis`, is not known here"), "{error}");
    }
}

#[test]
fn settings_that_no_kernel_can_serve_are_refused() {
    use manyhands::Sequential;
    use manyhands::layers::{Conv2D, LeakyRelu};
    let leaky = Sequential::new([3]).add(LeakyRelu { negative_slope: -0.5 }).build(0).err().unwrap().to_string();
    assert!(leaky.contains("needs `negative_slope` of at least 0, but got -0.5"), "{leaky}");
    let conv = Sequential::new([600, 600, 1]).add(Conv2D::new(1, [1, 1]).strides([300, 300])).build(0);
    let conv = conv.err().unwrap().to_string();
    assert!(conv.contains("needs strides whose product is at most 65535, but got [300, 300]"), "{conv}");
}

/// The forms in which a golden layer of Keras can be written here.
fn forms(case: &Case) -> Vec<Vec<(&'static str, Settings)>> {
    let layer = case.facts["layer"].as_str().unwrap();
    let mut config: Settings = case.facts["config"].as_object().unwrap().clone();
    if matches!(layer, "BatchNormalization" | "GroupNormalization" | "Softmax") {
        config.remove("axis");
    }
    if matches!(layer, "LSTM" | "GRU" | "SimpleRNN" | "Bidirectional") {
        return vec![vec![(LAYERS.iter().find(|entry| entry.kind == layer).unwrap().kind, config)]];
    }
    // What Keras writes as no axis.
    config.get_mut("axis").into_iter().filter(|axis| axis.is_null()).for_each(|axis| *axis = json!([]));
    let activation = config.remove("activation").unwrap_or(Value::Null);
    let activation_name = activation.as_str().or(activation["name"].as_str()).unwrap_or("linear").to_owned();
    let is_approximate = activation["approximate"] == true;
    let with = |key: &str, value: Value| Map::from_iter([(key.to_owned(), value)]);
    let as_activation = |name: &str| vec![("Activation", with("activation", json!(name)))];
    let known = LAYERS.iter().find(|entry| entry.kind == layer).map_or("", |entry| entry.kind);
    match layer {
        "Dense" | "Conv2D" if is_approximate => {
            vec![vec![(known, config), ("GELU", with("approximate", json!(true)))]]
        }
        "Conv1D" | "Conv2D" | "Conv2DTranspose" | "Dense" | "DepthwiseConv2D" | "SeparableConv2D" => {
            config.insert("activation".into(), json!(activation_name));
            vec![vec![(known, config)]]
        }
        "Activation" => match activation_name.as_str() {
            "gelu" if is_approximate => vec![vec![("GELU", with("approximate", json!(true)))]],
            "gelu" => vec![as_activation("gelu"), vec![("GELU", Settings::new())]],
            "sigmoid" => vec![as_activation("sigmoid"), vec![("Sigmoid", Settings::new())]],
            "tanh" => vec![as_activation("tanh"), vec![("Tanh", Settings::new())]],
            other => vec![as_activation(other)],
        },
        "ReLU" if config.is_empty() => vec![vec![(known, config)], as_activation("relu")],
        "Masking" => vec![vec![(known, config), unmasking(&case.tensor("output").shape[1..])]],
        "Softmax" => vec![vec![(known, config)], as_activation("softmax")],
        "Flatten" => {
            let axes = &case.tensor("output").shape[1..];
            vec![vec![(known, config)], vec![("Reshape", with("target_shape", json!(axes)))]]
        }
        "BatchNormalization" => {
            let mut synchronized = config.clone();
            synchronized.insert("synchronized".into(), json!(true));
            let mut forms = vec![vec![(known, config.clone())], vec![(known, synchronized)]];
            if case.facts["training"] == false {
                config.insert("fixed_statistics".into(), json!(true));
                forms.push(vec![(known, config)]);
            }
            forms
        }
        _ => vec![vec![(known, config)]],
    }
}

/// The model of a golden case, with its inputs, parameters and statistics in it.
fn golden_bench(case: &Case, layers: &[(&'static str, Settings)]) -> Bench {
    let inputs: Vec<Vec<usize>> = case.with_prefix("input").values().map(|input| input.shape[1..].to_vec()).collect();
    let rows = case.tensor("output").shape[0];
    let mut model = config(layers, &inputs, rows).build(0).unwrap();
    let mut set = |name: String, values: &[f32]| model.tensor_mut(&name).unwrap().copy_from_slice(values);
    case.with_prefix("input").iter().for_each(|(idx, input)| set(format!("in{idx}/kernel"), &input.values));
    for tensors in [case.with_prefix("parameter"), case.with_prefix("statistic")] {
        tensors.iter().for_each(|(name, tensor)| set(format!("it/{name}"), &tensor.values));
    }
    bench(model, rows, vec![0.0; case.values("output").len()])
}

/// Golden values are rounded to f32, and the sums of the fast kernels run in f32. What is as large as the inputs, such as
/// the mean of a batch, is known only to within a rounding of that size.
fn tolerance(case: &Case) -> f32 {
    let inputs = case.with_prefix("input");
    let largest = inputs.values().flat_map(|input| &input.values).fold(0.0, |largest: f32, x| largest.max(x.abs()));
    1e-5 + largest * f32::EPSILON / 2.0
}

fn check_golden(case: &Case, layers: &[(&'static str, Settings)]) {
    let what = |role: &str| format!("golden case `{}` as {layers:?}: {role}", case.name);
    let (mut bench, tolerance) = (golden_bench(case, layers), tolerance(case));
    let is_normalization = layers[0].0 == "BatchNormalization";
    if case.facts["training"] == false {
        assert_close(&what("output at inference"), &bench.outputs(Pass::Predict)[0], case.values("output"), tolerance);
        if is_normalization && !layers[0].1.contains_key("fixed_statistics") {
            // Training normalizes by the batch, but for a layer that is frozen or has fixed statistics.
            bench.model.freeze(["it"]).unwrap();
            bench.plan = Arc::new(bench.model.plan(&bench.objective).unwrap());
        }
    }
    let is_frozen = bench.model.is_trainable("it") == Some(false);
    assert_close(&what("output in training"), &bench.outputs(Pass::Train)[0], case.values("output"), tolerance);
    let mut machine = bench.machine();
    bench.run_with(&mut machine, Pass::Train, |_, _| Some(case.values("output_gradient").to_vec()));
    for (name, needed) in case.with_prefix("gradient").into_iter().filter(|_| !is_frozen) {
        let got = bench.gradient(&machine, &format!("it/{name}"));
        assert_close(&what(&format!("gradient of `{name}`")), got, &needed.values, tolerance);
    }
    for (idx, needed) in case.with_prefix("input_gradient") {
        let got = bench.gradient(&machine, &format!("in{idx}/kernel"));
        assert_close(&what(&format!("gradient of input {idx}")), got, &needed.values, tolerance);
    }
    bench.run(&mut machine, Pass::Update);
    for (name, needed) in case.with_prefix("updated") {
        let layout = bench.model.layout();
        let placed = &layout.statistics[layout.statistic(&format!("it/{name}")).unwrap()];
        assert_close(&what(name), &machine.read(Role::Statistics)[placed.range()], &needed.values, tolerance);
    }
}

#[test]
fn layers_give_the_golden_values() {
    let mut seen = BTreeSet::new();
    for case in crate::golden::LAYERS.iter().flat_map(|stem| Golden::open(stem).cases()) {
        for layers in forms(&case) {
            check_golden(&case, &layers);
            seen.insert(layers[0].0);
        }
    }
    for row in rows() {
        let has_golden = seen.contains(row.kind);
        assert_eq!(has_golden, row.truth == Truth::Golden, "{}: are there golden values?", name(row));
    }
}

/// Batch normalization over 8 rows on three adapters, of which one gets none: the golden values are of the whole.
#[test]
fn batch_statistics_of_three_adapters_are_golden() {
    for case in Golden::open("sync_batch_norm").cases() {
        let layers = forms(&case).remove(1);
        let split: Vec<f64> =
            case.facts["split"].as_array().unwrap().iter().map(|rows| rows.as_f64().unwrap()).collect();
        let mut bench = golden_bench(&case, &layers);
        // With the loss Σ (y - t)² · cols / 2 / cols, its gradient is y - t.
        let output = case.values("output").iter().zip(case.values("output_gradient"));
        bench.batch.targets[0] = output.map(|(y, dy)| y - dy).collect();
        let shape = &case.tensor("output").shape;
        #[allow(clippy::cast_precision_loss, reason = "a few columns")]
        let scale = *shape.last().unwrap() as f32 / 2.0;
        bench.scalars.loss_scales = vec![scale];

        let (report, state) = bench.step(split.len(), SplitMode::Fixed(split));
        let rows: Vec<u32> = report.shards.iter().map(|shard| shard.rows).filter(|rows| *rows > 0).collect();
        assert_eq!(rows, [5, 3], "{}: rows of each adapter", case.name);
        let needed: f64 = case.values("output_gradient").iter().map(|dy| f64::from(*dy).powi(2)).sum();
        let got: f64 =
            report.reports[0].iter().step_by(2).map(|loss| f64::from(*loss)).sum::<f64>() * 2.0 * f64::from(scale);
        assert!(
            (got - needed).abs() < 1e-5 * needed,
            "{}: the forward pass gives a loss of {got}, needs {needed}",
            case.name
        );

        let mut moved = bench.model.clone();
        moved.weights = state.weights;
        let difference = |name: &str| -> Vec<f32> {
            let (old, new) = (bench.model.tensor(name).unwrap(), moved.tensor(name).unwrap());
            old.iter().zip(new).map(|(old, new)| old - new).collect()
        };
        for (name, needed) in case.with_prefix("gradient") {
            let what = format!("{}: gradient of `{name}`", case.name);
            assert_close(&what, &difference(&format!("it/{name}")), &needed.values, tolerance(&case));
        }
        let what = format!("{}: gradient of the input", case.name);
        assert_close(&what, &difference("in0/kernel"), case.values("input_gradient.0"), tolerance(&case));
        for (name, needed) in case.with_prefix("updated") {
            let got = moved.tensor(&format!("it/{name}")).unwrap();
            assert_close(&format!("{}: {name}", case.name), got, &needed.values, tolerance(&case));
        }
    }
}

/// No golden values, since masks are random: what is kept is scaled, the part that is dropped is the rate, backward
/// drops the same elements, and at inference nothing happens.
#[test]
#[allow(clippy::cast_precision_loss, reason = "a few thousand elements")]
fn dropout_drops_its_rate_and_scales_the_rest() {
    for rate in [0.1_f32, 0.4, 0.9] {
        let config = config(&[("Dropout", settings(&format!("rate = {rate}")))], &[vec![2000]], 3);
        let mut model = config.build(0).unwrap();
        model.tensor_mut("in0/kernel").unwrap().copy_from_slice(&spread(6000, 4));
        let bench = bench(model, 3, vec![0.0; 6000]);
        let (x, y) = (bench.model.tensor("in0/kernel").unwrap(), bench.outputs(Pass::Train).remove(0));
        assert_eq!(bench.outputs(Pass::Predict)[0], x, "inference");
        let mut machine = bench.machine();
        bench.run_with(&mut machine, Pass::Train, |_, len| Some(vec![1.0; len]));
        let gradient = bench.gradient(&machine, "in0/kernel");
        for ((x, y), dx) in x.iter().zip(&y).zip(gradient) {
            let factor = if *y == 0.0 { 0.0 } else { 1.0 / (1.0 - rate) };
            assert!((y - x * factor).abs() <= 1e-5 * (1.0 + y.abs()) && (dx - factor).abs() < 1e-5, "{x} {y} {dx}");
        }
        let dropped = y.iter().filter(|y| **y == 0.0).count() as f32 / 6000.0;
        // Five standard deviations of the mean of 6000 draws.
        assert!((dropped - rate).abs() < 5.0 * (rate * (1.0 - rate) / 6000.0).sqrt(), "{dropped} is not {rate}");
    }
}
