//! Reports of measurements: as tables and as JSON.

use std::fmt::{self, Display};

use serde::Serialize;

use super::rig::RigAdapter;
use manyhands_engine::error::{Error, Result};
use manyhands_engine::table::Table;

/// On what something was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// Kind of measurement: `kernels`, `steps` or `scaling`.
    pub bench: &'static str,
    /// Version of this crate.
    pub version: &'static str,
    /// Build profile: `optimized`, or `debug` with assertions on.
    pub build: &'static str,
    /// Operating system and processor.
    pub system: String,
    /// Threads that the machine runs at once.
    pub threads: usize,
    /// The adapters.
    pub adapters: Vec<RigAdapter>,
    /// Number of measurements of each rig or kernel.
    pub rounds: u32,
}

impl Conditions {
    /// This machine, with some of its adapters.
    pub fn new(bench: &'static str, adapters: &[RigAdapter], rounds: u32) -> Self {
        Self {
            bench,
            version: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug" } else { "optimized" },
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            adapters: adapters.to_vec(),
            rounds,
        }
    }
}

impl Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bench, version, build, system, threads, adapters, rounds } = self;
        writeln!(f, "manyhands {version} ({build}), bench {bench}, {system}, {threads} threads, {rounds} rounds")?;
        for member in adapters {
            let info = &member.info;
            let driver = if info.driver.is_empty() { "no driver" } else { &info.driver };
            write!(f, "adapter {} `{}`: {}, {driver}", info.index, info.name, info.backend)?;
            if member.throttle > 1.0 {
                write!(f, ", throttled to take {} times as long", member.throttle)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A measurement with its conditions.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport<M> {
    /// Conditions.
    #[serde(flatten)]
    pub about: Conditions,
    /// Results.
    #[serde(flatten)]
    pub measured: M,
}

impl<M: Serialize> BenchReport<M> {
    /// The report as JSON.
    ///
    /// # Errors
    /// If a number is not finite.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|error| {
            Error::setting("the report", format!("can't be written as JSON: {error}"), "measure again")
        })
    }
}

impl<M: Display> Display for BenchReport<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.about.fmt(f)?;
        self.measured.fmt(f)
    }
}

/// A table whose first `n_names` columns are words, the others numbers.
pub(super) fn table(header: &[&str], n_names: usize, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new(header.iter().copied()).numbers(n_names..header.len());
    rows.into_iter().for_each(|row| table.row(row));
    table
}

/// Milliseconds with three significant digits; empty for none.
pub(super) fn ms(value: f64) -> String {
    match value {
        0.0 => "–".into(),
        value if value < 1.0 => format!("{value:.3}"),
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}
