//! Slows adapters down, for tests and demonstrations: a wrapper of an opener.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_channel::Sender;
use litemap::LiteMap;

use super::{Opener, Request};
use crate::plan::Pass;

/// Factors by which adapters are slowed down, by waiting after each run, by their positions in a rig.
///
/// ```
/// use std::sync::Arc;
/// use manyhands_engine::adapters::{self, Opener, Throttles};
///
/// let throttles = Throttles::default();
/// let _opener: Opener = throttles.wrap(Arc::new(adapters::open));
/// throttles.set(1, 3.0);
/// assert_eq!((throttles.of(0), throttles.of(1)), (1.0, 3.0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Throttles(Arc<Mutex<LiteMap<usize, Slot>>>);

/// A position of a rig.
#[derive(Debug)]
struct Slot {
    factor: f64,
    /// Requests to the adapter that is open there.
    requests: Option<Sender<Request>>,
}

impl Default for Slot {
    fn default() -> Self {
        Self { factor: 1.0, requests: None }
    }
}

impl Throttles {
    /// Slows the adapter at a position down by `factor`: at once if it is open, and whenever it is opened.
    pub fn set(&self, adapter_idx: usize, factor: f64) {
        let mut slots = self.slots();
        let slot = slots.entry(adapter_idx).or_default();
        slot.factor = factor;
        if let Some(requests) = &slot.requests {
            // A lost adapter takes no requests.
            drop(requests.try_send(Request::Throttle(factor)));
        }
    }

    /// Factor by which the adapter at a position is slowed down.
    pub fn of(&self, adapter_idx: usize) -> f64 {
        self.slots().get(&adapter_idx).map_or(1.0, |slot| slot.factor)
    }

    /// Removes all factors, when other adapters take the positions.
    pub fn clear(&self) {
        self.slots().clear();
    }

    /// An opener whose adapters are slowed down.
    #[must_use]
    pub fn wrap(&self, opener: Opener) -> Opener {
        let throttles = self.clone();
        Arc::new(move |info, actor, runtime, events| {
            let handle = opener(info, actor, runtime, events)?;
            let mut slots = throttles.slots();
            let slot = slots.entry(actor.adapter_idx).or_default();
            slot.requests = Some(handle.requests.clone());
            if slot.factor > 1.0 {
                drop(handle.requests.try_send(Request::Throttle(slot.factor)));
            }
            Ok(handle)
        })
    }

    fn slots(&self) -> MutexGuard<'_, LiteMap<usize, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Weight of a run's deviation in the typical time.
const GAIN: f64 = 0.1;
/// Largest deviation, as a factor, that counts of one run.
const BELIEF: f64 = 2.0;
/// Runs of a pass of which the shortest is the first typical time: caches are cold at first.
const FIRST_RUNS: u32 = 4;

/// Waits after each run, so that runs take a factor times their typical time.
///
/// The wait follows a smoothed time per row, not that of the run itself: a hiccup of the machine would otherwise be
/// as many times longer, and a throttled adapter would be far less steady than a slow one is.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    factor: f64,
    /// The typical time of a row in each pass of the plan, and the number of runs so far.
    typical_ms: LiteMap<Pass, (f64, u32)>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { factor: 1.0, typical_ms: LiteMap::new() }
    }
}

impl Throttle {
    /// Sets the factor for later runs; below 1 counts as 1.
    pub(crate) fn set(&mut self, factor: f64) {
        self.factor = factor.max(1.0);
    }

    /// Forgets the times of runs: another plan takes others.
    pub(crate) fn forget(&mut self) {
        self.typical_ms = LiteMap::new();
    }

    /// Whether the adapter is slowed down.
    pub(crate) fn is_on(&self) -> bool {
        self.factor > 1.0
    }

    /// Milliseconds to wait after a run of a pass over `rows` rows that took `busy_ms`.
    pub(crate) fn wait_ms(&mut self, pass: Pass, rows: u32, busy_ms: f64) -> f64 {
        let rows = f64::from(rows.max(1));
        // A clock that was set back makes a run shorter than nothing.
        let measured = busy_ms.max(0.0) / rows;
        let (typical, runs) = self.typical_ms.entry(pass).or_insert((measured, 0));
        *runs = runs.saturating_add(1);
        if *runs <= FIRST_RUNS {
            *typical = typical.min(measured);
        } else {
            *typical += GAIN * (measured.clamp(*typical / BELIEF, *typical * BELIEF) - *typical);
        }
        (self.factor - 1.0) * *typical * rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hiccup_is_not_multiplied() {
        let mut throttle = Throttle::default();
        throttle.set(40.0);
        for _ in 0..10 {
            assert!((throttle.wait_ms(Pass::Train, 10, 5.0) - 195.0).abs() < 1e-9);
        }
        assert!(throttle.wait_ms(Pass::Train, 10, 500.0) < 1.2 * 195.0);
        assert!((throttle.wait_ms(Pass::Evaluate, 20, 2.0) - 78.0).abs() < 1e-9, "each pass has a time of its own");
    }

    #[test]
    fn a_first_run_with_cold_caches_is_not_typical_nor_are_those_of_another_plan() {
        let mut throttle = Throttle::default();
        throttle.set(3.0);
        let waits = [30.0, 10.0, 11.0].map(|ms| throttle.wait_ms(Pass::Train, 1, ms));
        assert_eq!(waits, [60.0, 20.0, 20.0]);
        throttle.forget();
        assert_eq!(throttle.wait_ms(Pass::Train, 1, 1.0), 2.0);
    }

    #[test]
    fn a_clock_that_steps_back_is_no_panic() {
        let mut throttle = Throttle::default();
        throttle.set(2.0);
        for busy_ms in [-5.0, -5.0, f64::NAN, 1.0, -1.0, 1.0] {
            assert_eq!(throttle.wait_ms(Pass::Train, 1, busy_ms), 0.0);
        }
    }

    #[test]
    fn an_adapter_that_is_not_throttled_does_not_wait() {
        assert_eq!(Throttle::default().wait_ms(Pass::Train, 10, 5.0), 0.0);
    }
}
