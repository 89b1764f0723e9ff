//! Do packed frozen weights train and predict to the same bits as their floats, in a part of the memory?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use manyhands::data::InMemory;
use manyhands::layers::{Activation, Add, Configure, Dense, Embedding, Lora, ReversibleEmbedding};
use manyhands::model::Objective;
use manyhands::packed::PackedFormat;
use manyhands::{Checkpoint, Compile, Fit, Loss, Model, ModelBuilder, Optimizer, SplitMode, Trainer};
use manyhands_engine::adapters::memory::HostBuffers;
use manyhands_engine::plan::{Command, Pass, Role};
use ndarray::{Array, IxDyn};

use crate::keras::{on, one_and_all};
use crate::needed;

const POSITIONS: usize = 6;
const ROWS: usize = 16;
const LAYERS: [&str; 4] = ["table", "words", "wide", "narrow"];

/// A language model in small: a table at both ends, a table and a product with low-rank factors, and a frozen product between.
fn model(table: ReversibleEmbedding, wide: usize, lora: Lora) -> Model {
    let (words, dim) = (table.input_dim, table.output_dim);
    let mut graph = ModelBuilder::new();
    let ids = graph.input("ids", [POSITIONS]);
    let table = graph.layer("table", table.frozen());
    let vectors = graph.call(table, &[ids]);
    let others = graph.add_named("words", Embedding::new(words, dim).lora(lora), &[ids]);
    let sum = graph.add(Add::default(), &[vectors, others]);
    let wide = graph.add_named("wide", Dense::new(wide).activation(Activation::Relu).frozen(), &[sum]);
    let back = graph.add_named("back", Dense::new(96).activation(Activation::Gelu), &[wide]);
    let narrow = graph.add_named("narrow", Dense::new(dim).activation(Activation::Tanh).lora(lora), &[back]);
    let logits = graph.call_reversed(table, &[narrow]);
    let mut model = graph.build(&[logits], 3).unwrap();
    for name in ["words/lora_embeddings_b", "narrow/lora_kernel_b", "wide/bias"] {
        let values = model.tensor_mut(name).unwrap();
        (0_u16..).zip(values).for_each(|(at, value)| *value = f32::from(at % 11 * 7 % 11) / 50.0 - 0.1);
    }
    model
}

/// The packed model, and a model with the floats of its blocks.
fn both(mut model: Model, format: PackedFormat) -> [Model; 2] {
    model.pack(LAYERS, format).unwrap();
    let mut floats = model.clone();
    floats.unpack(LAYERS).unwrap();
    assert!(model.tensor("narrow/kernel").is_none() && floats.packed("narrow/kernel").is_none());
    [model, floats]
}

fn rows(words: usize) -> InMemory {
    let ids = |factor: usize| -> Vec<f32> {
        let ids = (0..ROWS * POSITIONS).map(|at| at * factor % 8191 % words);
        ids.map(|id| f32::from(u16::try_from(id % 60_000).unwrap())).collect()
    };
    let array = |values| Array::from_shape_vec(IxDyn(&[ROWS, POSITIONS]), values).unwrap();
    InMemory::new(array(ids(4099)), array(ids(6007))).unwrap()
}

fn compile() -> Compile {
    Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY)
}

fn bits<'a>(values: impl IntoIterator<Item = &'a f32>) -> Vec<u32> {
    values.into_iter().map(|value| value.to_bits()).collect()
}

/// Losses, outputs and trained tensors, as bits.
type Bits = (Vec<u64>, Vec<u32>, Vec<(String, Vec<u32>)>);

/// Losses of steps, outputs afterwards and what was trained, in bits.
fn trained(model: Model, words: usize, epochs: u64, rig: &str) -> Bits {
    let mut trainer = Trainer::new(model, compile()).unwrap().on(on(rig)).split(SplitMode::Even);
    let mut session = trainer.session(rows(words), Fit::new(epochs).batch_size(ROWS / 2).in_order()).unwrap();
    let mut losses = Vec::new();
    for _ in 0..epochs {
        while let Some(log) = session.step(&mut trainer).unwrap() {
            losses.push(log.values.get("loss").unwrap().to_bits());
        }
        session.end_epoch(&mut trainer).unwrap();
    }
    let outputs = bits(trainer.predict(rows(words), ROWS).unwrap().remove(0).iter());
    let model = trainer.into_model();
    let names = model.layout().trainable().iter().map(|placed| placed.name.clone());
    let weights = names.map(|name| (name.clone(), bits(model.tensor(&name).unwrap()))).collect();
    (losses, outputs, weights)
}

#[test]
fn packed_weights_train_to_the_bits_of_their_floats() {
    for (format, table, lora) in [
        (PackedFormat::Q8_0, ReversibleEmbedding::new(101, 64), Lora::new(3).alpha(6.0)),
        (PackedFormat::Q4_0, ReversibleEmbedding::new(101, 64).untied().logit_soft_cap(5.0), Lora::new(2)),
    ] {
        let start = model(table, 70, lora);
        let [packed, floats] = both(start, format);
        for rig in one_and_all() {
            let [one, other] = [&packed, &floats].map(|model| trained(model.clone(), 101, 10, &rig));
            assert_eq!(one.0.len(), 20);
            assert_eq!(one, other, "{} on {rig}", format.name());
            assert_ne!(one.0[0], one.0[19], "training moves the loss");
        }
    }
}

/// Weights whose floats are unpacked in parts: by words of a table, by units and inputs of a kernel.
#[test]
fn large_weights_are_unpacked_in_parts_to_the_same_bits() {
    let (words, dim, wide) = (8_300, 512, 8_192);
    let [packed, floats] = both(model(ReversibleEmbedding::new(words, dim), wide, Lora::new(2)), PackedFormat::Q8_0);
    let plan = packed.plan(&objective()).unwrap();
    let unpacked = |node: &str, pass: Pass| {
        let of_node = plan.commands(pass).iter().filter(|command| match command {
            Command::Dispatch(dispatch) => dispatch.node == node && dispatch.kernel.name() == "packed.unpack",
            Command::Exchange(_) => false,
        });
        of_node.count()
    };
    assert_eq!([Pass::Predict, Pass::Train].map(|pass| unpacked("table:1", pass)), [5, 5 + 5]);
    assert_eq!([Pass::Predict, Pass::Train].map(|pass| unpacked("wide", pass)), [4, 4 + 1]);
    let mut rigs = vec!["cpu".to_owned()];
    rigs.extend(needed::gpu_indices());
    for rig in rigs {
        let [one, other] = [&packed, &floats].map(|model| trained(model.clone(), words, 1, &rig));
        assert!(one == other, "{rig}");
    }
}

fn objective() -> Objective {
    Objective::new(vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], Optimizer::adam(1e-2))
}

/// Bytes of what is frozen, by the plan, and of the floats that are unpacked at once.
fn frozen_bytes(model: &Model) -> [u64; 2] {
    let plan = model.plan(&objective()).unwrap();
    let trainable = u32::try_from(model.layout().trainable_segments().len()).unwrap();
    let frozen = plan.buffers.iter().filter(|buffer| matches!(buffer.role, Role::Parameters(it) if it >= trainable));
    let unpacked: Vec<usize> =
        (0..plan.buffers.len()).filter(|idx| plan.buffers[*idx].role == Role::Unpacked).collect();
    let memory = HostBuffers::of(&plan);
    let mut places: Vec<usize> = unpacked.iter().map(|idx| memory.places[*idx]).collect();
    places.sort_unstable();
    places.dedup();
    [frozen.map(|buffer| 4 * buffer.len.fixed).sum(), places.iter().map(|place| 4 * memory.lengths[*place].fixed).sum()]
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn memory_is_a_part_of_the_floats_and_room_for_one_product() {
    let start = model(ReversibleEmbedding::new(2000, 256), 70, Lora::new(2));
    for (format, most) in [(PackedFormat::Q8_0, 0.27), (PackedFormat::Q4_0, 0.15), (PackedFormat::Q4_1, 0.16)] {
        let [packed, floats] = both(start.clone(), format);
        let ([packed_bytes, unpacked], [float_bytes, none]) = (frozen_bytes(&packed), frozen_bytes(&floats));
        let part = packed_bytes as f64 / float_bytes as f64;
        assert!(part < most + 0.003 && part > most - 0.02, "{}: {part}", format.name());
        // The largest product's weights, those of the vocabulary, are the memory of all.
        assert_eq!((unpacked, none), (4 * 2000 * 256, 0));
        // On the host, too.
        let host = |model: &Model| model.weights.parameters.iter().map(Vec::len).sum::<usize>();
        assert_eq!(4 * (host(&floats) - host(&packed)), usize::try_from(float_bytes - packed_bytes).unwrap());
    }
}

#[test]
fn a_run_with_packed_weights_is_resumed_from_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.safetensors");
    let [packed, _] = both(model(ReversibleEmbedding::new(101, 64), 70, Lora::new(3)), PackedFormat::Q4_0);
    let fit = |epochs| Fit::new(epochs).batch_size(ROWS / 2);
    let mut whole = Trainer::new(packed.clone(), compile()).unwrap().on(on("cpu"));
    whole.fit(rows(101), &fit(2)).unwrap();
    let mut first = Trainer::new(packed, compile()).unwrap().on(on("cpu"));
    first.fit(rows(101), &fit(1).save(&path)).unwrap();
    let checkpoint = Checkpoint::load(&path).unwrap();
    let mut resumed = Trainer::new(checkpoint.model.clone(), compile()).unwrap().on(on("cpu"));
    resumed.resume(checkpoint).unwrap();
    resumed.fit(rows(101), &fit(2)).unwrap();
    assert_eq!(resumed.model().weights, whole.model().weights);
    assert!(resumed.model().packed("table/embeddings").is_some());
}
