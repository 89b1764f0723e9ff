//! Which adapter gets which rows, and its answers put together again in the order of the rows.

use crate::data::Batch;
use crate::plan::{Pass, Plan, Role};

use super::round::{Answer, is_awaited};
use super::{Scheduler, ShardReport};

/// Rows that one adapter computes in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub adapter_idx: usize,
    pub first: usize,
    pub rows: usize,
}

/// A count that fits 32 bits: rows, segments, adapters.
pub(crate) fn count(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

impl Scheduler {
    /// Splits a number of rows over the adapters that are there. What is more than an adapter's capacity runs in pieces.
    pub(crate) fn shards(&self, rows: u32) -> Vec<Shard> {
        self.shards_of(&self.splitter.shares(rows, &self.in_use()))
    }

    /// Which adapters are there and don't rest; those that rest, too, if there is no other.
    pub(super) fn in_use(&self) -> Vec<bool> {
        let alive = self.alive();
        let works = |idx: usize| alive[idx] && self.members[idx].is_fielded && !self.fewer.rests(idx);
        let in_use: Vec<bool> = (0..alive.len()).map(works).collect();
        if in_use.contains(&true) { in_use } else { alive }
    }

    /// Which of the adapters take part: neither lost nor on their way back.
    pub fn alive(&self) -> Vec<bool> {
        self.members.iter().map(|member| member.is_alive()).collect()
    }

    /// Shares and shards of a training step.
    ///
    /// A split that is not learned keeps its slots for the whole run: what a lost adapter would have computed runs in the
    /// same slot on another, so that the sums, and on adapters of one arithmetic the bits, stay those of an undisturbed
    /// run. Not so where shards wait for each other, since then each must have an adapter of its own.
    pub(super) fn step_shards(&mut self, step: u64, rows: u32) -> (Vec<u32>, Vec<Shard>) {
        let is_coupled = self.plan.commands(Pass::Train).iter().any(is_awaited);
        if !self.splitter.is_learned() && !is_coupled {
            let seats: Vec<bool> = self.members.iter().map(|member| member.has_seat && member.is_fielded).collect();
            let shares = self.splitter.step_shares(step, rows, &seats);
            if let Some(shards) = self.taken_over(self.shards_of(&shares)) {
                return (shares, shards);
            }
        }
        let shares = self.splitter.step_shares(step, rows, &self.in_use());
        let shards = self.shards_of(&shares);
        (shares, shards)
    }

    /// The same shards, those of lost adapters each on the one that has the fewest rows; `None` if one fits nowhere.
    fn taken_over(&self, mut shards: Vec<Shard>) -> Option<Vec<Shard>> {
        let alive = self.alive();
        let mut load = vec![0; alive.len()];
        shards.iter().for_each(|shard| load[shard.adapter_idx] += shard.rows);
        for shard in shards.iter_mut().filter(|shard| !alive[shard.adapter_idx]) {
            let fits = |idx: &usize| alive[*idx] && self.members[*idx].capacity as usize >= shard.rows;
            let heir = (0..alive.len()).filter(fits).min_by_key(|idx| load[*idx])?;
            load[heir] += shard.rows;
            shard.adapter_idx = heir;
        }
        Some(shards)
    }

    /// Parts in which a share is computed by setting: no part gets fewer rows than a shard may have.
    fn parts_of(&self, share: u32) -> u32 {
        self.accumulation_steps.min(share / self.splitter.min_rows().max(1)).max(1)
    }

    /// Shards of given shares, one behind the other.
    pub(super) fn shards_of(&self, shares: &[u32]) -> Vec<Shard> {
        let mut shards = Vec::new();
        let mut first = 0;
        for (adapter_idx, share) in shares.iter().enumerate() {
            for rows in pieces(*share, self.members[adapter_idx].capacity, self.parts_of(*share)) {
                shards.push(Shard { adapter_idx, first, rows: rows as usize });
                first += rows as usize;
            }
        }
        shards
    }
}

/// A share in `parts` pieces, or more if they must not exceed `capacity`, as even as possible.
fn pieces(share: u32, capacity: u32, parts: u32) -> Vec<u32> {
    let n_pieces = share.div_ceil(capacity.max(1)).max(parts).min(share);
    (0..n_pieces).map(|idx| share / n_pieces + u32::from(idx < share % n_pieces)).collect()
}

/// What is written before a run on a shard.
pub(super) fn feeds(plan: &Plan, pass: Pass, shard: &Batch) -> Vec<(Role, std::sync::Arc<[f32]>)> {
    let mut feeds: Vec<_> = (0..).map(Role::Input).zip(shard.inputs.iter().cloned()).collect();
    if pass == Pass::Predict {
        return feeds;
    }
    feeds.extend((0..).map(Role::Target).zip(shard.targets.iter().cloned()));
    let weights = shard.sample_weights.clone().unwrap_or_else(|| std::iter::repeat_n(1.0, shard.rows).collect());
    let outputs = (0..).map(Role::SampleWeight).take_while(|role| plan.find(*role).is_some());
    feeds.extend(outputs.map(|role| (role, weights.clone())));
    feeds
}

/// Values of each output, in the order of the rows.
pub(super) fn concatenated(answers: &[Answer], of: impl Fn(&Answer) -> &Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let n_outputs = answers.iter().map(|answer| of(answer).len()).max().unwrap_or(0);
    (0..n_outputs)
        .map(|output| answers.iter().flat_map(|answer| of(answer)[output].iter().copied()).collect())
        .collect()
}

/// What each adapter did: the sum of its pieces.
pub(super) fn reports(answers: &[Answer]) -> Vec<ShardReport> {
    let mut reports: Vec<ShardReport> = Vec::new();
    for answer in answers {
        let (adapter_idx, rows, timing) = (answer.shard.adapter_idx, count(answer.shard.rows), answer.timing);
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
