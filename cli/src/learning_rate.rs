//! `train --find-learning-rate`: the loss while the rate rises step by step.
//!
//! Sources: Smith 2015, arXiv:1506.01186, section 3.3; the rate that is suggested: `valley` of fastai's `lr_find`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manyhands::callbacks::Callback;
use manyhands::logs::StepLog;
use manyhands::{Error, Result, Schedule};
use manyhands_engine::table::Table;

use super::report::text::number;

/// Steps of the test.
pub const STEPS: u64 = 100;
/// The first rate, and the last.
const RATES: (f64, f64) = (1e-6, 3.0);
/// Part of the smoothed loss that stays in a step.
const KEPT: f64 = 0.9;
/// The test ends where the smoothed loss is so many times the lowest.
const DIVERGED: f64 = 4.0;
/// Points at the start and at the end that say nothing: the loss has not moved yet, or diverges.
const UNSETTLED: (usize, usize) = (10, 5);

/// The rate of a step of the test, counted from 0.
#[allow(clippy::cast_precision_loss, reason = "few steps")]
fn rate(step: u64) -> f64 {
    RATES.0 * (RATES.1 / RATES.0).powf(step as f64 / (STEPS - 1) as f64)
}

/// Rates that rise from step to step.
pub fn schedule() -> Schedule {
    #[allow(clippy::cast_possible_truncation, reason = "rates are f32")]
    let values = (0..STEPS).map(|step| rate(step) as f32).collect();
    Schedule::PiecewiseConstantDecay { boundaries: (0..STEPS - 1).collect(), values }
}

/// Losses by rate, until training diverges.
pub struct RangeTest {
    /// Rates and smoothed losses.
    points: Vec<(f64, f64)>,
    smoothed: f64,
    /// Ends the run.
    stop: Arc<AtomicBool>,
}

impl RangeTest {
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Self { points: Vec::new(), smoothed: 0.0, stop }
    }

    fn lowest(&self) -> Option<(f64, f64)> {
        self.points.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// A rate to start with: in the middle of the longest fall of the loss, much as fastai's `lr_find` suggests it.
    ///
    /// The lowest loss is no guide: it comes behind the rates that brought it about, and on a flat curve by chance.
    pub fn suggestion(&self) -> Result<f64> {
        let is_first = |rate: f64| self.points.first().is_some_and(|first| first.0 >= rate);
        match self.lowest() {
            Some((rate, _)) if !is_first(rate) => {
                let (first, last) = UNSETTLED;
                let settled = self.points.len().saturating_sub(last);
                let points = self.points.get(first..settled).filter(|points| !points.is_empty());
                let points = points.unwrap_or(&self.points);
                Ok(points[valley(points)].0)
            }
            _ => Err(Error::setting(
                "the search for a learning rate",
                "needs a loss that falls, but it rises from the first step on",
                "check the data's scale, the loss and the last layer",
            )),
        }
    }

    /// Rates and smoothed losses.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// Some of the points.
    pub fn table(&self) -> Table {
        let mut table = Table::new(["learning rate", "loss, smoothed"]).numbers(0..2);
        for (rate, loss) in self.points.iter().step_by(9) {
            table.row([format!("{rate:.1e}"), number(*loss)]);
        }
        table
    }
}

/// The middle point of the longest fall: of the longest sequence of points, each with a lower loss than the one before.
fn valley(points: &[(f64, f64)]) -> usize {
    // Length of the longest fall to each point, and the point before it.
    let mut falls: Vec<(usize, Option<usize>)> = Vec::with_capacity(points.len());
    for (i, (_, loss)) in points.iter().enumerate() {
        let before = (0..i).filter(|j| *loss < points[*j].1).max_by_key(|j| falls[*j].0);
        falls.push((1 + before.map_or(0, |j| falls[j].0), before));
    }
    let mut at = (0..points.len()).max_by_key(|i| falls[*i].0).unwrap_or(0);
    for _ in 0..falls.get(at).map_or(0, |(length, _)| length / 2) {
        at = falls[at].1.unwrap_or(at);
    }
    at
}

impl Callback for RangeTest {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        let is_over = self.stop.load(Ordering::Relaxed);
        let Some(loss) = log.values.get("loss").filter(|loss| loss.is_finite() && !is_over) else {
            self.stop.store(true, Ordering::Relaxed);
            return Ok(());
        };
        let steps = i32::try_from(self.points.len() + 1).unwrap_or(i32::MAX);
        self.smoothed = KEPT * self.smoothed + (1.0 - KEPT) * loss;
        self.points.push((log.learning_rate.into(), self.smoothed / (1.0 - KEPT.powi(steps))));
        let newest = self.points.last().map_or(0.0, |point| point.1);
        let has_diverged = self.lowest().is_some_and(|lowest| newest > DIVERGED * lowest.1);
        if has_diverged || log.step >= STEPS {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_from_step_to_step() {
        let schedule = schedule();
        schedule.check().unwrap();
        assert_eq!((schedule.rate(1.0, 0), schedule.rate(1.0, STEPS - 1)), (1e-6, 3.0));
        assert!((1..STEPS).all(|step| schedule.rate(1.0, step) > schedule.rate(1.0, step - 1)));
    }

    /// Flat, a fall from point 40 to point 69, and a rise. The unsettled points at the ends don't count.
    #[test]
    fn the_middle_of_the_longest_fall_is_suggested() {
        let loss = |step: u64| match step {
            ..40 => 2.0,
            40..70 => 2.0 - 0.05 * (step - 39) as f64,
            _ => 0.5 + 0.1 * (step - 69) as f64,
        };
        let mut test = RangeTest::new(Arc::default());
        test.points = (0..STEPS).map(|step| (rate(step), loss(step))).collect();
        let suggested = test.suggestion().unwrap();
        assert!((rate(50)..=rate(56)).contains(&suggested), "{suggested} is not near {}", rate(54));
        // The lowest loss stands by itself, on a rate that is far too high.
        test.points[90].1 = 0.0;
        assert!((rate(50)..=rate(56)).contains(&test.suggestion().unwrap()));
        test.points.truncate(1);
        assert!(test.suggestion().unwrap_err().to_string().contains("it rises from the first step on"));
    }
}
