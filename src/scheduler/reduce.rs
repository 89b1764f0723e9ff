//! Adding the shards' gradients on the host.

use rayon::prelude::*;

use crate::plan::{Combine, Command, Pass, Role, When};

use super::Scheduler;
use super::round::Answer;

/// What is known of the summed gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Totals {
    /// Global norm.
    pub norm: f32,
    /// Is every element finite?
    pub is_finite: bool,
}

/// Elements that one thread adds at a time; fixed, so that sums do not depend on the number of threads.
const CHUNK: usize = 1 << 15;

impl Scheduler {
    /// Adds all gradients in the order of the shards, whatever order they came in.
    pub(super) fn reduce(&mut self, answers: &[Answer]) -> Totals {
        let plan = self.plan.clone();
        let mut squares = 0.0;
        for (command_idx, command) in plan.commands(Pass::Train).iter().enumerate() {
            let Command::Exchange(exchange) = command else { continue };
            let Role::Gradients(segment) = plan.get(exchange.view.buffer).role else { continue };
            if exchange.combine != Combine::Sum || exchange.when != When::Update {
                continue;
            }
            let parts: Vec<&[f32]> =
                answers.iter().filter_map(|answer| answer.exchanges.get(&command_idx)).map(Vec::as_slice).collect();
            let start = usize::try_from(exchange.view.offset).unwrap_or(usize::MAX);
            let len = usize::try_from(exchange.view.len.fixed).unwrap_or(usize::MAX);
            squares += add(&mut self.gradients[segment as usize][start..start + len], &parts);
        }
        // Squares of finite f32 sum to a finite f64; infinity and NaN stay what they are.
        #[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose")]
        let norm = squares.sqrt() as f32;
        Totals { norm, is_finite: squares.is_finite() }
    }
}

/// `sum = Σ parts`, in order. Returns the sum of its squares.
fn add(sum: &mut [f32], parts: &[&[f32]]) -> f64 {
    let chunks = sum.par_chunks_mut(CHUNK).enumerate().map(|(idx, sum)| {
        let range = idx * CHUNK..idx * CHUNK + sum.len();
        let mut parts = parts.iter().map(|part| &part[range.clone()]);
        match parts.next() {
            Some(first) => sum.copy_from_slice(first),
            None => sum.fill(0.0),
        }
        for part in parts {
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        squares(sum)
    });
    // Collected first: a parallel sum would add in an order of its own.
    chunks.collect::<Vec<f64>>().into_iter().sum()
}

/// Sum of squares in eight lanes, which compilers keep in vector registers.
fn squares(values: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(*value) * f64::from(*value);
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>()
}
