//! Two pictures, one tower that both go through: are they the same digit? On two adapters, in two ways.
//!
//!     cargo run --release --example 08_two_towers
//!
//! First each adapter computes all layers for its rows of the batch. Then the layers are placed: the first adapter
//! computes the tower for the first picture, the second one the tower for the second picture and what joins them. Both
//! train the same weights. `-- --short` trains for a few steps only.

#![allow(clippy::print_stdout, reason = "an example shows its numbers")]

use manyhands::adapters::{self, Info};
use manyhands::data::{Batch, Dataset, InMemory, digits};
use manyhands::layers::{Activation, Concatenate, Dense, Flatten, Multiply, Subtract};
use manyhands::model::ModelBuilder;
use manyhands::{Compile, Error, Fit, Loss, Model, Optimizer, Placement, Result, Trainer};
use ndarray::{Array1, Array2};

const PIXELS: usize = 64;
const WIDTH: usize = 256;

fn main() -> Result<()> {
    let is_short = std::env::args().any(|argument| argument == "--short");
    let adapters = two();
    println!("adapters: {} and {}", adapters[0].name, adapters[1].name);
    let (train, test) = (pairs(&digits::train()?, 1), pairs(&digits::test()?, 7));
    let (train, test) = (train?, test?);
    let stages = [(["first_flat", "tower..tower_out"], [0]), (["second_flat", "tower:1.."], [1])];
    for (what, placement) in [
        ("each adapter computes all layers", Placement::Replicas),
        ("each computes its layers", Placement::stages(stages)),
    ] {
        let compile = Compile::new(Optimizer::adam(1e-3), Loss::BINARY_CROSSENTROPY);
        let mut trainer = Trainer::new(model()?, compile)?.on(adapters.clone()).placement(placement);
        let fit = Fit::new(if is_short { 1 } else { 15 }).batch_size(128).micro_batches(4);
        let history = trainer.fit(train.clone(), &fit)?;
        let seconds: f64 = history.epochs.iter().map(|epoch| epoch.seconds).sum();
        let loss = history.of("loss").last().copied().unwrap_or_default();
        let accuracy = trainer.evaluate(test.clone(), 128)?.get("accuracy").unwrap_or_default();
        println!("{what}: {seconds:.1} s, loss {loss:.4}, {:.1} % of the test pairs are told right", 100.0 * accuracy);
    }
    Ok(())
}

/// Both pictures go through the layers `tower` and `tower_out`, whose weights they share.
fn model() -> Result<Model> {
    let mut graph = ModelBuilder::new();
    let first = graph.input("first", [PIXELS]);
    let second = graph.input("second", [PIXELS]);
    let tower = graph.layer("tower", Dense::new(WIDTH).activation(Activation::Relu));
    let tower_out = graph.layer("tower_out", Dense::new(WIDTH / 4).activation(Activation::Tanh));
    let mut through = |flat: &str, picture| {
        let picture = graph.add_named(flat, Flatten::default(), &[picture]);
        let hidden = graph.call(tower, &[picture]);
        graph.call(tower_out, &[hidden])
    };
    let (first, second) = (through("first_flat", first), through("second_flat", second));
    let difference = graph.add(Subtract {}, &[first, second]);
    let square = graph.add(Multiply {}, &[difference, difference]);
    let product = graph.add(Multiply {}, &[first, second]);
    let joined = graph.add(Concatenate::default(), &[square, product]);
    let same = graph.add_named("same", Dense::new(1), &[joined]);
    graph.build(&[same], 0)
}

/// Each picture with the next one of the same digit, and with one that is `step` further, which may be of any.
fn pairs(data: &dyn Dataset, step: usize) -> Result<InMemory> {
    let all = Batch::fetch(data, &(0..data.len()).collect::<Vec<_>>())?;
    let labels = &all.targets[0];
    let mut chosen = Vec::new();
    for row in 0..data.len() {
        let like = (row + 1..data.len()).find(|other| (labels[*other] - labels[row]).abs() < 0.5);
        chosen.extend(like.map(|other| (row, other)));
        chosen.push((row, (row + step) % data.len()));
    }
    let pixels = |row: usize| all.inputs[0][row * PIXELS..(row + 1) * PIXELS].iter().copied();
    let pictures = |rows: Vec<usize>| {
        Array2::from_shape_vec((rows.len(), PIXELS), rows.into_iter().flat_map(pixels).collect())
            .map_err(|error| Error::data("the pictures", error.to_string(), "give all of one size"))
    };
    let is_same = |(a, b): &(usize, usize)| f32::from(u8::from((labels[*a] - labels[*b]).abs() < 0.5));
    let same: Array1<f32> = chosen.iter().map(is_same).collect();
    let (first, second) = chosen.into_iter().unzip();
    InMemory::without_targets(pictures(first)?)?.with_input(pictures(second)?)?.with_target(same)
}

/// Two GPUs, if there are two; else two workers on the CPU.
fn two() -> Vec<Info> {
    let gpus: Vec<Info> = adapters::list().into_iter().filter(|info| info.kind.is_gpu()).take(2).collect();
    if gpus.len() == 2 { gpus } else { vec![Info::cpu(); 2] }
}
