//! Models with packed weights have the blocks of their files, and compute and train to the bits of the floats of these blocks.

use manyhands::data::InMemory;
use manyhands::layers::Lora;
use manyhands::losses::SparseCategoricalCrossentropy;
use manyhands::{Compile, Fit, Model, Optimizer, Placement, Predictor, SplitMode, Trainer};
use manyhands_engine::adapters::{Info, Kind};
use manyhands_engine::packed::PackedFormat;
use manyhands_text::adapter::Adapter;
use manyhands_text::generate::{Cached, NextToken as _};
use manyhands_text::network::{self, Output};
use manyhands_text::{Encoding, ErrorKind, ModelFiles, Packed};
use ndarray::{Array2, Axis};
use serde_json::Value;

use super::outputs::{LENGTH, assert_close, rows};
use super::text_models::fetched;
use super::{generated, golden, models, needed};

/// A model in `Q8_0`, `Q4_1` and `Q4_0`, which the Python package `gguf` wrote.
const FILE: &str = "packed.gguf";

fn known() -> Value {
    serde_json::from_slice(&std::fs::read(golden::path("packed.json")).unwrap()).unwrap()
}

fn open(name: &str) -> ModelFiles {
    ModelFiles::open(&golden::path(name)).unwrap()
}

fn packed(name: &str, packed: Packed) -> ModelFiles {
    open(name).packed(packed).unwrap()
}

fn bits<'a>(values: impl IntoIterator<Item = &'a f32>) -> Vec<u32> {
    values.into_iter().map(|value| value.to_bits()).collect()
}

/// The model with floats in the place of its blocks.
fn unpacked(mut model: Model) -> Model {
    let parameters = &model.layout().parameters;
    let names =
        parameters.iter().filter(|it| it.packing.is_some()).map(|it| it.name.split('/').next().unwrap().to_owned());
    let names: Vec<String> = names.collect();
    model.unpack(names.iter().map(String::as_str)).unwrap();
    model
}

/// The software and hardware adapters of this machine, one by one, and the CPU.
fn rigs() -> Vec<String> {
    ["cpu".to_owned()].into_iter().chain(needed::gpu_indices()).collect()
}

fn logits(model: Model, ids: Array2<f32>, rig: &str) -> Vec<f32> {
    let data = InMemory::without_targets(ids).unwrap();
    Predictor::new(model).adapters(rig).unwrap().predict(data, 2).unwrap().remove(0).into_iter().collect()
}

#[test]
fn a_packed_file_is_read_as_transformers_reads_it() {
    models::check_tensors(&open(FILE), &known(), FILE);
    let encodings: Vec<Encoding> = open(FILE).tensors().map(|tensor| tensor.unwrap().encoding).collect();
    for encoding in [Encoding::Q8_0, Encoding::Q4_0, Encoding::Q4_1, Encoding::F32] {
        assert!(encodings.contains(&encoding), "{}", encoding.name());
    }
}

#[test]
fn a_packed_file_computes_and_writes_what_transformers_does() {
    let known = known();
    let model = network::build(&packed(FILE, Packed::AsFile), LENGTH, Output::Logits).unwrap();
    let vocabulary = model.outputs()[0].1.last();
    let all = logits(model, rows(&known["ids"]), "cpu");
    for (row, known) in all.chunks_exact(LENGTH * vocabulary).zip(known["logits"].as_array().unwrap()) {
        let last = row[(LENGTH - 1) * vocabulary..].iter().copied();
        assert_close(FILE, last, &golden::numbers(&known["last"]), 1e-5);
    }
    let greedy = generated::tokens(&known["greedy"]);
    let mut cached = Cached::open(&packed(FILE, Packed::AsFile), None, LENGTH, Info::cpu()).unwrap();
    assert!(cached.model().packed("blocks.0.attention.query/kernel").is_some());
    assert_eq!(generated::greedy(&mut cached, &greedy[..6], 10), greedy);
}

/// Blocks are those of the file. Rows of queries and keys are in the order of the model, in whole lines.
#[test]
fn blocks_of_files_stay_as_they_are() {
    let files = packed(FILE, Packed::AsFile);
    let model = network::build(&files, LENGTH, Output::Logits).unwrap();
    let mut compared = 0;
    for tensor in files.tensors().map(Result::unwrap) {
        let (layer, parameter) = tensor.name.rsplit_once('.').unwrap();
        let name = format!("{layer}/{parameter}");
        match (tensor.encoding.packed(), model.packed(&name)) {
            (Some(format), Some(blocks)) => {
                assert_eq!((blocks.format(), blocks.bytes()), (format, tensor.bytes.as_slice()), "{name}");
                compared += 1;
            }
            (None, None) => assert_eq!(model.tensor(&name).unwrap(), tensor.values(), "{name}"),
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
    assert_eq!(compared, 1 + 7 * 2);
    let floats = network::build(&open(FILE), LENGTH, Output::Logits).unwrap();
    let unpacked = unpacked(model);
    for (name, _, values) in floats.tensors() {
        assert_eq!(bits(unpacked.tensor(name).unwrap()), bits(values), "{name}");
    }
}

#[test]
fn formats_are_those_asked_for() {
    let formats = |files: ModelFiles| {
        let model = network::build(&files, LENGTH, Output::Logits).unwrap();
        ["attention.query", "attention.key", "attention.value"]
            .map(|part| model.packed(&format!("blocks.1.{part}/kernel")).map(|it| it.format()))
    };
    let [q8_0, q4_0, q4_1] = [PackedFormat::Q8_0, PackedFormat::Q4_0, PackedFormat::Q4_1].map(Some);
    assert_eq!(formats(open(FILE)), [None; 3]);
    assert_eq!(formats(packed(FILE, Packed::AsFile)), [q4_1, q4_0, q8_0]);
    assert_eq!(formats(packed(FILE, Packed::Eight)), [q4_1, q4_0, q8_0]);
    // Blocks of 8 bits are packed again.
    assert_eq!(formats(packed(FILE, Packed::Four)), [q4_1, q4_0, q4_0]);
    for name in ["smollm", "llama.gguf", "gpt2", "gpt2.gguf", "qwen3"] {
        assert_eq!(formats(packed(name, Packed::Eight)), [q8_0; 3], "{name}");
    }
    let error = open("llama.gguf").packed(Packed::AsFile).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checkpoint);
    assert!(error.to_string().contains("needs weights in Q8_0, Q4_0 or Q4_1 to keep them as they are, but has none"));
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn bytes_are_a_part_of_the_floats() {
    for (name, choice, most) in
        [("smollm", Packed::Eight, 0.3), (FILE, Packed::AsFile, 0.3), ("smollm", Packed::Four, 0.18)]
    {
        let files = packed(name, choice);
        let model = network::build(&files, LENGTH, Output::Logits).unwrap();
        let stored: usize = model.weights.parameters.iter().map(Vec::len).sum();
        let floats = files.weight_bytes(None);
        let elements: u64 = open(name).shapes().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum();
        assert_eq!(floats, 4 * elements);
        let (part, told) =
            (4.0 * stored as f64 / floats as f64, files.weight_bytes(Some(choice)) as f64 / floats as f64);
        // Each of the small tensors begins at a multiple of 256 bytes.
        assert!(told <= most && told <= part && part < told + 0.08, "{name}: {part}, {told}");
    }
}

/// Losses, trained factors and logits after twenty steps, in bits.
type Bits = (Vec<u64>, Vec<(String, Vec<u32>)>, Vec<u32>);

/// Rows of any tokens, in which each token is the target of the one before.
fn any_rows(count: usize, length: usize, vocabulary: usize) -> [Array2<f32>; 2] {
    #[allow(clippy::cast_precision_loss, reason = "vocabularies are far below 2^24 tokens")]
    let at = |row: usize, at: usize| ((row * 31 + at) * 4099 % 8191 % vocabulary) as f32;
    [0, 1].map(|first| Array2::from_shape_fn((count, length), |(row, place)| at(row, place + first)))
}

/// The model with factors of this form beside all products of its blocks.
fn with_lora(mut model: Model, files: &ModelFiles, lora: Lora) -> Model {
    let layers = network::layers_of(files.architecture(), &network::linear_parts(files.architecture()));
    network::enable_lora(&mut model, layers.iter().map(String::as_str), lora, 5).unwrap();
    model
}

fn with_factors(model: Model, files: &ModelFiles) -> Model {
    with_lora(model, files, Lora::new(2).alpha(4.0))
}

fn trainer(model: Model, recompute: bool) -> Trainer {
    let loss = SparseCategoricalCrossentropy { ignore_class: Some(-100), label_smoothing: 0.0 };
    let compile = Compile::new(Optimizer::adam(1e-2), loss).recompute(recompute);
    Trainer::new(model, compile).unwrap().split(SplitMode::Even)
}

/// Losses of epochs of two steps.
fn losses(trainer: &mut Trainer, [ids, targets]: [Array2<f32>; 2], epochs: u64) -> Vec<f64> {
    let batch_size = ids.nrows() / 2;
    let data = InMemory::new(ids, targets).unwrap();
    let history = trainer.fit(data, &Fit::new(epochs).batch_size(batch_size).micro_batches(1).in_order()).unwrap();
    history.epochs.iter().map(|epoch| epoch.values.get("loss").unwrap()).collect()
}

/// Results of training on rows, and the bytes that it takes on the adapter.
fn trained(model: Model, rows: &[Array2<f32>; 2], rig: &str) -> (Bits, u64) {
    let mut trainer = trainer(model, false).adapters(rig).unwrap();
    let losses = losses(&mut trainer, rows.clone(), 10).into_iter().map(f64::to_bits).collect();
    let bytes = trainer.open_adapters()[0].bytes;
    let model = trainer.into_model();
    let names = model.layout().trainable().iter().map(|placed| placed.name.clone());
    let factors = names.map(|name| (name.clone(), bits(model.tensor(&name).unwrap()))).collect();
    ((losses, factors, bits(&logits(model, rows[0].clone(), rig))), bytes)
}

/// Trains a packed model and the floats of its blocks on adapters; gives the bytes of both there.
fn same_bits(files: &ModelFiles, rows: &[Array2<f32>; 2], rigs: Vec<String>) -> Vec<[u64; 2]> {
    let packed = network::build(files, LENGTH, Output::Logits).unwrap();
    let [packed, floats] = [packed.clone(), unpacked(packed)].map(|model| with_factors(model, files));
    let is_packed = |model: &Model| model.packed("blocks.0.feed_forward.up/kernel").is_some();
    assert_eq!([&packed, &floats].map(is_packed), [true, false]);
    let blocks = files.architecture().blocks;
    let on_rig = |rig: String| {
        let [(one, bytes), (other, float_bytes)] = [&packed, &floats].map(|model| trained(model.clone(), rows, &rig));
        assert!(one == other, "{rig}");
        assert!(one.0[0] != one.0[9] && one.1.len() == 2 * 7 * blocks, "{:?}", one.0);
        [bytes, float_bytes]
    };
    rigs.into_iter().map(on_rig).collect()
}

#[test]
fn packed_models_train_to_the_bits_of_their_floats() {
    let cpu = || vec!["cpu".to_owned()];
    let models = [(FILE, Packed::AsFile, rigs()), (FILE, Packed::Four, cpu()), ("smollm", Packed::Eight, cpu())];
    for (name, choice, rigs) in models {
        let files = packed(name, choice);
        let rows = any_rows(8, LENGTH, files.architecture().vocabulary);
        assert!(same_bits(&files, &rows, rigs).iter().all(|[packed, floats]| packed < floats), "{name}");
    }
}

/// An adapter stands beside packed kernels, and is merged into floats.
#[test]
fn an_adapter_changes_a_packed_model() {
    let (files, floats) = (packed("llama", Packed::Eight), open("llama"));
    let adapter = Adapter::read(&golden::path("adapter"), floats.architecture()).unwrap();
    let mut merged = unpacked(network::build(&files, LENGTH, Output::Logits).unwrap());
    adapter.merge(&mut merged).unwrap();
    let [ids, _] = any_rows(1, LENGTH, files.architecture().vocabulary);
    let of_merged = logits(merged, ids.clone(), "cpu");
    let vocabulary = files.architecture().vocabulary;
    let known: Vec<f64> = of_merged[(LENGTH - 1) * vocabulary..].iter().copied().map(f64::from).collect();
    let mut cached = Cached::open(&files, Some(&adapter), LENGTH, Info::cpu()).unwrap();
    assert!(cached.model().packed("blocks.0.attention.query/kernel").is_some());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "tokens")]
    let tokens: Vec<u32> = ids.index_axis(Axis(0), 0).iter().map(|id| *id as u32).collect();
    assert_close("beside", cached.logits(&tokens).unwrap(), &known, 1e-5);
}

fn smollm2() -> ModelFiles {
    ModelFiles::open(&fetched().join("smollm2.gguf")).unwrap().packed(Packed::AsFile).unwrap()
}

#[test]
#[ignore = "fetches 175 MB, and trains for minutes"]
#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn smollm2_trains_packed_to_the_bits_of_its_floats() {
    let files = smollm2();
    let weights = [Some(Packed::AsFile), None].map(|choice| files.weight_bytes(choice) as f64);
    assert!(weights[0] <= 0.3 * weights[1], "{weights:?}");
    for [packed, floats] in same_bits(&files, &any_rows(2, LENGTH, files.architecture().vocabulary), rigs()) {
        // Activations and factors take as much beside either; the floats of one product come on top.
        let saved = (floats - packed) as f64 / (weights[1] - weights[0]);
        assert!(saved > 0.9, "{packed} of {floats} bytes: {saved}");
    }
}

/// Stages of a model whose bytes are more than twice the limit of each adapter. The table of tokens is in the first and in the last.
fn three_adapters_train(recompute: bool, model: &Model, rig: [&str; 3], stages: [&'static str; 3], megabytes: u64) {
    let rows = any_rows(2, model.inputs()[0].shape.last(), model.outputs()[0].1.last());
    let mut whole = trainer(model.clone(), recompute).adapters("cpu").unwrap();
    let kind = if rig == ["cpu"; 3] { Kind::Cpu } else { Kind::DiscreteGpu };
    let needed = whole.memory_need(kind, 1, 1, None).unwrap().unwrap().bytes;
    let most = megabytes * 1_000_000;
    assert!(needed > 2 * most, "{needed}");
    let known = losses(&mut whole, rows.clone(), 2);
    let placement = Placement::stages((0..).zip(stages).map(|(at, layers)| ([layers], [at])));
    let limits = format!("0={megabytes}MB,1={megabytes}MB,2={megabytes}MB").parse().unwrap();
    let mut staged =
        trainer(model.clone(), recompute).adapters(&rig.join(",")).unwrap().memory(limits).placement(placement);
    let losses = losses(&mut staged, rows, 2);
    assert!(losses.iter().zip(&known).all(|(one, other)| (one / other - 1.0).abs() < 1e-4), "{losses:?} {known:?}");
    let bytes: Vec<u64> = staged.open_adapters().iter().map(|adapter| adapter.bytes).collect();
    assert!(bytes.len() == 3 && bytes.iter().all(|bytes| *bytes <= most), "{bytes:?}");
}

#[test]
#[ignore = "fetches 175 MB, and trains for minutes"]
fn three_adapters_of_100_mb_train_smollm2() {
    let files = smollm2();
    // A little more than twice the limit: plans for cards have shrunk.
    let model = with_factors(network::build(&files, 20, Output::Logits).unwrap(), &files);
    let gpus = needed::gpu_indices();
    let rig: Vec<&str> = gpus.iter().map(String::as_str).chain(["cpu"; 3]).take(2).chain(["cpu"]).collect();
    let stages = ["..add_19", "blocks.10.attention_norm..add_55", "blocks.28.attention_norm.."];
    three_adapters_train(false, &model, rig.try_into().unwrap(), stages, 100);
}

/// The model and the stages of `finetune --packed 4 --recompute --stages --rank 4 --length 64`.
#[test]
#[ignore = "fetches 175 MB, and trains for minutes"]
fn three_adapters_of_60_mb_train_smollm2() {
    let files = ModelFiles::open(&fetched().join("smollm2.gguf")).unwrap().packed(Packed::Four).unwrap();
    let model = with_lora(network::build(&files, 64, Output::Logits).unwrap(), &files, Lora::new(4));
    let stages = [
        "..blocks.11.feed_forward_norm",
        "blocks.11.feed_forward.up..blocks.23.feed_forward.up",
        "blocks.23.feed_forward.gate..",
    ];
    three_adapters_train(true, &model, ["cpu"; 3], stages, 60);
}
