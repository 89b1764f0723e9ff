//! A metric of one's own, whose sums don't add up.

#![allow(dead_code, reason = "each test file uses a part of it")]

use manyhands::metrics::{MetricFunction, Position, Settings};

/// The largest error of all; parts are merged only if it is asked to.
#[derive(Debug)]
pub struct LargestError {
    pub merges: Merges,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Merges {
    Largest,
    AsSums,
}

impl MetricFunction for LargestError {
    fn kind(&self) -> &'static str {
        "largest_error"
    }

    fn config(&self) -> Settings {
        Settings::default()
    }

    fn n_sums(&self, _columns: usize) -> usize {
        1
    }

    fn add(&self, position: &Position<'_>, sums: &mut [f64]) {
        sums[0] = position.pairs().map(|(y, t)| (y - t).abs()).fold(sums[0], f64::max);
    }

    fn merge(&self, part: &[f64], sums: &mut [f64]) {
        sums[0] = if self.merges == Merges::Largest { sums[0].max(part[0]) } else { sums[0] + part[0] };
    }

    fn result(&self, sums: &[f64]) -> f64 {
        sums[0]
    }
}
