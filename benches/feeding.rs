//! Rate at which a folder of JPEGs feeds a training loop, beside the rate at which `image` decodes them with as many threads.
//!
//! `cargo bench --bench feeding -- [FILES] [WORKERS] [ROUNDS] [SIDE]`, by default 2,000 files of 256 × 256, two threads, five rounds,
//! brought to 224 × 224: more than a folder keeps decoded, so that it streams. Both take turns, so that other work on the machine
//! hits them alike; medians count. On Linux the ratio of processor time is told, too, which other work changes less, and the memory
//! of the process after parts of an epoch: it must not grow.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock and has threads")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use image::codecs::jpeg::JpegEncoder;
use image::imageops::{self, FilterType};
use image::{Rgb, RgbImage};
use manyhands::data::{
    Augment, Augmentation, Dataset, Factor, FlipMode, ImageFolder, ImageSettings, Loader, LoaderSettings,
};
use manyhands_engine::timing::median;

const SIDE: u32 = 256;
const BATCH: usize = 64;

/// Writes a picture of smooth colours with some noise, as photographs have, to a file of one of two classes.
fn write(folder: &Path, number: usize) -> PathBuf {
    let noise = |x: u32, y: u32| {
        let mixed = (x as usize * 7919 + y as usize * 104_729 + number * 1_299_709).wrapping_mul(2_654_435_761);
        u8::try_from((mixed >> 13) & 0xff).unwrap()
    };
    let coarse = RgbImage::from_fn(9, 9, |x, y| Rgb([noise(x, y), noise(x + 40, y), noise(x, y + 40)]));
    let mut picture = imageops::resize(&coarse, SIDE, SIDE, FilterType::CatmullRom);
    for (x, y, pixel) in picture.enumerate_pixels_mut() {
        pixel.0 = pixel.0.map(|value| value.saturating_add(noise(x, y) / 16));
    }
    let path = folder.join(format!("{}/{number}.jpg", if number.is_multiple_of(2) { "even" } else { "odd" }));
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, 85).encode_image(&picture).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

/// Files a second by the clock, and by processor time where the system tells it.
#[derive(Clone, Copy)]
struct Rates {
    clock: f64,
    processor: Option<f64>,
}

impl Rates {
    fn of(files: usize, work: impl FnOnce()) -> Self {
        let (begin, used) = (Instant::now(), processor_seconds());
        work();
        let clock = files as f64 / begin.elapsed().as_secs_f64();
        let processor = used.zip(processor_seconds()).map(|(before, after)| files as f64 / (after - before));
        Self { clock, processor }
    }
}

/// Seconds of processor time that this process has used, by its own account and the system's.
fn processor_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which may hold spaces: the 12th and 13th number are hundredths of a second.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

/// Files a second that `image` decodes with these threads.
fn decode(paths: &[PathBuf], threads: usize) -> Rates {
    Rates::of(paths.len(), || decode_all(paths, threads))
}

fn decode_all(paths: &[PathBuf], threads: usize) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let bytes = fs::read(path).unwrap();
                    assert_eq!(image::load_from_memory(&bytes).unwrap().width(), SIDE);
                }
            });
        }
    });
}

/// Files a second that come out of an epoch, and memory after each tenth of it.
fn feed(loader: &mut Loader, epoch: u64) -> (Rates, Vec<u64>) {
    let (files, mut rows, mut memory) = (loader.dataset().len(), 0, Vec::new());
    let part = loader.batches_per_epoch().div_ceil(10);
    let rates = Rates::of(files, || {
        loader.start_epoch(epoch, 0);
        while let Some(batch) = loader.next().unwrap() {
            rows += batch.rows;
            if loader.position().batch.is_multiple_of(part) {
                memory.extend(resident());
            }
        }
    });
    assert_eq!(rows, files);
    (rates, memory)
}

/// Megabytes of memory that the process has now.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? >> 10)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |at: usize, default: usize| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    let (files, workers, rounds, side) = (number(0, 2_000), number(1, 2), number(2, 5), number(3, 224));
    let folder = tempfile::tempdir().unwrap();
    for class in ["even", "odd"] {
        fs::create_dir(folder.path().join(class)).unwrap();
    }
    let paths: Vec<PathBuf> = (0..files).map(|number| write(folder.path(), number)).collect();
    let bytes: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
    println!("{files} files of {SIDE} × {SIDE}, {} kB each, {workers} threads", bytes / files as u64 / 1000);

    let loader = |augment: Option<Augment>| {
        let data = Arc::new(ImageFolder::open(folder.path(), ImageSettings::new(side, side)).unwrap());
        let settings = LoaderSettings { batch_size: BATCH, shuffle: Some(0), workers, augment, ..Default::default() };
        Loader::new(data, settings).unwrap()
    };
    let factor = Factor::One(0.03);
    let changes = vec![Augmentation::RandomFlip { mode: FlipMode::Horizontal }, Augmentation::random_rotation(factor)];
    let (mut plain, mut changed) = (loader(None), loader(Some(Augment { changes, seed: 0 })));
    let (mut decoded, mut fed, mut augmented, mut memory) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds as u64 {
        decoded.push(decode(&paths, workers));
        let (rate, of_epoch) = feed(&mut plain, round);
        fed.push(rate);
        memory.push(of_epoch);
        augmented.push(feed(&mut changed, round).0);
    }
    println!("`image` decodes    {:>7.0} files a second", median(decoded.iter().map(|rates| rates.clock)));
    for (name, rates) in [(format!("fed to {side} × {side}"), &fed), ("turned and flipped".into(), &augmented)] {
        let pairs = || rates.iter().zip(&decoded);
        let by_clock = median(pairs().map(|(rates, decoded)| rates.clock / decoded.clock));
        let ratios: Option<Vec<f64>> =
            pairs().map(|(rates, decoded)| Some(rates.processor? / decoded.processor?)).collect();
        let by_processor =
            ratios.map_or_else(String::new, |ratios| format!(", {:.2} by processor time", median(ratios.into_iter())));
        let rate = median(rates.iter().map(|rates| rates.clock));
        println!("{name:<18} {rate:>7.0}, {by_clock:.2} of that{by_processor}");
    }
    for (round, memory) in memory.iter().enumerate() {
        println!("MB of memory in epoch {round}: {memory:?}");
    }
}
