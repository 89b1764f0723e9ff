//! Does a folder with more pictures than fit in memory feed a whole epoch, each picture once, in constant memory?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use image::codecs::jpeg::JpegEncoder;
use image::{Rgb, RgbImage};
use manyhands::data::{Batch, ImageFolder, ImageSettings, Loader, LoaderSettings};

/// Classes, each with all pictures: a row is known by its label and its picture.
const CLASSES: usize = 250;
const PICTURES: usize = 200;
/// Pixels of a side, in the file and in a batch.
const FILE_SIDE: u32 = 256;
const SIDE: usize = 224;
const BATCH: usize = 64;
/// Squares at the top of a picture, black or white: the digits of its number.
const DIGITS: usize = 8;

/// A JPEG of soft colours, with its number at the top.
fn write(path: &Path, number: usize) {
    let square = FILE_SIDE as usize / DIGITS;
    let picture = RgbImage::from_fn(FILE_SIDE, FILE_SIDE, |x, y| {
        let (column, row) = (x as usize, y as usize);
        if row < square {
            return Rgb([if number >> (column / square) & 1 == 1 { 255 } else { 0 }; 3]);
        }
        let wave = |by: usize| u8::try_from((column * by + row * (number % 7 + 1)) / 8 % 256).unwrap();
        Rgb([wave(3), wave(5), wave(2)])
    });
    JpegEncoder::new_with_quality(fs::File::create(path).unwrap(), 85).encode_image(&picture).unwrap();
}

/// Label and picture of each row of a batch.
fn rows(batch: &Batch) -> Vec<(usize, usize)> {
    let square = SIDE / DIGITS;
    let digit = |image: &[f32], place: usize| image[(square / 2 * SIDE + place * square + square / 2) * 3] > 0.5;
    let number = |image: &[f32]| (0..DIGITS).map(|place| usize::from(digit(image, place)) << place).sum::<usize>();
    let images = batch.inputs[0].chunks_exact(SIDE * SIDE * 3).map(number);
    let label = |label: &f32| (0..CLASSES).find(|class| *class as f32 == *label).unwrap();
    batch.targets[0].iter().map(label).zip(images).collect()
}

/// Most bytes of memory that this process has had.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
#[ignore = "slow: 50,000 files are written, and decoded twice"]
fn fifty_thousand_pictures_feed_an_epoch_in_constant_memory() {
    let folder = tempfile::tempdir().unwrap();
    let originals: Vec<_> = (0..PICTURES).map(|number| folder.path().join(format!("{number}.jpg"))).collect();
    originals.iter().enumerate().for_each(|(number, path)| write(path, number));
    let data = folder.path().join("data");
    for class in 0..CLASSES {
        // Names sort as numbers do, so that the label is the number.
        let class = data.join(format!("{class:03}"));
        fs::create_dir_all(&class).unwrap();
        for (number, original) in originals.iter().enumerate() {
            let path = class.join(format!("{number}.jpg"));
            fs::hard_link(original, &path).or_else(|_| fs::copy(original, &path).map(drop)).unwrap();
        }
    }

    let images = ImageFolder::open(&data, ImageSettings::new(SIDE, SIDE)).unwrap();
    let settings = LoaderSettings { batch_size: BATCH, shuffle: Some(3), workers: 2, ..Default::default() };
    let mut loader = Loader::new(Arc::new(images), settings).unwrap();
    let batch_bytes = (BATCH * SIDE * SIDE * 3 * 4) as u64;
    let mut early = None;
    for epoch in 0..2 {
        loader.start_epoch(epoch, 0);
        let mut seen = BTreeSet::new();
        let mut n_rows = 0;
        while let Some(batch) = loader.next().unwrap() {
            n_rows += batch.rows;
            seen.extend(rows(&batch));
            if n_rows >= CLASSES * PICTURES / 10 {
                early.get_or_insert_with(peak);
            }
        }
        assert_eq!((n_rows, seen.len()), (CLASSES * PICTURES, CLASSES * PICTURES), "epoch {epoch}: each file once");
    }
    let (early, late) = (early.unwrap(), peak());
    println!("at most {} MB after a tenth of the first epoch, {} MB after two epochs", early >> 20, late >> 20);
    assert!(late <= early + 4 * batch_bytes, "memory grew from {early} to {late} bytes");
}
