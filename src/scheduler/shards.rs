//! Shards of a batch: the values sent for a shard, and answers joined in the order of the rows.

use std::ops::Range;
use std::sync::Arc;

use litemap::LiteMap;

use super::ShardReport;
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::model::stages::Stage;
use crate::plan::{Accumulation, Pass, Plan, Role, Scalars};
use manyhands_engine::adapters::Timing;

/// Rows that one adapter computes in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub adapter_idx: usize,
    pub first: u32,
    pub rows: u32,
    /// Whether the adapter's sum of gradients begins with it.
    pub is_first: bool,
    /// Whether the adapter's sum of gradients ends with it, and is sent.
    pub is_last: bool,
}

impl Shard {
    /// Rows whose gradient is sent by itself.
    pub fn whole(adapter_idx: usize, first: u32, rows: u32) -> Self {
        Self { adapter_idx, first, rows, is_first: true, is_last: true }
    }

    /// The numbers of a step for a run on these rows.
    pub fn scalars(&self, step: &Scalars) -> Scalars {
        Scalars {
            rows: self.rows,
            first_row: step.first_row + self.first,
            is_first: u32::from(self.is_first),
            is_last: u32::from(self.is_last),
            ..step.clone()
        }
    }

    /// Its rows of the batch.
    pub fn range(&self) -> Range<usize> {
        self.first as usize..(self.first + self.rows) as usize
    }
}

/// All that one shard gave.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub shard: Shard,
    /// The stage that gave it.
    pub stage: usize,
    /// Values to be combined before the update, by command.
    pub exchanges: LiteMap<usize, Vec<f32>>,
    pub reports: Vec<Vec<f32>>,
    pub outputs: Vec<Vec<f32>>,
    pub timing: Timing,
}

/// The number of rows of a batch as a `u32`.
///
/// # Errors
/// If there are more than it can count.
pub(super) fn rows_of(batch: &Batch) -> Result<u32> {
    u32::try_from(batch.rows).map_err(|_| {
        Error::setting("the batch", format!("needs less than 2^32 rows, but has {}", batch.rows), "make it smaller")
    })
}

/// Shards of given shares, one after the other, each cut into `pieces`, whose gradients are added on the adapter or the host.
pub(super) fn shards_of(
    shares: &[u32],
    accumulation: Accumulation,
    pieces: impl Fn(usize, u32) -> Vec<u32>,
) -> Vec<Shard> {
    let mut shards = Vec::new();
    let mut first = 0;
    for (adapter_idx, share) in shares.iter().enumerate() {
        let pieces = pieces(adapter_idx, *share);
        let sends_each = accumulation == Accumulation::Host;
        for (idx, rows) in pieces.iter().enumerate() {
            let (is_first, is_last) = (sends_each || idx == 0, sends_each || idx + 1 == pieces.len());
            shards.push(Shard { adapter_idx, first, rows: *rows, is_first, is_last });
            first += rows;
        }
    }
    shards
}

/// The slots of shards whose gradients are added on their adapter, together.
pub(super) fn groups(shards: impl Iterator<Item = Shard>) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (slot, shard) in shards.enumerate() {
        match groups.last_mut().filter(|_| !shard.is_first) {
            Some(group) => group.end = slot + 1,
            None => groups.push(slot..slot + 1),
        }
    }
    groups
}

/// Rows of the largest of some shards.
pub(super) fn most_rows(shards: impl Iterator<Item = Shard>) -> u32 {
    shards.map(|shard| shard.rows).max().unwrap_or(0)
}

/// A share in `parts` pieces, or more if they must not exceed `capacity`, as even as possible.
pub(super) fn pieces(share: u32, capacity: u32, parts: u32) -> Vec<u32> {
    let n_pieces = share.div_ceil(capacity.max(1)).max(parts).min(share);
    (0..n_pieces).map(|idx| share / n_pieces + u32::from(idx < share % n_pieces)).collect()
}

/// Values of a batch that are written before a run on a shard: those that the plan has buffers for.
pub(super) fn feeds(plan: &Plan, pass: Pass, shard: &Batch) -> Vec<(Role, Arc<[f32]>)> {
    let mut feeds: Vec<_> = (0..).map(Role::Input).zip(shard.inputs.iter().cloned()).collect();
    if !matches!(pass, Pass::Predict | Pass::Forward) {
        feeds.extend((0..).map(Role::Target).zip(shard.targets.iter().cloned()));
        let weights = shard.sample_weights.clone().unwrap_or_else(|| std::iter::repeat_n(1.0, shard.rows).collect());
        let masks = plan.masks.iter().chain(std::iter::repeat(&None)).take(shard.targets.len().max(plan.masks.len()));
        feeds.extend((0..).map(Role::SampleWeight).zip(masks).enumerate().filter_map(|(output, (role, mask))| {
            plan.find(role)?;
            Some(match mask {
                None => (role, weights.clone()),
                Some(mask) => {
                    let target = shard.targets.get(output).map_or(&[][..], |target| target);
                    (role, mask.weights(&shard.inputs, target, shard.rows, Some(&weights)).into())
                }
            })
        }));
    }
    feeds.retain(|(role, _)| plan.find(*role).is_some());
    feeds
}

/// Values of each result of a pass, in the order of the rows. What several stages give of one result is added.
pub(super) fn concatenated(
    stages: &[Stage],
    pass: Pass,
    answers: &[Answer],
    of: impl Fn(&Answer) -> &Vec<Vec<f32>>,
) -> Vec<Vec<f32>> {
    let mut results: LiteMap<Role, Vec<f32>> = LiteMap::new();
    for (stage_idx, stage) in stages.iter().enumerate() {
        for (position, id) in stage.plan.results(pass).into_iter().enumerate() {
            let own = answers.iter().filter(|answer| answer.stage == stage_idx);
            let values = own.flat_map(|answer| of(answer).get(position).into_iter().flatten().copied());
            match results.get_mut(&stage.plan.get(id).role) {
                Some(sum) => sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
                None => drop(results.insert(stage.plan.get(id).role, values.collect())),
            }
        }
    }
    results.into_iter().map(|(_, values)| values).collect()
}

/// Each adapter's part of the step: the sum of its pieces.
pub(super) fn reports(answers: &[Answer]) -> Vec<ShardReport> {
    let mut reports: Vec<ShardReport> = Vec::new();
    for answer in answers {
        let (adapter_idx, rows, timing) = (answer.shard.adapter_idx, answer.shard.rows, answer.timing);
        match reports.iter_mut().find(|report| report.adapter_idx == adapter_idx) {
            None => reports.push(ShardReport { adapter_idx, rows, timing }),
            Some(report) => {
                report.rows += rows;
                report.timing.upload_ms += timing.upload_ms;
                report.timing.compute_ms += timing.compute_ms;
                report.timing.readback_ms += timing.readback_ms;
                report.timing.wait_ms += timing.wait_ms;
                report.timing.tuning_ms += timing.tuning_ms;
            }
        }
    }
    reports.sort_by_key(|report| report.adapter_idx);
    reports
}

#[cfg(test)]
mod tests {
    use super::{groups, pieces, shards_of};
    use crate::plan::Accumulation;

    #[test]
    fn gradients_are_added_over_the_pieces_of_a_share() {
        let halves = |_, share: u32| vec![share / 2, share - share / 2];
        for (accumulation, wanted) in
            [(Accumulation::Adapter, vec![0..2, 2..4]), (Accumulation::Host, vec![0..1, 1..2, 2..3, 3..4])]
        {
            let shards = shards_of(&[5, 7], accumulation, halves);
            assert_eq!(groups(shards.iter().copied()), wanted);
            assert!(wanted.iter().all(|group| shards[group.start].is_first && shards[group.end - 1].is_last));
            let rows: Vec<_> = shards.iter().map(|shard| (shard.adapter_idx, shard.first, shard.rows)).collect();
            assert_eq!(rows, [(0, 0, 2), (0, 2, 3), (1, 5, 3), (1, 8, 4)]);
        }
    }

    #[test]
    fn pieces_are_few_and_even() {
        assert_eq!(pieces(0, 8, 1), Vec::<u32>::new());
        assert_eq!(pieces(8, 8, 1), [8]);
        assert_eq!(pieces(9, 8, 1), [5, 4]);
        assert_eq!(pieces(25, 8, 1), [7, 6, 6, 6]);
        assert_eq!(pieces(25, 80, 3), [9, 8, 8]);
        assert_eq!(pieces(2, 80, 3), [1, 1]);
    }
}
