//! Two passages: did the same president write both? One LSTM reads them, trained on several adapters at once.
//!
//!     python3 scripts/speeches.py target/speeches
//!     cargo run --release --example 06_two_passages
//!
//! `-- --short` trains on a few rows only, to see that all runs. The data are addresses to Congress; no address of the test
//! rows is among the training rows. `scripts/passages_keras.py` trains the same model with Keras.

#![allow(clippy::print_stdout, reason = "an example shows its numbers")]

use std::path::Path;
use std::sync::Arc;

use manyhands::adapters;
use manyhands::data::csv::{self, Column, CsvSettings, InputColumns, TargetKind};
use manyhands::data::{Dataset, InMemory, Subset, TokenSettings};
use manyhands::layers::{Concatenate, Dense, Dropout, Embedding, Lstm, Multiply, Subtract};
use manyhands::model::ModelBuilder;
use manyhands::{Compile, Error, Fit, Loss, Model, Optimizer, Result, Trainer};

const FOLDER: &str = "target/speeches";
/// Words of a passage that count.
const WORDS: usize = 140;
/// Different words that count: the most frequent.
const VOCABULARY: usize = 5000;
const EPOCHS: u64 = 6;

fn main() -> Result<()> {
    let is_short = std::env::args().any(|argument| argument == "--short");
    let (train, test) = (Path::new(FOLDER).join("passages_train.csv"), Path::new(FOLDER).join("passages_test.csv"));
    if !train.exists() {
        return Err(Error::data(
            format!("`{}`", train.display()),
            "is needed, but is not there",
            "write it: `python3 scripts/speeches.py target/speeches`",
        ));
    }
    let settings = settings();
    let train = csv::open(&train, &settings)?.dataset;
    // The words of the training passages have the same numbers in the test passages.
    let test = csv::open_like(&test, &settings, &train.schema())?.dataset;

    let compile = Compile::new(Optimizer::adam(2e-3), Loss::BINARY_CROSSENTROPY);
    let mut trainer = Trainer::new(model()?, compile)?.adapters(several())?;
    let epochs = if is_short { 1 } else { EPOCHS };
    let part = |data: InMemory, short: usize| {
        let rows = if is_short { short } else { data.len() };
        Subset::new(Arc::new(data), (0..rows).collect())
    };
    let (train, test) = (part(train, 256)?, part(test, 64)?);
    let history = trainer.fit(train, &Fit::new(epochs).batch_size(128).validation(test))?;
    for epoch in &history.epochs {
        println!("epoch {}: {} ({:.0} rows/s)", epoch.epoch, epoch.values, epoch.samples_per_s);
    }
    println!("{}", history.time);
    let accuracy = history.of("val_accuracy").last().copied().unwrap_or_default();
    println!("of passages from addresses never seen, {:.1} % are told right", 100.0 * accuracy);
    Ok(())
}

/// Columns of the tables: two texts with one vocabulary, and the class.
fn settings() -> CsvSettings {
    let tokens = TokenSettings { max_tokens: Some(VOCABULARY), ..TokenSettings::default() };
    let text = |name: &str| InputColumns::text(name, Column::Name(name.into()), WORDS, tokens);
    let settings = CsvSettings::new(Column::Name("same".into()), TargetKind::Classes);
    CsvSettings { inputs: vec![text("first"), text("second")], ..settings }
}

/// Both passages go through one embedding and one LSTM; products and squared differences of what it returns tell whether
/// they are alike.
fn model() -> Result<Model> {
    let mut graph = ModelBuilder::new();
    let inputs = ["first", "second"].map(|name| graph.input(name, [WORDS]));
    let embedding = graph.layer("embedding", Embedding::new(VOCABULARY, 32).mask_zero());
    let lstm = graph.layer("lstm", Lstm::new(64));
    let [first, second] = inputs.map(|input| {
        let words = graph.call(embedding, &[input]);
        graph.call(lstm, &[words])
    });
    let product = graph.add(Multiply {}, &[first, second]);
    let difference = graph.add(Subtract {}, &[first, second]);
    let square = graph.add(Multiply {}, &[difference, difference]);
    let alike = graph.add(Concatenate::default(), &[product, square]);
    let dropped = graph.add(Dropout::new(0.3), &[alike]);
    let same = graph.add_named("same", Dense::new(1), &[dropped]);
    graph.build(&[same], 0)
}

/// All adapters, if the machine has two GPUs or more; else two workers on the CPU.
fn several() -> &'static str {
    let gpus = adapters::list().iter().filter(|info| info.kind.is_gpu()).count();
    if gpus > 1 { "all" } else { "cpu,cpu" }
}
