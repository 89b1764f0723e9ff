//! Training during which adapters are lost, beside the same training without a fault.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manyhands::adapters::Info;
use manyhands::data::{Batch, Synthetic};
use manyhands::layers::{Dense, Flatten, Relu};
use manyhands::{Compile, Loss, Optimizer, Result, Sequential, Trainer};
use manyhands_engine::adapters::{self, Handle, Opener, Request};
use manyhands_engine::runtime;
use serde::Serialize;

/// Steps of each run, rows of a batch, and its classes.
const STEPS: usize = 24;
const ROWS: usize = 64;
const CLASSES: usize = 10;
/// An adapter is lost in each step whose number is a multiple of it.
const EVERY: usize = 6;
/// Differences of losses that rounding explains: shares differ once an adapter is gone.
pub const TOLERANCE: f64 = 1e-4;

/// Training with faults.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Faults {
    pub steps: usize,
    /// Adapters that were destroyed during a step.
    pub lost: usize,
    /// Largest difference between a step's losses with and without faults, in parts of the loss.
    pub largest_difference: f64,
    /// Milliseconds of a step, the longest with and without faults.
    pub longest_step_ms: f64,
    pub usual_step_ms: f64,
}

/// Trains twice on adapters: undisturbed, and with an adapter destroyed in every sixth step, each in turn.
///
/// The rows of a lost adapter go to the others, or to the CPU where there is no other.
pub fn measure(list: &[Info]) -> Result<Faults> {
    let (usual, usual_ms) = losses(list, false)?;
    let (disturbed, disturbed_ms) = losses(list, true)?;
    let part = |(got, expected): (&f64, &f64)| (got - expected).abs() / expected.abs();
    // NaN is no small difference.
    let worst = |most: f64, part: f64| if part.is_nan() { f64::MAX } else { most.max(part) };
    let longest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    Ok(Faults {
        steps: STEPS,
        lost: (1..STEPS).filter(|step| step % EVERY == 0).count(),
        largest_difference: disturbed.iter().zip(&usual).map(part).fold(0.0, worst),
        longest_step_ms: longest(&disturbed_ms),
        usual_step_ms: longest(&usual_ms[1..]),
    })
}

/// Losses and milliseconds of the steps.
#[allow(clippy::disallowed_methods, reason = "the fault comes from beside the trainer, as in life")]
fn losses(list: &[Info], is_disturbed: bool) -> Result<(Vec<f64>, Vec<f64>)> {
    let model = Sequential::new([28, 28, 1])
        .add(Flatten::default())
        .add(Dense::new(256))
        .add(Relu::default())
        .add(Dense::new(CLASSES))
        .build(1)?;
    let data = Synthetic::new([28, 28, 1], CLASSES, 0..STEPS * ROWS, 3)?;
    let opened: OpenedAdapters = Arc::default();
    let compile = Compile::new(Optimizer::adam(1e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let mut trainer = Trainer::new(model, compile)?.on(list.to_vec()).opener(remember(&opened));
    let clock = runtime::system();
    let (mut losses, mut times) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        let rows: Vec<usize> = (step * ROWS..(step + 1) * ROWS).collect();
        let batch = Batch::fetch(&data, &rows)?;
        let begin_ms = clock.now_ms();
        let is_lost = is_disturbed && step > 0 && step % EVERY == 0;
        let at = (step / EVERY).saturating_sub(1) % list.len();
        let half = Duration::from_secs_f64(times.last().copied().unwrap_or(0.0) / 2e3);
        let log = std::thread::scope(|scope| {
            if is_lost {
                scope.spawn(|| {
                    std::thread::sleep(half);
                    lose(&opened, at);
                });
            }
            trainer.train_on_batch(batch)
        })?;
        times.push(clock.now_ms() - begin_ms);
        losses.push(log.values.get("loss").unwrap_or(f64::NAN));
    }
    Ok((losses, times))
}

/// Destroys the adapter that was opened last at a position.
fn lose(opened: &OpenedAdapters, at: usize) {
    let handles = opened.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, handle)) = handles.iter().rev().find(|(idx, _)| *idx == at) {
        // An adapter that is lost already takes no requests.
        drop(handle.requests.try_send(Request::Lose));
    }
}

/// Positions and handles of the adapters that were opened.
type OpenedAdapters = Arc<Mutex<Vec<(usize, Handle)>>>;

/// An opener that keeps the handles.
fn remember(opened: &OpenedAdapters) -> Opener {
    let opened = opened.clone();
    Arc::new(move |info, actor, runtime, events| {
        let handle = adapters::open(info, actor, runtime, events)?;
        opened.lock().unwrap_or_else(PoisonError::into_inner).push((actor.adapter_idx, handle.clone()));
        Ok(handle)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_adapter_changes_no_loss() {
        let faults = measure(&[Info::cpu(), Info::cpu()]).unwrap();
        assert_eq!((faults.steps, faults.lost), (24, 3));
        assert!(faults.largest_difference < TOLERANCE, "{faults:?}");
    }
}
