//! Number of rows of each adapter: integer shares that minimise the time of the slowest.

mod estimate;

use std::sync::Arc;

use crate::error::{Error, Result};

pub use estimate::Estimate;

/// Way to split a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SplitMode {
    /// By speed, measured before the first step and adjusted after each, so that all adapters end at the same time.
    #[default]
    Learned,
    /// All adapters get the same number of rows.
    Even,
    /// In fixed proportions, one for each adapter, also if a share is small.
    Fixed(Vec<f64>),
    /// Row counts of an earlier run: for each training step, rows for each adapter. A repeated run gives the same bits.
    Recorded(Arc<Vec<Vec<u32>>>),
}

/// A new split is taken only if it is predicted to be faster than the last by this factor: measurements are noisy, and
/// shares should not follow noise.
const WORTHWHILE: f64 = 1.02;

/// Even shares are taken if they are predicted to be slower than the best by no more than this factor: cards of one kind
/// then compute the same rows in every run. Besides, tiles of a product are some dozen rows high, and a share just above a
/// multiple of that pays for a whole tile.
const ALIKE: f64 = 1.05;

/// Part of its rows by which a share may differ in a split that is kept: a small share can be far from the best and hardly
/// change the time of the slowest.
const KEPT_WITHIN: f64 = 0.1;

/// A share becomes smaller by this factor at most from one step to the next.
const MOST_SHRINKING: u32 = 4;

/// Weight of a new time for the upload of weights in its mean.
const WEIGHTS_GAIN: f64 = 0.25;

/// Training steps after which an adapter without rows is retried: at least, and at most.
const TRIAL_STEPS: [u64; 2] = [10, 200];
/// Part of the time that such retries may take.
const TRIAL_COST: f64 = 0.01;

/// Splits rows, and learns from their times.
#[derive(Clone, Debug)]
pub struct Splitter {
    mode: SplitMode,
    estimates: Vec<Option<Estimate>>,
    /// Milliseconds that the upload of new weights takes on each adapter before it can run.
    weights_ms: Vec<f64>,
    /// Steps since each adapter last had rows.
    idle_steps: Vec<u64>,
    min_rows: u32,
    last: Vec<u32>,
    /// Whether a warning was given: a recorded split does not fit, or fixed shares are small.
    has_warned: bool,
}

impl Splitter {
    /// A splitter for a number of adapters; no share is below `min_rows` while another split exists, unless it is fixed.
    ///
    /// # Errors
    /// If fixed proportions or recorded rows do not go with the adapters.
    pub fn new(mode: SplitMode, n_adapters: usize, min_rows: u32) -> Result<Self> {
        let refuse = |problem: String, help: &str| Err(Error::setting("split", problem, help));
        match &mode {
            SplitMode::Fixed(parts) if parts.len() != n_adapters || !are_parts(parts) => refuse(
                format!("needs {n_adapters} parts from 0 up, one for each adapter, but got {parts:?}"),
                "write one number for each adapter, in their order: `3:1`",
            ),
            SplitMode::Recorded(steps) if steps.iter().any(|rows| rows.len() != n_adapters) => refuse(
                format!("needs recorded rows for {n_adapters} adapters, but the record has other numbers of them"),
                "repeat the run with as many adapters as it was recorded with",
            ),
            _ => Ok(Self {
                mode,
                estimates: vec![None; n_adapters],
                weights_ms: vec![0.0; n_adapters],
                idle_steps: vec![0; n_adapters],
                min_rows,
                last: Vec::new(),
                has_warned: false,
            }),
        }
    }

    /// Sets another split from now on. The models of the adapters' speeds are kept.
    ///
    /// # Errors
    /// If fixed proportions or recorded rows do not go with the adapters.
    pub fn set_mode(&mut self, mode: SplitMode) -> Result<()> {
        let checked = Self::new(mode, self.estimates.len(), self.min_rows)?;
        (self.mode, self.last) = (checked.mode, checked.last);
        Ok(())
    }

    /// Whether the split follows measurements.
    pub fn is_learned(&self) -> bool {
        self.mode == SplitMode::Learned
    }

    /// Sets the least number of rows of a shard, for another plan.
    pub fn set_min_rows(&mut self, min_rows: u32) {
        self.min_rows = min_rows;
    }

    /// Fewest rows of a shard while another split exists.
    pub fn min_rows(&self) -> u32 {
        self.min_rows
    }

    /// Number of adapters.
    pub fn n_adapters(&self) -> usize {
        self.estimates.len()
    }

    /// Resets the model at a position to that of an unknown adapter.
    pub fn forget(&mut self, adapter_idx: usize) {
        (self.estimates[adapter_idx], self.weights_ms[adapter_idx]) = (None, 0.0);
    }

    /// Adds an adapter of unknown speed; with fixed proportions it gets rows only when no other can.
    pub fn add(&mut self) {
        self.estimates.push(None);
        self.weights_ms.push(0.0);
        self.idle_steps.push(0);
        match &mut self.mode {
            SplitMode::Fixed(parts) => parts.push(0.0),
            SplitMode::Recorded(_) => self.mode = SplitMode::Even,
            SplitMode::Learned | SplitMode::Even => {}
        }
    }

    /// Records two measurements of different sizes, `(rows, ms)`: the line through them is the first estimate.
    pub fn calibrate(&mut self, adapter_idx: usize, small: (u32, f64), large: (u32, f64)) {
        self.estimates[adapter_idx] = Some(Estimate::through(small, large));
    }

    /// Records that an adapter was busy for `busy_ms` with `rows`.
    pub fn learn(&mut self, adapter_idx: usize, rows: u32, busy_ms: f64) {
        if rows == 0 || busy_ms <= 0.0 {
            return;
        }
        match &mut self.estimates[adapter_idx] {
            None => self.estimates[adapter_idx] = Some(Estimate::proportional(rows, busy_ms)),
            Some(estimate) => estimate.learn(rows, busy_ms),
        }
    }

    /// Records that new weights took an adapter `ms` before a run.
    pub fn learn_weights(&mut self, adapter_idx: usize, ms: f64) {
        let known = &mut self.weights_ms[adapter_idx];
        *known += if *known == 0.0 { ms } else { WEIGHTS_GAIN * (ms - *known) };
    }

    /// The model of an adapter's speed.
    pub fn estimate(&self, adapter_idx: usize) -> Option<&Estimate> {
        self.estimates[adapter_idx].as_ref()
    }

    /// Predicted time of a run over a number of rows on an adapter; none before the first measurement.
    pub fn predicted_ms(&self, adapter_idx: usize, rows: u32) -> Option<f64> {
        self.estimate(adapter_idx).map(|estimate| estimate.ms(rows))
    }

    /// Rows for each adapter in a training step: as [`shares`](Self::shares), but steady against noise, or by the
    /// record if there is one, and with an occasional retry of an adapter that had no rows for long.
    pub fn step_shares(&mut self, step: u64, rows: u32, alive: &[bool]) -> Vec<u32> {
        if let Some(recorded) = self.recorded(step, rows, alive) {
            return recorded;
        }
        if matches!(self.mode, SplitMode::Recorded(_)) && !std::mem::replace(&mut self.has_warned, true) {
            log::warn!(
                "the recorded split has no entry for step {} with {rows} rows on these adapters: its rows are \
                 split evenly",
                step + 1
            );
        }
        let mut shares = self.shares(rows, alive);
        self.warn_of_small(&shares);
        if self.is_learned() {
            let slowly = |shares| self.slowly(shares, alive);
            shares = self.even_among_alike(&shares).unwrap_or_else(|| self.steady(slowly(shares), alive));
            self.add_trial(&mut shares, alive);
        }
        for (idx, share) in shares.iter().enumerate() {
            let idle_steps = &mut self.idle_steps[idx];
            if *share > 0 && *idle_steps >= TRIAL_STEPS[0] {
                self.estimates[idx].iter_mut().for_each(Estimate::grow_old);
            }
            *idle_steps = if *share > 0 { 0 } else { *idle_steps + 1 };
        }
        self.last.clone_from(&shares);
        shares
    }

    /// Fixed shares are kept, also where they are too small for statistics of their own.
    fn warn_of_small(&mut self, shares: &[u32]) {
        let is_small = |share: &u32| *share > 0 && *share < self.min_rows;
        let Some(adapter_idx) = shares.iter().position(is_small) else { return };
        if !matches!(self.mode, SplitMode::Fixed(_)) || std::mem::replace(&mut self.has_warned, true) {
            return;
        }
        log::warn!(
            "the fixed split gives adapter {adapter_idx} {} rows of {}, too few for the statistics of batch \
             normalization: at least {} are better\n  help: use a larger batch, another split, or `synchronized = true`",
            shares[adapter_idx],
            shares.iter().sum::<u32>(),
            self.min_rows
        );
    }

    fn recorded(&self, step: u64, rows: u32, alive: &[bool]) -> Option<Vec<u32>> {
        let SplitMode::Recorded(steps) = &self.mode else { return None };
        let shares = steps.get(usize::try_from(step).ok()?)?;
        let fits =
            shares.iter().sum::<u32>() == rows && shares.iter().zip(alive).all(|(share, alive)| *alive || *share == 0);
        fits.then(|| shares.clone())
    }

    /// An even split over the adapters that have rows, if they are about equally fast.
    fn even_among_alike(&self, shares: &[u32]) -> Option<Vec<u32>> {
        let used: Vec<usize> = (0..shares.len()).filter(|idx| shares[*idx] > 0).collect();
        let lines: Vec<Option<Line>> = vec![Some(Line::EVEN); shares.len()];
        let even = balanced(shares.iter().sum(), &used, &lines);
        let is_fair = used.len() > 1 && used.iter().all(|idx| even[*idx] >= self.min_rows);
        let is_alike = self.slowest_ms(&even)? <= self.slowest_ms(shares)? * ALIKE;
        (is_fair && is_alike).then_some(even)
    }

    /// Shares that are not much smaller than the last: the time of few rows is unknown until few rows were run.
    fn slowly(&self, new: Vec<u32>, alive: &[bool]) -> Vec<u32> {
        let (rows, before) = (new.iter().sum::<u32>(), self.last.iter().sum::<u32>().max(1));
        if self.last.len() != new.len() {
            return new;
        }
        let part = |last: u32| u32::try_from(u64::from(last) * u64::from(rows) / u64::from(before)).unwrap_or(rows);
        let least: Vec<u32> = self.last.iter().map(|last| part(*last) / MOST_SHRINKING).collect();
        let held = |idx: &usize| alive[*idx] && least[*idx] >= self.min_rows && new[*idx] < least[*idx];
        let (held, others): (Vec<usize>, Vec<usize>) = (0..new.len()).partition(held);
        if held.is_empty() {
            return new;
        }
        let others: Vec<usize> = others.into_iter().filter(|idx| new[*idx] > 0).collect();
        let left = held.iter().fold(rows, |left, idx| left.saturating_sub(least[*idx]));
        let mut shares = balanced(left, &others, &self.lines(alive));
        held.iter().for_each(|idx| shares[*idx] = least[*idx]);
        if others.iter().any(|idx| shares[*idx] < self.min_rows) { new } else { shares }
    }

    /// The last split, unless the new one is enough of a gain.
    fn steady(&self, new: Vec<u32>, alive: &[bool]) -> Vec<u32> {
        let rows: u32 = new.iter().sum();
        let is_usable = self.last.len() == new.len()
            && self.last.iter().sum::<u32>() == rows
            && self.last.iter().zip(alive).all(|(share, alive)| *alive || *share == 0);
        if !is_usable {
            return new;
        }
        match (self.slowest_ms(&self.last), self.slowest_ms(&new)) {
            (Some(last_ms), Some(new_ms)) if last_ms <= new_ms * WORTHWHILE && are_near(&self.last, &new) => {
                self.last.clone()
            }
            _ => new,
        }
    }

    /// Predicted time of the slowest adapter of a split, from new weights to the end of its run.
    pub fn slowest_ms(&self, shares: &[u32]) -> Option<f64> {
        let used = shares.iter().enumerate().filter(|(_, share)| **share > 0);
        let ms = |(idx, share): (usize, &u32)| Some(self.predicted_ms(idx, *share)? + self.weights_ms[idx]);
        let times: Option<Vec<f64>> = used.map(ms).collect();
        times.map(|times| times.into_iter().fold(0.0, f64::max))
    }

    /// Takes a few rows from the largest share for an adapter that was idle for long, to measure it.
    fn add_trial(&self, shares: &mut [u32], alive: &[bool]) {
        let is_due =
            |idx: &usize| alive[*idx] && shares[*idx] == 0 && self.idle_steps[*idx] >= self.trial_steps(*idx, shares);
        let Some(idle) = (0..shares.len()).find(is_due) else { return };
        let Some(largest) = (0..shares.len()).max_by_key(|idx| shares[*idx]) else { return };
        if shares[largest] >= 2 * self.min_rows {
            shares[largest] -= self.min_rows;
            shares[idle] = self.min_rows;
        }
    }

    /// Steps until an adapter without rows is retried: the longer its trial delays a step, the more.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped, and not negative")]
    fn trial_steps(&self, idle: usize, shares: &[u32]) -> u64 {
        let [least, most] = TRIAL_STEPS;
        let mut trial = vec![0; shares.len()];
        trial[idle] = self.min_rows;
        match (self.slowest_ms(&trial), self.slowest_ms(shares)) {
            (Some(trial_ms), Some(step_ms)) if step_ms > 0.0 => {
                (((trial_ms - step_ms) / (TRIAL_COST * step_ms)).max(0.0) as u64).clamp(least, most)
            }
            _ => most,
        }
    }

    /// Rows for each adapter; none for adapters that are not active. They sum to `rows`.
    pub fn shares(&self, rows: u32, alive: &[bool]) -> Vec<u32> {
        let lines = self.lines(alive);
        let mut used: Vec<usize> = (0..lines.len()).filter(|idx| lines[*idx].is_some()).collect();
        if used.is_empty() {
            // Fixed proportions may give the remaining adapters nothing: then all of them share.
            used = (0..alive.len()).filter(|idx| alive[*idx]).collect();
        }
        loop {
            let shares = balanced(rows, &used, &lines);
            if matches!(self.mode, SplitMode::Fixed(_)) {
                return shares;
            }
            let small = used.iter().copied().filter(|idx| shares[*idx] < self.min_rows);
            match small.min_by_key(|idx| (shares[*idx], std::cmp::Reverse(*idx))) {
                Some(idx) if used.len() > 1 => used.retain(|other| *other != idx),
                _ => return shares,
            }
        }
    }

    /// Time as a line over rows, of each adapter that may get rows.
    fn lines(&self, alive: &[bool]) -> Vec<Option<Line>> {
        let unknown = self.mean_line();
        let line = |idx: usize| match &self.mode {
            SplitMode::Learned => {
                let Line { fixed_ms, per_row_ms } = self.estimates[idx].as_ref().map_or(unknown, Estimate::line);
                Some(Line { fixed_ms: fixed_ms + self.weights_ms[idx], per_row_ms })
            }
            SplitMode::Even | SplitMode::Recorded(_) => Some(Line::EVEN),
            SplitMode::Fixed(parts) if parts[idx] > 0.0 => Some(Line { fixed_ms: 0.0, per_row_ms: 1.0 / parts[idx] }),
            SplitMode::Fixed(_) => None,
        };
        alive.iter().enumerate().map(|(idx, alive)| if *alive { line(idx) } else { None }).collect()
    }

    /// Model of an adapter that was never measured: the mean speed of the others.
    fn mean_line(&self) -> Line {
        let known: Vec<f64> =
            self.estimates.iter().flatten().map(|estimate| 1.0 / estimate.line().per_row_ms).collect();
        let mean = known.iter().sum::<f64>() / known.iter().map(|_| 1.0).sum::<f64>();
        if known.is_empty() { Line::EVEN } else { Line { fixed_ms: 0.0, per_row_ms: 1.0 / mean } }
    }
}

/// Whether each share differs by less than a tenth of it, or by at most two rows.
fn are_near(shares: &[u32], wanted: &[u32]) -> bool {
    let is_near = |(share, wanted): (&u32, &u32)| {
        f64::from(share.abs_diff(*wanted)) <= (KEPT_WITHIN * f64::from(*wanted)).max(2.0)
    };
    shares.iter().zip(wanted).all(is_near)
}

fn are_parts(parts: &[f64]) -> bool {
    parts.iter().all(|part| part.is_finite() && *part >= 0.0) && parts.iter().sum::<f64>() > 0.0
}

/// Milliseconds as a function of rows: `fixed_ms + per_row_ms * rows`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Cost of a run whatever its rows.
    pub fixed_ms: f64,
    /// Cost of each row.
    pub per_row_ms: f64,
}

impl Line {
    const EVEN: Self = Self { fixed_ms: 0.0, per_row_ms: 1.0 };

    fn ms(self, rows: u32) -> f64 {
        self.at(f64::from(rows))
    }

    fn at(self, rows: f64) -> f64 {
        self.fixed_ms + self.per_row_ms * rows
    }
}

/// Whole shares over `used` adapters that minimise the time of the slowest.
///
/// If all end at the time `t`, adapter `i` has `(t - fixed_i) / per_row_i` rows, and `t` follows from their sum. Each
/// gets the integer part of that; the remaining rows go, one by one, to the adapter that would then end first.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a floor between 0 and `rows`")]
fn balanced(rows: u32, used: &[usize], lines: &[Option<Line>]) -> Vec<u32> {
    let line = |idx: usize| lines[idx].unwrap_or(Line::EVEN);
    let speed: f64 = used.iter().map(|idx| 1.0 / line(*idx).per_row_ms).sum();
    let fixed: f64 = used.iter().map(|idx| line(*idx).fixed_ms / line(*idx).per_row_ms).sum();
    let end_ms = (f64::from(rows) + fixed) / speed;
    let mut shares = vec![0; lines.len()];
    for idx in used {
        let exact = (end_ms - line(*idx).fixed_ms) / line(*idx).per_row_ms;
        shares[*idx] = exact.clamp(0.0, f64::from(rows)).floor() as u32;
    }
    // Clamping can assign too many rows: take them back from the slowest.
    while shares.iter().sum::<u32>() > rows {
        let loaded = used.iter().copied().filter(|idx| shares[*idx] > 0);
        let slowest = loaded.max_by(|a, b| line(*a).ms(shares[*a]).total_cmp(&line(*b).ms(shares[*b])));
        slowest.into_iter().for_each(|idx| shares[idx] -= 1);
    }
    for _ in shares.iter().sum::<u32>()..rows {
        let ends = |idx: &usize| line(*idx).ms(shares[*idx] + 1);
        let first = used.iter().copied().min_by(|a, b| ends(a).total_cmp(&ends(b)).then(a.cmp(b)));
        first.into_iter().for_each(|idx| shares[idx] += 1);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splitter(mode: SplitMode, n_adapters: usize, min_rows: u32) -> Splitter {
        Splitter::new(mode, n_adapters, min_rows).unwrap()
    }

    #[test]
    fn shares_sum_to_the_rows() {
        let mut splitter = splitter(SplitMode::Learned, 3, 1);
        for (adapter_idx, ms) in [(0, 10.0), (1, 30.0), (2, 70.0)] {
            splitter.learn(adapter_idx, 10, ms);
        }
        for rows in 0..200 {
            assert_eq!(splitter.shares(rows, &[true; 3]).iter().sum::<u32>(), rows);
        }
        assert_eq!(splitter.shares(100, &[false, true, true]), [0, 70, 30]);
    }

    #[test]
    fn the_slowest_is_as_fast_as_any_split_allows() {
        let mut splitter = splitter(SplitMode::Learned, 2, 1);
        splitter.calibrate(0, (10, 12.0), (20, 22.0)); // 2 ms + 1 ms a row
        splitter.calibrate(1, (10, 50.0), (20, 80.0)); // 20 ms + 3 ms a row
        for rows in 1..120 {
            let shares = splitter.shares(rows, &[true; 2]);
            let best = (0..=rows).map(|first| splitter.slowest_ms(&[first, rows - first]).unwrap());
            let best = best.fold(f64::INFINITY, f64::min);
            let got = splitter.slowest_ms(&shares).unwrap();
            assert!(got <= best + 1e-9, "{rows} rows: {shares:?} takes {got} ms, but {best} ms is possible");
        }
    }

    #[test]
    fn adapters_that_are_about_as_fast_get_the_same_rows() {
        let step_shares = |per_row: [f64; 3]| {
            let mut splitter = splitter(SplitMode::Learned, 3, 1);
            for (idx, ms) in per_row.into_iter().enumerate() {
                splitter.calibrate(idx, (10, 10.0 * ms), (20, 20.0 * ms));
            }
            splitter.step_shares(0, 96, &[true; 3])
        };
        assert_eq!(step_shares([1.0, 1.03, 0.98]), [32, 32, 32]);
        assert_ne!(step_shares([1.0, 1.2, 1.0]), [32, 32, 32]);
        assert_eq!(step_shares([1.0, 1.03, 100.0]), [48, 48, 0], "one that is too slow is not asked");
    }

    #[test]
    fn an_adapter_whose_fixed_cost_is_not_worth_it_gets_nothing() {
        let mut splitter = splitter(SplitMode::Learned, 2, 1);
        splitter.calibrate(0, (10, 10.0), (20, 20.0));
        splitter.calibrate(1, (10, 1010.0), (20, 1020.0));
        assert_eq!(splitter.shares(100, &[true; 2]), [100, 0]);
        for step in 0..TRIAL_STEPS[1] {
            assert_eq!(splitter.step_shares(step, 100, &[true; 2]), [100, 0]);
        }
        assert_eq!(splitter.step_shares(TRIAL_STEPS[1], 100, &[true; 2]), [99, 1], "it is tried again");
    }

    #[test]
    fn a_trial_that_costs_less_comes_sooner() {
        let mut splitter = splitter(SplitMode::Learned, 2, 1);
        splitter.calibrate(0, (10, 10.0), (20, 20.0));
        splitter.calibrate(1, (10, 139.0), (20, 149.0)); // one row takes 130 ms: 30 % longer than the step
        let first = (0..TRIAL_STEPS[1]).find(|step| splitter.step_shares(*step, 100, &[true; 2]) == [99, 1]);
        assert_eq!(first, Some(30), "30 steps, of which 30 % of one are 1 %");
    }

    #[test]
    fn no_share_is_tiny_while_another_split_exists() {
        let splitter = splitter(SplitMode::Even, 3, 8);
        assert_eq!(splitter.shares(24, &[true; 3]), [8, 8, 8]);
        assert_eq!(splitter.shares(20, &[true; 3]), [10, 10, 0]);
        assert_eq!(splitter.shares(5, &[true; 3]), [5, 0, 0]);
    }

    #[test]
    fn fixed_proportions_must_fit() {
        let error = Splitter::new(SplitMode::Fixed(vec![3.0, 1.0]), 3, 1).unwrap_err();
        assert!(
            error.to_string().contains("needs 3 parts from 0 up, one for each adapter, but got [3.0, 1.0]"),
            "{error}"
        );
        assert_eq!(splitter(SplitMode::Fixed(vec![3.0, 1.0]), 2, 1).shares(100, &[true; 2]), [75, 25]);
        assert_eq!(splitter(SplitMode::Fixed(vec![0.0, 1.0]), 2, 1).shares(9, &[true; 2]), [0, 9]);
        assert_eq!(splitter(SplitMode::Fixed(vec![0.0, 1.0]), 2, 1).shares(9, &[true, false]), [9, 0]);
    }

    #[test]
    fn fixed_proportions_are_kept_however_few_rows_they_give() {
        let mut splitter = splitter(SplitMode::Fixed(vec![2.0, 1.0, 2.0]), 3, 8);
        assert_eq!(splitter.step_shares(0, 24, &[true; 3]), [10, 5, 9]);
        assert_eq!(splitter.step_shares(1, 40, &[true; 3]), [16, 8, 16]);
        assert_eq!(splitter.step_shares(2, 5, &[true; 3]), [2, 1, 2]);
    }

    #[test]
    fn recorded_rows_are_repeated() {
        let steps = Arc::new(vec![vec![7, 3], vec![2, 8]]);
        let mut splitter = splitter(SplitMode::Recorded(steps), 2, 1);
        assert_eq!(splitter.step_shares(0, 10, &[true; 2]), [7, 3]);
        assert_eq!(splitter.step_shares(1, 10, &[true; 2]), [2, 8]);
        assert_eq!(splitter.step_shares(2, 10, &[true; 2]), [5, 5], "past the record, even");
        assert_eq!(splitter.step_shares(0, 10, &[false, true]), [0, 10]);
    }

    /// Two adapters of 1 and 3 ms a row; the first slows down threefold, then recovers. Times vary by ±10 %.
    #[test]
    fn shares_follow_a_change_of_speed_and_not_noise() {
        let mut splitter = splitter(SplitMode::Learned, 2, 1);
        splitter.calibrate(0, (32, 32.0), (128, 128.0));
        splitter.calibrate(1, (32, 96.0), (128, 384.0));
        let ideal = |per_row_ms: f64| 256.0 * 3.0 / (3.0 + per_row_ms);
        for step in 0..120_u64 {
            let per_row_ms = if (40..80).contains(&step) { 3.0 } else { 1.0 };
            let shares = splitter.step_shares(step, 256, &[true; 2]);
            let since_change = step % 40;
            if since_change >= 10 {
                let off = f64::from(shares[0]) / ideal(per_row_ms) - 1.0;
                assert!(off.abs() < 0.15, "step {step}: {} rows, ideal {}", shares[0], ideal(per_row_ms));
            }
            let noise = 1.0 + 0.1 * ((step * 7919 % 101) as f64 / 50.0 - 1.0);
            splitter.learn(0, shares[0], f64::from(shares[0]) * per_row_ms * noise);
            splitter.learn(1, shares[1], f64::from(shares[1]) * 3.0 / noise);
        }
    }

    /// Times of two adapters that share cores: alone, each is faster. `[rows/ms]` of each.
    fn shared_ms(rows: [u32; 2], both: [f64; 2], alone: [f64; 2], noise: [f64; 2]) -> [f64; 2] {
        let ms = [0, 1].map(|idx| f64::from(rows[idx]) / both[idx] * noise[idx]);
        let first_ms = ms[0].min(ms[1]);
        [0, 1].map(|idx| first_ms + (ms[idx] - first_ms) * both[idx] / alone[idx])
    }

    /// Two adapters that share cores, such as the CPU adapter and a software adapter: each is faster once the other
    /// has ended, so that measurements of an unbalanced split mislead.
    #[test]
    fn adapters_on_the_same_cores_settle_in_ten_steps() {
        for (both, alone) in [
            ([1.0, 1.0], [2.0, 2.0]),
            ([2.0, 0.5], [3.0, 1.0]),
            ([2.0, 0.2], [3.0, 0.5]),
            ([4.0, 0.1], [6.0, 0.2]),
            ([1.0, 0.5], [1.0, 1.0]),
            ([0.5, 2.0], [1.0, 3.0]),
        ] {
            let wanted = 256.0 * both[0] / (both[0] + both[1]);
            for jitter in [0.0, 0.02, 0.05] {
                let mut splitter = splitter(SplitMode::Learned, 2, 1);
                let noise =
                    |step: u64| [7919, 104_729].map(|prime| 1.0 + jitter * ((step * prime % 101) as f64 / 50.0 - 1.0));
                let [small, large] = [32, 128].map(|rows| shared_ms([rows; 2], both, alone, noise(u64::from(rows))));
                (0..2).for_each(|idx| splitter.calibrate(idx, (32, small[idx]), (128, large[idx])));
                for step in 0..60 {
                    let shares = splitter.step_shares(step, 256, &[true; 2]);
                    let off = (f64::from(shares[0]) - wanted).abs();
                    let near = 0.1 * wanted.min(256.0 - wanted) + 2.0;
                    assert!(step < 10 || off <= near, "{both:?}, {jitter}, step {step}: {shares:?}, not {wanted:.0}");
                    let ms = shared_ms([shares[0], shares[1]], both, alone, noise(step));
                    (0..2).for_each(|idx| splitter.learn(idx, shares[idx], ms[idx]));
                }
            }
        }
    }
}
