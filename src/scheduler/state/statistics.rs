//! Batch statistics of several shards, merged by count, and the moving statistics that follow them.

use super::State;
use crate::plan::{Command, Moving, Pass, Place, View};
use crate::scheduler::rig::Rig;
use crate::scheduler::shards::Answer;
use manyhands_engine::adapters::Request;

/// Merges `[mean, sum of squared deviations]` of several shards by their counts. A count of 0 adds nothing, whatever its
/// values are. Returns the total count and the merged moments.
///
/// With `d = mean_b - mean_a`: `mean = mean_a + d · n_b / n` and `m2 = m2_a + m2_b + d² · n_a · n_b / n`.
/// Source: Chan, Golub, LeVeque 1979, Stanford STAN-CS-79-773, eq. 2.1.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
#[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose")]
pub(in crate::scheduler) fn merge<'a>(parts: impl Iterator<Item = (u64, &'a [f32])>) -> (u64, Vec<f32>) {
    let (mut total, mut merged) = (0_u64, Vec::<f64>::new());
    for (part_count, part) in parts.filter(|(part_count, _)| *part_count > 0) {
        merged.resize(part.len(), 0.0);
        let (n_a, n_b) = (total as f64, part_count as f64);
        let n = n_a + n_b;
        let channels = part.len() / 2;
        let (means, squares) = merged.split_at_mut(channels);
        for channel in 0..channels {
            let difference = f64::from(part[channel]) - means[channel];
            means[channel] += difference * (n_b / n);
            squares[channel] += f64::from(part[channels + channel]) + difference * difference * (n_a * n_b / n);
        }
        total += part_count;
    }
    (total, merged.into_iter().map(|value| value as f32).collect())
}

/// Count, and then mean and sum of squared deviations of each channel.
pub(in crate::scheduler) type Moments = (u64, Vec<f32>);

/// The exchanges that moving statistics follow: stage, command, statistic.
fn followed(rig: &Rig) -> impl Iterator<Item = (usize, usize, &Moving)> {
    rig.stages.iter().enumerate().flat_map(|(stage_idx, stage)| {
        stage.plan.commands(Pass::Train).iter().enumerate().filter_map(move |(command_idx, command)| {
            let Command::Exchange(exchange) = command else { return None };
            let moving = stage.plan.moving.iter().find(|moving| moving.moments == exchange.view)?;
            Some((stage_idx, command_idx, moving))
        })
    })
}

impl State {
    /// Moments of each moving statistic over the shards of this process.
    pub fn moments(&self, rig: &Rig, answers: &[Answer]) -> Vec<Moments> {
        let of = |(stage_idx, command_idx, moving): (usize, usize, &Moving)| {
            merge(answers.iter().filter(|answer| answer.stage == stage_idx).filter_map(|answer| {
                let part_count = u64::from(answer.shard.rows) * u64::from(moving.count_per_row);
                Some((part_count, answer.exchanges.get(&command_idx)?.as_slice()))
            }))
        };
        followed(rig).map(of).collect()
    }

    /// Moves the moving statistics towards those of the whole batch.
    pub fn follow_statistics(&mut self, rig: &Rig, moments: &[Moments]) {
        for ((stage_idx, _, moving), (total, merged)) in followed(rig).zip(moments) {
            if *total > 0 {
                self.follow(&rig.stages[stage_idx].places.statistics, moving, *total, merged);
            }
        }
    }

    /// Sends new moving statistics to the adapters that have the newest parameters.
    pub fn broadcast_statistics(&self, rig: &Rig) {
        for (stage_idx, stage) in rig.stages.iter().enumerate() {
            for (role, offset, data) in self.statistics(&stage.places) {
                let fresh = |idx: &usize| !rig.members[*idx].is_stale && rig.members[*idx].stage == stage_idx;
                for adapter_idx in (0..rig.members.len()).filter(fresh) {
                    rig.send(adapter_idx, Request::Write { role, offset, data: data.clone() });
                }
            }
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "counts are rounded to f32 as on the device")]
    #[allow(clippy::cast_possible_truncation, reason = "a segment is smaller than 2^25 elements")]
    fn follow(&mut self, places: &[Place], moving: &Moving, total: u64, merged: &[f32]) {
        let at = |view: View| {
            let range = view.offset as usize..view.offset as usize + 1;
            places.iter().find_map(|place| place.within(&range)).map_or(0, |place| place.whole_offset as usize)
        };
        let (mean_at, variance_at) = (at(moving.mean), at(moving.variance));
        let statistics = &mut Self::training_mut(&mut self.training).weights.statistics;
        let divisor = total.saturating_sub(u64::from(moving.correction)).max(1) as f32;
        for channel in 0..moving.channels {
            let variance = merged[moving.channels + channel] / divisor;
            let follow = |old: &mut f32, new: f32| *old = *old * moving.momentum + new * (1.0 - moving.momentum);
            follow(&mut statistics[mean_at + channel], merged[channel]);
            follow(&mut statistics[variance_at + channel], variance);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::merge;

    #[test]
    fn merged_moments_are_those_of_all_values() {
        let values = [1.0_f32, 4.0, -2.0, 8.0, 0.5];
        let moments = |values: &[f32]| {
            let mean = values.iter().sum::<f32>() / values.len() as f32;
            vec![mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f32>()]
        };
        let (a, b) = (moments(&values[..2]), moments(&values[2..]));
        let nan = [f32::NAN, f32::NAN];
        let (total, merged) = merge([(0, &nan[..]), (2, &a[..]), (0, &nan[..]), (3, &b[..])].into_iter());
        assert_eq!(total, 5);
        for (got, want) in merged.iter().zip(moments(&values)) {
            assert!((got - want).abs() < 1e-5, "{got} is not {want}");
        }
    }

    #[test]
    fn no_values_give_no_moments() {
        assert_eq!(merge([(0, &[f32::NAN, 1.0][..])].into_iter()), (0, Vec::new()));
    }
}
