//! The model of Keras' `make_parallel`, before and after the one line that trains it on several adapters.
//!
//!     cargo run --release --example 02_make_parallel            a twentieth of the size
//!     cargo run --release --example 02_make_parallel -- --full  41,157,101 parameters
//!
//! Shows that nothing else changes: the same losses, the same file, and a last batch that is shorter than the list of
//! adapters is no special case.

#![allow(clippy::print_stdout, reason = "an example shows its numbers")]

use manyhands::adapters;
use manyhands::data::Synthetic;
use manyhands::layers::{Activation, Dense};
use manyhands::{Compile, Fit, History, Loss, Model, Optimizer, Result, Sequential, Trainer};

/// The sizes are divided by this, unless `--full` is given.
const SCALE: usize = 20;
const BATCH: usize = 64;
/// Fifteen batches, and a last one of a single row.
const ROWS: usize = 15 * BATCH + 1;

fn main() -> Result<()> {
    let scale = if std::env::args().any(|argument| argument == "--full") { 1 } else { SCALE };
    let (one, several) = lists();

    let before = train(scale, one)?;
    let after = train(scale, several)?;

    compare_losses(&before.0, &after.0);
    compare_files(&before.1, &after.1)
}

/// Trains. Only the line with `adapters` differs between one adapter and several.
fn train(scale: usize, adapters: &str) -> Result<(History, Model)> {
    let model = Sequential::new([8000 / scale])
        .add(Dense::new(4000 / scale).activation(Activation::Relu))
        .add(Dense::new(2000 / scale).activation(Activation::Relu))
        .add(Dense::new(500 / scale).activation(Activation::Relu))
        .add(Dense::new(300 / scale).activation(Activation::Relu))
        .add(Dense::new(1))
        .build(1)?;
    println!("{} parameters on `{adapters}`", model.n_parameters());
    let mut trainer =
        Trainer::new(model, Compile::new(Optimizer::sgd(0.05, 0.0), Loss::BINARY_CROSSENTROPY))?.adapters(adapters)?;
    let rows = Synthetic::new([8000 / scale], 2, 0..ROWS, 7)?;
    let history = trainer.fit(rows, &Fit::new(3).batch_size(BATCH))?;
    Ok((history, trainer.into_model()))
}

/// One adapter and several of this machine: GPUs if it has two or more, else two workers on the CPU.
fn lists() -> (&'static str, &'static str) {
    let list = adapters::list();
    match list.iter().filter(|info| info.kind.is_gpu()).count() {
        0 | 1 => ("cpu", "cpu,cpu"),
        // GPUs stand first in the list.
        _ => ("0", "all"),
    }
}

fn compare_losses(before: &History, after: &History) {
    for (epoch, (one, several)) in before.of("loss").iter().zip(after.of("loss")).enumerate() {
        let difference = (one - several).abs() / one;
        println!("epoch {}: loss {one:.7} before, {several:.7} after, {difference:.1e} apart", epoch + 1);
        // Sums of f32 in another order differ in their last bits.
        assert!(difference < 1e-4);
    }
    let (first, last) = (before.of("loss")[0], before.of("loss")[2]);
    assert!(last < 0.5 * first, "the loss falls, from {first} to {last}");
}

fn compare_files(before: &Model, after: &Model) -> Result<()> {
    let folder = tempfile::tempdir().map_err(|error| manyhands::Error::writing(std::env::temp_dir(), error))?;
    let files = ["before.safetensors", "after.safetensors"].map(|name| folder.path().join(name));
    before.save(&files[0])?;
    after.save(&files[1])?;
    let mut sizes = Vec::new();
    for file in &files {
        let model = Model::load(file)?;
        let names: Vec<&str> = model.tensors().map(|(name, ..)| name).collect();
        sizes.push(model.to_bytes()?.len());
        println!(
            "{}: {} bytes, {} tensors from {} to {}",
            file_name(file),
            sizes[sizes.len() - 1],
            names.len(),
            names[0],
            names[names.len() - 1]
        );
    }
    assert_eq!(sizes[0], sizes[1]);
    assert_eq!(Model::load(&files[0])?.config(), Model::load(&files[1])?.config());
    Ok(())
}

fn file_name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
