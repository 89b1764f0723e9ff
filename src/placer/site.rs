//! A model and the adapters on which it is to be trained: the choice among copies and stages.

mod copies;

use std::ops::Range;
use std::sync::Arc;

use super::blocks::Blocks;
use super::chosen::{ChosenPlacement, ChosenStage};
use super::search::{Candidate, divisions};
use super::speeds::Speeds;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Pass;
use crate::scheduler::{Division, Placed, Placement, fewest_rows};
use crate::shown::bytes;
use crate::simulator::AdapterSpec;
use crate::simulator::trial::Trial;
use copies::Copies;

/// Numbers of pieces that are tried where none is set.
const PIECES: [u32; 4] = [2, 4, 8, 16];
/// Divisions that are run in the simulator.
const MOST_TRIALS: usize = 8;
/// Stages are chosen if a step takes at most this part of what copies take.
const WORTH_STAGES: f64 = 0.95;
/// Stages move if a step then takes at most this part of what it takes now.
const WORTH_MOVING: f64 = 0.9;
/// Largest factor by which a measurement corrects a speed.
const MOST_CORRECTION: f64 = 20.0;

/// All that a placement is chosen by.
#[derive(Clone)]
pub(crate) struct Site {
    pub blocks: Arc<Blocks>,
    pub adapters: Vec<Speeds>,
    /// Bytes that the host goes over when it adds and updates, in 10⁹ a second.
    pub host_gb_s: f64,
    pub batch_size: u32,
    /// Pieces of a batch, if they are set; 1 lets the placement choose.
    pub micro_batches: u32,
}

impl Site {
    /// The fastest placement on those adapters that are active: copies, unless stages are predicted to be faster by 5 %
    /// or copies do not fit.
    ///
    /// # Errors
    /// If neither fits the memory that the adapters may take, or the model can't be planned.
    pub fn choose(&self, active: &[bool]) -> Result<ChosenPlacement> {
        let (copies, lacking) = self.copies(active)?;
        let pieces = match (self.micro_batches, self.batch_size) {
            (2.., _) => vec![self.micro_batches],
            // A batch of one row has one piece: the stages compute one after the other.
            (_, ..2) => vec![1],
            _ => PIECES.to_vec(),
        };
        let is_coupled = self.is_coupled()?;
        let mut staged = if is_coupled { None } else { self.fastest(active, &pieces)? };
        if staged.is_none() && copies.is_none() && self.micro_batches < 2 && !is_coupled {
            // Where no division fits, smaller pieces may.
            let mut pieces = PIECES[PIECES.len() - 1];
            while staged.is_none() && pieces < self.batch_size {
                pieces = pieces.saturating_mul(2).min(self.batch_size);
                staged = self.fastest(active, &[pieces])?;
            }
        }
        let (copies_ms, all_copies_ms) = copies.as_ref().map(|copies| (copies.step_ms, copies.all_ms)).unzip();
        let wants_stages = |staged: &ChosenPlacement| copies_ms.is_none_or(|ms| staged.step_ms <= WORTH_STAGES * ms);
        let staged_ms = staged.as_ref().map(|staged| staged.step_ms);
        match (staged.filter(wants_stages), copies) {
            (Some(staged), _) => {
                let serves = |idx: usize| staged.division.as_ref().is_some_and(|it| it.adapters[idx].is_some());
                let idle = (0..self.adapters.len()).filter(|idx| active[*idx] && !serves(*idx));
                let left_out = self.names(idle);
                Ok(ChosenPlacement { copies_ms, all_copies_ms, left_out, lacking, ..staged })
            }
            (None, Some(Copies { on, step_ms, left_out, .. })) => Ok(ChosenPlacement {
                division: (on.len() < self.adapters.len()).then(|| self.division_of_copies(&on)),
                micro_batches: self.micro_batches.max(1),
                step_ms,
                copies_ms,
                all_copies_ms,
                staged_ms,
                left_out: self.names(left_out.into_iter()),
                lacking,
                stages: vec![self.stage_of_copies(&on, step_ms)?],
            }),
            (None, None) => Err(self.nothing_fits(active)?),
        }
    }

    /// A placement that is predicted to be faster by 10 % than one in stages, with the same pieces.
    ///
    /// # Errors
    /// If the model can't be planned.
    pub fn faster(&self, active: &[bool], now: &ChosenPlacement) -> Result<Option<ChosenPlacement>> {
        let Some(division) = now.division.as_ref().filter(|_| now.is_staged()) else { return Ok(None) };
        let is_there = |idx: usize, stage: &Option<usize>| stage.is_none() || active.get(idx).copied().unwrap_or(false);
        let now_ms = if division.adapters.iter().enumerate().all(|(idx, stage)| is_there(idx, stage)) {
            self.trial_of(division, now.micro_batches)?.step_ms(&self.specs(), self.batch_size)?
        } else {
            f64::INFINITY
        };
        let other = self.fastest(active, &[now.micro_batches])?;
        Ok(other.filter(|other| other.division != now.division && other.step_ms <= WORTH_MOVING * now_ms))
    }

    /// With the speeds that a run has measured: `row_ms` gives the time for which each adapter is busy with a row of a step.
    #[must_use]
    pub fn corrected(&self, now: &ChosenPlacement, row_ms: &[Option<f64>]) -> Self {
        let Some(division) = &now.division else { return self.clone() };
        let rows = f64::from(self.rows_of(now.micro_batches));
        let ranges = now.ranges();
        let correct = |(idx, speeds): (usize, &Speeds)| {
            let stage = division.adapters.get(idx).copied().flatten();
            let measured = row_ms.get(idx).copied().flatten();
            let (Some(range), Some(measured)) = (stage.and_then(|stage| ranges.get(stage)), measured) else {
                return speeds.clone();
            };
            let (computing, moving) = self.piece_ms(range, &speeds.crowded(), rows);
            let factor = (measured * rows - moving).max(0.05 * measured * rows) / computing.max(1e-9);
            speeds.slowed(factor.clamp(1.0 / MOST_CORRECTION, MOST_CORRECTION))
        };
        Self { adapters: self.adapters.iter().enumerate().map(correct).collect(), ..self.clone() }
    }

    /// Predicted milliseconds of a step of any placement over some of the adapters, the others idle, after the scheduler has excluded
    /// copies that slow it down; `None` if it cuts a block.
    ///
    /// # Errors
    /// If the placement does not go with the model, or memory does not suffice.
    pub fn predicted_ms(&self, placement: &Placement, on: &[usize], micro_batches: u32) -> Result<Option<f64>> {
        let Some(division) = placement.division(&self.blocks.model, on.len())? else {
            return self.settled_copies_ms(on).map(Some);
        };
        if !self.blocks.are_whole(&division.nodes) {
            return Ok(None);
        }
        let mut adapters = vec![None; self.adapters.len()];
        on.iter().zip(division.adapters).for_each(|(idx, stage)| adapters[*idx] = stage);
        let division = Division { adapters, ..division };
        self.trial_of(&division, micro_batches)?.step_ms(&self.specs(), self.batch_size).map(Some)
    }

    /// The fastest division into as many stages as there are adapters, one on each; `None` if the model has too few blocks.
    ///
    /// # Errors
    /// If the model can't be planned.
    pub fn one_on_each(&self, micro_batches: u32) -> Result<Option<ChosenPlacement>> {
        let candidates = self.candidates(&vec![true; self.adapters.len()], micro_batches)?;
        let found = candidates.iter().find(|candidate| candidate.stages.len() == self.adapters.len());
        found.map(|candidate| self.chosen(candidate, micro_batches, candidate.slowest_ms)).transpose()
    }

    /// The stages of a choice with their plans.
    ///
    /// # Errors
    /// If the model can't be divided so.
    pub fn placed(&self, chosen: &ChosenPlacement) -> Result<Placed> {
        let Some(division) = &chosen.division else {
            return Ok(Placed { stages: Vec::new(), stage_of: vec![Some(0); self.adapters.len()] });
        };
        let objective = self.blocks.objective.clone().for_micro_batches(chosen.micro_batches);
        let stages =
            if chosen.is_staged() { self.blocks.model.stages(Some(&objective), &division.nodes)? } else { Vec::new() };
        Ok(Placed { stages, stage_of: division.adapters.clone() })
    }

    /// A placement for those adapters that are left, with the same pieces, by the estimate alone: it is needed at once.
    pub fn rescue(&self, active: &[bool], micro_batches: u32) -> Option<ChosenPlacement> {
        let mut active = active.to_vec();
        active.resize(self.adapters.len(), false);
        let candidates = self.candidates(&active, micro_batches).ok()?;
        let fastest = candidates.into_iter().min_by(|a, b| a.slowest_ms.total_cmp(&b.slowest_ms));
        match fastest {
            Some(candidate) => self.chosen(&candidate, micro_batches, candidate.slowest_ms).ok(),
            None => {
                let (fitting, _) = self.fitting(&active).ok()?;
                let division = self.division_of_copies(&fitting);
                (!fitting.is_empty()).then(|| ChosenPlacement {
                    division: Some(division),
                    micro_batches,
                    ..ChosenPlacement::default()
                })
            }
        }
    }

    fn rows_of(&self, micro_batches: u32) -> u32 {
        self.batch_size.div_ceil(micro_batches.max(1)).max(1)
    }

    fn is_coupled(&self) -> Result<bool> {
        Ok(self.blocks.whole(1)?.is_coupled(Pass::Train))
    }

    fn specs(&self) -> Vec<AdapterSpec> {
        self.specs_among(&(0..self.adapters.len()).collect::<Vec<_>>())
    }

    /// Whether the times of these adapters come from plans.
    fn are_simulated(&self, on: &[usize]) -> bool {
        on.iter().all(|idx| self.adapters[*idx].simulated.is_some())
    }

    /// Simulated adapters, where only those at `on` are there.
    fn specs_among(&self, on: &[usize]) -> Vec<AdapterSpec> {
        let spec = |(place, idx): (usize, &usize)| {
            let speeds = &self.adapters[*idx];
            AdapterSpec { crowding: speeds.crowding.as_ref().map(|it| it.among(place, on)), ..speeds.spec() }
        };
        on.iter().enumerate().map(spec).collect()
    }

    fn names(&self, adapters: impl Iterator<Item = usize>) -> Vec<String> {
        adapters.map(|idx| self.adapters[idx].name.clone()).collect()
    }

    /// The adapters that are active, by the time in which each computes the whole model.
    fn by_speed(&self, active: &[bool], rows: u32) -> Vec<usize> {
        let ms = |idx: &usize| self.adapters[*idx].copy(self.adapters.len()).train.at(f64::from(rows));
        let mut adapters: Vec<usize> = (0..self.adapters.len()).filter(|idx| active[*idx]).collect();
        adapters.sort_by(|a, b| ms(a).total_cmp(&ms(b)));
        adapters
    }

    /// The fastest division into two stages or more, by the simulator.
    fn fastest(&self, active: &[bool], pieces: &[u32]) -> Result<Option<ChosenPlacement>> {
        let least = fewest_rows(&*self.blocks.whole(1)?);
        let mut candidates = Vec::new();
        for micro_batches in pieces.iter().copied() {
            // Smaller pieces than layers want are not made, unless they were asked for.
            let is_asked = pieces.len() == 1;
            if micro_batches <= self.batch_size && (is_asked || self.batch_size / micro_batches >= least) {
                let found = self.candidates(active, micro_batches)?;
                candidates.extend(found.into_iter().map(|candidate| (micro_batches, candidate)));
            }
        }
        let estimate = |(micro_batches, candidate): &(u32, Candidate)| {
            // Filling and emptying, and the slowest stage in between.
            candidate.slowest_ms * f64::from(*micro_batches + u32::try_from(candidate.stages.len()).unwrap_or(1) - 1)
        };
        candidates.sort_by(|a, b| estimate(a).total_cmp(&estimate(b)));
        let mut best: Option<ChosenPlacement> = None;
        for (micro_batches, candidate) in candidates.iter().take(MOST_TRIALS) {
            let division = self.division(candidate);
            let step_ms = self.trial_of(&division, *micro_batches)?.step_ms(&self.specs(), self.batch_size)?;
            if best.as_ref().is_none_or(|best| step_ms < best.step_ms) {
                best = Some(self.chosen(candidate, *micro_batches, step_ms)?);
            }
        }
        Ok(best)
    }

    /// For each number of stages, the division whose slowest stage is fastest.
    fn candidates(&self, active: &[bool], micro_batches: u32) -> Result<Vec<Candidate>> {
        let (n_blocks, rows) = (self.blocks.len(), self.rows_of(micro_batches));
        let adapters = self.by_speed(active, rows);
        let mut fits = vec![vec![true; n_blocks * (n_blocks + 1)]; self.adapters.len()];
        for idx in &adapters {
            let Speeds { limit: Some(limit), kind, .. } = &self.adapters[*idx] else { continue };
            for from in 0..n_blocks {
                for end in from + 1..=n_blocks {
                    let need = self.blocks.bytes(&(from..end), micro_batches, rows, *kind)?;
                    fits[*idx][from * (n_blocks + 1) + end] = need <= *limit;
                }
            }
        }
        let crowded: Vec<Speeds> = self.adapters.iter().map(Speeds::crowded).collect();
        let cost = |range: &Range<usize>, team: &[usize]| {
            let rate = |idx: &usize| {
                let is_held = fits[*idx][range.start * (n_blocks + 1) + range.end];
                let (computing, moving) = self.piece_ms(range, &crowded[*idx], f64::from(rows));
                let weights = self.blocks.parameter_bytes(range.clone());
                let weights_ms = self.adapters[*idx].transfer_ms(weights, weights, 0.0) / f64::from(micro_batches);
                is_held.then(|| 1.0 / (computing + moving + weights_ms).max(1e-9))
            };
            team.iter().map(rate).sum::<Option<f64>>().map(f64::recip)
        };
        Ok(divisions(n_blocks, &adapters, 2, cost))
    }

    /// Milliseconds of a piece of so many rows in a stage: computing, and transfers.
    fn piece_ms(&self, range: &Range<usize>, speeds: &Speeds, rows: f64) -> (f64, f64) {
        let border = self.blocks.border(range);
        let times = speeds.times(range.clone());
        let trains = self.blocks.has(range.clone(), Pass::Train);
        let goes_forward = range.end < self.blocks.len();
        let mut piece = (0.0, 0.0);
        if trains {
            let (up, down) = (border.values_in + border.gradients_in, border.gradients_out);
            piece = (times.train.at(rows), speeds.transfer_ms(up * rows, down * rows, 2.0));
        }
        if goes_forward {
            piece.0 += times.forward.at(rows);
            piece.1 += speeds.transfer_ms(border.values_in * rows, border.values_out * rows, 2.0);
        }
        piece
    }

    fn division(&self, candidate: &Candidate) -> Division {
        let ends: Vec<usize> = candidate.stages.iter().map(|(range, _)| range.end).collect();
        let stage_of = |idx: usize| candidate.stages.iter().position(|(_, team)| team.contains(&idx));
        Division {
            nodes: self.blocks.nodes(&ends[..ends.len().saturating_sub(1)]),
            adapters: (0..self.adapters.len()).map(stage_of).collect(),
        }
    }

    fn trial_of(&self, division: &Division, micro_batches: u32) -> Result<Trial> {
        let (model, objective) = (&self.blocks.model, &self.blocks.objective);
        let trial = Trial::new(model, objective, Some(division.clone()), micro_batches, self.host_gb_s)?;
        if self.are_simulated(&(0..self.adapters.len()).collect::<Vec<_>>()) {
            return Ok(trial);
        }
        let times = |range: &Range<usize>| self.adapters.iter().map(|speeds| speeds.times(range.clone())).collect();
        Ok(trial.timed(self.blocks.ranges(division).iter().map(times).collect()))
    }

    fn chosen(&self, candidate: &Candidate, micro_batches: u32, step_ms: f64) -> Result<ChosenPlacement> {
        let division = self.division(candidate);
        let rows = self.rows_of(micro_batches);
        let mut stages = Vec::new();
        for (number, (range, team)) in candidate.stages.iter().enumerate() {
            let piece_ms = |idx: &usize| {
                let (computing, moving) = self.piece_ms(range, &self.adapters[*idx].crowded(), f64::from(rows));
                computing + moving
            };
            let rate: f64 = team.iter().map(|idx| 1.0 / piece_ms(idx).max(1e-9)).sum();
            let bytes = team.iter().map(|idx| self.blocks.bytes(range, micro_batches, rows, self.adapters[*idx].kind));
            stages.push(ChosenStage {
                layers: self.blocks.model.range_of(&division.nodes, number),
                blocks: range.clone(),
                adapters: self.names(team.iter().copied()),
                bytes: bytes.collect::<Result<_>>()?,
                ms: f64::from(micro_batches) / rate,
            });
        }
        let division = Some(division);
        Ok(ChosenPlacement { division, micro_batches, step_ms, stages, ..ChosenPlacement::default() })
    }

    /// The error where neither copies nor stages fit: by how much the best division of single rows exceeds the limits.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of bytes for a message"
    )]
    fn nothing_fits(&self, active: &[bool]) -> Result<Error> {
        let pieces = self.micro_batches.max(self.batch_size.min(2));
        let rows = if self.micro_batches > 1 { self.rows_of(pieces) } else { 1 };
        let adapters: Vec<usize> = (0..self.adapters.len()).filter(|idx| active[*idx]).collect();
        let excess = |range: &Range<usize>, team: &[usize]| {
            let [idx] = team else { return None };
            let Speeds { limit, kind, .. } = self.adapters[*idx];
            let need = self.blocks.bytes(range, pieces, rows, kind).ok()?;
            Some(need.saturating_sub(limit.unwrap_or(u64::MAX)) as f64)
        };
        let least = divisions(self.blocks.len(), &adapters, 1, excess).into_iter();
        let missing = least.map(|it| it.slowest_ms).fold(f64::INFINITY, f64::min);
        let missing = if missing.is_finite() { missing as u64 } else { 0 };
        let of = if rows == 1 { "one row".to_owned() } else { format!("{rows} rows at once") };
        let text = format!(
            "needs more memory than the adapters may take: even in the best division, with {of}, an adapter lacks {}",
            bytes(missing)
        );
        let help = "allow more `memory`, add an adapter (`cpu` is always there), set more `micro_batches`, or make \
                    the model smaller";
        Ok(Error::new(ErrorKind::OutOfMemory, "`placement = \"auto\"`", text, help))
    }
}
