//! `manyhands bench report`: every measurement of a machine, as a page and as JSON without anything about its owner.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use manyhands::adapters::{Info, MemoryLimits};
use manyhands::{BatchStatistics, Error, GradientCompression, Precision, Result, SplitMode};
use manyhands_bench::kernels::{self, AdapterKernels, KernelSettings};
use manyhands_bench::report::{BenchReport, Conditions};
use manyhands_bench::rig::{Data, RigAdapter};
use manyhands_bench::scaling::{self, ScalingCurve};
use manyhands_bench::steps::{self, RigSteps};
use manyhands_bench::{BenchSettings, workloads};
use manyhands_engine::files::FileKind;
use manyhands_engine::runtime::{self, Runtime};
use manyhands_engine::shown::counted;

use super::super::AdapterChoice;
use super::super::doctor;
use super::super::doctor::judge::{FindingLevel, judge};
use super::super::terminal::Terminal;
use super::faults::{self, Faults};
use super::findings::findings;
use super::measured::{CheckedAdapter, LeftOut, Measured};
use super::page;
use super::torch::{self, Torch};
use super::{prepare_files, write};

#[derive(Args)]
pub struct BenchReportArgs {
    /// Adapters to measure, as for training [default: all of this machine].
    #[command(flatten)]
    adapters: AdapterChoice,
    /// Minutes that it may take. What would take longer is left out, and named.
    #[arg(long, value_name = "MINUTES", default_value_t = 10.0, value_parser = minutes)]
    minutes: f64,
    /// Name of the two files, to which `.html` and `.json` are added if it has neither.
    #[arg(long, short, value_name = "NAME", default_value = "bench-report")]
    output: PathBuf,
}

fn minutes(text: &str) -> std::result::Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "needs a number of minutes".to_owned())?;
    if minutes.is_finite() && minutes >= 0.0 { Ok(minutes) } else { Err("needs 0 or more minutes".into()) }
}

/// Rounds of each part, and counted steps of a turn.
const ROUNDS: u32 = 3;
const STEPS: u32 = 4;
/// Steps of a rig in all rounds, those that only warm it up included.
const ALL_STEPS: f64 = 24.0;
/// Part of the time for kernels beside their definitions.
const FOR_CHECKS: f64 = 0.3;
/// Parts of the time up to which steps of models, several adapters and PyTorch are measured.
const FOR_STEPS: f64 = 0.5;
const FOR_SCALING: f64 = 0.7;
const FOR_TORCH: f64 = 0.8;
/// Part of the time up to which rounds of kernels begin. They come last, since on a slow adapter each takes a minute or two.
const FOR_KERNELS: f64 = 0.9;
/// Models whose steps are measured. The first is the most telling, and tells how long the others take.
const MODELS: [&str; 7] = ["mlp", "cnn", "lstm", "gpt_mini", "mobilenet_v2", "resnet18", "vgg11"];
/// Models of which several adapters are measured.
const SCALED: [&str; 3] = ["cnn", "mlp", "resnet18"];

/// Measures, and writes the page and the JSON.
pub fn run(args: &BenchReportArgs, terminal: &Terminal) -> Result<()> {
    let [page, json] = ["html", "json"].map(|end| with_end(&args.output, end));
    prepare_files(&[(&page, FileKind::Page), (&json, FileKind::Report)])?;
    let list = args.adapters.or_all()?;
    terminal.note(format_args!(
        "this takes up to {}, up to 1 GB of memory on each adapter and 3 GB of main memory; end other programs first",
        counted(args.minutes, "minute")
    ));
    let members: Vec<RigAdapter> = list.iter().cloned().map(RigAdapter::from).collect();
    let report = BenchReport {
        about: Conditions::new("report", &members, ROUNDS),
        measured: Sitting::begin(args.minutes, list, terminal).measure()?,
    };
    let told = &report.measured;
    write(&page, FileKind::Page, &page::page(&report))?;
    write(&json, FileKind::Report, &report.json()?)?;
    doctor::tell(&told.machine, &told.findings, terminal);
    for LeftOut { what, why } in &told.left_out {
        terminal.line(format_args!("left out: {what}: {why}"));
    }
    terminal.line(format_args!("report in `{}` and `{}`", page.display(), json.display()));
    match told.findings.iter().filter(|finding| finding.level == FindingLevel::Wrong).count() {
        0 => Ok(()),
        wrong => Err(Error::adapter(
            "this machine",
            format!("needs all adapters to compute right, but has {wrong} findings that say otherwise"),
            "the report says what to do",
        )),
    }
}

/// Adds an end to a name, which may have a dot, or the end of one of the two files.
fn with_end(name: &Path, end: &str) -> PathBuf {
    let has_end = name.extension().is_some_and(|given| given == "html" || given == "json");
    let mut name = if has_end { name.with_extension("") } else { name.to_owned() }.into_os_string();
    name.push(".");
    name.push(end);
    name.into()
}

/// A measurement that has a limit of time.
struct Sitting<'a> {
    terminal: &'a Terminal,
    clock: Arc<dyn Runtime>,
    begin_ms: f64,
    minutes: f64,
    list: Vec<Info>,
    left_out: Vec<LeftOut>,
    /// Models whose steps were measured, and the seconds that it took.
    took: Vec<(&'static str, f64)>,
    /// Seconds of 10⁹ operations in steps of the slowest of these, on all rigs one after the other.
    seconds_of_gflop: f64,
}

impl<'a> Sitting<'a> {
    fn begin(minutes: f64, list: Vec<Info>, terminal: &'a Terminal) -> Self {
        let clock = runtime::system();
        Self {
            terminal,
            begin_ms: clock.now_ms(),
            clock,
            minutes,
            list,
            left_out: Vec::new(),
            took: Vec::new(),
            seconds_of_gflop: 0.0,
        }
    }

    fn seconds(&self) -> f64 {
        (self.clock.now_ms() - self.begin_ms) / 1e3
    }

    /// Seconds until a part of the time is over.
    fn left(&self, part: f64) -> f64 {
        part * 60.0 * self.minutes - self.seconds()
    }

    fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.left_out.push(LeftOut { what: what.into(), why: why.into() });
    }

    fn note(&self, text: &str) {
        if !self.terminal.is_quiet() {
            self.terminal.note(format_args!("{:4.0} s  {text}", self.seconds()));
        }
    }

    /// The result of a part; one that fails is left out.
    fn kept<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        match result {
            Ok(result) => Some(result),
            Err(error) => {
                let text = error.to_string();
                self.leave_out(what, text.split("\n  help:").next().unwrap_or_default());
                None
            }
        }
    }

    fn measure(mut self) -> Result<Measured> {
        let machine = doctor::examine(&self.list, &MemoryLimits::default(), self.terminal)?;
        let mut findings_of = judge(&machine);
        let checked = self.checked();
        for index in
            findings_of.iter().filter(|finding| finding.level == FindingLevel::Wrong).filter_map(|it| it.adapter)
        {
            self.leave_out(format!("speeds of adapter {index} `{}`", machine.name(index)), "its results are wrong");
            self.list.retain(|info| info.index != index);
        }
        let steps = self.steps()?;
        let scaling = self.scaling()?;
        let faults = self.faults();
        let torch = self.torch();
        let kernels = self.kernels();
        let (seconds, minutes) = (self.seconds(), self.minutes);
        let left_out = self.left_out;
        let mut measured = Measured {
            machine,
            findings: Vec::new(),
            checked,
            kernels,
            steps,
            scaling,
            faults,
            torch,
            left_out,
            seconds,
            minutes,
        };
        findings_of.extend(findings(&measured));
        measured.findings = findings_of;
        Ok(measured)
    }

    /// All kernels beside their definitions.
    fn checked(&mut self) -> Vec<CheckedAdapter> {
        let mut all = Vec::new();
        for info in self.list.clone() {
            let what = format!("kernels of `{}` beside their definitions", info.name);
            if self.left(FOR_STEPS) <= 0.0 {
                self.leave_out(what, "no time is left");
                continue;
            }
            self.note(&what);
            #[allow(clippy::cast_precision_loss, reason = "few adapters")]
            let limit_ms = 60e3 * FOR_CHECKS * self.minutes / self.list.len() as f64;
            let checked = pollster::block_on(kernels::check_all(&info, limit_ms));
            if let Some(checked) = self.kept(&what, checked) {
                if checked.kernels < checked.of {
                    let why = format!("only {} of {} were tried in that time", checked.kernels, checked.of);
                    self.leave_out(&what, why);
                }
                all.push(CheckedAdapter { adapter: info.index, name: info.name.clone(), checked });
            }
        }
        all
    }

    /// Times of single kernels; each adapter has as much of the time that is left as every other.
    #[allow(clippy::cast_precision_loss, reason = "few adapters")]
    fn kernels(&mut self) -> Vec<AdapterKernels> {
        let mut all = Vec::new();
        for (n_done, info) in self.list.clone().into_iter().enumerate() {
            let what = format!("speed of single kernels of `{}`", info.name);
            let left = self.left(FOR_KERNELS);
            if left <= 0.0 {
                self.leave_out(what, "no time is left");
                continue;
            }
            let limit_ms = 1e3 * left / (self.list.len() - n_done) as f64;
            let settings = KernelSettings { adapters: vec![info], only: String::new(), rounds: ROUNDS, limit_ms };
            let report = pollster::block_on(kernels::measure(&settings, |text| self.note(text)));
            all.extend(self.kept(&what, report).into_iter().flat_map(|report| report.measured.kernels));
        }
        all
    }

    fn settings(&self, model: &str) -> BenchSettings {
        BenchSettings {
            members: self.list.iter().cloned().map(RigAdapter::from).collect(),
            models: vec![model.to_owned()],
            rounds: ROUNDS,
            steps: STEPS,
            batch_size: None,
            data: Data::Synthetic,
            split: SplitMode::Learned,
            gradient_compression: GradientCompression::None,
            batch_statistics: BatchStatistics::Shard,
            micro_batches: 1,
            // It is for matrix units; elsewhere it would only take time.
            precision: match self.list.iter().any(|info| info.kind.is_gpu()) {
                true => Precision::MixedFloat16,
                false => Precision::Float32,
            },
        }
    }

    /// Seconds that the steps of a model take: as they did, else by those of the models before it. The first takes none.
    fn seconds_of(&self, model: &str) -> Result<f64> {
        match self.took.iter().find(|(measured, _)| *measured == model) {
            Some((_, seconds)) => Ok(*seconds),
            None => Ok(ALL_STEPS * self.seconds_of_gflop * workloads::by_name(model)?.gflop()?),
        }
    }

    /// Training steps of each adapter alone, and of all together.
    fn steps(&mut self) -> Result<Vec<RigSteps>> {
        let mut all = Vec::new();
        for model in MODELS {
            let what = format!("training steps of {model}");
            if self.seconds_of(model)? >= self.left(FOR_STEPS) {
                self.leave_out(what, "they would take too long");
                continue;
            }
            let before = self.seconds();
            let report = pollster::block_on(steps::measure(&self.settings(model), |text| self.note(text)));
            self.took.push((model, self.seconds() - before));
            let rigs = self.kept(&what, report).map(|report| report.measured.rigs).unwrap_or_default();
            let seconds = rigs.iter().map(|rig| rig.step_ms / 1e3 / rig.gflop).sum::<f64>();
            self.seconds_of_gflop = self.seconds_of_gflop.max(seconds);
            all.extend(rigs);
        }
        Ok(all)
    }

    /// Speed of one to all adapters.
    #[allow(clippy::cast_precision_loss, reason = "few adapters")]
    fn scaling(&mut self) -> Result<Vec<ScalingCurve>> {
        let mut all = Vec::new();
        if self.list.len() < 2 {
            self.leave_out("several adapters together", "there is only one");
            return Ok(all);
        }
        for model in SCALED {
            let what = format!("one to {} adapters with {model}", self.list.len());
            // Each alone, and 2 to N of them with a batch that stays and with one that grows.
            let turns = 1.0 + 2.0 * (self.list.len() - 1) as f64;
            if turns * self.seconds_of(model)? >= self.left(FOR_SCALING) {
                self.leave_out(what, "they would take too long");
                continue;
            }
            let report = pollster::block_on(scaling::measure(&self.settings(model), |text| self.note(text)));
            all.extend(self.kept(&what, report).into_iter().flat_map(|report| report.measured.curves));
        }
        Ok(all)
    }

    fn faults(&mut self) -> Option<Faults> {
        let what = "adapters that are lost during steps";
        if self.left(1.0) <= 0.0 {
            self.leave_out(what, "no time is left");
            return None;
        }
        self.note(what);
        let faults = faults::measure(&self.list);
        self.kept(what, faults)
    }

    fn torch(&mut self) -> Option<Torch> {
        let what = "PyTorch beside it";
        if self.left(FOR_TORCH) <= 0.0 {
            self.leave_out(what, "no time is left");
            return None;
        }
        self.note(what);
        let result = torch::measure(self.left(FOR_TORCH));
        self.kept(what, result)
    }
}
