//! Output of `train` while it runs: a bar on a terminal, a line an epoch, and the share of each adapter.

use manyhands::Result;
use manyhands::adapters::Info;
use manyhands::callbacks::{Callback, EpochEnd, Flow};
use manyhands::logs::StepLog;
use manyhands_engine::shown::{shown, thousands};
use manyhands_engine::table::Table;

use super::adapters::kind;
use super::bar::Bar;
use super::terminal::Terminal;

/// Shows a run's progress.
pub struct ProgressDisplay<'a> {
    terminal: &'a Terminal,
    epochs: u64,
    bar: Option<Bar>,
    /// Rows of each adapter in the current epoch, or of each process where there are several.
    epoch: Vec<u64>,
    epoch_ms: f64,
    is_first: bool,
}

impl<'a> ProgressDisplay<'a> {
    pub fn new(terminal: &'a Terminal, epochs: u64, n_adapters: usize) -> Self {
        let epoch = vec![0; n_adapters];
        Self { terminal, epochs, bar: None, epoch, epoch_ms: 0.0, is_first: true }
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        self.bar = None;
    }

    fn show(&mut self, log: &StepLog) {
        let batches = log.batches as u64;
        let position = (log.epoch - 1) * batches + log.batch as u64;
        if self.is_first {
            self.bar = self.terminal.bar(self.epochs * batches, position - 1);
            if !log.processes.is_empty() {
                let shares = log.processes.iter().map(|it| format!("process {} {} rows", it.process, it.rows));
                self.terminal.line(format_args!("first step: {}", shares.collect::<Vec<_>>().join(", ")));
            } else if log.adapters.len() > 1 {
                let shares = log.adapters.iter().map(|it| format!("adapter {} {} rows", it.adapter, it.rows));
                self.terminal.line(format_args!("first step: {}", shares.collect::<Vec<_>>().join(", ")));
            }
        }
        if let Some(bar) = &self.bar {
            let message = shown(&format!("{}  {}", log.running, self.speed())).to_string();
            bar.show(format!("epoch {}/{}", log.epoch, self.epochs), position, message);
        }
    }

    /// Rows a second in this epoch, and the part of each adapter or process.
    fn speed(&self) -> String {
        let rows: u64 = self.epoch.iter().sum();
        let per_second = format!("{} samples/s", thousands(format_args!("{:.0}", ratio(rows, self.epoch_ms / 1e3))));
        if self.epoch.len() < 2 {
            return per_second;
        }
        let shares = self.epoch.iter().map(|part| format!("{:.0} %", 100.0 * ratio(*part, count(rows))));
        format!("{per_second} ({})", shares.collect::<Vec<_>>().join(" + "))
    }
}

impl Callback for ProgressDisplay<'_> {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        for process in &log.processes {
            self.epoch.resize(log.processes.len(), 0);
            self.epoch[process.process] += u64::from(process.rows);
        }
        let own = if log.processes.is_empty() { &log.adapters[..] } else { &[] };
        // An adapter may join while the run continues: the CPU, when all others are lost.
        for adapter in own {
            self.epoch.resize(self.epoch.len().max(adapter.adapter + 1), 0);
            self.epoch[adapter.adapter] += u64::from(adapter.rows);
        }
        self.epoch_ms += log.ms;
        if !self.terminal.is_quiet() {
            self.show(log);
        }
        self.is_first = false;
        Ok(())
    }

    fn on_epoch(&mut self, end: &mut EpochEnd<'_>) -> Result<Flow> {
        if !self.terminal.is_quiet() {
            let log = end.log;
            self.terminal.line(format_args!(
                "epoch {}/{}  {}  {}  {:.2} s",
                log.epoch,
                self.epochs,
                log.values,
                self.speed(),
                log.seconds
            ));
        }
        self.epoch.fill(0);
        self.epoch_ms = 0.0;
        Ok(Flow::Continue)
    }
}

/// The adapters in use, with the memory that the model takes on each.
pub fn in_use(infos: &[Info], bytes: &[u64]) -> Table {
    let mut table = Table::new(["adapter", "name", "kind", "backend", "memory"]).numbers([4]);
    for (idx, (info, bytes)) in infos.iter().zip(bytes).enumerate() {
        let memory = manyhands_engine::shown::bytes(*bytes);
        table.row([idx.to_string(), info.name.clone(), kind(info.kind).into(), info.backend.clone(), memory]);
    }
    table
}

#[allow(clippy::cast_precision_loss, reason = "shown with few digits")]
fn count(value: u64) -> f64 {
    value as f64
}

fn ratio(part: u64, whole: f64) -> f64 {
    if whole > 0.0 { count(part) / whole } else { 0.0 }
}
