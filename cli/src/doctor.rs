//! `manyhands doctor`: tries this machine's adapters, and says what is wrong and what to do about it.

pub mod facts;
pub mod judge;
mod probe;
mod system;

use std::sync::Arc;

use clap::Args;
use manyhands::adapters::{Info, MemoryLimits};
use manyhands::{Error, Result};
use manyhands_engine::adapters as engine;
use manyhands_engine::adapters::list::Dxc;
use manyhands_engine::shown::bytes;
use manyhands_engine::table::Table;
use serde::Serialize;

use self::facts::{Examined, KernelVerdicts, MachineFacts, StepOutcome};
use self::judge::{Finding, FindingLevel, judge, verdict};
use self::probe::AdapterProbe;
use super::terminal::Terminal;
use super::{AdapterChoice, MemoryChoice, adapters};

#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    adapters: AdapterChoice,
    #[command(flatten)]
    memory: MemoryChoice,
    /// Print facts and findings as JSON.
    #[arg(long)]
    json: bool,
}

/// All that is printed as JSON.
#[derive(Serialize)]
struct DoctorReport<'a> {
    #[serde(flatten)]
    facts: &'a MachineFacts,
    findings: &'a [Finding],
}

/// Tries each adapter. Fails if one of them is wrong.
pub fn run(args: &DoctorArgs, terminal: &Terminal) -> Result<()> {
    let list = args.adapters.or_all()?;
    let facts = examine(&list, &args.memory.or(None), terminal)?;
    let findings = judge(&facts);
    if args.json {
        let text = serde_json::to_string_pretty(&DoctorReport { facts: &facts, findings: &findings });
        terminal.verbatim(
            text.map_err(|error| {
                Error::adapter("the facts", format!("can't be shown: {error}"), "leave out `--json`")
            })?,
        );
    } else {
        show(&facts, &findings, terminal);
    }
    let wrong = findings.iter().filter(|finding| finding.level == FindingLevel::Wrong).count();
    match wrong {
        0 => Ok(()),
        _ => Err(Error::adapter(
            "this machine",
            format!("needs all adapters to compute right, but has {wrong} that do not"),
            "the advice above says what to do; `--adapters` leaves an adapter out",
        )),
    }
}

/// Tries adapters one by one, and asks the system about this machine.
pub fn examine(list: &[Info], limits: &MemoryLimits, terminal: &Terminal) -> Result<MachineFacts> {
    limits.check(list)?;
    let probe = AdapterProbe::new(Arc::new(engine::open), limits.clone(), list.to_vec())?;
    let mut examined = Vec::new();
    for (adapter_idx, info) in list.iter().enumerate() {
        // A driver may crash: this line says which.
        if !terminal.is_quiet() {
            terminal.note(format_args!("trying adapter {} `{}` …", info.index, info.name));
        }
        examined.push(probe.examine(adapter_idx));
    }
    let (memory, memory_free) = system::memory();
    Ok(MachineFacts {
        version: env!("CARGO_PKG_VERSION"),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        memory,
        memory_free,
        resets: system::resets(),
        dxc: Dxc::of_program(),
        gpus: engine::list().iter().filter(|info| info.kind.is_gpu()).count(),
        adapters: examined,
    })
}

/// Says each finding with its advice.
pub fn tell(facts: &MachineFacts, findings: &[Finding], terminal: &Terminal) {
    for finding in findings {
        let who = match finding.adapter {
            Some(index) => format!("adapter {index} `{}`", facts.name(index)),
            None => "this machine".into(),
        };
        terminal.line(format_args!("{who}: {}\n  help: {}", finding.problem, finding.advice));
    }
}

fn show(facts: &MachineFacts, findings: &[Finding], terminal: &Terminal) {
    let memory = facts.memory.map_or(String::new(), |memory| format!(", memory {}", bytes(memory)));
    let free = facts.memory_free.map_or(String::new(), |free| format!(" ({} free)", bytes(free)));
    let MachineFacts { version, system, threads, .. } = facts;
    terminal.line(format_args!("manyhands {version} on {system}, {threads} threads{memory}{free}"));
    for reset in &facts.resets {
        let after = reset.seconds.map_or("never".into(), |seconds| format!("after {seconds} s"));
        terminal.line(format_args!("the system resets a driver that does not answer {after} (`{}`)", reset.name));
    }
    terminal.report(&table(&facts.adapters, findings));
    tell(facts, findings, terminal);
    if findings.is_empty() {
        terminal.line("all is well");
    }
}

fn table(examined: &[Examined], findings: &[Finding]) -> Table {
    let header = [
        "adapter",
        "kind",
        "backend",
        "driver",
        "open",
        "step",
        "upload GB/s",
        "readback GB/s",
        "round trip",
        "kernels",
        "verdict",
    ];
    let mut table = Table::new(header).numbers(4..10);
    for Examined { info, link, kernels, outcome, .. } in examined {
        let times = match outcome {
            StepOutcome::Trained(step) => [step.open_ms, step.step_ms].map(|ms| format!("{ms:.0} ms")),
            StepOutcome::Failed(_) => [String::new(), String::new()],
        };
        let rates = link.map_or([const { String::new() }; 3], |link| {
            let [upload, readback] = [link.upload_gb_s, link.readback_gb_s].map(|rate| format!("{rate:.1}"));
            [upload, readback, format!("{:.2} ms", link.round_trip_ms)]
        });
        let name = format!("{} {}", info.index, info.name);
        let first = [name, adapters::kind(info.kind).into(), info.backend.clone(), info.driver.clone()];
        let verdict = verdict(info.index, findings).to_owned();
        let last = [count(kernels), verdict];
        table.row(first.into_iter().chain(times).chain(rates).chain(last));
    }
    table
}

/// Kernels that are right, of those that were tried; empty where none was.
fn count(kernels: &KernelVerdicts) -> String {
    match (kernels.right, kernels.wrong.len()) {
        (0, 0) => String::new(),
        (right, 0) => format!("{right} right"),
        (right, wrong) => format!("{right} right, {wrong} WRONG"),
    }
}
