//! Excludes adapters that slow training down: short trials with real training steps decide.
//!
//! The split's model of time treats each adapter by itself. Adapters may share memory, a bus or the cores of the CPU, and
//! each costs the host something; this shows only when one of them is idle.

use crate::timing::median;

/// Steps before the first trial, and after one that kept a change.
const FIRST_STEPS: u64 = 25;
/// Factor on the number of steps between trials after each trial in vain.
const LATER: u64 = 10;
/// Most steps between trials.
const MOST_STEPS: u64 = 25_000;
/// Steps after which an excluded adapter is retried.
pub(super) const RETRY_STEPS: u64 = 1_000;
/// Steps that are measured before a change, and after it.
const SAMPLES: usize = 9;
/// Steps after a change that are not measured: shares settle, caches warm up.
const SETTLING: usize = 3;
/// A change is kept if steps without it take this many times as long.
const WORTHWHILE: f64 = 1.05;
/// Slowdown at which a trial is aborted, and at which a step counts as slow for the adapters that are left.
const ABORT_SLOWDOWN: f64 = 1.25;
/// Consecutive slow steps after which excluded adapters are retried early.
const SLOW_STEPS: usize = 5;
/// Steps after which a measurement is abandoned, since too few have the same number of rows.
const MOST_TRIAL_STEPS: usize = 6 * SAMPLES;

/// A change of the active adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// This one is excluded.
    Without(usize),
    /// This one is active again.
    With(usize),
}

/// Result of observing a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// No change.
    Same,
    /// A trial begins with the next step.
    Tried,
    /// The change is undone.
    Undone,
    /// The change stays: milliseconds of a step before and after it.
    Kept {
        /// The tried change.
        change: Change,
        /// Median step time before.
        before_ms: f64,
        /// Median step time after.
        after_ms: f64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// No trial for this number of further steps.
    Steady(u64),
    /// Steps are measured as they are.
    Before,
    /// Steps are measured with a change.
    Trial { change: Change, before_ms: f64 },
}

/// Adapters that are excluded because training is faster without them.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    /// Steps until each excluded adapter is retried; `None` for active ones.
    excluded: Vec<Option<u64>>,
    /// Rows and milliseconds of a step at the last decision.
    decided_at: Option<(u32, f64)>,
    /// Consecutive steps that were far slower than that.
    slow_steps: usize,
    phase: Phase,
    /// Steps until the next trial after one in vain.
    pause: u64,
    /// Rows of the steps that are measured.
    rows: u32,
    /// Milliseconds of the measured steps.
    times: Vec<f64>,
    /// Number of steps of the phase.
    steps: usize,
    alive: Vec<bool>,
}

/// Steps after which the adapters that slow training down have been excluded, where speeds stay as they are.
pub(crate) fn settling_steps(n_adapters: usize) -> u64 {
    (0..n_adapters).fold(FIRST_STEPS, |steps, _| steps + (2 * SAMPLES + SETTLING) as u64)
}

impl Selection {
    pub(super) fn new(n_adapters: usize) -> Self {
        Self {
            excluded: vec![None; n_adapters],
            decided_at: None,
            slow_steps: 0,
            phase: Phase::Steady(FIRST_STEPS),
            pause: FIRST_STEPS,
            rows: 0,
            times: Vec::with_capacity(SAMPLES),
            steps: 0,
            alive: vec![true; n_adapters],
        }
    }

    /// Whether an adapter is excluded.
    pub(super) fn is_excluded(&self, adapter_idx: usize) -> bool {
        self.excluded.get(adapter_idx).is_some_and(Option::is_some)
    }

    /// Records a step of `rows` rows that took `ms`, with its shares, and which adapters were there after it.
    pub(super) fn note(&mut self, ms: f64, rows: u32, shares: &[u32], alive: &[bool]) -> Verdict {
        if self.alive != alive {
            return self.begin_anew(alive);
        }
        self.excluded.iter_mut().flatten().for_each(|left| *left = left.saturating_sub(1));
        match self.phase {
            Phase::Steady(left) => {
                self.watch(ms, rows);
                let is_due = left <= 1 || self.due_for_retry().is_some();
                self.enter(if is_due { Phase::Before } else { Phase::Steady(left - 1) });
                Verdict::Same
            }
            Phase::Before => match self.measure(ms, rows) {
                Some(before_ms) => self.try_change(before_ms, shares),
                None if self.steps > MOST_TRIAL_STEPS => {
                    self.put_off();
                    Verdict::Same
                }
                None => Verdict::Same,
            },
            Phase::Trial { change, before_ms } => self.judge(ms, rows, change, before_ms),
        }
    }

    /// Retries all excluded adapters if the active ones have become slow: the earlier decision no longer holds.
    fn watch(&mut self, ms: f64, rows: u32) {
        let Some((decided_rows, decided_ms)) = self.decided_at else { return };
        self.slow_steps =
            if rows == decided_rows && ms > ABORT_SLOWDOWN * decided_ms { self.slow_steps + 1 } else { 0 };
        if self.slow_steps == SLOW_STEPS {
            self.excluded.iter_mut().flatten().for_each(|left| *left = 0);
        }
    }

    fn decide_at(&mut self, ms: f64) {
        self.decided_at = self.excluded.iter().any(Option::is_some).then_some((self.rows, ms));
        self.slow_steps = 0;
    }

    /// Discards measurements after an adapter was lost or joined.
    fn begin_anew(&mut self, alive: &[bool]) -> Verdict {
        self.undo();
        self.excluded.resize(alive.len(), None);
        self.alive = alive.to_vec();
        // With no active adapter left, the excluded ones take part again.
        if (0..alive.len()).all(|idx| !alive[idx] || self.is_excluded(idx)) {
            self.excluded.fill(None);
        }
        self.decided_at = None;
        self.pause = FIRST_STEPS;
        self.enter(Phase::Steady(FIRST_STEPS));
        Verdict::Same
    }

    fn enter(&mut self, phase: Phase) {
        if !matches!((self.phase, phase), (Phase::Steady(_), Phase::Steady(_))) {
            self.times.clear();
            self.steps = 0;
        }
        self.phase = phase;
    }

    /// An excluded adapter that is due for a retry.
    fn due_for_retry(&self) -> Option<usize> {
        (0..self.excluded.len()).find(|idx| self.excluded[*idx] == Some(0) && self.alive[*idx])
    }

    /// Adds a measurement; returns the median once there are enough. Only steps of the same size count.
    fn measure(&mut self, ms: f64, rows: u32) -> Option<f64> {
        self.steps += 1;
        if self.phase == Phase::Before && self.times.is_empty() {
            self.rows = rows;
        }
        if rows == self.rows {
            self.times.push(ms);
        }
        (self.times.len() == SAMPLES).then(|| median(self.times.iter().copied()))
    }

    fn try_change(&mut self, before_ms: f64, shares: &[u32]) -> Verdict {
        let working = (0..shares.len()).filter(|idx| shares[*idx] > 0);
        let change = match self.due_for_retry() {
            Some(idx) => Some(Change::With(idx)),
            None if working.clone().count() < 2 => None,
            // Of two that are as slow, the later one is excluded.
            None => working.min_by_key(|idx| (shares[*idx], std::cmp::Reverse(*idx))).map(Change::Without),
        };
        let Some(change) = change else {
            self.put_off();
            return Verdict::Same;
        };
        match change {
            Change::Without(idx) => self.excluded[idx] = Some(RETRY_STEPS),
            Change::With(idx) => self.excluded[idx] = None,
        }
        self.enter(Phase::Trial { change, before_ms });
        Verdict::Tried
    }

    fn judge(&mut self, ms: f64, rows: u32, change: Change, before_ms: f64) -> Verdict {
        if self.steps < SETTLING && rows == self.rows {
            // A single slow step may have other causes; two in a row count.
            self.steps += 1;
            self.times.push(ms);
            let is_hopeless = self.steps > 1 && self.times.iter().all(|ms| *ms > ABORT_SLOWDOWN * before_ms);
            if self.steps == SETTLING {
                self.times.clear();
            }
            return if is_hopeless { self.undo() } else { Verdict::Same };
        }
        match self.measure(ms, rows) {
            None if self.steps > MOST_TRIAL_STEPS || self.is_in_vain(before_ms) => self.undo(),
            None => Verdict::Same,
            Some(after_ms) if after_ms * WORTHWHILE <= before_ms => {
                self.pause = FIRST_STEPS;
                self.decide_at(before_ms);
                // One more may be too many.
                self.enter(match change {
                    Change::Without(_) => Phase::Before,
                    Change::With(_) => Phase::Steady(FIRST_STEPS),
                });
                Verdict::Kept { change, before_ms, after_ms }
            }
            Some(_) => self.undo(),
        }
    }

    /// Whether the first measured steps were all slower than before.
    fn is_in_vain(&self, before_ms: f64) -> bool {
        self.times.len() >= SETTLING && self.times.iter().all(|ms| *ms > before_ms)
    }

    /// Ends a trial, if there is one, and undoes it.
    fn undo(&mut self) -> Verdict {
        let Phase::Trial { change, before_ms } = self.phase else { return Verdict::Same };
        match change {
            Change::Without(idx) => self.excluded[idx] = None,
            Change::With(idx) => self.excluded[idx] = Some(RETRY_STEPS),
        }
        self.decide_at(before_ms);
        self.put_off();
        Verdict::Undone
    }

    fn put_off(&mut self) {
        self.pause = (self.pause * LATER).min(MOST_STEPS);
        self.enter(Phase::Steady(self.pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: u32 = 128;

    /// Runs steps whose time depends on the active adapters; returns the outcomes, with the step.
    fn run(selection: &mut Selection, steps: std::ops::Range<u64>, ms: impl Fn(&[bool]) -> f64) -> Vec<(u64, Verdict)> {
        let alive = selection.alive.clone();
        let mut verdicts = Vec::new();
        for step in steps {
            let in_use: Vec<bool> = (0..alive.len()).map(|idx| alive[idx] && !selection.is_excluded(idx)).collect();
            // The earlier adapters are the faster ones.
            let shares: Vec<u32> = (0..).zip(&in_use).map(|(idx, used)| if *used { 40 - idx } else { 0 }).collect();
            let noise = 1.0 + 0.02 * ((step * 7919 % 101) as f64 / 50.0 - 1.0);
            let verdict = selection.note(ms(&in_use) * noise, ROWS, &shares, &alive);
            if verdict != Verdict::Same {
                verdicts.push((step, verdict));
            }
        }
        verdicts
    }

    fn count(in_use: &[bool]) -> f64 {
        in_use.iter().filter(|used| **used).count() as f64
    }

    #[test]
    fn adapters_that_help_stay_and_trials_become_rare_and_short() {
        let mut selection = Selection::new(3);
        let verdicts = run(&mut selection, 0..20_000, |in_use| 30.0 / count(in_use));
        let undone: Vec<u64> =
            verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Undone).map(|(step, _)| *step).collect();
        assert_eq!(verdicts.len(), 2 * undone.len(), "{verdicts:?}");
        assert_eq!(undone.len(), 3, "{undone:?}");
        assert!(verdicts.chunks(2).all(|trial| trial[1].0 - trial[0].0 == 2), "{verdicts:?}");
        assert!((0..3).all(|idx| !selection.is_excluded(idx)));
    }

    #[test]
    fn adapters_that_hinder_are_excluded_one_by_one() {
        let mut selection = Selection::new(3);
        let verdicts = run(&mut selection, 0..100, |in_use| 10.0 * count(in_use));
        let kept: Vec<Change> = verdicts
            .iter()
            .filter_map(|(_, verdict)| match verdict {
                Verdict::Kept { change, before_ms, after_ms } => {
                    assert!(after_ms < before_ms);
                    Some(*change)
                }
                _ => None,
            })
            .collect();
        assert_eq!(kept, [Change::Without(2), Change::Without(1)]);
        assert_eq!([selection.is_excluded(0), selection.is_excluded(1), selection.is_excluded(2)], [false, true, true]);
    }

    #[test]
    fn an_excluded_one_is_retried_at_once_when_the_other_becomes_slow() {
        let mut selection = Selection::new(2);
        run(&mut selection, 0..100, |in_use| 10.0 * count(in_use));
        assert!(selection.is_excluded(1));
        run(&mut selection, 100..150, |in_use| if count(in_use) > 1.0 { 22.0 } else { 80.0 });
        assert!(!selection.is_excluded(1));

        let mut selection = Selection::new(2);
        run(&mut selection, 0..100, |in_use| 10.0 * count(in_use));
        let late = run(&mut selection, 100..400, |in_use| 80.0 * count(in_use));
        let tried = late.iter().filter(|(_, verdict)| *verdict == Verdict::Tried).count();
        assert!(tried == 1 && selection.is_excluded(1), "once, in vain: {late:?}");
    }

    #[test]
    fn an_excluded_one_is_retried_and_comes_back_when_it_helps() {
        let mut selection = Selection::new(2);
        run(&mut selection, 0..100, |in_use| 10.0 * count(in_use));
        assert!(selection.is_excluded(1));
        let late = run(&mut selection, 100..1_100, |in_use| 10.0 * count(in_use));
        assert_eq!(late.len(), 2, "one trial, in vain: {late:?}");
        assert!(selection.is_excluded(1));
        run(&mut selection, 1_100..2_200, |in_use| 10.0 / count(in_use));
        assert!(!selection.is_excluded(1));
    }

    #[test]
    fn no_difference_changes_nothing() {
        let mut selection = Selection::new(2);
        let verdicts = run(&mut selection, 0..1_000, |_| 10.0);
        assert!(!verdicts.is_empty() && !selection.is_excluded(0) && !selection.is_excluded(1), "{verdicts:?}");
    }

    #[test]
    fn a_lost_adapter_ends_a_trial_and_all_exclusions() {
        let mut selection = Selection::new(2);
        run(&mut selection, 0..100, |in_use| 10.0 * count(in_use));
        assert!(selection.is_excluded(1));
        assert_eq!(selection.note(10.0, ROWS, &[ROWS, 0], &[false, true]), Verdict::Same);
        assert!(!selection.is_excluded(1), "it is the only one left");

        let mut selection = Selection::new(3);
        let mut step = 0;
        while run(&mut selection, step..step + 1, |_| 10.0).is_empty() {
            step += 1;
        }
        assert!(selection.is_excluded(2), "on trial");
        selection.note(10.0, ROWS, &[64, 64, 0], &[true, false, true]);
        assert!(!selection.is_excluded(2));
    }

    #[test]
    fn a_short_last_batch_is_not_measured() {
        let mut selection = Selection::new(2);
        for step in 0..200_u32 {
            let (rows, ms) = if step % 5 == 4 { (3, 0.1) } else { (ROWS, 10.0) };
            selection.note(ms, rows, &[rows, 1], &[true; 2]);
        }
        assert!(!selection.is_excluded(0) && !selection.is_excluded(1));
    }
}
