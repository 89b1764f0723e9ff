//! Does an adapter that chooses its tiles by measurement train as it did, come to an end with it, and remember?
//!
//! On one adapter: a software one where there is one, and with every tile, whichever is fast there.

#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that fails may panic, and says what it left out")]

use std::path::Path;

use manyhands::adapters::{Info, Kind};
use manyhands::data::digits;
use manyhands::layers::{BatchNormalization, Conv2D, Dense, Flatten, MaxPooling2D, Relu};
use manyhands::logs::StepLog;
use manyhands::{Compile, Fit, Loss, Optimizer, Precision, Sequential, Session, SplitMode, Trainer};
use manyhands_engine::adapters;
use manyhands_engine::adapters::gpu::{self, Options, Tuning};
use manyhands_engine::kernels::Tile;

use crate::alone::alone;
use crate::close::assert_close;
#[cfg(target_os = "linux")]
use crate::command::{command, outputs_of};
use crate::needed;

/// Rows of a batch: three steps an epoch, all alike.
const ROWS: usize = 479;
/// Products of a training step of the model: two forward, and three and two backward.
const PRODUCTS: usize = 8;

fn adapter() -> Option<Info> {
    let gpus = needed::gpus();
    let info = gpus.iter().find(|info| info.name.contains("llvmpipe")).or(gpus.last()).cloned();
    info.inspect(|info| println!("on {} ({})", info.name, info.backend))
}

fn trainer(adapters: Vec<Info>, tuning: &Tuning, precision: Precision) -> Trainer {
    let model = Sequential::new([8, 8, 1])
        .add(Conv2D::new(4, [3, 3]).same().no_bias())
        .add(BatchNormalization::new())
        .add(Relu::default())
        .add(MaxPooling2D::new([2, 2]))
        .add(Conv2D::new(8, [3, 3]).same())
        .add(Flatten::default())
        .add(Dense::new(10));
    let compile = Compile::new(Optimizer::sgd(1e-2, 0.0), Loss::SPARSE_CATEGORICAL_CROSSENTROPY).precision(precision);
    let trainer = Trainer::new(model.build(3).unwrap(), compile).unwrap();
    trainer
        .on(adapters)
        .split(SplitMode::Even)
        .opener(adapters::opener(Options { tuning: tuning.clone(), ..Options::from_environment() }))
}

/// What some steps were like.
#[derive(Debug, Default)]
struct Steps {
    losses: Vec<f64>,
    /// Tiles tried, and objects made, in each step.
    tried: Vec<usize>,
    made: Vec<usize>,
}

impl Steps {
    fn n_tried(&self) -> usize {
        self.tried.iter().sum()
    }

    /// The step after the last in which a tile was tried.
    fn end_of_tuning(&self) -> usize {
        self.tried.iter().rposition(|tried| *tried > 0).map_or(0, |last| last + 1)
    }
}

/// One step, in the next epoch where one has ended.
async fn step(session: &mut Session, trainer: &mut Trainer) -> StepLog {
    loop {
        if let Some(log) = session.step_async(trainer).await.unwrap() {
            return log;
        }
        session.end_epoch_async(trainer).await.unwrap();
    }
}

fn run(adapters: Vec<Info>, tuning: &Tuning, n_steps: usize) -> Steps {
    run_in(Precision::Float32, adapters, tuning, n_steps)
}

fn run_in(precision: Precision, adapters: Vec<Info>, tuning: &Tuning, n_steps: usize) -> Steps {
    let mut trainer = trainer(adapters, tuning, precision);
    pollster::block_on(async {
        let fit = Fit::new(n_steps as u64).batch_size(ROWS);
        let mut session = trainer.asynchronous().session(digits::train().unwrap(), fit).await.unwrap();
        let mut steps = Steps::default();
        for _ in 0..n_steps {
            let before = (gpu::tiles_tried(), gpu::objects_created());
            let log = step(&mut session, &mut trainer).await;
            steps.losses.push(log.values.get("loss").unwrap());
            steps.tried.push(gpu::tiles_tried() - before.0);
            steps.made.push(gpu::objects_created() - before.1);
        }
        steps
    })
}

/// Classes with their tiles, as the one file of a folder has them.
fn table(folder: &Path) -> serde_json::Map<String, serde_json::Value> {
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("one file is expected: {files:?}") };
    let text = std::fs::read_to_string(file).unwrap();
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    found["entries"].as_object().unwrap().clone()
}

#[test]
fn tuning_ends_changes_no_result_and_is_remembered() {
    let _alone = alone();
    let Some(info) = adapter() else { return };
    let folder = tempfile::tempdir().unwrap();
    let tuning = Tuning::In(folder.path().into());
    // Each tile of each product three times and once to warm up, and the steps before and after.
    let most = PRODUCTS * 4 * Tile::ALL.len();
    let n_steps = PRODUCTS * Tile::ALL.len() + 40;

    let untuned = run(vec![info.clone()], &Tuning::Off, 12);
    assert_eq!(untuned.n_tried(), 0);
    let tuned = run(vec![info.clone()], &tuning, n_steps);
    println!("{} tiles tried in {} steps: {:?}", tuned.n_tried(), tuned.end_of_tuning(), table(folder.path()));
    assert!((PRODUCTS..=most).contains(&tuned.n_tried()), "{:?}", tuned.tried);
    assert_eq!(tuned.tried[..3], [0; 3], "the first steps are as they were");
    assert!(tuned.tried.iter().all(|tried| *tried <= 4), "{:?}", tuned.tried);
    assert!(tuned.end_of_tuning() < n_steps - 10, "{:?}", tuned.tried);
    // What a step decided is taken over before the next.
    let after = tuned.end_of_tuning() + 1;
    assert!(tuned.made[after..].iter().all(|made| *made == 0), "{:?}", tuned.made);
    assert_eq!(table(folder.path()).len(), PRODUCTS);
    assert_close("losses", &tuned.losses[..12], &untuned.losses, 2e-4);

    let [second, third] = [(); 2].map(|()| run(vec![info.clone()], &tuning, 12));
    assert_eq!((second.n_tried(), third.n_tried()), (0, 0));
    assert_eq!(second.losses, third.losses, "the same tiles give the same bits");
    assert_close("losses", &second.losses, &untuned.losses, 2e-4);
    assert!(second.made[2..].iter().all(|made| *made == 0), "{:?}", second.made);
}

#[test]
fn two_adapters_are_tuned_while_they_share_batches() {
    let _alone = alone();
    let Some(info) = adapter() else { return };
    let folder = tempfile::tempdir().unwrap();
    let tuning = Tuning::In(folder.path().into());
    let adapters = vec![info.clone(), info.clone()];
    let untuned = run(adapters.clone(), &Tuning::Off, 12);
    let tuned = run(adapters, &tuning, 60);
    assert!(tuned.n_tried() > 0, "{:?}", tuned.tried);
    assert_close("losses", &tuned.losses[..12], &untuned.losses, 2e-4);
    assert!(!table(folder.path()).is_empty());
}

/// A product of rounded factors is no product of whole ones: it has a tile more to choose from.
#[test]
fn products_of_rounded_factors_have_choices_of_their_own() {
    let _alone = alone();
    let Some(info) = adapter() else { return };
    let folder = tempfile::tempdir().unwrap();
    let tuning = Tuning::In(folder.path().into());
    let mixed = |tuning: &Tuning, n_steps| run_in(Precision::MixedFloat16, vec![info.clone()], tuning, n_steps);
    let tuned = mixed(&tuning, 40);
    let halves = table(folder.path());
    assert!(!halves.is_empty() && halves.keys().all(|class| class.ends_with(" halves")), "{halves:?}");
    assert_close("losses", &tuned.losses[..12], &mixed(&Tuning::Off, 12).losses, 2e-4);
    run(vec![info.clone()], &tuning, 40);
    assert!(table(folder.path()).keys().any(|class| !class.ends_with(" halves")));
}

#[test]
fn a_broken_table_is_no_error() {
    let _alone = alone();
    let Some(info) = adapter() else { return };
    let folder = tempfile::tempdir().unwrap();
    let tuning = Tuning::In(folder.path().into());
    run(vec![info.clone()], &tuning, 60);
    let whole = table(folder.path());
    assert!(!whole.is_empty());
    for file in std::fs::read_dir(folder.path()).unwrap() {
        std::fs::write(file.unwrap().path(), "{\"entries\": 7").unwrap();
    }
    assert!(run(vec![info], &tuning, 60).n_tried() > 0);
    assert!(!table(folder.path()).is_empty(), "it is written anew");
}

/// A layer is enough: its product is decided within an epoch.
#[cfg(target_os = "linux")]
const RUN: &str = r#"
[data]
type = "digits"
[model]
input = [8, 8, 1]
layers = [{ type = "Flatten" }, { type = "Dense", units = 10 }]
[loss]
type = "SparseCategoricalCrossentropy"
[optimizer]
type = "Adam"
[training]
epochs = 2
"#;

/// Trains with the command, with a variable set and the cache in a folder; gives the number of tables in that folder.
#[cfg(target_os = "linux")]
fn tables_after(info: &Info, tuning: Option<&str>, cache: &Path) -> usize {
    let folder = cache.parent().unwrap();
    std::fs::write(folder.join("run.toml"), RUN).unwrap();
    let mut command = command(folder, "train run.toml --overwrite");
    command.args(["--adapters", &info.name]).env("XDG_CACHE_HOME", cache).env_remove(gpu::TUNING_VARIABLE);
    if let Some(tuning) = tuning {
        command.env(gpu::TUNING_VARIABLE, tuning);
    }
    outputs_of(&mut command);
    std::fs::read_dir(cache.join("manyhands").join("tiles")).map_or(0, Iterator::count)
}

#[cfg(target_os = "linux")]
#[test]
fn the_environment_switches_it_on_and_off() {
    let _alone = alone();
    let Some(info) = adapter() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    assert_eq!(tables_after(&info, Some("off"), &cache), 0);
    // A driver that computes on the CPU is tuned only when that is asked for.
    let by_default = usize::from(info.kind != Kind::Software);
    assert_eq!(tables_after(&info, None, &cache), by_default);
    assert_eq!(tables_after(&info, Some("on"), &cache), 1);
    let own = folder.path().join("own");
    tables_after(&info, own.to_str(), &cache);
    assert!(!table(&own).is_empty());
}
