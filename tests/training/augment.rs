//! Does training see the same changed images whatever reads them, whatever computes, and after a resumption?

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a test that fails may panic, and its numbers are small"
)]

use std::path::Path;

use manyhands::data::{Augmentation, Factor, FillMode, FlipMode, InMemory};
use manyhands::layers::{Conv2D, Dense, Flatten};
use manyhands::{Checkpoint, Compile, ErrorKind, Fit, Loss, Optimizer, Sequential, SplitMode, Trainer};
use ndarray::{Array2, Array4};

use crate::keras::{on, rigs};

/// Images of two classes, with a number for each class.
fn images() -> InMemory {
    let pixel = |(row, y, x, _): (usize, usize, usize, usize)| {
        (if row % 2 == 0 { y } else { x } * 20 + row * 7 % 20) as f32 / 160.0
    };
    let targets = Array2::from_shape_fn((40, 2), |(row, class)| f32::from(u8::from(row % 2 == class)));
    InMemory::new(Array4::from_shape_fn((40, 8, 8, 1), pixel), targets).unwrap()
}

fn changes() -> [Augmentation; 5] {
    let factor = Factor::One(0.2);
    [
        Augmentation::RandomFlip { mode: FlipMode::HorizontalAndVertical },
        Augmentation::random_rotation(Factor::One(0.1)),
        Augmentation::RandomZoom {
            height_factor: factor,
            width_factor: None,
            fill_mode: FillMode::Nearest,
            fill_value: 0.0,
        },
        Augmentation::RandomContrast { factor, value_range: [0.0, 1.0] },
        Augmentation::MixUp { alpha: 0.3 },
    ]
}

fn trainer(rig: &str) -> Trainer {
    let graph = Sequential::new([8, 8, 1]).add(Conv2D::new(4, [3, 3])).add(Flatten::default()).add(Dense::new(2));
    let compile = Compile::new(Optimizer::adam(0.01), Loss::CATEGORICAL_CROSSENTROPY);
    Trainer::new(graph.build(1).unwrap(), compile).unwrap().on(on(rig)).split(SplitMode::Even)
}

fn fit(epochs: u64, workers: usize) -> Fit {
    Fit::new(epochs).batch_size(16).workers(workers).augment(changes())
}

/// The bits of the weights, and the loss of the last epoch.
fn left(trainer: &Trainer, history: &manyhands::History) -> (Vec<Vec<u32>>, f64) {
    let parameters = trainer.model().weights.parameters.iter();
    let bits = parameters.map(|segment| segment.iter().map(|value| value.to_bits()).collect()).collect();
    (bits, history.epochs.last().unwrap().values.get("loss").unwrap())
}

#[test]
fn neither_workers_nor_adapters_nor_a_resumption_change_the_images() {
    let mut losses = Vec::new();
    for rig in rigs() {
        let mut whole = trainer(&rig);
        let history = whole.fit(images(), &fit(4, 0)).unwrap();
        let (bits, loss) = left(&whole, &history);
        losses.push((rig.clone(), loss));
        let folder = tempfile::tempdir().unwrap();
        let file: &Path = &folder.path().join("halves.safetensors");
        trainer(&rig).fit(images(), &fit(2, 3).save(file)).unwrap();
        let mut resumed = trainer(&rig);
        resumed.resume(Checkpoint::load(file).unwrap()).unwrap();
        let history = resumed.fit(images(), &fit(4, 1)).unwrap();
        assert!(left(&resumed, &history) == (bits, loss), "{rig}");
    }
    for (rig, loss) in &losses[1..] {
        assert!((loss / losses[0].1 - 1.0).abs() < 1e-3, "{rig}: {loss}, not {}", losses[0].1);
    }
    let mut plain = trainer("cpu");
    let history = plain.fit(images(), &Fit::new(4).batch_size(16)).unwrap();
    assert!((left(&plain, &history).1 / losses[0].1 - 1.0).abs() > 0.05, "the changes make the task harder");
}

#[test]
fn an_epoch_is_not_continued_with_other_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.safetensors");
    let mut run = trainer("cpu");
    run.fit(images(), &fit(1, 1).save(&file)).unwrap();
    let mut checkpoint = Checkpoint::load(&file).unwrap();
    assert_eq!(checkpoint.progress.augment, changes());
    checkpoint.progress.batch = 1;
    let mut resumed = trainer("cpu");
    resumed.resume(checkpoint).unwrap();
    let error = resumed.fit(images(), &Fit::new(3).batch_size(16)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setting);
    assert!(error.to_string().starts_with("resuming within an epoch needs the same augmentation, [{"), "{error}");
}
