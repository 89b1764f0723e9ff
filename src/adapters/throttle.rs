//! Making an adapter slower than it is, for tests and demonstrations.

use litemap::LiteMap;

use crate::plan::Pass;

/// Part of a run's deviation that the typical time takes up.
const GAIN: f64 = 0.1;
/// Largest deviation, as a factor, that one run is believed.
const BELIEF: f64 = 2.0;

/// Asks for a wait after each run, so that runs take a factor as long as they typically do.
///
/// The wait follows a smoothed time per row, not that of the run itself: a hiccup of the machine would otherwise be
/// as many times longer, and a throttled adapter would be far less steady than a slow one is.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    factor: f64,
    typical_ms: LiteMap<Pass, f64>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { factor: 1.0, typical_ms: LiteMap::new() }
    }
}

impl Throttle {
    /// From now on runs take `factor` times as long; below 1 counts as 1.
    pub(crate) fn set(&mut self, factor: f64) {
        self.factor = factor.max(1.0);
    }

    /// Is the adapter made slower at all?
    #[cfg(feature = "gpu")]
    pub(crate) fn is_on(&self) -> bool {
        self.factor > 1.0
    }

    /// Milliseconds to wait after a run of a pass over `rows` rows that took `busy_ms`.
    pub(crate) fn wait_ms(&mut self, pass: Pass, rows: u32, busy_ms: f64) -> f64 {
        let rows = f64::from(rows.max(1));
        let measured = busy_ms / rows;
        let typical = self.typical_ms.entry(pass).or_insert(measured);
        *typical += GAIN * (measured.clamp(*typical / BELIEF, *typical * BELIEF) - *typical);
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
    fn an_adapter_that_is_not_throttled_does_not_wait() {
        assert_eq!(Throttle::default().wait_ms(Pass::Train, 10, 5.0), 0.0);
    }
}
