//! `manyhands bench`.

mod faults;
mod findings;
mod measured;
mod page;
mod report;
mod torch;

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::plot;
use clap::{Args, Subcommand, ValueEnum};
use manyhands::{BatchStatistics, GradientCompression, Precision, Result, SplitMode};
use manyhands_bench::report::BenchReport;
use manyhands_bench::rig::{Data, RigAdapter};
use manyhands_bench::{BenchSettings, kernels, scaling, steps};
use manyhands_engine::files::{self, FileKind};
use serde::Serialize;

use super::settings::parse_split;
use super::terminal::{Terminal, check_file, make_folder_of};
use super::train::{check_throttles, parse_throttle};
use super::{AdapterChoice, adapters};

#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    question: Question,
}

#[derive(Subcommand)]
enum Question {
    /// Single kernels: time, GFLOP/s or GB/s, and what that is of the adapter's measured peak.
    Kernels(KernelArgs),
    /// Training steps: each adapter alone and all together, with times by phase.
    Steps(StepArgs),
    /// Speed of 1 to N adapters together, with a constant batch and with a growing one.
    Scaling(ScalingArgs),
    /// All of it, and more, of this machine as one page and one JSON file, to be handed in.
    Report(report::BenchReportArgs),
}

#[derive(Args)]
struct KernelArgs {
    #[command(flatten)]
    common: SharedArgs,
    /// Only kernels with this in their name, such as `dense` or `adam.update`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

#[derive(Args)]
struct StepArgs {
    #[command(flatten)]
    common: SharedArgs,
    #[command(flatten)]
    training: TrainingArgs,
    /// With `fp16`, measure several adapters a second time, with gradients of 16 bits sent to the host.
    #[arg(long, value_enum, default_value_t = CompressionOption::None)]
    gradient_compression: CompressionOption,
    /// With `batch`, measure several adapters a second time, with batch normalization over the whole batch.
    #[arg(long, value_enum, default_value_t = StatisticsOption::Shard)]
    batch_statistics: StatisticsOption,
    /// Measure each rig a second time, with the rows of each adapter in so many micro-batches.
    #[arg(long, value_name = "PARTS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    micro_batches: u32,
    /// With `mixed_float16`, measure each rig a second time, with products of 16-bit floats.
    #[arg(long, value_enum, default_value_t = PrecisionOption::Float32)]
    precision: PrecisionOption,
}

#[derive(Args)]
struct ScalingArgs {
    #[command(flatten)]
    common: SharedArgs,
    #[command(flatten)]
    training: TrainingArgs,
    /// Write the curves and the ideal as a picture.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Args)]
struct SharedArgs {
    #[command(flatten)]
    adapters: AdapterChoice,
    /// Number of rounds: everything that is compared runs once in each, in turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Write the report as JSON, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct TrainingArgs {
    /// Models: `mlp`, `cnn`, `small_cnn`, `resnet18`, `vgg11`, `resnet50`, `mobilenet_v2`, `lstm`, `gpt_mini`, `make_parallel`, with
    /// commas.
    #[arg(long, value_delimiter = ',', default_value = "mlp,cnn")]
    models: Vec<String>,
    /// Training steps of a turn that count.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Rows of a batch, of one adapter where it grows [default: each model's own].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: Option<u32>,
    /// Source of the rows.
    #[arg(long, value_enum, default_value_t = DataOption::Synthetic)]
    data: DataOption,
    /// Split of each batch: `learned` from speed, `even`, or proportions such as `3:1`.
    #[arg(long, value_parser = parse_split, default_value = "learned")]
    split: SplitMode,
    /// Make an adapter slower: `1=4` makes the second one take 4 times as long. Repeatable.
    #[arg(long, value_name = "IDX=FACTOR", value_parser = parse_throttle)]
    throttle: Vec<(usize, f64)>,
}

#[derive(Clone, Copy, ValueEnum)]
enum DataOption {
    /// One batch, made before the first step.
    Synthetic,
    /// Batches that the loader's threads make.
    Loaded,
}

#[derive(Clone, Copy, ValueEnum)]
enum CompressionOption {
    /// Gradients of 32 bits.
    None,
    /// Gradients of 16 bits, with a factor for each 64.
    Fp16,
}

#[derive(Clone, Copy, ValueEnum)]
enum StatisticsOption {
    /// Statistics of each adapter's rows.
    Shard,
    /// Statistics of the whole batch.
    Batch,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum PrecisionOption {
    /// Products of 32-bit floats.
    Float32,
    /// Products of 16-bit floats, added in 32 bits.
    MixedFloat16,
}

/// Measures, and shows what came out.
pub fn run(args: &BenchArgs, terminal: &Terminal) -> Result<()> {
    let progress = |text: &str| terminal.note(text);
    match &args.question {
        Question::Kernels(KernelArgs { common, only }) => {
            prepare_files(&common.written())?;
            let adapters = adapters::choose(common.adapters.adapters.as_deref(), None)?;
            let settings = kernels::KernelSettings {
                adapters,
                only: only.clone(),
                rounds: common.rounds,
                limit_ms: f64::INFINITY,
            };
            let report = pollster::block_on(kernels::measure(&settings, progress))?;
            show(&report, common, terminal)
        }
        Question::Steps(StepArgs {
            common,
            training,
            gradient_compression,
            batch_statistics,
            micro_batches,
            precision,
        }) => {
            prepare_files(&common.written())?;
            let gradient_compression = match gradient_compression {
                CompressionOption::None => GradientCompression::None,
                CompressionOption::Fp16 => GradientCompression::Fp16,
            };
            let batch_statistics = match batch_statistics {
                StatisticsOption::Shard => BatchStatistics::Shard,
                StatisticsOption::Batch => BatchStatistics::Batch,
            };
            let precision = match precision {
                PrecisionOption::Float32 => Precision::Float32,
                PrecisionOption::MixedFloat16 => Precision::MixedFloat16,
            };
            let micro_batches = *micro_batches;
            let more = settings(common, training)?;
            let settings = BenchSettings { gradient_compression, batch_statistics, micro_batches, precision, ..more };
            let report = pollster::block_on(steps::measure(&settings, progress))?;
            show(&report, common, terminal)
        }
        Question::Scaling(ScalingArgs { common, training, svg }) => {
            let picture = svg.as_deref().map(|file| (file, FileKind::Picture));
            prepare_files(&common.written().into_iter().chain(picture).collect::<Vec<_>>())?;
            let settings = settings(common, training)?;
            let report = pollster::block_on(scaling::measure(&settings, progress))?;
            show(&report, common, terminal)?;
            match svg {
                Some(file) => write(file, FileKind::Picture, &plot::svg(&report.measured)?),
                None => Ok(()),
            }
        }
        Question::Report(args) => report::run(args, terminal),
    }
}

fn settings(common: &SharedArgs, training: &TrainingArgs) -> Result<BenchSettings> {
    let chosen = adapters::choose(common.adapters.adapters.as_deref(), None)?;
    check_throttles(&training.throttle, chosen.len())?;
    let mut members: Vec<RigAdapter> = chosen.into_iter().map(RigAdapter::from).collect();
    for (adapter_idx, factor) in &training.throttle {
        members[*adapter_idx].throttle = *factor;
    }
    let data = match training.data {
        DataOption::Synthetic => Data::Synthetic,
        DataOption::Loaded => Data::Loaded,
    };
    Ok(BenchSettings {
        members,
        models: training.models.clone(),
        rounds: common.rounds,
        steps: training.steps,
        batch_size: training.batch_size,
        data,
        split: training.split.clone(),
        gradient_compression: GradientCompression::None,
        batch_statistics: BatchStatistics::Shard,
        micro_batches: 1,
        precision: Precision::Float32,
    })
}

impl SharedArgs {
    /// The file to write beside what is shown.
    fn written(&self) -> Vec<(&Path, FileKind)> {
        self.json.iter().map(|file| (file.as_path(), FileKind::Report)).collect()
    }
}

/// Checks before measuring that files can be written.
fn prepare_files(written: &[(&Path, FileKind)]) -> Result<()> {
    files::check_apart(&written.iter().map(|(file, _)| *file).collect::<Vec<_>>(), &[])?;
    written.iter().try_for_each(|(file, kind)| {
        check_file(file)?;
        make_folder_of(file)?;
        files::check(file, *kind)
    })
}

fn show<M: Serialize + Display>(report: &BenchReport<M>, common: &SharedArgs, terminal: &Terminal) -> Result<()> {
    terminal.report(report);
    common.json.as_deref().map_or(Ok(()), |file| write(file, FileKind::Report, &report.json()?))
}

fn write(file: &Path, kind: FileKind, text: &str) -> Result<()> {
    files::write(file, kind, |out| out.write_all(text.as_bytes()))
}
