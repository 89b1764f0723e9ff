//! How many bytes does saving a run hold? An allocator counts them, so this test has a program of its own.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use manyhands::callbacks::Callback;
use manyhands::data::Synthetic;
use manyhands::layers::Dense;
use manyhands::logs::StepLog;
use manyhands::{Checkpoint, Compile, Existing, Fit, Loss, Optimizer, Result, SaveSettings, Sequential, Trainer};

/// The system's allocator, with a count of what is held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code, reason = "an allocator is unsafe to write; this one passes every call on, and counts")]
// SAFETY: memory is that of the system's allocator, by the same layouts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Begins to count when training has what it needs.
struct Watch;

impl Callback for Watch {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        if log.step == 4 {
            MOST.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Wide enough that all else is small beside the parameters.
const UNITS: usize = 1500;

/// The most bytes that a run holds from its fifth step to its end, in its parameters' bytes.
fn held(adapters: &str, save: Option<SaveSettings>) -> f64 {
    let model = Sequential::new([UNITS]).add(Dense::new(UNITS)).add(Dense::new(10)).build(0).unwrap();
    let bytes = 4 * model.tensors().map(|(.., values)| values.len()).sum::<usize>();
    let before = HELD.load(Ordering::Relaxed) - bytes;
    let compile = Compile::new(Optimizer::adam(1e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let data = Synthetic::new([UNITS], 10, 0..80, 0).unwrap();
    let mut trainer = Trainer::new(model, compile).unwrap().adapters(adapters).unwrap();
    let mut fit = Fit::new(1).batch_size(8).prefetch(1);
    fit.save = save;
    trainer.fit_with(data, &fit, &mut [&mut Watch]).unwrap();
    #[allow(clippy::cast_precision_loss, reason = "megabytes")]
    let parts = (MOST.load(Ordering::Relaxed) - before) as f64 / bytes as f64;
    parts
}

/// The most of five runs: threads meet at other moments in each.
fn most(run: impl Fn() -> f64) -> f64 {
    (0..5).map(|_| run()).fold(0.0, f64::max)
}

#[test]
fn a_save_holds_at_most_four_times_the_parameters() {
    for adapters in ["cpu", "cpu,cpu"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        let without = most(|| held(adapters, None));
        let save = || SaveSettings::new(&path).every_steps(2).existing(Existing::Overwrite);
        let with = most(|| held(adapters, Some(save())));
        println!("{adapters}: {with:.2} times the parameters' bytes with a save, {without:.2} without");
        assert!(with - without <= 4.0, "{adapters}: {with:.2} with, {without:.2} without");
        assert_eq!(Checkpoint::load(&path).unwrap().progress.step, 10);
    }
}
