//! A simulation's prediction as a table.

use std::fmt;

use crate::table::Table;

/// A prediction for the fastest 1 to N adapters of a rig.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Report {
    /// Rows of a batch.
    pub batch_size: u32,
    /// The adapters, the fastest first.
    pub adapters: Vec<String>,
    /// Strong scaling: one batch size for any number of adapters.
    pub strong: Vec<Point>,
    /// Weak scaling: the batch grows with the number of adapters.
    pub weak: Vec<Point>,
}

/// The predicted speed of some adapters together.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Point {
    /// Number of adapters.
    pub n_adapters: usize,
    /// Rows of a batch.
    pub batch_size: u32,
    /// Rows of each adapter.
    pub shares: Vec<u32>,
    /// Milliseconds of a training step.
    pub step_ms: f64,
    /// Rows a second.
    pub rows_per_s: f64,
    /// Rows a second, over the sum of what the same adapters do alone with the batch of one.
    pub efficiency: f64,
    /// Largest part of a step, in words.
    pub limit: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Adapters, the fastest first: {}.", self.adapters.join(", "))?;
        let batch_size = self.batch_size;
        writeln!(f, "\nThe batch stays {batch_size} rows:\n")?;
        table(&self.strong).fmt(f)?;
        writeln!(f, "\n\nThe batch grows with the adapters:\n")?;
        table(&self.weak).fmt(f)?;
        write!(
            f,
            "\n\nEfficiency: rows a second over the sum of what the same adapters do alone, {batch_size} rows a step."
        )
    }
}

fn table(points: &[Point]) -> Table {
    let header = ["adapters", "batch", "step ms", "rows/s", "efficiency", "rows of each", "limited by"];
    let mut table = Table::new(header).numbers(0..5);
    for point in points {
        let shares: Vec<String> = point.shares.iter().map(ToString::to_string).collect();
        table.row([
            point.n_adapters.to_string(),
            point.batch_size.to_string(),
            format!("{:.1}", point.step_ms),
            format!("{:.0}", point.rows_per_s),
            format!("{:.0} %", 100.0 * point.efficiency),
            shares.join(" "),
            point.limit.clone(),
        ]);
    }
    table
}
