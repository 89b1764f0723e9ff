//! Exchange of rows, times and moments of batch statistics after a training pass, between processes.

use super::combine::whole;
use super::rig::Rig;
use super::shards::Answer;
use super::state::{Moments, State, merge};
use super::{ProcessReport, ShardReport};
use crate::error::Result;
use crate::kernels::rounding::single;

/// The training pass of all processes.
pub(super) struct Gathered {
    /// Each process' part, by rank; empty for a lone process.
    pub processes: Vec<ProcessReport>,
    /// Moments over the whole batch.
    pub moments: Vec<Moments>,
}

/// Waits until all processes have ended their passes, and gathers what they tell.
///
/// # Errors
/// If a process has failed.
pub(super) async fn gather(rig: &Rig, state: &State, answers: &[Answer], reports: &[ShardReport]) -> Result<Gathered> {
    let moments = state.moments(rig, answers);
    let Some(joined) = rig.processes.joined() else {
        return Ok(Gathered { processes: Vec::new(), moments });
    };
    let mut own = numbers_of(&report(rig, reports));
    own.extend(moments.iter().flat_map(numbers_of_moments));
    let mut processes = Vec::new();
    let mut of_all: Vec<Vec<Moments>> = vec![Vec::new(); moments.len()];
    for numbers in joined.gather_numbers(&own).await? {
        let mut numbers = numbers.into_iter();
        processes.push(report_in(&mut numbers));
        of_all.iter_mut().for_each(|parts| parts.push(moments_in(&mut numbers)));
    }
    let merged = of_all.iter().map(|parts| merge(parts.iter().map(|(count, values)| (*count, values.as_slice()))));
    Ok(Gathered { processes, moments: merged.collect() })
}

/// This process' part.
fn report(rig: &Rig, reports: &[ShardReport]) -> ProcessReport {
    let of = |idx: usize| {
        let own = reports.iter().find(|report| report.adapter_idx == idx);
        own.map_or((0, 0.0), |report| (report.rows, report.timing.busy_ms()))
    };
    let adapters: Vec<(u32, f64)> = (0..rig.members.len()).map(of).collect();
    let rows = adapters.iter().map(|(rows, _)| rows).sum();
    ProcessReport { rows, ms: adapters.iter().map(|(_, ms)| *ms).fold(0.0, f64::max), adapters }
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn numbers_of(report: &ProcessReport) -> Vec<f64> {
    let adapters = report.adapters.iter().flat_map(|(rows, ms)| [f64::from(*rows), *ms]);
    [f64::from(report.rows), report.ms, report.adapters.len() as f64].into_iter().chain(adapters).collect()
}

fn report_in(numbers: &mut impl Iterator<Item = f64>) -> ProcessReport {
    let mut next = || numbers.next().unwrap_or_default();
    let (rows, ms, n_adapters) = (whole(next()), next(), whole(next()));
    ProcessReport { rows, ms, adapters: (0..n_adapters).map(|_| (whole(next()), next())).collect() }
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn numbers_of_moments((count, values): &Moments) -> impl Iterator<Item = f64> {
    let head = [*count as f64, values.len() as f64];
    head.into_iter().chain(values.iter().map(|value| f64::from(*value)))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are far below 2^52")]
fn moments_in(numbers: &mut impl Iterator<Item = f64>) -> Moments {
    let (count, len) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    (count as u64, numbers.take(len as usize).map(single).collect())
}
