//! Are random changes of images those of Keras, and drawn from seed, epoch and row alone?

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that fails may panic, and its numbers are small"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use manyhands::data::augment::{Affine, Fill, Size, brightness, contrast, saturation};
use manyhands::data::{Augment, Augmentation, Dataset, Factor, FillMode, FlipMode, InMemory, Loader, LoaderSettings};
use ndarray::{Array1, Array2, Array4};

use crate::golden::{Case, Golden};

fn fill(case: &Case) -> Fill {
    let mode = match case.facts["fill_mode"].as_str().unwrap() {
        "reflect" => FillMode::Reflect,
        "nearest" => FillMode::Nearest,
        "wrap" => FillMode::Wrap,
        _ => FillMode::Constant,
    };
    Fill { mode, value: 0.3 }
}

#[test]
fn changes_are_those_of_keras() {
    for case in Golden::open("augmentation").cases() {
        let shape = &case.tensor("image").shape;
        let size = Size { height: shape[0], width: shape[1], channels: shape[2] };
        let number = |name: &str| case.facts[name].as_f64().unwrap();
        let mut image = case.values("image").to_vec();
        let affine = match case.name.split('_').next().unwrap() {
            "rotation" => Some(Affine::rotation(number("turn"), size)),
            "zoom" => Some(Affine::zoom(number("height"), number("width"), size)),
            "translation" => Some(Affine::translation(number("down"), number("right"), size)),
            "contrast" => {
                contrast(&mut image, 3, number("factor") as f32, [0.0, 1.0]);
                None
            }
            "brightness" => {
                brightness(&mut image, number("factor") as f32, [0.0, 1.0]);
                None
            }
            _ => {
                saturation(&mut image, number("factor") as f32);
                None
            }
        };
        if let Some(affine) = affine {
            affine.resample(&mut image, size, fill(&case));
        }
        for (at, (got, needed)) in image.iter().zip(case.values("output")).enumerate() {
            assert!((got - needed).abs() < 2e-6, "{}, element {at}: {got}, needs {needed}", case.name);
        }
    }
}

const HEIGHT: usize = 6;
const WIDTH: usize = 5;

/// Images that are not alike, and the number of each as its target.
fn images(rows: usize) -> Arc<dyn Dataset> {
    let pixel = |(row, y, x, channel): (usize, usize, usize, usize)| {
        ((row * 31 + y * 17 + x * 7 + channel * 3) % 101) as f32 / 100.0
    };
    let numbers = Array1::from_iter((0..rows).map(|row| row as f32)).into_shape_with_order((rows, 1)).unwrap();
    Arc::new(InMemory::new(Array4::from_shape_fn((rows, HEIGHT, WIDTH, 3), pixel), numbers).unwrap())
}

fn every_change() -> Vec<Augmentation> {
    let factor = Factor::One(0.3);
    let (fill_mode, fill_value, value_range) = (FillMode::Reflect, 0.0, [0.0, 1.0]);
    vec![
        Augmentation::RandomFlip { mode: FlipMode::HorizontalAndVertical },
        Augmentation::random_rotation(factor),
        Augmentation::RandomZoom { height_factor: factor, width_factor: None, fill_mode, fill_value },
        Augmentation::RandomTranslation { height_factor: factor, width_factor: factor, fill_mode, fill_value },
        Augmentation::RandomContrast { factor, value_range },
        Augmentation::RandomBrightness { factor, value_range },
        Augmentation::RandomSaturation { factor: Factor::Range([0.3, 0.7]) },
        Augmentation::RandomErasing { factor: Factor::One(1.0), scale: [0.1, 0.3], fill_value: None, value_range },
    ]
}

fn settings(changes: Vec<Augmentation>, seed: u64) -> LoaderSettings {
    LoaderSettings { batch_size: 8, shuffle: Some(1), augment: Some(Augment { changes, seed }), ..Default::default() }
}

fn loader(rows: usize, settings: LoaderSettings) -> Loader {
    Loader::new(images(rows), settings).unwrap()
}

/// The bits of the images and targets of the batches that are left of an epoch.
fn rest(loader: &mut Loader) -> Vec<(Vec<u32>, Vec<u32>)> {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    let mut batches = Vec::new();
    while let Some(batch) = loader.next().unwrap() {
        batches.push((bits(&batch.inputs[0]), bits(&batch.targets[0])));
    }
    batches
}

/// The image of each row in an epoch.
fn by_row(settings: LoaderSettings, epoch: u64) -> BTreeMap<u32, Vec<u32>> {
    let mut loader = loader(50, settings);
    loader.start_epoch(epoch, 0);
    let image = |(images, rows): (Vec<u32>, Vec<u32>)| {
        let images: Vec<Vec<u32>> = images.chunks(HEIGHT * WIDTH * 3).map(<[u32]>::to_vec).collect();
        rows.into_iter().zip(images).collect::<Vec<_>>()
    };
    rest(&mut loader).into_iter().flat_map(image).collect()
}

#[test]
fn images_depend_on_seed_epoch_and_row_alone() {
    let first = by_row(settings(every_change(), 3), 2);
    assert_eq!(first.len(), 50);
    for (batch_size, shuffle, workers, prefetch) in
        [(8, Some(1), 0, 4), (8, Some(1), 1, 1), (50, Some(2), 3, 2), (7, None, 2, 9), (1, Some(9), 3, 64)]
    {
        let other = LoaderSettings { batch_size, shuffle, workers, prefetch, ..settings(every_change(), 3) };
        assert!(by_row(other, 2) == first, "{batch_size} {shuffle:?} {workers} {prefetch}");
    }
    let differ = |other: BTreeMap<u32, Vec<u32>>| first.iter().all(|(row, image)| other[row] != *image);
    assert!(differ(by_row(settings(every_change(), 4), 2)), "another seed");
    assert!(differ(by_row(settings(every_change(), 3), 1)), "another epoch");
}

#[test]
fn batches_have_the_same_bits_whatever_the_workers_and_wherever_reading_begins() {
    let changes = || every_change().into_iter().chain([Augmentation::MixUp { alpha: 0.4 }]).collect();
    let mut whole = loader(50, settings(changes(), 3));
    whole.start_epoch(5, 0);
    let whole = rest(&mut whole);
    for (first_batch, workers, prefetch) in [(0, 0, 4), (0, 3, 2), (3, 0, 4), (5, 2, 1), (6, 3, 64)] {
        let mut resumed = loader(50, LoaderSettings { workers, prefetch, ..settings(changes(), 3) });
        resumed.start_epoch(5, first_batch);
        assert!(rest(&mut resumed) == whole[first_batch..], "{first_batch} {workers} {prefetch}");
    }
}

/// The changed images of rows that all have this image of one channel.
fn changed(image: &[f32], shape: (usize, usize), change: Augmentation) -> Vec<Vec<f32>> {
    let rows = 200;
    let pixels = Array4::from_shape_fn((rows, shape.0, shape.1, 1), |(_, y, x, _)| image[y * shape.1 + x]);
    let data = InMemory::without_targets(pixels).unwrap();
    let settings = LoaderSettings { batch_size: rows, ..settings(vec![change], 0) };
    let batch = Loader::new(Arc::new(data), settings).unwrap().next().unwrap().unwrap();
    batch.inputs[0].chunks(image.len()).map(<[f32]>::to_vec).collect()
}

#[test]
fn flips_go_in_the_directions_that_are_asked_for() {
    let image: Vec<f32> = (1..=6).map(|pixel| pixel as f32 / 10.0).collect();
    let (mirrored, overturned) = ([3, 2, 1, 6, 5, 4], [4, 5, 6, 1, 2, 3]);
    let of = |order: [usize; 6]| order.map(|pixel| pixel as f32 / 10.0).to_vec();
    let both = of([6, 5, 4, 3, 2, 1]);
    for (mode, needed) in [
        (FlipMode::Horizontal, vec![image.clone(), of(mirrored)]),
        (FlipMode::Vertical, vec![image.clone(), of(overturned)]),
        (FlipMode::HorizontalAndVertical, vec![image.clone(), of(mirrored), of(overturned), both]),
    ] {
        let images = changed(&image, (2, 3), Augmentation::RandomFlip { mode });
        for kind in &needed {
            // As often as each of the others, within five standard errors.
            let (count, mean) =
                (images.iter().filter(|image| *image == kind).count() as f32, 200.0 / needed.len() as f32);
            assert!((count - mean).abs() < 5.0 * mean.sqrt(), "{mode:?}: {count}");
        }
        assert!(images.iter().all(|image| needed.contains(image)), "{mode:?}");
    }
}

#[test]
fn erasing_covers_a_rectangle_of_the_size_that_is_asked_for() {
    let erase = |factor, scale| Augmentation::RandomErasing {
        factor: Factor::One(factor),
        scale,
        fill_value: Some(1.0),
        value_range: [0.0, 1.0],
    };
    // One number is the most: half of the images on average.
    let images = changed(&[0.0; 400], (20, 20), erase(1.0, [0.25, 0.25]));
    let covered = images.iter().filter(|image| image.contains(&1.0)).count();
    assert!((65..135).contains(&covered), "{covered}");
    for image in images.iter().filter(|image| image.contains(&1.0)) {
        let sides = [0, 1].map(|axis| {
            let at = |index: usize| if axis == 0 { index / 20 } else { index % 20 };
            let is_covered = |line: &usize| (0..400).any(|index| at(index) == *line && image[index] == 1.0);
            (0..20).filter(is_covered).count()
        });
        assert_eq!(sides, [10, 10], "half of each side");
        assert_eq!(image.iter().sum::<f32>(), 100.0);
    }
    let rare = changed(&[0.0; 100], (10, 10), erase(0.0, [0.02, 0.33]));
    assert!(rare.iter().flatten().all(|pixel| *pixel == 0.0));
}

#[test]
fn mixed_images_have_mixed_targets() {
    // The image of a row has the value of its class everywhere.
    let classes = 4;
    let images = Array4::from_shape_fn((60, 2, 2, 1), |(row, ..)| (row % classes) as f32);
    let targets = Array2::from_shape_fn((60, classes), |(row, class)| f32::from(u8::from(row % classes == class)));
    let weights = Array1::from_shape_fn(60, |row| if row % classes == 3 { 0.0 } else { 1.0 });
    let data = InMemory::new(images, targets).unwrap().with_sample_weights(weights).unwrap();
    let settings = LoaderSettings { batch_size: 60, ..settings(vec![Augmentation::MixUp { alpha: 1.0 }], 0) };
    let batch = Loader::new(Arc::new(data), settings).unwrap().next().unwrap().unwrap();
    let mut mixed = 0;
    let rows =
        batch.inputs[0].chunks(4).zip(batch.targets[0].chunks(classes)).zip(batch.sample_weights.unwrap().to_vec());
    for ((image, target), weight) in rows {
        assert!((target.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{target:?}");
        let value: f32 = target.iter().zip(0_u8..).map(|(part, class)| part * f32::from(class)).sum();
        assert!(image.iter().all(|pixel| (pixel - value).abs() < 1e-5), "{image:?} {target:?}");
        mixed += usize::from(target.iter().filter(|part| **part > 0.0).count() == 2);
        assert!(weight == 0.0 || target[3] == 0.0, "a row that counts nothing is in no other");
    }
    assert!((20..50).contains(&mixed), "{mixed}");
}

#[test]
fn changes_that_make_no_sense_are_refused() {
    let refused = |dataset: Arc<dyn Dataset>, change: Augmentation| {
        Loader::new(dataset, settings(vec![change], 0)).err().unwrap().to_string()
    };
    let table: Arc<dyn Dataset> = Arc::new(InMemory::new(Array2::zeros((4, 13)), Array1::zeros(4)).unwrap());
    assert_eq!(
        refused(table, Augmentation::RandomFlip { mode: FlipMode::Horizontal }),
        "`augment` needs images, [batch, height, width, channels], as the one input, but the data give [batch, 13]\n  help: \
         leave it out: it changes images alone"
    );
    assert_eq!(
        refused(images(4), Augmentation::random_rotation(Factor::One(30.0))),
        "`RandomRotation` needs numbers from -1 to 1 by `factor`, but gets -30 to 30\n  help: `docs/settings.md` says what the \
         numbers mean"
    );
    let labelled: Arc<dyn Dataset> = Arc::new(InMemory::new(Array4::zeros((4, 2, 2, 1)), Array1::zeros(4)).unwrap());
    assert_eq!(
        refused(labelled.clone(), Augmentation::MixUp { alpha: 0.2 }),
        "`MixUp` needs a number for each class as the target, but the data give labels\n  help: set `label_mode = \
         \"categorical\"` in `[data]`, and the loss `CategoricalCrossentropy`"
    );
    assert!(
        refused(labelled, Augmentation::RandomSaturation { factor: Factor::One(0.5) })
            .starts_with("`RandomSaturation` needs colour images, but these have 1 channels")
    );
    let mix_first = vec![Augmentation::MixUp { alpha: 0.2 }, Augmentation::RandomFlip { mode: FlipMode::Vertical }];
    let error = Loader::new(images(4), settings(mix_first, 0)).err().unwrap().to_string();
    assert!(error.starts_with("`MixUp` needs to be the last change"), "{error}");
    let inverted = Augmentation::RandomContrast { factor: Factor::One(0.1), value_range: [1.0, 0.0] };
    assert!(refused(images(4), inverted).starts_with("`RandomContrast` needs a `value_range` from small to large"));
}

#[test]
fn settings_are_those_of_keras() {
    #[derive(Debug, serde::Deserialize)]
    struct Table {
        augment: Vec<Augmentation>,
    }
    let read = |text: &str| toml::from_str::<Table>(text).map(|table| table.augment);
    let list = "augment = [
        { type = 'RandomFlip', mode = 'horizontal' },
        { type = 'RandomRotation', factor = 0.05 },
        { type = 'RandomZoom', height_factor = [-0.2, 0.1] },
        { type = 'RandomTranslation', height_factor = 0.1, width_factor = 0.1, fill_mode = 'constant' },
        { type = 'RandomContrast', factor = 0.2 },
        { type = 'RandomBrightness', factor = 0.1, value_range = [0, 255] },
        { type = 'RandomSaturation', factor = [0.4, 0.6] },
        { type = 'RandomErasing', factor = 0.5 },
        { type = 'MixUp' },
    ]";
    let changes = read(list).unwrap();
    assert_eq!(changes.len(), 9);
    assert_eq!(changes[8], Augmentation::MixUp { alpha: 0.2 });
    let text = read("augment = [{ type = 'RandomRotation', factor = 'much' }]").unwrap_err().to_string();
    assert!(text.contains("needs a number, or a list of the smallest and the largest"), "{text}");
    assert!(read("augment = [{ type = 'RandomFlip', mood = 'horizontal' }]").is_err());
}
