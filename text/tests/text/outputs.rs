//! Models compute what transformers computes, and train as PEFT trains them: `outputs` in `scripts/text_golden.py`.

use manyhands::data::{Batch, InMemory};
use manyhands::layers::Lora;
use manyhands::losses::SparseCategoricalCrossentropy;
use manyhands::model::Objective;
use manyhands::optimizers::AdamW;
use manyhands::scheduler::{Scheduler, Step};
use manyhands::{Compile, Fit, Model, Optimizer, Predictor, SplitMode, Trainer};
use manyhands_engine::adapters::Info;
use manyhands_text::ModelFiles;
use manyhands_text::generate::Cached;
use manyhands_text::network::{self, Output};
use ndarray::{Array2, ArrayD};
use serde_json::Value;

use super::{generated, golden, models, needed};

pub const CAUSAL: [&str; 7] = ["llama", "smollm", "mistral", "qwen2", "qwen3", "gemma3", "gpt2"];
/// Tokens of a row of the golden values.
pub const LENGTH: usize = 16;

pub fn outputs() -> Value {
    serde_json::from_slice(&std::fs::read(golden::path("outputs.json")).unwrap()).unwrap()
}

#[allow(clippy::cast_possible_truncation, reason = "golden values, compared within 1e-5")]
pub fn rows(value: &Value) -> Array2<f32> {
    let rows = value.as_array().unwrap();
    let values: Vec<f32> = rows.iter().flat_map(golden::numbers).map(|number| number as f32).collect();
    Array2::from_shape_vec((rows.len(), values.len() / rows.len()), values).unwrap()
}

fn build(name: &str, output: Output) -> Model {
    let length = if output == Output::LogitsByDocument { 2 * LENGTH } else { LENGTH };
    network::build(&ModelFiles::open(&golden::path(name)).unwrap(), length, output).unwrap()
}

fn predict(model: Model, data: InMemory) -> ArrayD<f32> {
    Predictor::new(model).adapters("cpu").unwrap().predict(data, 2).unwrap().remove(0)
}

/// Compares with golden values: within a part of the largest of them.
pub fn assert_close(what: &str, values: impl IntoIterator<Item = f32>, golden: &[f64], part: f64) {
    let values: Vec<f64> = values.into_iter().map(f64::from).collect();
    assert_eq!(values.len(), golden.len(), "{what}");
    let largest = golden.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    let off = values.iter().zip(golden).fold(0.0_f64, |most, (value, golden)| most.max((value - golden).abs()));
    assert!(off <= part * largest, "{what}: off by {off}, where the largest is {largest}");
}

#[test]
fn logits_are_those_of_transformers() {
    let golden = outputs();
    for name in CAUSAL {
        let known = &golden[name];
        let logits = predict(build(name, Output::Logits), InMemory::without_targets(rows(&known["ids"])).unwrap());
        for (row, known) in logits.outer_iter().zip(known["logits"].as_array().unwrap()) {
            let last = row.index_axis(ndarray::Axis(0), LENGTH - 1);
            assert_close(name, last.iter().copied(), &golden::numbers(&known["last"]), 1e-5);
            let largest = row.outer_iter().map(|logits| logits.iter().copied().fold(f32::MIN, f32::max));
            assert_close(name, largest, &golden::numbers(&known["largest"]), 1e-5);
        }
    }
}

/// The GGUF file of Llama keeps factors of its frequencies, from which the rule of Llama 3.1 is found again.
#[test]
fn a_gguf_file_computes_what_its_folder_computes() {
    let golden = outputs();
    for name in golden::GGUF_FILES {
        let ids = || InMemory::without_targets(rows(&golden[name]["ids"])).unwrap();
        let folder = predict(build(name, Output::Logits), ids());
        let file = predict(build(&format!("{name}.gguf"), Output::Logits), ids());
        let folder: Vec<f64> = folder.iter().copied().map(f64::from).collect();
        assert_close(name, file, &folder, 1e-6);
    }
}

/// llama.cpp's converter stores scales of Gemma's normalizations plus 1. Rows are longer than the window.
#[test]
fn a_gguf_file_of_gemma_computes_what_transformers_computes() {
    let name = "pieces/gemma3.gguf";
    let known: Value = serde_json::from_slice(&std::fs::read(golden::path("pieces/gemma3.json")).unwrap()).unwrap();
    models::check_tensors(&ModelFiles::open(&golden::path(name)).unwrap(), &known, name);
    let logits = predict(build(name, Output::Logits), InMemory::without_targets(rows(&known["ids"])).unwrap());
    for (row, known) in logits.outer_iter().zip(known["logits"].as_array().unwrap()) {
        let last = row.index_axis(ndarray::Axis(0), LENGTH - 1);
        assert_close(name, last.iter().copied(), &golden::numbers(&known["last"]), 1e-5);
    }
    let greedy = generated::tokens(&known["greedy"]);
    let mut cached = Cached::open(&ModelFiles::open(&golden::path(name)).unwrap(), None, LENGTH, Info::cpu()).unwrap();
    assert_eq!(generated::greedy(&mut cached, &greedy[..6], 10), greedy);
}

#[test]
fn vectors_of_bert_are_those_of_transformers() {
    let known = &outputs()["bert"];
    let data = || {
        let [ids, types, mask] = ["ids", "types", "mask"].map(|part| rows(&known[part]));
        InMemory::without_targets(ids).unwrap().with_input(types).unwrap().with_input(mask).unwrap()
    };
    let vectors = predict(build("bert", Output::Vectors), data());
    let golden: Vec<f64> = known["vectors"].as_array().unwrap().iter().flat_map(golden::numbers).collect();
    assert_close("vectors", vectors.index_axis(ndarray::Axis(0), 0).iter().copied(), &golden, 1e-5);
    let means = predict(build("bert", Output::MeanVector), data());
    let golden: Vec<f64> = known["means"].as_array().unwrap().iter().flat_map(golden::numbers).collect();
    assert_close("means", means, &golden, 1e-5);
}

/// The name of a layer here for the module of a factor in PEFT.
fn layer_of(factor: &str) -> String {
    let mut path = factor.trim_start_matches("base_model.model.").split('.').skip(2);
    let (block, rest) = (path.next().unwrap(), path.collect::<Vec<_>>().join("."));
    let names = [
        ("self_attn.q_proj", "attention.query"),
        ("self_attn.k_proj", "attention.key"),
        ("self_attn.v_proj", "attention.value"),
        ("self_attn.o_proj", "attention.output"),
        ("attn.c_proj", "attention.output"),
        ("mlp.gate_proj", "feed_forward.gate"),
        ("mlp.up_proj", "feed_forward.up"),
        ("mlp.c_fc", "feed_forward.up"),
        ("mlp.down_proj", "feed_forward.down"),
        ("mlp.c_proj", "feed_forward.down"),
    ];
    let (_, name) = names.iter().find(|(module, _)| rest.starts_with(&format!("{module}."))).unwrap();
    format!("blocks.{block}.{name}")
}

/// Losses of thirty steps on the golden rows, with PEFT's initial factors; by document, two golden rows are one of twice the length.
fn losses(name: &str, known: &Value, output: Output, adapters: &str) -> Vec<f64> {
    let mut model = build(name, output);
    let initial = known["initial"].as_object().unwrap();
    let layers: Vec<String> = initial.keys().map(|factor| layer_of(factor)).collect();
    network::enable_lora(&mut model, layers.iter().map(String::as_str), Lora::new(2).alpha(4.0), 0).unwrap();
    for (factor, values) in initial {
        let a = rows(values).reversed_axes();
        let places = model.tensor_mut(&format!("{}/lora_kernel_a", layer_of(factor))).unwrap();
        places.iter_mut().zip(&a).for_each(|(place, value)| *place = *value);
    }
    let labels = rows(&known["labels"]);
    // The target of a position is the next token.
    let next = Array2::from_shape_fn(labels.dim(), |(row, at)| labels.get((row, at + 1)).copied().unwrap_or(-100.0));
    let joined = |rows: Array2<f32>| rows.into_shape_with_order((2, 2 * LENGTH)).unwrap();
    let ids = rows(&known["ids"]);
    let data = match output {
        Output::LogitsByDocument => {
            let documents = Array2::from_shape_fn((2, 2 * LENGTH), |(_, at)| if at < LENGTH { 1.0 } else { 2.0 });
            let data = InMemory::without_targets(joined(ids)).unwrap().with_input(documents).unwrap();
            data.with_target(joined(next)).unwrap()
        }
        _ => InMemory::new(ids, next).unwrap(),
    };
    let loss = SparseCategoricalCrossentropy { ignore_class: Some(-100), label_smoothing: 0.0 };
    let adam = AdamW { learning_rate: 1e-2, epsilon: 1e-8, weight_decay: 0.0, outer_epsilon: true, ..AdamW::default() };
    let mut trainer = Trainer::new(model, Compile::new(adam, loss)).unwrap().adapters(adapters).unwrap();
    if adapters.contains(',') {
        let shares = [5.0, 2.0, 1.0].into_iter().cycle().take(adapters.split(',').count());
        trainer = trainer.split(SplitMode::Fixed(shares.collect()));
    }
    let history = trainer.fit(data, &Fit::new(30).batch_size(4).in_order()).unwrap();
    history.epochs.iter().map(|epoch| epoch.values.get("loss").unwrap()).collect()
}

#[test]
fn lora_trains_as_peft_trains() {
    let golden = outputs();
    for name in CAUSAL {
        let known = &golden[name]["training"];
        assert_losses(name, &losses(name, known, Output::Logits, "cpu"), &golden::numbers(&known["losses"]));
    }
}

/// Each GPU alone, and three adapters with shares of 5, 2 and 1.
#[test]
fn lora_trains_on_any_adapters_as_peft_trains() {
    let gpus = needed::gpu_indices();
    let all: Vec<&str> = gpus.iter().map(String::as_str).chain(["cpu"; 3]).take(3).collect();
    let known = &outputs()["llama"]["training"];
    for adapters in gpus.iter().cloned().chain([all.join(","), "cpu,cpu,cpu".to_owned()]) {
        let losses = losses("llama", known, Output::Logits, &adapters);
        assert_losses(&format!("llama on {adapters}"), &losses, &golden::numbers(&known["losses"]));
    }
}

/// The loss is the mean over all tokens of a batch, whichever row they are in.
#[test]
fn texts_that_share_a_row_train_as_those_that_do_not() {
    let golden = outputs();
    for name in ["llama", "smollm", "qwen3", "gemma3"] {
        let known = &golden[name]["training"];
        for adapters in ["cpu", "cpu,cpu"] {
            let losses = losses(name, known, Output::LogitsByDocument, adapters);
            assert_losses(name, &losses, &golden::numbers(&known["losses"]));
        }
    }
    let gpt2 = ModelFiles::open(&golden::path("gpt2")).unwrap();
    let refused = network::build(&gpt2, LENGTH, Output::LogitsByDocument).unwrap_err().to_string();
    assert!(refused.contains("can't tell several texts of a row apart"), "{refused}");
}

/// Factors after ten steps on three adapters with even shares, of which some are lost while a step is under way.
fn factors_after(lost: &[(u64, usize)]) -> Vec<f32> {
    let golden = outputs();
    let known = &golden["smollm"]["training"];
    let mut model = build("smollm", Output::Logits);
    let layers = network::layers_of(
        ModelFiles::open(&golden::path("smollm")).unwrap().architecture(),
        &["attention.query", "feed_forward.down"],
    );
    network::enable_lora(&mut model, layers.iter().map(String::as_str), Lora::new(2).alpha(4.0), 7).unwrap();
    let loss = SparseCategoricalCrossentropy { ignore_class: Some(-100), label_smoothing: 0.0 };
    let objective = Objective::new(vec![loss.into()], Optimizer::adam(1e-2));
    let data = InMemory::new(rows(&known["ids"]), rows(&known["labels"])).unwrap();
    let batch = Batch::fetch(&data, &[0, 1, 2, 3]).unwrap();
    pollster::block_on(async {
        let builder = Scheduler::builder(&model, &objective).adapters(vec![Info::cpu(); 3]).split(SplitMode::Even);
        let mut rig = builder.capacity(4).open().await.unwrap();
        for step in 0..10 {
            lost.iter().filter(|(at, _)| *at == step).for_each(|(_, adapter)| rig.lose(*adapter));
            let numbers = Step { step, seed: 3, learning_rate: 1e-2, loss_scales: vec![0.02], ..Step::default() };
            assert!(rig.train(&batch, &numbers).await.unwrap().is_applied);
        }
        rig.sync().await.unwrap().weights.parameters.concat()
    })
}

#[test]
fn lost_adapters_change_no_bit_of_the_factors() {
    let undisturbed = factors_after(&[]);
    assert_eq!(factors_after(&[(2, 1), (7, 0)]), undisturbed);
}

/// As PEFT's: within 1e-5 for ten steps, then 1e-3.
pub fn assert_losses(name: &str, losses: &[f64], known: &[f64]) {
    assert_eq!(losses.len(), known.len());
    for (step, (loss, known)) in losses.iter().zip(known).enumerate() {
        let bound = if step < 10 { 1e-5 } else { 1e-3 };
        assert!((loss / known - 1.0).abs() <= bound, "{name}, step {step}: {loss} is not {known}");
    }
}
