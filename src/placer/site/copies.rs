//! Copies of the model: on all adapters that hold one, or on those alone that are faster without the others.

use super::super::chosen::ChosenStage;
use super::super::speeds::Speeds;
use super::Site;
use crate::error::Result;
use crate::scheduler::Division;
use crate::simulator::AdapterSpec;
use crate::simulator::cost::Times;
use crate::simulator::trial::Trial;
use manyhands_engine::adapters::memory::NeedOrLack;

/// Adapters that share nothing are left out if a step without them takes at most this part of what it takes with all: the scheduler excludes
/// adapters by itself where measured steps show that others are faster, but does not open those that were left out.
const WORTH_LEAVING_OUT: f64 = 0.95;

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
    fn need_of_copy(&self, speeds: &Speeds) -> Result<NeedOrLack> {
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
        // Of adapters that share cores or memory, each that is there costs the others time, also in trials.
        let are_crowded = fitting.iter().any(|idx| self.adapters[*idx].crowding.is_some());
        let worth = if are_crowded { 1.0 } else { WORTH_LEAVING_OUT };
        let fewer = (1..fitting.len()).map(|n_adapters| fitting[..n_adapters].to_vec());
        let alone = fitting.iter().skip(1).map(|idx| vec![*idx]);
        for on in fewer.chain(alone) {
            let ms = self.copies_ms(&trial, &on)?;
            if ms <= worth * all_ms && ms < best.0 {
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

    /// Predicted milliseconds of a step with copies on some adapters, the others idle. They compute at the same time nearly all the
    /// time, so each is as slow as beside all of them.
    pub(super) fn copies_ms(&self, trial: &Trial, on: &[usize]) -> Result<f64> {
        if self.are_simulated(on) {
            return trial.step_ms(&self.specs_among(on), self.batch_size);
        }
        let beside = |(spec, idx): (AdapterSpec, &usize)| {
            let factor = spec.crowding.as_ref().map_or(1.0, |crowding| crowding.beside_all);
            (AdapterSpec { crowding: None, ..spec }, self.adapters[*idx].copy(on.len()).times(factor))
        };
        let (specs, times): (Vec<AdapterSpec>, Vec<Times>) =
            self.specs_among(on).into_iter().zip(on).map(beside).unzip();
        trial.clone().timed(vec![times]).step_ms(&specs, self.batch_size)
    }

    /// Predicted milliseconds of a step with copies once the scheduler has excluded those that slow it down. An adapter is as fast as by
    /// itself while the others have no rows.
    pub(super) fn settled_copies_ms(&self, on: &[usize]) -> Result<f64> {
        if on.len() == 1 {
            return self.copies_ms(&self.trial_of_copies()?, on);
        }
        let trial = self.trial_of_copies()?.settled();
        if self.are_simulated(on) {
            return trial.step_ms(&self.specs_among(on), self.batch_size);
        }
        let times = on.iter().map(|idx| self.adapters[*idx].copy(on.len())).collect();
        trial.timed(vec![times]).step_ms(&self.specs_among(on), self.batch_size)
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
