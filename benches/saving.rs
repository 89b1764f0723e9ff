//! Delay of the training step after a save, beside a plain copy of the state, and the memory of a save.
//!
//! `cargo bench --bench saving -- [ADAPTERS] [SAVES] [FOLDER]`, by default five saves of the CPU adapter to a temporary folder. The model
//! has 41 million parameters, which Adam makes 492 MB of state. A run saves after every sixteenth step; its last steps before
//! each save, when nothing is written any more, are those without a save. A copy is made by one thread into new memory.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use manyhands::callbacks::Callback;
use manyhands::data::Synthetic;
use manyhands::layers::Dense;
use manyhands::logs::StepLog;
use manyhands::{Compile, Existing, Fit, Loss, Model, Optimizer, Result, SaveSettings, Sequential, Trainer};
use manyhands_engine::timing::median;

/// Training steps from a save to the next.
const EVERY: usize = 16;
/// The last of them, in which nothing is written any more.
const QUIET: usize = 6;
const INPUTS: usize = 3200;
const BATCH: usize = 8;

/// Notes when each step ended, and the most memory until then.
#[derive(Default)]
struct Watch {
    ends: Vec<Instant>,
    most_mib: Vec<u64>,
}

impl Callback for Watch {
    fn on_step(&mut self, _: &StepLog) -> Result<()> {
        self.ends.push(Instant::now());
        self.most_mib.push(most_mib());
        Ok(())
    }
}

/// The most memory that this program has had; 0 where the system does not tell.
fn most_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn model() -> Model {
    let layers = Sequential::new([INPUTS]).add(Dense::new(2 * INPUTS)).add(Dense::new(INPUTS)).add(Dense::new(10));
    layers.build(0).unwrap()
}

/// Milliseconds of a copy of as many values as the state has, in as many pieces.
fn copy_ms(model: &Model) -> f64 {
    let state: Vec<Vec<f32>> =
        (0..3).flat_map(|_| model.tensors().map(|(.., values)| vec![1.0; values.len()])).collect();
    median((0..5).map(|_| {
        let begin = Instant::now();
        black_box(state.clone());
        begin.elapsed().as_secs_f64() * 1e3
    }))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let adapters = arguments.first().map_or("cpu", String::as_str);
    let saves: usize = arguments.get(1).map_or(5, |text| text.parse().unwrap());
    let temporary = tempfile::tempdir().unwrap();
    let folder = arguments.get(2).map_or(temporary.path(), std::path::Path::new);

    let copies = copy_ms(&model());
    let steps = EVERY * (saves + 1);
    let data = Synthetic::new([INPUTS], 10, 0..BATCH * steps, 0).unwrap();
    let compile = Compile::new(Optimizer::adam(1e-4), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let mut trainer = Trainer::new(model(), compile).unwrap().adapters(adapters).unwrap();
    let path = folder.join("saving.safetensors");
    let save = SaveSettings::new(&path).every_steps(EVERY as u64).existing(Existing::Overwrite);
    let fit = Fit::new(1).batch_size(BATCH).save_with(save);
    let mut watch = Watch::default();
    trainer.fit_with(data, &fit, &mut [&mut watch]).unwrap();
    std::fs::remove_file(path).unwrap();

    let ms: Vec<f64> = watch.ends.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64() * 1e3).collect();
    // The step behind the first save has number `EVERY` here.
    let after = |at: usize| (1..=saves).filter_map(|save| ms.get(save * EVERY - 1 + at).copied()).collect::<Vec<_>>();
    let step = median((EVERY - QUIET..EVERY - 1).flat_map(after));
    println!("{adapters}: a step takes {step:.0} ms, a copy of the state {copies:.0} ms");
    let delay = median(after(0)) - step;
    println!("the step after a save is {delay:.0} ms longer: {:.2} of a copy", delay / copies);
    let longer: Vec<String> = (0..EVERY - 1).map(|at| format!("{:.0}", median(after(at)) - step)).collect();
    println!("ms that each of the steps after a save takes longer: {}", longer.join(" "));
    let (before, most) = (watch.most_mib[EVERY - 1], watch.most_mib.last().unwrap());
    println!("most memory: {before} MiB before the first save, {most} MiB in all");
}
