//! Model of one adapter's speed: time as a line over rows, learned from the steps.

use super::Line;

/// Least noise of a measurement, as a part of it.
const LEAST_NOISE: f64 = 0.05;
/// Noise over the mean deviation: 1.25 for a normal distribution, and some more.
const NOISE_OF_DEVIATION: f64 = 1.5;
/// Weight of a deviation in the mean, and the limit of one deviation.
const DEVIATION_GAIN: f64 = 0.05;
const MOST_DEVIATION: f64 = 0.5;
/// Deviation, in logarithms, that noise rarely reaches: 20 %, or this multiple of the expected one.
const FAR: f64 = 0.18;
const FAR_TIMES: f64 = 3.0;
/// Least part of a run's time that depends on its rows.
const LEAST_OF_ROWS: f64 = 0.02;

/// Uncertainty that an event adds to a line: the factor by which it may be scaled, and the part of a run's time by
/// which its fixed cost may be off, while the time for the present rows stays.
struct Change {
    scale: f64,
    bend: f64,
}

/// Between a step and the next.
const DRIFT: Change = Change { scale: 0.015, bend: 0.005 };
/// A change of speed, which may slow down the fixed costs, too, or not.
const ANOTHER_SPEED: Change = Change { scale: 0.3, bend: 0.2 };
/// A pause without measurements.
const PAUSE: Change = Change { scale: 0.5, bend: 0.2 };
/// Two measurements at one time, while other adapters were busy with other rows.
const CALIBRATED: Change = Change { scale: 0.2, bend: 0.1 };
/// A measurement at a single size.
const ONE_SIZE: Change = Change { scale: 0.2, bend: 0.3 };
/// Limit of the uncertainty of the fixed cost that drift adds, as a part of a run's time.
const MOST_BEND: f64 = 0.3;

/// Time as a line over rows, `fixed + per row`, with its uncertainty.
///
/// Each measurement corrects the line by a Kalman filter (Kalman 1960, "A new approach to linear filtering and
/// prediction problems"): the less certain of the two costs takes the larger part of an error. The noise is learned,
/// too. A measurement that is far off is ignored, since it may be a hiccup; a second one in the same direction is a
/// change of speed, which scales the whole line and makes the fixed part uncertain, until another number of rows is
/// measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    line: Line,
    doubt: Doubt,
    /// Mean deviation of measurements from predictions, in logarithms.
    deviation: f64,
    /// The last measurement, rows and milliseconds.
    last: Option<(f64, f64)>,
    /// Whether the adapter was not measured for long.
    is_old: bool,
}

/// Variances of a line's two costs, and their covariance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Doubt {
    fixed: f64,
    both: f64,
    per_row: f64,
}

impl Doubt {
    /// Grows by a change of a line that was last measured at `rows`.
    fn grow(&mut self, line: Line, rows: f64, change: &Change) {
        let scale = change.scale.powi(2);
        let bend = (change.bend * line.at(rows)).powi(2);
        self.fixed += scale * line.fixed_ms.powi(2) + bend;
        self.both += scale * line.fixed_ms * line.per_row_ms - bend / rows;
        self.per_row += scale * line.per_row_ms.powi(2) + bend / rows.powi(2);
    }

    /// Covariances of the costs with the time for `rows`.
    fn with_time(&self, rows: f64) -> [f64; 2] {
        [self.fixed + rows * self.both, self.both + rows * self.per_row]
    }

    /// Variance of the time for `rows`.
    fn of_time(&self, rows: f64) -> f64 {
        let [fixed, per_row] = self.with_time(rows);
        (fixed + rows * per_row).max(0.0)
    }

    fn scale(&mut self, factor: f64) {
        let Self { fixed, both, per_row } = self;
        [fixed, both, per_row].into_iter().for_each(|value| *value *= factor.powi(2));
    }
}

impl Estimate {
    /// A line through one measurement, without fixed cost.
    pub fn proportional(rows: u32, ms: f64) -> Self {
        let rows = f64::from(rows.max(1));
        Self::new(Line { fixed_ms: 0.0, per_row_ms: ms / rows }, rows, &ONE_SIZE)
    }

    /// A line through measurements at two sizes, `(rows, ms)`.
    pub fn through(small: (u32, f64), large: (u32, f64)) -> Self {
        let line = line_through((f64::from(small.0), small.1), (f64::from(large.0), large.1));
        let new = |line| Self::new(line, f64::from(large.0), &CALIBRATED);
        line.map_or_else(|| Self::proportional(large.0, large.1), new)
    }

    fn new(line: Line, rows: f64, doubt: &Change) -> Self {
        let deviation = LEAST_NOISE / NOISE_OF_DEVIATION;
        let mut new = Self { line, doubt: Doubt::default(), deviation, last: None, is_old: false };
        new.doubt.grow(line, rows, doubt);
        new
    }

    /// The line as it is now.
    pub fn line(&self) -> Line {
        self.line
    }

    /// Predicted milliseconds for a number of rows.
    pub fn ms(&self, rows: u32) -> f64 {
        self.line.ms(rows)
    }

    /// Marks the last measurement as old: the next one counts for more.
    pub fn grow_old(&mut self) {
        self.is_old = true;
        self.last = None;
    }

    /// Records a measurement.
    pub fn learn(&mut self, rows: u32, ms: f64) {
        let rows = f64::from(rows);
        let far = self.far(rows);
        let deviation = self.deviation_of((rows, ms));
        let before = self.last.replace((rows, ms)).map_or(0.0, |last| self.deviation_of(last));
        self.deviation += DEVIATION_GAIN * (deviation.abs().min(MOST_DEVIATION) - self.deviation);
        if std::mem::take(&mut self.is_old) {
            self.follow(deviation, rows, &PAUSE);
        } else if deviation.abs() > far {
            if before.abs() <= far || before * deviation < 0.0 {
                return;
            }
            let smaller = if before.abs() < deviation.abs() { before } else { deviation };
            self.follow(smaller, rows, &ANOTHER_SPEED);
        }
        if self.doubt.fixed < (MOST_BEND * self.line.at(rows)).powi(2) {
            self.doubt.grow(self.line, rows, &DRIFT);
        }
        self.correct(rows, ms);
    }

    /// Logarithm of measured over predicted.
    fn deviation_of(&self, (rows, ms): (f64, f64)) -> f64 {
        (ms / self.line.at(rows)).ln()
    }

    /// Deviation at `rows` above which a measurement is a hiccup, or a change.
    fn far(&self, rows: f64) -> f64 {
        let doubt = self.doubt.of_time(rows).sqrt() / self.line.at(rows);
        FAR.max(FAR_TIMES * doubt.hypot(self.noise()))
    }

    /// Noise of a measurement, as a part of it.
    fn noise(&self) -> f64 {
        (NOISE_OF_DEVIATION * self.deviation).max(LEAST_NOISE)
    }

    /// Scales the line by a deviation, and adds uncertainty about other changes.
    fn follow(&mut self, deviation: f64, rows: f64, change: &Change) {
        let factor = deviation.exp();
        self.line.fixed_ms *= factor;
        self.line.per_row_ms *= factor;
        self.doubt.scale(factor);
        self.doubt.grow(self.line, rows, change);
    }

    /// The filter's correction by a measurement.
    fn correct(&mut self, rows: f64, ms: f64) {
        let predicted = self.line.at(rows);
        let noise = (self.noise() * predicted).powi(2);
        let [fixed, per_row] = self.doubt.with_time(rows);
        let gain = [fixed, per_row].map(|covariance| covariance / (self.doubt.of_time(rows) + noise));
        self.line.fixed_ms += gain[0] * (ms - predicted);
        self.line.per_row_ms += gain[1] * (ms - predicted);
        self.doubt.fixed -= gain[0] * fixed;
        self.doubt.both -= gain[0] * per_row;
        self.doubt.per_row -= gain[1] * per_row;
        // No cost is below 0, and no row is free.
        let time = self.line.at(rows).max(f64::MIN_POSITIVE);
        self.line.fixed_ms = self.line.fixed_ms.clamp(0.0, (1.0 - LEAST_OF_ROWS) * time);
        self.line.per_row_ms = (time - self.line.fixed_ms) / rows;
    }
}

/// The line through two points, with a fixed cost of at least 0; `None` if the larger size takes no longer.
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

    #[test]
    fn a_second_far_measurement_is_another_speed() {
        let mut estimate = Estimate::through((32, 42.0), (128, 138.0)); // 10 ms + 1 ms a row
        estimate.learn(128, 1290.0);
        assert!((estimate.ms(128) / 138.0 - 1.0).abs() < 0.01, "one may be a hiccup: {}", estimate.ms(128));
        estimate.learn(128, 1290.0);
        assert!((estimate.ms(128) / 1290.0 - 1.0).abs() < 0.01, "{}", estimate.ms(128));
        // Rows take ten times as long, and the fixed cost stays: another size shows that.
        for _ in 0..3 {
            estimate.learn(32, 330.0);
        }
        let line = estimate.line();
        assert!((line.per_row_ms - 10.0).abs() < 0.5 && line.fixed_ms < 30.0, "{line:?}");
    }

    #[test]
    fn no_measurements_make_a_cost_negative() {
        let mut estimate = Estimate::through((32, 42.0), (128, 138.0));
        for (rows, ms) in [(128, 1e-9), (128, 1e-9), (1, 1e9), (1, 1e9), (4_000_000, 1e-3), (4_000_000, 1e-3), (7, 3.0)]
        {
            estimate.learn(rows, ms);
            let line = estimate.line();
            assert!(line.fixed_ms >= 0.0 && line.per_row_ms > 0.0 && line.per_row_ms.is_finite(), "{line:?}");
        }
    }

    /// A run of a million steps of one size still learns from another size, and ignores a hiccup.
    #[test]
    fn what_is_in_doubt_does_not_grow_for_ever() {
        let mut estimate = Estimate::through((32, 42.0), (128, 138.0));
        for _ in 0..1_000_000 {
            estimate.learn(128, 138.0);
        }
        assert!((estimate.ms(64) / 74.0 - 1.0).abs() < 0.02, "{}", estimate.ms(64));
        estimate.learn(64, 740.0);
        assert!((estimate.ms(64) / 74.0 - 1.0).abs() < 0.02, "a hiccup: {}", estimate.ms(64));
    }
}
