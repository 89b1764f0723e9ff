//! What is known of one adapter's speed: time as a line over rows, learned from the steps.

use super::Line;

/// Part of a measurement's deviation (in logarithms) that an estimate takes up.
const GAIN: f64 = 0.25;
/// The same once several measurements in a row deviate to one side by more than [`CHANGED`]: a change, not noise.
const GAIN_AFTER_CHANGE: f64 = 0.7;
/// Deviation, in logarithms, that noise rarely reaches: 20 %.
const CHANGED: f64 = 0.18;
/// Largest deviation, as a factor, that one measurement is believed.
const BELIEF: f64 = 4.0;
/// Sizes that differ by this factor tell the fixed cost from that of a row.
const DIFFERENT: f64 = 1.5;
/// Part of a new line that replaces the old.
const REFIT: f64 = 0.5;

/// Time as a line over rows, `fixed + per row`, which is scaled by measured over predicted and bent when sizes differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    line: Line,
    /// Logarithms of measured over predicted of the last three steps, newest first.
    recent: Vec<f64>,
    /// Was it long not measured?
    is_old: bool,
    /// A smoothed measurement at another size than the present one.
    anchor: Option<(f64, f64)>,
    /// The smoothed measurement at the present size.
    present: Option<(f64, f64)>,
}

impl Estimate {
    /// From one measurement: no fixed cost.
    pub fn proportional(rows: u32, ms: f64) -> Self {
        Self::new(Line { fixed_ms: 0.0, per_row_ms: ms / f64::from(rows.max(1)) })
    }

    /// From measurements at two sizes, `(rows, ms)`.
    pub fn through(small: (u32, f64), large: (u32, f64)) -> Self {
        let line = line_through((f64::from(small.0), small.1), (f64::from(large.0), large.1));
        line.map_or_else(|| Self::proportional(large.0, large.1), Self::new)
    }

    fn new(line: Line) -> Self {
        Self { line, recent: Vec::new(), is_old: false, anchor: None, present: None }
    }

    /// The line as it is now.
    pub fn line(&self) -> Line {
        self.line
    }

    /// Predicted milliseconds for a number of rows.
    pub fn ms(&self, rows: u32) -> f64 {
        self.line.ms(rows)
    }

    /// Says that this is long ago: the next measurement counts for more.
    pub fn grow_old(&mut self) {
        self.is_old = true;
        self.recent.clear();
    }

    /// Takes in a measurement.
    pub fn learn(&mut self, rows: u32, ms: f64) {
        let deviation = (ms / self.ms(rows)).clamp(1.0 / BELIEF, BELIEF).ln();
        self.recent.insert(0, deviation);
        self.recent.truncate(3);
        let gain = if self.has_changed() || self.is_old { GAIN_AFTER_CHANGE } else { GAIN };
        self.is_old = false;
        let factor = (gain * median(&self.recent)).exp();
        self.line.fixed_ms *= factor;
        self.line.per_row_ms *= factor;
        // What was measured before is now measured against the new line.
        self.recent.iter_mut().for_each(|deviation| *deviation -= factor.ln());
        self.anchor = self.anchor.map(|(rows, ms)| (rows, ms * factor));
        self.note_size(f64::from(rows), ms);
    }

    fn has_changed(&self) -> bool {
        self.recent.len() >= 2
            && (self.recent.iter().all(|it| *it > CHANGED) || self.recent.iter().all(|it| *it < -CHANGED))
    }

    /// Bends the line when two sizes that differ enough were measured for a while.
    fn note_size(&mut self, rows: f64, ms: f64) {
        let is_same = |(at, _): (f64, f64)| rows / at < DIFFERENT && at / rows < DIFFERENT;
        self.present = match self.present {
            Some(present) if is_same(present) => {
                Some((present.0 + GAIN * (rows - present.0), present.1 + GAIN * (ms - present.1)))
            }
            Some(before) => {
                self.anchor = Some(before);
                Some((rows, ms))
            }
            None => Some((rows, ms)),
        };
        if let (Some(anchor), Some(present)) = (self.anchor.filter(|anchor| !is_same(*anchor)), self.present)
            && let Some(new) = line_through(anchor, present)
        {
            self.line.fixed_ms += REFIT * (new.fixed_ms - self.line.fixed_ms);
            self.line.per_row_ms += REFIT * (new.per_row_ms - self.line.per_row_ms);
            // Each pair of sizes bends the line once; scaling does the rest.
            self.anchor = None;
        }
    }
}

/// The line through two points, with a fixed cost of at least 0; `None` if the larger takes no longer.
fn line_through(a: (f64, f64), b: (f64, f64)) -> Option<Line> {
    let (small, large) = if a.0 <= b.0 { (a, b) } else { (b, a) };
    let per_row_ms = (large.1 - small.1) / (large.0 - small.0);
    if !(per_row_ms.is_finite() && per_row_ms > 0.0) {
        return None;
    }
    let fixed_ms = small.1 - per_row_ms * small.0;
    if fixed_ms < 0.0 {
        return Some(Line { fixed_ms: 0.0, per_row_ms: large.1 / large.0 });
    }
    Some(Line { fixed_ms, per_row_ms })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sizes_tell_fixed_cost_from_that_of_a_row() {
        let line = Estimate::through((10, 12.0), (20, 22.0)).line();
        assert!((line.fixed_ms - 2.0).abs() < 1e-9 && (line.per_row_ms - 1.0).abs() < 1e-9, "{line:?}");
        let steep = Estimate::through((10, 5.0), (20, 22.0)).line();
        assert_eq!(steep.fixed_ms, 0.0, "no fixed cost is below 0");
        let falling = Estimate::through((10, 5.0), (20, 4.0)).line();
        assert_eq!(falling, Line { fixed_ms: 0.0, per_row_ms: 0.2 });
    }

    #[test]
    fn after_a_long_pause_a_measurement_counts_for_more() {
        let mut estimate = Estimate::proportional(100, 300.0);
        estimate.grow_old();
        estimate.learn(1, 1.0);
        assert!(estimate.ms(100) < 150.0, "{}", estimate.ms(100));
    }

    #[test]
    fn one_hiccup_moves_little() {
        let mut estimate = Estimate::proportional(100, 100.0);
        for _ in 0..5 {
            estimate.learn(100, 100.0);
        }
        estimate.learn(100, 1000.0);
        assert!((estimate.ms(100) / 100.0 - 1.0).abs() < 0.02, "{}", estimate.ms(100));
    }
}
