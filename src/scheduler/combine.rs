//! Combines the values of all shards before the next command.

use super::state::merge;
use crate::kernels::rounding::single;
use crate::plan::{Combine, Exchange};

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
