//! Do values that are computed again for backward give the same bits in less memory?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use manyhands::adapters::Kind;
use manyhands::data::InMemory;
use manyhands::layers::{
    Activation, Add, BatchNormalization, Conv2D, Dense, Dropout, Flatten, Lstm, MultiHeadAttention, Relu, Reshape,
};
use manyhands::{
    Compile, Fit, Loss, Model, ModelBuilder, Optimizer, Placement, Result, Sequential, SplitMode, Trainer,
};
use ndarray::{Array, IxDyn};

use crate::keras::{on, one_and_all};

const ROWS: usize = 24;

/// Blocks of attention with dropout, functions of their own nodes, an LSTM, and two outputs, one of them from the middle.
fn blocks() -> Model {
    let mut graph = ModelBuilder::new();
    let x = graph.input("x", [8, 8, 1]);
    let mut x = graph.add_named("lines", Reshape::new([8, 8]), &[x]);
    let mut outputs = Vec::new();
    for block in 0..4 {
        let name = |part: &str| format!("{part}{block}");
        let attended = graph.add_named(&name("attention"), MultiHeadAttention::new(2, 4), &[x, x]);
        let dropped = graph.add_named(&name("dropout"), Dropout::new(0.3), &[attended]);
        let sum = graph.add_named(&name("sum"), Add::default(), &[x, dropped]);
        let wide = graph.add_named(&name("wide"), Dense::new(48), &[sum]);
        let wide = graph.add_named(&name("relu"), Relu::default(), &[wide]);
        let narrow = graph.add_named(&name("narrow"), Dense::new(8).activation(Activation::Tanh), &[wide]);
        x = graph.add_named(&name("out"), Add::default(), &[sum, narrow]);
        if block == 1 {
            let flat = graph.add_named("flat", Flatten::default(), &[x]);
            outputs.push(graph.add_named("middle", Dense::new(10), &[flat]));
        }
    }
    let last = graph.add_named("lstm", Lstm::new(6), &[x]);
    outputs.push(graph.add_named("end", Dense::new(10), &[last]));
    graph.build(&outputs, 5).unwrap()
}

/// Convolutions between batch normalizations.
fn normed() -> Model {
    let block = |model: Sequential| {
        let model = model.add(Conv2D::new(6, [3, 3]).same()).add(BatchNormalization::new()).add(Relu::default());
        model.add(Conv2D::new(12, [3, 3]).same()).add(Relu::default()).add(Conv2D::new(3, [3, 3]).same())
    };
    let model = (0..3).fold(Sequential::new([8, 8, 1]), |model, _| block(model));
    model.add(Flatten::default()).add(Dense::new(10)).build(2).unwrap()
}

fn trainer(model: &Model, recompute: bool) -> Trainer {
    let losses = vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY; model.outputs().len()];
    let compile = Compile::with_losses(Optimizer::adam(1e-2), losses).seed(3).recompute(recompute);
    Trainer::new(model.clone(), compile).unwrap()
}

/// Random rows: pictures, and the same classes for each output.
fn data(model: &Model) -> InMemory {
    let values = |len: usize, of: u16| (0..len).map(move |at| f32::from(u16::try_from(at * 7919 % 8191).unwrap() % of));
    let pictures: Vec<f32> = values(3 * ROWS * 64, 101).map(|value| value / 50.0 - 1.0).collect();
    let classes = || Array::from_iter(values(3 * ROWS, 10));
    let rows = InMemory::new(Array::from_shape_vec(IxDyn(&[3 * ROWS, 8, 8, 1]), pictures).unwrap(), classes()).unwrap();
    (1..model.outputs().len()).fold(rows, |rows, _| rows.with_target(classes()).unwrap())
}

/// Weights after three steps, and the losses.
fn trained(model: &Model, recompute: bool, set: impl Fn(Trainer) -> Trainer) -> Result<(Vec<u32>, Vec<u64>)> {
    let mut trainer = set(trainer(model, recompute).split(SplitMode::Even));
    let history = trainer.fit(data(model), &Fit::new(2).batch_size(ROWS).in_order())?;
    let losses = history.epochs.iter().map(|epoch| epoch.values.get("loss").unwrap().to_bits()).collect();
    let weights = trainer.model().weights.parameters.iter().flatten().map(|value| value.to_bits()).collect();
    Ok((weights, losses))
}

#[test]
fn training_keeps_its_bits() {
    for model in [blocks(), normed()] {
        for rig in one_and_all() {
            let [kept, again] =
                [false, true].map(|recompute| trained(&model, recompute, |it| it.on(on(&rig))).unwrap());
            assert!(kept == again, "{rig}");
        }
    }
}

#[test]
fn stages_keep_their_bits() {
    let placement = || Placement::stages([(["..out0"], [0]), (["attention1.."], [1])]);
    let set = |trainer: Trainer| trainer.on(on("cpu,cpu")).placement(placement());
    let [kept, again] = [false, true].map(|recompute| trained(&blocks(), recompute, set).unwrap());
    assert!(kept == again);
}

/// Bytes of training on the CPU adapter, of 1,000 rows.
fn bytes(model: &Model, recompute: bool) -> u64 {
    trainer(model, recompute).memory_need(Kind::Cpu, 1000, 1, None).unwrap().unwrap().bytes
}

#[test]
fn memory_of_many_blocks_is_that_of_one_and_of_what_lies_between() {
    let block = |model: Sequential| model.add(Dense::new(400).activation(Activation::Gelu)).add(Dense::new(8));
    let model = (0..16).fold(Sequential::new([8]), |model, _| block(model)).add(Dense::new(10)).build(0).unwrap();
    let [kept, again] = [false, true].map(|recompute| bytes(&model, recompute));
    // Each block keeps 400 numbers before and behind its function; again, one does, with gradients of both.
    assert!(kept > 16 * 2 * 400 * 4 * 1000, "{kept}");
    assert!(again < 5 * 400 * 4 * 1000, "{again}");
    // Nothing can be saved where each layer has batch normalization on both sides.
    let normed = |model: Sequential| model.add(Dense::new(8)).add(BatchNormalization::new());
    let model = (0..4).fold(Sequential::new([8]), |model, _| normed(model)).add(Dense::new(10)).build(0).unwrap();
    assert_eq!(bytes(&model, true), bytes(&model, false));
}
