//! Are weights packed, unpacked, kept in files and refused as documented?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use manyhands::layers::{Configure, Conv1D, Dense, Embedding, Lora, ReversibleEmbedding};
use manyhands::model::ModelConfig;
use manyhands::packed::{PackedFormat, PackedTensor};
use manyhands::{Model, ModelBuilder, Result, Sequential};
use manyhands_engine::plan::Pass;

use crate::bench::{Bench, normal};
use crate::close::assert_close;

/// A table, and a product with low-rank factors.
fn model() -> Model {
    let graph = Sequential::new([3]).add_named("table", Embedding::new(7, 32).frozen());
    let mut model = graph.add_named("product", Dense::new(5).lora(Lora::new(2))).build(1).unwrap();
    model.tensor_mut("product/lora_kernel_b").unwrap().copy_from_slice(&normal(10, 3));
    model
}

fn packed() -> Model {
    let mut model = model();
    model.pack(["table", "product"], PackedFormat::Q8_0).unwrap();
    model
}

/// What a model makes of the first words.
fn outputs(model: &Model) -> Vec<f32> {
    let mut bench = Bench::of_normals(model.clone(), 2);
    bench.batch.inputs[0] = (0..6_u8).map(f32::from).collect();
    bench.outputs(Pass::Predict).remove(0)
}

fn text(result: Result<()>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn floats_are_rounded_to_the_nearest_number_of_their_block() {
    let (floats, model) = (model(), packed());
    let mut unpacked = model.clone();
    unpacked.unpack(["table", "product"]).unwrap();
    for name in ["table/embeddings", "product/kernel"] {
        let (before, after) = (floats.tensor(name).unwrap(), unpacked.tensor(name).unwrap());
        let largest = before.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        let near = before.iter().zip(after).all(|(before, after)| (before - after).abs() <= 0.51 * largest / 127.0);
        assert!(near && before != after, "{name}");
    }
    assert_eq!(outputs(&model), outputs(&unpacked));
    // Values that are numbers of their block stay as they are.
    let mut again = unpacked.clone();
    again.pack(["table", "product"], PackedFormat::Q8_0).unwrap();
    again.unpack(["product"]).unwrap();
    assert_eq!(again.tensor("product/kernel"), unpacked.tensor("product/kernel"));
    assert_eq!((model.n_parameters(), model.n_trainable()), (floats.n_parameters(), floats.n_trainable()));
}

/// The blocks of a kernel are lines of its units, as in GGUF files.
#[test]
fn blocks_are_taken_as_they_are() {
    let mut bytes = vec![0; 5 * 34];
    // Unit 3: a scale of 2.0, and 1, 2, 3, … as numbers.
    bytes[3 * 34 + 1] = 0x40;
    (1..).zip(&mut bytes[3 * 34 + 2..4 * 34]).for_each(|(number, byte)| *byte = number);
    let tensor = PackedTensor::new(PackedFormat::Q8_0, [5, 32], bytes).unwrap();
    for mut model in [model(), packed()] {
        model.set_packed([("product/kernel", tensor.clone())]).unwrap();
        assert_eq!(model.packed("product/kernel").unwrap(), tensor);
        assert!(model.tensor("product/kernel").is_none() && model.tensors().all(|(name, ..)| name != "product/kernel"));
        model.unpack(["product"]).unwrap();
        let needed: Vec<f32> = (1..=32_u8).flat_map(|input| [0.0, 0.0, 0.0, 2.0 * f32::from(input), 0.0]).collect();
        assert_eq!(model.tensor("product/kernel").unwrap(), needed);
        assert!(model.tensor("table/embeddings").is_some() || model.packed("table/embeddings").is_some());
    }
}

#[test]
fn files_keep_blocks_and_their_format() {
    let model = packed();
    let bytes = model.to_bytes().unwrap();
    let read = Model::from_bytes(&bytes, "file", &[]).unwrap();
    assert_eq!((read.config(), &read.weights, read.layout()), (model.config(), &model.weights, model.layout()));
    let mut floats = model.clone();
    floats.unpack(["table", "product"]).unwrap();
    assert!(bytes.len() < floats.to_bytes().unwrap().len());
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor("product/kernel").unwrap();
    assert_eq!((view.dtype(), view.shape()), (safetensors::Dtype::U8, &[5, 34][..]));
    assert_eq!(view.data(), model.packed("product/kernel").unwrap().bytes());
    // A scale that is not finite, in the last block of the file: of the table.
    let mut spoilt = bytes.clone();
    let at = spoilt.len() - 34;
    spoilt[at..at + 2].copy_from_slice(&[0x00, 0x7c]);
    let error = Model::from_bytes(&spoilt, "file", &[]).unwrap_err().to_string();
    assert!(error.contains("tensor `table/embeddings`, needs finite scales, but that of block 6 is inf"), "{error}");
}

#[test]
fn settings_build_packed_models() {
    let toml = r#"
        input = [3]
        layers = [
          { type = "Embedding", name = "table", input_dim = 7, output_dim = 32, trainable = false, packed = { embeddings = "q4_0" } },
          { type = "Dense", name = "product", units = 5, lora_rank = 2, packed = { kernel = "Q8_0" } },
        ]
    "#;
    let config: ModelConfig = toml::from_str(toml).unwrap();
    let built = config.build(1).unwrap();
    let format = |name: &str| built.packed(name).unwrap().format();
    assert_eq!((format("table/embeddings"), format("product/kernel")), (PackedFormat::Q4_0, PackedFormat::Q8_0));
    assert_eq!(built.config().build(1).unwrap().weights, built.weights);
    // The initial values are those of floats, packed.
    assert_eq!(built.packed("product/kernel"), packed().packed("product/kernel"));
    let wrong = toml.replace("\"q4_0\"", "\"q3\"");
    let error = toml::from_str::<ModelConfig>(&wrong).unwrap_err().to_string();
    assert!(error.contains("q8_0") && error.contains("q3"), "{error}");
}

#[test]
fn what_can_not_be_packed_is_refused_by_name() {
    let mut plain = Sequential::new([4, 33]).add_named("dense", Dense::new(32)).build(0).unwrap();
    let error = text(plain.pack(["dense"], PackedFormat::Q8_0));
    assert_eq!(
        error,
        "layer 0 `dense` (Dense) needs `kernel` to be frozen to keep it packed, but training may change it\n  help: freeze the \
         layer, or train low-rank factors beside it (`enable_lora`); its input comes from `input`"
    );
    plain.freeze(["dense"]).unwrap();
    let error = text(plain.pack(["dense"], PackedFormat::Q8_0));
    assert!(error.contains("needs blocks of 32 values to keep `kernel` packed, but its lines have 33"), "{error}");
    let graph = Sequential::new([8, 32]).add_named("conv", Conv1D::new(4, 3).frozen());
    let error = text(graph.build(0).unwrap().pack(["conv"], PackedFormat::Q8_0));
    assert!(error.starts_with("layer 0 `conv` (Conv1D) needs weights that can be packed, but has none"), "{error}");
    let error = text(plain.pack(["dens"], PackedFormat::Q8_0));
    assert!(error.contains("layer `dens` needs to be a layer of the model") && error.contains("`dense`"), "{error}");
    let bias =
        Sequential::new([32]).add_named("it", Dense::new(32).frozen().packed("bias", PackedFormat::Q8_0)).build(0);
    let error = bias.unwrap_err().to_string();
    assert!(error.contains("needs `bias` as floats, but it is to be packed"), "{error}");
    let tensor = PackedTensor::quantize(PackedFormat::Q8_0, [32, 32], &[0.5; 32 * 32]).unwrap();
    let mut model = model();
    let before = model.clone();
    for (name, needed) in [
        ("product/kernel", "tensor `product/kernel` needs lines [5, 32], but got [32, 32]"),
        ("product/bias", "tensor `product/bias` needs to be read as floats, but is to be packed"),
        ("product/kernal", "tensor `product/kernal` needs to be a parameter of the model, but none has that name"),
    ] {
        let error = text(model.set_packed([(name, tensor.clone())]));
        assert!(error.contains(needed), "{error}");
    }
    assert_eq!((&model.weights, model.layout()), (&before.weights, before.layout()));
}

#[test]
fn packed_weights_are_not_trained_before_they_are_floats() {
    let mut model = packed();
    let error = text(model.unfreeze(["table"]));
    assert_eq!(
        error,
        "layer 0 `table` (Embedding) needs `embeddings` as floats to be trained, but keeps it packed\n  help: `Model::unpack` makes \
         floats of it"
    );
    // The kernel of `product` is frozen by its factors.
    model.freeze(["product"]).unwrap();
    model.unfreeze(["product"]).unwrap();
    let weights = model.weights.clone();
    model.unpack(["table"]).unwrap();
    model.unfreeze_all().unwrap();
    assert!(model.weights != weights && model.packed("product/kernel") == packed().packed("product/kernel"));
}

#[test]
fn factors_are_merged_into_floats() {
    let mut merged = packed();
    let before = outputs(&merged);
    merged.merge_lora().unwrap();
    assert!(merged.tensor("product/kernel").is_some() && merged.packed("table/embeddings").is_some());
    assert_close("merged", &outputs(&merged), &before, 1e-5);
    assert!(merged.to_onnx().is_ok() && packed().to_onnx().is_ok());
}

/// A head on a packed trunk: the trunk's blocks stay.
#[test]
fn a_new_head_leaves_the_trunk_packed() {
    let model = packed();
    let head = model.with_head(Some("table"), &[], &[], 2).unwrap();
    assert_eq!(head.packed("table/embeddings"), model.packed("table/embeddings"));
}

#[test]
fn an_untied_table_is_packed_both_ways() {
    let mut graph = ModelBuilder::new();
    let words = graph.input("words", [3]);
    let table = graph.layer("table", ReversibleEmbedding::new(9, 32).untied().frozen());
    let vectors = graph.call(table, &[words]);
    let logits = graph.call_reversed(table, &[vectors]);
    let mut model = graph.build(&[logits], 1).unwrap();
    model.pack(["table"], PackedFormat::Q4_0).unwrap();
    let lines = |name: &str| model.packed(name).unwrap().lines();
    assert_eq!((lines("table/embeddings"), lines("table/reverse_embeddings")), ([9, 32], [9, 32]));
    let mut floats = model.clone();
    floats.unpack(["table"]).unwrap();
    assert_eq!(outputs(&model), outputs(&floats));
}
