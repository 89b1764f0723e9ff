//! Shards of a batch: the values sent for a shard, and answers joined in the order of the rows.

use std::ops::Range;
use std::sync::Arc;

use litemap::LiteMap;

use super::ShardReport;
use crate::adapters::Timing;
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::plan::{Pass, Plan, Role};

/// Rows that one adapter computes in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub adapter_idx: usize,
    pub first: u32,
    pub rows: u32,
}

impl Shard {
    /// Its rows of the batch.
    pub fn range(&self) -> Range<usize> {
        self.first as usize..(self.first + self.rows) as usize
    }
}

/// All that one shard gave.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub shard: Shard,
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

/// Shards of given shares, one after the other, each cut into `pieces`.
pub(super) fn shards_of(shares: &[u32], pieces: impl Fn(usize, u32) -> Vec<u32>) -> Vec<Shard> {
    let mut shards = Vec::new();
    let mut first = 0;
    for (adapter_idx, share) in shares.iter().enumerate() {
        for rows in pieces(adapter_idx, *share) {
            shards.push(Shard { adapter_idx, first, rows });
            first += rows;
        }
    }
    shards
}

/// A share in `parts` pieces, or more if they must not exceed `capacity`, as even as possible.
pub(super) fn pieces(share: u32, capacity: u32, parts: u32) -> Vec<u32> {
    let n_pieces = share.div_ceil(capacity.max(1)).max(parts).min(share);
    (0..n_pieces).map(|idx| share / n_pieces + u32::from(idx < share % n_pieces)).collect()
}

/// Values that are written before a run on a shard.
pub(super) fn feeds(plan: &Plan, pass: Pass, shard: &Batch) -> Vec<(Role, Arc<[f32]>)> {
    let mut feeds: Vec<_> = (0..).map(Role::Input).zip(shard.inputs.iter().cloned()).collect();
    if pass == Pass::Predict {
        return feeds;
    }
    feeds.extend((0..).map(Role::Target).zip(shard.targets.iter().cloned()));
    let weights = shard.sample_weights.clone().unwrap_or_else(|| std::iter::repeat_n(1.0, shard.rows).collect());
    let outputs = (0..).map(Role::SampleWeight).take_while(|role| plan.find(*role).is_some());
    feeds.extend(outputs.zip(plan.masks.iter().chain(std::iter::repeat(&None))).map(|(role, mask)| match mask {
        None => (role, weights.clone()),
        Some(mask) => (role, mask.weights(&shard.inputs, shard.rows, Some(&weights)).into()),
    }));
    feeds
}

/// Values of each output, in the order of the rows.
pub(super) fn concatenated(answers: &[Answer], of: impl Fn(&Answer) -> &Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let n_outputs = answers.iter().map(|answer| of(answer).len()).max().unwrap_or(0);
    (0..n_outputs)
        .map(|output| answers.iter().flat_map(|answer| of(answer)[output].iter().copied()).collect())
        .collect()
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
    use super::pieces;

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
