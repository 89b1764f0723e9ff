//! Whether fewer adapters are faster: short trials of real training steps decide.
//!
//! The split's model of time knows each adapter by itself. That adapters share memory, a bus or the processor's cores,
//! and that each costs the host something, shows only when one of them rests.

use super::Scheduler;
use super::round::is_awaited;
use crate::plan::Pass;

/// Steps before the first trial, and after one that kept a change.
const FIRST_STEPS: u64 = 25;
/// After a trial in vain, the next comes after so many times as many steps.
const LATER: u64 = 10;
/// Most steps between trials.
const MOST_STEPS: u64 = 25_000;
/// Steps after which an adapter that rests is tried again.
const REST_STEPS: u64 = 1_000;
/// Steps that are measured before a change, and after it.
const SAMPLES: usize = 9;
/// Steps after a change that are not measured: shares settle, caches warm up.
const SETTLING: usize = 3;
/// A change is kept if steps take so many times as long without it.
const WORTHWHILE: f64 = 1.05;
/// A trial ends early if its steps take at least so many times as long.
const HOPELESS: f64 = 1.25;
/// Steps in a row that must be slow for those that rest to be tried before their time.
const SLOW_STEPS: usize = 5;
/// Steps after which a measurement is given up, since too few have the same number of rows.
const MOST_TRIAL_STEPS: usize = 6 * SAMPLES;

/// A change of which adapters are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// This one rests.
    Without(usize),
    /// This one is back in use.
    With(usize),
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing.
    Same,
    /// From the next step on a change is tried.
    Tried,
    /// The change is undone.
    Undone,
    /// The change stays: milliseconds of a step before and after it.
    Kept {
        /// Which.
        change: Change,
        /// Median before.
        before_ms: f64,
        /// Median after.
        after_ms: f64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Nothing is tried for so many more steps.
    Steady(u64),
    /// Steps are measured as they are.
    Before,
    /// Steps are measured with a change.
    Trial { change: Change, before_ms: f64 },
}

/// Which adapters rest because training is faster without them.
#[derive(Clone, Debug)]
pub(super) struct Fewer {
    /// Steps that each adapter rests for; `None` for those in use.
    rest: Vec<Option<u64>>,
    /// Rows and milliseconds of a step when it was decided who rests.
    decided_at: Option<(u32, f64)>,
    /// Steps in a row that were far slower than that.
    slow_steps: usize,
    phase: Phase,
    /// Steps until the next trial after one in vain.
    pause: u64,
    /// Rows of the steps that are measured.
    rows: u32,
    /// Milliseconds of the measured steps.
    times: Vec<f64>,
    /// Steps of the phase.
    steps: usize,
    alive: Vec<bool>,
}

impl Fewer {
    pub(super) fn new(n_adapters: usize) -> Self {
        Self {
            rest: vec![None; n_adapters],
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

    /// Does an adapter rest?
    pub(super) fn rests(&self, adapter_idx: usize) -> bool {
        self.rest.get(adapter_idx).is_some_and(Option::is_some)
    }

    /// Takes in a step of `rows` rows that took `ms`, with its shares, and which adapters were there after it.
    pub(super) fn note(&mut self, ms: f64, rows: u32, shares: &[u32], alive: &[bool]) -> Verdict {
        if self.alive != alive {
            return self.begin_anew(alive);
        }
        self.rest.iter_mut().flatten().for_each(|left| *left = left.saturating_sub(1));
        match self.phase {
            Phase::Steady(left) => {
                self.watch(ms, rows);
                let is_due = left <= 1 || self.rested().is_some();
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

    /// Ends all rests where those in use have become slow: what was decided no longer holds.
    fn watch(&mut self, ms: f64, rows: u32) {
        let Some((decided_rows, decided_ms)) = self.decided_at else { return };
        self.slow_steps = if rows == decided_rows && ms > HOPELESS * decided_ms { self.slow_steps + 1 } else { 0 };
        if self.slow_steps == SLOW_STEPS {
            self.rest.iter_mut().flatten().for_each(|left| *left = 0);
        }
    }

    fn decide_at(&mut self, ms: f64) {
        self.decided_at = self.rest.iter().any(Option::is_some).then_some((self.rows, ms));
        self.slow_steps = 0;
    }

    /// An adapter was lost, or came: what was measured says nothing any more.
    fn begin_anew(&mut self, alive: &[bool]) -> Verdict {
        self.undo();
        self.rest.resize(alive.len(), None);
        self.alive = alive.to_vec();
        // With none of those in use left, the others end their rest.
        if (0..alive.len()).all(|idx| !alive[idx] || self.rests(idx)) {
            self.rest.fill(None);
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

    /// An adapter whose rest is over.
    fn rested(&self) -> Option<usize> {
        (0..self.rest.len()).find(|idx| self.rest[*idx] == Some(0) && self.alive[*idx])
    }

    /// Adds a measurement; gives the median once there are enough. Only steps of the same size count.
    fn measure(&mut self, ms: f64, rows: u32) -> Option<f64> {
        self.steps += 1;
        if self.phase == Phase::Before && self.times.is_empty() {
            self.rows = rows;
        }
        if rows == self.rows {
            self.times.push(ms);
        }
        (self.times.len() == SAMPLES).then(|| median(&mut self.times))
    }

    fn try_change(&mut self, before_ms: f64, shares: &[u32]) -> Verdict {
        let working = (0..shares.len()).filter(|idx| shares[*idx] > 0);
        let change = match self.rested() {
            Some(idx) => Some(Change::With(idx)),
            None if working.clone().count() < 2 => None,
            // Of two that are as slow, the later one rests.
            None => working.min_by_key(|idx| (shares[*idx], std::cmp::Reverse(*idx))).map(Change::Without),
        };
        let Some(change) = change else {
            self.put_off();
            return Verdict::Same;
        };
        match change {
            Change::Without(idx) => self.rest[idx] = Some(REST_STEPS),
            Change::With(idx) => self.rest[idx] = None,
        }
        self.enter(Phase::Trial { change, before_ms });
        Verdict::Tried
    }

    fn judge(&mut self, ms: f64, rows: u32, change: Change, before_ms: f64) -> Verdict {
        if self.steps < SETTLING && rows == self.rows {
            // A first step may be slow for reasons of its own; two in a row tell.
            self.steps += 1;
            self.times.push(ms);
            let is_hopeless = self.steps > 1 && self.times.iter().all(|ms| *ms > HOPELESS * before_ms);
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

    /// Were the first measured steps all slower than before?
    fn is_in_vain(&self, before_ms: f64) -> bool {
        self.times.len() >= SETTLING && self.times.iter().all(|ms| *ms > before_ms)
    }

    /// Ends a trial, if there is one, as if it had not been.
    fn undo(&mut self) -> Verdict {
        let Phase::Trial { change, before_ms } = self.phase else { return Verdict::Same };
        match change {
            Change::Without(idx) => self.rest[idx] = None,
            Change::With(idx) => self.rest[idx] = Some(REST_STEPS),
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

impl Scheduler {
    /// Takes in how long a step took; adapters without which training is faster rest from then on.
    pub(super) fn consider_fewer(&mut self, ms: f64, rows: u32, shares: &[u32]) {
        // Shards that wait for each other must all fit at once, and with fewer adapters they are larger.
        let must_fit = self.plan.commands(Pass::Train).iter().any(is_awaited);
        let may_not_fit = must_fit && self.members.iter().any(|member| member.capacity < rows);
        if !self.splitter.is_learned() || !self.may_rest || may_not_fit {
            return;
        }
        let alive = self.alive();
        match self.fewer.note(ms, rows, shares, &alive) {
            Verdict::Same => {}
            Verdict::Tried => self.splitter_before = Some(self.splitter.clone()),
            // What was learned in the trial holds for it alone.
            Verdict::Undone => {
                if let Some(before) = self.splitter_before.take() {
                    self.splitter = before;
                }
            }
            Verdict::Kept { change, before_ms, after_ms } => self.report_change(change, rows, before_ms, after_ms),
        }
    }

    /// Keeps all adapters in use, also where training is faster with fewer.
    pub fn keep_all(&mut self) {
        self.may_rest = false;
        self.fewer = Fewer::new(self.members.len());
    }

    fn report_change(&mut self, change: Change, rows: u32, before_ms: f64, after_ms: f64) {
        let rows_per_s = |ms: f64| f64::from(rows) * 1e3 / ms;
        let (before, after) = (rows_per_s(before_ms), rows_per_s(after_ms));
        match change {
            Change::Without(idx) if !self.reported.contains(&idx) => {
                self.reported.push(idx);
                log::warn!(
                    "training is faster without {}: {before:.0} rows/s with it, {after:.0} without; it rests, and is \
                     tried again after {REST_STEPS} steps",
                    self.who(idx)
                );
            }
            Change::Without(idx) => log::debug!("{} rests again: {before:.0} and {after:.0} rows/s", self.who(idx)),
            Change::With(idx) => {
                log::info!("{} is back in use: {before:.0} rows/s without it, {after:.0} with it", self.who(idx));
            }
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: u32 = 128;

    /// Runs steps whose time depends on which adapters are in use; gives what came of them, with the step.
    fn run(fewer: &mut Fewer, steps: std::ops::Range<u64>, ms: impl Fn(&[bool]) -> f64) -> Vec<(u64, Verdict)> {
        let alive = fewer.alive.clone();
        let mut verdicts = Vec::new();
        for step in steps {
            let in_use: Vec<bool> = (0..alive.len()).map(|idx| alive[idx] && !fewer.rests(idx)).collect();
            // The earlier adapters are the faster ones.
            let shares: Vec<u32> = (0..).zip(&in_use).map(|(idx, used)| if *used { 40 - idx } else { 0 }).collect();
            let noise = 1.0 + 0.02 * ((step * 7919 % 101) as f64 / 50.0 - 1.0);
            let verdict = fewer.note(ms(&in_use) * noise, ROWS, &shares, &alive);
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
        let mut fewer = Fewer::new(3);
        let verdicts = run(&mut fewer, 0..20_000, |in_use| 30.0 / count(in_use));
        let undone: Vec<u64> =
            verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Undone).map(|(step, _)| *step).collect();
        assert_eq!(verdicts.len(), 2 * undone.len(), "{verdicts:?}");
        assert_eq!(undone.len(), 3, "{undone:?}");
        assert!(verdicts.chunks(2).all(|trial| trial[1].0 - trial[0].0 == 2), "{verdicts:?}");
        assert!((0..3).all(|idx| !fewer.rests(idx)));
    }

    #[test]
    fn adapters_that_hinder_rest_one_by_one() {
        let mut fewer = Fewer::new(3);
        let verdicts = run(&mut fewer, 0..100, |in_use| 10.0 * count(in_use));
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
        assert_eq!([fewer.rests(0), fewer.rests(1), fewer.rests(2)], [false, true, true]);
    }

    #[test]
    fn one_that_rests_is_tried_at_once_when_the_other_becomes_slow() {
        let mut fewer = Fewer::new(2);
        run(&mut fewer, 0..100, |in_use| 10.0 * count(in_use));
        assert!(fewer.rests(1));
        run(&mut fewer, 100..150, |in_use| if count(in_use) > 1.0 { 22.0 } else { 80.0 });
        assert!(!fewer.rests(1));

        let mut fewer = Fewer::new(2);
        run(&mut fewer, 0..100, |in_use| 10.0 * count(in_use));
        let late = run(&mut fewer, 100..400, |in_use| 80.0 * count(in_use));
        let tried = late.iter().filter(|(_, verdict)| *verdict == Verdict::Tried).count();
        assert!(tried == 1 && fewer.rests(1), "once, in vain: {late:?}");
    }

    #[test]
    fn one_that_rests_is_tried_again_and_comes_back_when_it_helps() {
        let mut fewer = Fewer::new(2);
        run(&mut fewer, 0..100, |in_use| 10.0 * count(in_use));
        assert!(fewer.rests(1));
        let late = run(&mut fewer, 100..1_100, |in_use| 10.0 * count(in_use));
        assert_eq!(late.len(), 2, "one trial, in vain: {late:?}");
        assert!(fewer.rests(1));
        run(&mut fewer, 1_100..2_200, |in_use| 10.0 / count(in_use));
        assert!(!fewer.rests(1));
    }

    #[test]
    fn no_difference_changes_nothing() {
        let mut fewer = Fewer::new(2);
        let verdicts = run(&mut fewer, 0..1_000, |_| 10.0);
        assert!(!verdicts.is_empty() && !fewer.rests(0) && !fewer.rests(1), "{verdicts:?}");
    }

    #[test]
    fn a_lost_adapter_ends_a_trial_and_all_rest() {
        let mut fewer = Fewer::new(2);
        run(&mut fewer, 0..100, |in_use| 10.0 * count(in_use));
        assert!(fewer.rests(1));
        assert_eq!(fewer.note(10.0, ROWS, &[ROWS, 0], &[false, true]), Verdict::Same);
        assert!(!fewer.rests(1), "it is the only one left");

        let mut fewer = Fewer::new(3);
        let mut step = 0;
        while run(&mut fewer, step..step + 1, |_| 10.0).is_empty() {
            step += 1;
        }
        assert!(fewer.rests(2), "on trial");
        fewer.note(10.0, ROWS, &[64, 64, 0], &[true, false, true]);
        assert!(!fewer.rests(2));
    }

    #[test]
    fn a_short_last_batch_is_not_measured() {
        let mut fewer = Fewer::new(2);
        for step in 0..200_u32 {
            let (rows, ms) = if step % 5 == 4 { (3, 0.1) } else { (ROWS, 10.0) };
            fewer.note(ms, rows, &[rows, 1], &[true; 2]);
        }
        assert!(!fewer.rests(0) && !fewer.rests(1));
    }
}
