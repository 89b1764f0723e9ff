//! A transformer of characters learns to write: addresses of presidents to Congress, on every GPU or on the CPU.
//!
//!     python3 scripts/speeches.py target/speeches
//!     cargo run --release --example 07_language_model
//!
//! `-- --short` trains on a few rows only, to see that all runs; `-- 1` has another seed; `-- --mixed` rounds the factors of
//! products to 16 bits. The number to compare is bits per character on addresses that it has never seen; `scripts/language_keras.py` trains the same model with Keras.

#![allow(clippy::print_stdout, reason = "an example shows its numbers")]
#![allow(clippy::cast_precision_loss, reason = "characters are few")]

use std::path::Path;
use std::sync::Arc;

use manyhands::data::{Dataset, InMemory, Split, Subset, Texts, TokenSettings, Vocabulary, Windows};
use manyhands::{Compile, Error, Fit, Loss, Optimizer, Precision, Predictor, Result, Trainer, presets};
use ndarray::{Array2, Axis};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const FOLDER: &str = "target/speeches";
/// Characters that the network sees at once.
const LENGTH: usize = 64;
/// Rows of a batch, and batches.
const BATCH: usize = 32;
const STEPS: usize = 600;
const TEST_ROWS: usize = 2000;
const PROMPT: &str = "The state of the Union ";
/// Likely characters become likelier below 1.
const TEMPERATURE: f32 = 0.7;

fn main() -> Result<()> {
    let is_short = std::env::args().any(|argument| argument == "--short");
    let seed = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(0);
    let (train, test) = (read("train")?, read("test")?);
    let settings = TokenSettings { split: Split::Character, ..TokenSettings::default() };
    let vocabulary = Vocabulary::adapt(settings, train.iter().map(String::as_str));
    let windows = Windows::new(LENGTH)?;
    let (train, test) =
        (Texts::new(vocabulary.clone(), train, windows)?, Texts::new(vocabulary.clone(), test, windows)?);

    let model = presets::find("gpt_mini")?.build_for([LENGTH], vocabulary.tokens().len(), seed)?;
    println!("{} characters, {} parameters", vocabulary.tokens().len(), model.n_parameters());
    let (steps, test_rows) = if is_short { (4, 64) } else { (STEPS, TEST_ROWS) };
    let (train, test) = (spread(train, steps * BATCH)?, spread(test, test_rows)?);

    let is_mixed = std::env::args().any(|argument| argument == "--mixed");
    let precision = if is_mixed { Precision::MixedFloat16 } else { Precision::Float32 };
    let compile = Compile::new(Optimizer::adam(1e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY).seed(seed);
    let compile = compile.precision(precision);
    let mut trainer = Trainer::new(model, compile)?;
    let history = trainer.fit(train, &Fit::new(1).batch_size(BATCH).validation(test))?;
    println!("{}", history.time);
    let loss = history.of("val_loss")[0];
    println!("{:.3} bits per character on addresses never seen", loss / std::f64::consts::LN_2);

    let mut predictor = Predictor::new(trainer.into_model());
    println!("{PROMPT}{}", write(&mut predictor, &vocabulary, if is_short { 20 } else { 400 })?);
    Ok(())
}

/// A number of rows of a text, evenly spread over it.
fn spread(texts: Texts, count: usize) -> Result<Subset> {
    let rows = (0..count).map(|row| row * texts.len() / count).collect();
    Subset::new(Arc::new(texts), rows)
}

/// The text files of a folder.
fn read(name: &str) -> Result<Vec<String>> {
    let folder = Path::new(FOLDER).join(name);
    if !folder.exists() {
        return Err(Error::data(
            format!("`{}`", folder.display()),
            "is needed, but is not there",
            "write it: `python3 scripts/speeches.py target/speeches`",
        ));
    }
    Texts::read(&folder)
}

/// Draws one character after the other, each from what the network expects after the last `LENGTH` of them.
fn write(predictor: &mut Predictor, vocabulary: &Vocabulary, count: usize) -> Result<String> {
    let mut draw = ChaCha8Rng::seed_from_u64(0);
    let prompt = vocabulary.encode(PROMPT);
    let mut text = prompt.clone();
    for _ in 0..count {
        let seen = &text[text.len().saturating_sub(LENGTH)..];
        // What follows the last character does not matter: no position sees later ones.
        let row = Array2::from_shape_fn((1, LENGTH), |(_, at)| seen.get(at).map_or(0.0, |id| *id as f32));
        let outputs = predictor.predict(InMemory::without_targets(row)?, 1)?;
        let scores = outputs[0].index_axis(Axis(0), 0).index_axis_move(Axis(0), seen.len() - 1);
        text.push(draw_from(scores.iter().map(|score| (score / TEMPERATURE).exp()).collect(), &mut draw));
    }
    Ok(vocabulary.decode(&text[prompt.len()..]))
}

/// A place in a list, as often as its weight says.
fn draw_from(weights: Vec<f32>, draw: &mut ChaCha8Rng) -> u32 {
    let mut left = draw.random_range(0.0..1.0) * weights.iter().sum::<f32>();
    let mut is_it = |weight: &f32| {
        left -= weight;
        left < 0.0
    };
    (0..).zip(&weights).find(|(_, weight)| is_it(weight)).map_or(0, |(place, _)| place)
}
