//! Combines the values of all shards before the next command.

use super::state::merge;
use crate::error::Result;
use crate::kernels::rounding::single;
use crate::plan::{Combine, Exchange};
use crate::processes::Joined;

/// Combines the values of all shards, each with its rows, in the order of their slots.
pub(super) fn combine<'a>(exchange: &Exchange, parts: impl Iterator<Item = (u32, &'a [f32])>) -> Vec<f32> {
    match exchange.combine {
        Combine::Sum => {
            let mut sum: Vec<f64> = Vec::new();
            for (_, part) in parts {
                sum.resize(part.len(), 0.0);
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += f64::from(*part));
            }
            sum.into_iter().map(single).collect()
        }
        Combine::Moments { count_per_row } => {
            let parts = parts.map(|(rows, part)| (u64::from(rows) * u64::from(count_per_row), part));
            merge(parts).1
        }
        Combine::HandOver(_) => Vec::new(),
    }
}

/// Combines the values of all processes, each with its rows, in the order of their ranks. A process without rows sends none.
///
/// # Errors
/// If a process has failed.
pub(super) async fn combine_processes(
    exchange: &Exchange,
    joined: &Joined,
    rows: u32,
    own: &[f32],
) -> Result<Vec<f32>> {
    let sent = std::iter::once(f64::from(rows)).chain(own.iter().map(|value| f64::from(*value)));
    let all = joined.gather_numbers(&sent.collect::<Vec<_>>()).await?;
    let values: Vec<(f64, Vec<f32>)> = all
        .iter()
        .filter_map(|numbers| numbers.split_first())
        .filter(|(rows, _)| **rows > 0.0)
        .map(|(rows, values)| (*rows, values.iter().map(|value| single(*value)).collect()))
        .collect();
    Ok(combine(exchange, values.iter().map(|(rows, values)| (whole(*rows), values.as_slice()))))
}

/// A number of rows as it was before it was sent.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was a `u32`")]
pub(super) fn whole(rows: f64) -> u32 {
    rows as u32
}
