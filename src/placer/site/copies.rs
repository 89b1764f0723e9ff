//! Copies of the model: on all adapters that hold one, or on those alone that are faster without the others.

use super::super::chosen::ChosenStage;
use super::super::speeds::Speeds;
use super::Site;
use crate::adapters::memory::Needed;
use crate::error::Result;
use crate::scheduler::Division;
use crate::simulator::AdapterSpec;
use crate::simulator::cost::Times;
use crate::simulator::trial::Trial;

/// Adapters are left out if a step without them takes at most this part of what it takes with all: the scheduler excludes
/// adapters by itself where measured steps show that others are faster, but does not open those that were left out.
const WORTH_LEAVING_OUT: f64 = 0.95;
/// An adapter is measured alone if by its speed beside others a step takes at most this many times as long as with all of them.
const ALONE_SLOWER: f64 = 4.0;
/// Adapters that are measured alone.
const MOST_ALONE: usize = 3;

/// Adapters on which no copy fits, and the bytes that they lack.
pub(super) type Lacking = Vec<(String, u64)>;

/// Copies of the model on the adapters on which they are fastest.
pub(super) struct Copies {
    /// The adapters, in their order.
    pub on: Vec<usize>,
    pub step_ms: f64,
    /// Milliseconds of a step with copies on all adapters that hold one.
    pub all_ms: f64,
    /// The adapters that hold one and are left out.
    pub left_out: Vec<usize>,
}

impl Site {
    fn need_of_copy(&self, speeds: &Speeds) -> Result<Needed> {
        let rows = self.rows_of(self.micro_batches);
        self.blocks.need_of_copy(self.micro_batches, rows, speeds.kind, speeds.limit)
    }

    /// The adapters that hold a copy for at least one row, the fastest first, and the bytes that others lack.
    pub(super) fn fitting(&self, active: &[bool]) -> Result<(Vec<usize>, Lacking)> {
        let (mut fitting, mut lacking) = (Vec::new(), Vec::new());
        for idx in self.by_speed(active, self.rows_of(self.micro_batches)) {
            match self.need_of_copy(&self.adapters[idx])? {
                Ok(_) => fitting.push(idx),
                Err(missing) => lacking.push((self.adapters[idx].name.clone(), missing)),
            }
        }
        Ok((fitting, lacking))
    }

    pub(super) fn division_of_copies(&self, on: &[usize]) -> Division {
        let stage = |idx: usize| on.contains(&idx).then_some(0);
        Division {
            nodes: vec![0; self.blocks.model.nodes.len()],
            adapters: (0..self.adapters.len()).map(stage).collect(),
        }
    }

    /// Copies on the adapters on which they are fastest: on the fastest few, on one, or on all that hold one. Gives the adapters that lack
    /// memory, too.
    pub(super) fn copies(&self, active: &[bool]) -> Result<(Option<Copies>, Lacking)> {
        let (fitting, lacking) = self.fitting(active)?;
        if fitting.is_empty() {
            return Ok((None, lacking));
        }
        let trial = self.trial_of_copies()?;
        let all_ms = self.copies_ms(&trial, &fitting)?;
        let mut best = (all_ms, fitting.clone());
        let fewer = (1..fitting.len()).map(|n_adapters| fitting[..n_adapters].to_vec());
        let is_known = |idx: &&usize| self.adapters[**idx].alone.is_some();
        let alone = fitting.iter().skip(1).filter(is_known).map(|idx| vec![*idx]);
        for on in fewer.chain(alone) {
            let ms = self.copies_ms(&trial, &on)?;
            if ms <= WORTH_LEAVING_OUT * all_ms && ms < best.0 {
                best = (ms, on);
            }
        }
        let (step_ms, mut on) = best;
        on.sort_unstable();
        let left_out = fitting.into_iter().filter(|idx| !on.contains(idx)).collect();
        Ok((Some(Copies { on, step_ms, all_ms, left_out }), lacking))
    }

    pub(super) fn trial_of_copies(&self) -> Result<Trial> {
        let (model, objective) = (&self.blocks.model, &self.blocks.objective);
        Trial::new(model, objective, None, self.micro_batches.max(1), self.host_gb_s)
    }

    /// Predicted milliseconds of a step with copies on some adapters, the others idle.
    pub(super) fn copies_ms(&self, trial: &Trial, on: &[usize]) -> Result<f64> {
        let times = |idx: &usize| {
            let speeds = &self.adapters[*idx];
            speeds.alone.filter(|_| on.len() == 1).unwrap_or_else(|| speeds.times(0..self.blocks.len()))
        };
        let specs: Vec<_> = on.iter().map(|idx| self.adapters[*idx].spec()).collect();
        trial.clone().timed(vec![on.iter().map(times).collect()]).step_ms(&specs, self.batch_size)
    }

    /// Predicted milliseconds of a step with copies on some adapters once the scheduler has excluded those that slow it down. An adapter
    /// that was measured alone is as fast as then while the others have no rows.
    pub(super) fn settled_copies_ms(&self, on: &[usize]) -> Result<f64> {
        if on.len() == 1 {
            return self.copies_ms(&self.trial_of_copies()?, on);
        }
        let of = |idx: &usize| {
            let speeds = &self.adapters[*idx];
            let alone = speeds.alone.filter(|_| self.crowding(*idx).is_some());
            (alone.unwrap_or_else(|| speeds.times(0..self.blocks.len())), self.spec(*idx))
        };
        let (times, specs): (Vec<Times>, Vec<AdapterSpec>) = on.iter().map(of).unzip();
        self.trial_of_copies()?.settled().timed(vec![times]).step_ms(&specs, self.batch_size)
    }

    /// Adapters that may be faster alone than all together, as far as speeds beside others tell.
    ///
    /// # Errors
    /// If the model can't be planned.
    pub fn worth_alone(&self) -> Result<Vec<usize>> {
        let (mut fitting, _) = self.fitting(&vec![true; self.adapters.len()])?;
        if fitting.len() < 2 {
            return Ok(Vec::new());
        }
        let trial = self.trial_of_copies()?;
        let all_ms = self.copies_ms(&trial, &fitting)?;
        fitting.truncate(MOST_ALONE);
        let mut worth = Vec::new();
        for idx in fitting {
            if self.copies_ms(&trial, &[idx])? <= ALONE_SLOWER * all_ms {
                worth.push(idx);
            }
        }
        Ok(worth)
    }

    pub(super) fn stage_of_copies(&self, on: &[usize], step_ms: f64) -> Result<ChosenStage> {
        let needs = on.iter().map(|idx| self.need_of_copy(&self.adapters[*idx])).collect::<Result<Vec<_>>>()?;
        Ok(ChosenStage {
            layers: "all".into(),
            adapters: self.names(on.iter().copied()),
            bytes: needs.into_iter().flatten().map(|need| need.bytes).collect(),
            ms: step_ms,
            ..ChosenStage::default()
        })
    }
}
