//! A simulation's prediction as a table.

use std::fmt::{self, Display};

use super::spec::AdapterSpec;
use crate::shown::bytes;
use crate::table::Table;

/// The most adapters are the best whose step takes up to this part longer than the fastest.
const ALIKE: f64 = 0.02;

/// A prediction for the fastest 1 to N adapters of a rig.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Report {
    /// The model: its name, shapes and size.
    pub model: String,
    /// Rows of a batch.
    pub batch_size: u32,
    /// The adapters, the fastest first.
    pub adapters: Vec<String>,
    /// Each adapter by itself, the fastest first; at the end those on which no copy of the model fits.
    pub alone: Vec<AdapterAlone>,
    /// Strong scaling: one batch size for any number of adapters.
    pub strong: Vec<Point>,
    /// Weak scaling: the batch grows with the number of adapters.
    pub weak: Vec<Point>,
    /// All adapters with equal parts of the batch, as most programs split it; `None` for one adapter, and where `strong` has such parts.
    pub even: Option<Point>,
    /// All adapters with the layers in stages, if the rig has a placement.
    pub staged: Option<Staged>,
    /// Sentences about adapters that are left out of the numbers above.
    pub notes: Vec<String>,
    /// The machines of a rig that names some, in place of the numbers of adapters.
    pub machines: Option<Machines>,
}

/// An adapter by itself.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct AdapterAlone {
    /// Its name.
    pub name: String,
    /// Whether its speed is modelled from a card's data sheet, and not given by the rig.
    pub is_modelled: bool,
    /// Bytes that a copy of the model takes: for the whole batch at once, for as many rows as fit, or for one row if none fits.
    pub needed_bytes: u64,
    /// Bytes that it has; `None` where they are not known, or are the host's.
    pub has_bytes: Option<u64>,
    /// Milliseconds of a training step; `None` if no copy fits.
    pub step_ms: Option<f64>,
    /// Rows a second.
    pub rows_per_s: Option<f64>,
}

impl AdapterAlone {
    pub(super) fn new(spec: &AdapterSpec, needed_bytes: u64) -> Self {
        Self {
            name: spec.name.clone(),
            is_modelled: spec.card.is_some() && spec.per_row_ms.is_none(),
            needed_bytes,
            has_bytes: spec.memory_bytes(),
            step_ms: None,
            rows_per_s: None,
        }
    }
}

/// A prediction for the fastest 1, 2, 4 and so on of a rig's machines.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Machines {
    /// The kinds of machines, the fastest first.
    pub names: Vec<String>,
    /// Strong scaling: one batch size for any number of machines.
    pub strong: Vec<MachinePoint>,
    /// Weak scaling: the batch grows with the number of machines.
    pub weak: Vec<MachinePoint>,
    /// All machines with other networks of the same latency; none for a single machine.
    pub links: Vec<LinkPoint>,
}

/// The predicted speed of some machines together.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct MachinePoint {
    /// Number of machines.
    pub n_machines: usize,
    /// Number of their adapters.
    pub n_adapters: usize,
    /// Rows of a batch.
    pub batch_size: u32,
    /// Rows of a machine of each kind: of the one that has most.
    pub rows: Vec<u32>,
    /// Milliseconds of a training step.
    pub step_ms: f64,
    /// Rows a second.
    pub rows_per_s: f64,
    /// Rows a second, over the sum of what the same machines do alone with the batch of one.
    pub efficiency: f64,
    /// Milliseconds of a step in which the network is in use.
    pub network_ms: f64,
    /// Largest part of a step, in words.
    pub limit: String,
}

/// The predicted speed of all machines with another network.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct LinkPoint {
    /// Its name.
    pub network: String,
    /// Bytes that a machine sends and receives at once, in 10⁹ a second each way.
    pub gb_s: f64,
    /// Milliseconds of a training step.
    pub step_ms: f64,
    /// Rows a second, over the sum of what the same machines do alone.
    pub efficiency: f64,
    /// Milliseconds of a step where the batch grows with the machines.
    pub grown_step_ms: f64,
    /// Efficiency where the batch grows with the machines.
    pub grown_efficiency: f64,
}

/// The predicted speed of a model in stages.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Staged {
    /// Pieces of a batch that go through the stages.
    pub micro_batches: u32,
    /// Milliseconds of a training step.
    pub step_ms: f64,
    /// Rows a second.
    pub rows_per_s: f64,
    /// The stages, in order.
    pub stages: Vec<StagePoint>,
}

/// A stage of a model.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct StagePoint {
    /// Its first and last layer.
    pub layers: String,
    /// The adapters that compute it.
    pub adapters: Vec<String>,
    /// Bytes that it takes on each of them.
    pub bytes: u64,
    /// Rows of a step on each of them.
    pub rows: Vec<u32>,
    /// Milliseconds of a step in which each of them is busy.
    pub busy_ms: Vec<f64>,
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

impl Report {
    /// The most of the fastest adapters with which a step is fastest, or nearly so: those that slow it down are left out, as the scheduler
    /// does it.
    pub fn best(&self) -> Option<&Point> {
        let fastest_ms = self.strong.iter().map(|point| point.step_ms).reduce(f64::min)?;
        self.strong.iter().rfind(|point| point.step_ms <= (1.0 + ALIKE) * fastest_ms)
    }

    /// Step of the adapters together, beside that of the fastest of them.
    fn show_together(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(best), [fastest, _, ..]) = (self.best(), &self.strong[..]) else { return Ok(()) };
        let fastest_ms = fastest.step_ms;
        let times = |ms: f64| format!("{:.2} times the {} alone", fastest_ms / ms, self.adapters[0]);
        let (taken, left_out) = self.adapters.split_at(best.n_adapters);
        if let [_] = taken {
            writeln!(f, "Together: no faster than the {} alone.", self.adapters[0])?;
        } else {
            let (ms, rows_per_s) = (best.step_ms, best.rows_per_s);
            writeln!(f, "Together: {ms:.1} ms a step, {rows_per_s:.0} rows/s, {}.", times(ms))?;
        }
        if let (false, Some(all)) = (left_out.is_empty(), self.strong.last()) {
            let (names, with, without) = (left_out.join(", "), all.step_ms, best.step_ms);
            writeln!(f, "Left out: {names}. With all adapters a step takes {with:.1} ms, without {without:.1} ms.")?;
        }
        let idle = taken.iter().zip(&best.shares).filter(|(_, rows)| **rows == 0);
        let idle: Vec<&str> = idle.map(|(name, _)| name.as_str()).collect();
        if !idle.is_empty() {
            writeln!(f, "Without rows: {}. With rows there a step would take longer.", idle.join(", "))?;
        }
        if let Some(even) = &self.even {
            writeln!(
                f,
                "In equal parts, as most programs split: {:.1} ms a step, {}.",
                even.step_ms,
                times(even.step_ms)
            )?;
        }
        writeln!(f)
    }

    fn table_of_alone(&self) -> Table {
        let header = ["adapter", "speed", "memory:\nneeds", "has", "step ms,\nalone", "rows/s,\nalone"];
        let mut table = Table::new(header).numbers(2..6);
        for alone in &self.alone {
            let number = |number: Option<f64>, digits| number.map_or("-".into(), |it| format!("{it:.digits$}"));
            table.row([
                alone.name.clone(),
                if alone.is_modelled { "modelled" } else { "given" }.to_owned(),
                bytes(alone.needed_bytes),
                alone.has_bytes.map_or("-".into(), bytes),
                number(alone.step_ms, 1),
                number(alone.rows_per_s, 0),
            ]);
        }
        table
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batch_size = self.batch_size;
        if !self.model.is_empty() {
            writeln!(f, "Model: {}, {batch_size} rows a step.\n", self.model)?;
        }
        if !self.alone.is_empty() {
            self.table_of_alone().fmt(f)?;
            writeln!(f, "\n")?;
        }
        if self.alone.iter().any(|alone| alone.is_modelled) {
            writeln!(
                f,
                "*Modelled* speeds come from the cards' data sheets. On the one card measured so far, steps took up to twice as long.\n"
            )?;
        }
        self.show_together(f)?;
        for note in &self.notes {
            writeln!(f, "{note}\n")?;
        }
        if !self.strong.is_empty() {
            writeln!(f, "Adapters, the fastest first: {}.", self.adapters.join(", "))?;
            writeln!(f, "\nThe batch stays {batch_size} rows:\n")?;
            table(&self.strong).fmt(f)?;
            writeln!(f, "\n\nThe batch grows with the adapters:\n")?;
            table(&self.weak).fmt(f)?;
            write!(
                f,
                "\n\nEfficiency: rows a second over the sum of what the same adapters do alone, {batch_size} rows a step."
            )?;
        }
        if let Some(machines) = &self.machines {
            machines.show(batch_size, f)?;
        }
        let Some(staged) = &self.staged else { return Ok(()) };
        if !self.strong.is_empty() {
            f.write_str("\n\n")?;
        }
        let Staged { micro_batches, step_ms, rows_per_s, .. } = staged;
        writeln!(
            f,
            "In stages, {batch_size} rows in {micro_batches} pieces: {step_ms:.1} ms a step, {rows_per_s:.0} rows/s\n"
        )?;
        staged.table().fmt(f)
    }
}

impl Machines {
    fn show(&self, batch_size: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Machines, the fastest first: {}.", self.names.join(", "))?;
        writeln!(f, "\nThe batch stays {batch_size} rows:\n")?;
        table_of_machines(&self.strong).fmt(f)?;
        writeln!(f, "\n\nThe batch grows with the machines:\n")?;
        table_of_machines(&self.weak).fmt(f)?;
        if !self.links.is_empty() {
            writeln!(f, "\n\nAll machines, with other networks of the same latency:\n")?;
            self.table_of_links().fmt(f)?;
        }
        write!(
            f,
            "\n\nEfficiency: rows a second over the sum of what the same machines do alone, {batch_size} rows a step."
        )
    }

    fn table_of_links(&self) -> Table {
        let header = ["network", "GB/s", "step ms", "efficiency", "step ms,\ngrown batch", "efficiency,\ngrown batch"];
        let mut table = Table::new(header).numbers(1..6);
        for link in &self.links {
            table.row([
                link.network.clone(),
                format!("{}", link.gb_s),
                format!("{:.1}", link.step_ms),
                percent(link.efficiency),
                format!("{:.1}", link.grown_step_ms),
                percent(link.grown_efficiency),
            ]);
        }
        table
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

fn table_of_machines(points: &[MachinePoint]) -> Table {
    let header = [
        "machines",
        "adapters",
        "batch",
        "step ms",
        "rows/s",
        "efficiency",
        "network ms",
        "rows of each",
        "limited by",
    ];
    let mut table = Table::new(header).numbers(0..7);
    for point in points {
        let rows: Vec<String> = point.rows.iter().map(ToString::to_string).collect();
        table.row([
            point.n_machines.to_string(),
            point.n_adapters.to_string(),
            point.batch_size.to_string(),
            format!("{:.1}", point.step_ms),
            format!("{:.0}", point.rows_per_s),
            percent(point.efficiency),
            format!("{:.1}", point.network_ms),
            rows.join(" "),
            point.limit.clone(),
        ]);
    }
    table
}

impl Staged {
    fn table(&self) -> Table {
        let mut table =
            Table::new(["stage", "layers", "adapters", "memory", "rows of each", "busy ms", "idle"]).numbers([0]);
        for (number, stage) in self.stages.iter().enumerate() {
            let rows: Vec<String> = stage.rows.iter().map(ToString::to_string).collect();
            let busy: Vec<String> = stage.busy_ms.iter().map(|ms| format!("{ms:.1}")).collect();
            let idle = stage.busy_ms.iter().map(|ms| format!("{:.0} %", 100.0 * (1.0 - ms / self.step_ms).max(0.0)));
            table.row([
                number.to_string(),
                stage.layers.clone(),
                stage.adapters.join(", "),
                bytes(stage.bytes),
                rows.join(" "),
                busy.join(" "),
                idle.collect::<Vec<_>>().join(" "),
            ]);
        }
        table
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
            percent(point.efficiency),
            shares.join(" "),
            point.limit.clone(),
        ]);
    }
    table
}
