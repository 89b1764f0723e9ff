//! The command line. Only this module prints.

// Files: one for each verb, with a folder where it has parts: `train.rs`, `finetune.rs`, `infer.rs` (evaluate, predict), `generate.rs`, `merge.rs`,
// `init.rs`, `sweep.rs`, `doctor.rs`, `report/`, `bench.rs`, `simulate.rs`, `summary.rs`, `adapters.rs`, `export.rs`, `texts.rs` (schema, completions, manual
// pages). `settings.rs`: the settings file; `run_folder.rs`, `run_record.rs`: the folder of a run; `learning_rate.rs`: the range test;
// `baseline.rs`: the score of a model that does not look; `classes.rs`, `seen.rs`: classes by name, and how often they come;
// `terminal.rs`, `progress.rs`, `bar.rs`: output; `interrupt.rs`: signals; `drivers.rs`: silences drivers.

mod adapters;
mod bar;
mod baseline;
mod bench;
mod classes;
mod doctor;
mod drivers;
mod export;
#[cfg(feature = "text")]
mod finetune;
#[cfg(feature = "text")]
mod generate;
mod infer;
mod init;
mod interrupt;
mod learning_rate;
#[cfg(feature = "text")]
mod merge;
pub mod plot;
mod progress;
mod report;
mod run_folder;
mod run_record;
mod seen;
mod settings;
mod simulate;
mod summary;
mod sweep;
mod terminal;
mod texts;
mod train;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};
use manyhands::Result;
use manyhands::adapters::{Info, MemoryLimits};
use manyhands::data::DataConfig;
use manyhands::processes::Group;

use self::terminal::Terminal;

/// Train one network on every GPU in the machine, whatever its vendor, without CUDA.
#[derive(Parser)]
#[command(name = "manyhands", version, max_term_width = 110, after_help = EXIT_STATUS)]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
    /// Show results, warnings and errors only.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Show the engine's decisions, too: splits, tiles, drivers. `RUST_LOG` asks for more.
    #[arg(long, short, global = true)]
    verbose: bool,
}

/// Meaning of the exit status.
const EXIT_STATUS: &str = "Exit status: 0 success; 1 an error, with a message on stderr; 2 wrong arguments; 128 + n ended by \
signal n, where `train` saves first: 129 hang-up, 130 Ctrl-C, 143 `kill`.";

#[derive(Subcommand)]
enum Verb {
    /// List the adapters of this machine: GPUs, drivers that compute on the CPU, and the CPU.
    Adapters(adapters::AdaptersArgs),
    /// Try every adapter: driver, memory, transfers, and a training step beside the CPU's. Says what to do if one is wrong.
    Doctor(doctor::DoctorArgs),
    /// Look at data, and write settings that train on them: a table, a folder of images, IDX files, CIFAR-10 or text.
    Init(init::InitArgs),
    /// Train a network: that of a settings file, or a small one that reads handwritten digits.
    Train(Box<train::TrainArgs>),
    /// Train a language model of others on your texts: factors of low rank beside it (LoRA), which PEFT reads.
    #[cfg(feature = "text")]
    Finetune(Box<finetune::FinetuneArgs>),
    /// Train a network many times with other settings, end bad trials early, and name the best.
    Sweep(Box<sweep::SweepArgs>),
    /// Write a page about a run, or about several in comparison, from the folders of `train --run`.
    Report(report::ReportArgs),
    /// Compute loss and metrics of a trained model on test data.
    Evaluate(infer::EvaluateArgs),
    /// Write a trained model's predictions for each row, as CSV.
    Predict(infer::PredictArgs),
    /// Write a text with a language model: continue a text, or answer a message.
    #[cfg(feature = "text")]
    Generate(generate::GenerateArgs),
    /// Merge a LoRA adapter into its language model, and write both as one: a Hugging Face folder, or a GGUF file for llama.cpp.
    #[cfg(feature = "text")]
    Merge(merge::MergeArgs),
    /// Write a trained model for other programs, as ONNX.
    Export(export::ExportArgs),
    /// Show the layers of a model: shapes, parameters, memory.
    Summary(summary::SummaryArgs),
    /// Predict how fast given adapters would train, 1 to all of them together, and what limits them.
    Simulate(simulate::SimulateArgs),
    /// Measure this machine: kernels, training steps, scaling over adapters.
    Bench(bench::BenchArgs),
    /// Print the JSON Schema of settings files, for editors, or of a log's lines.
    Schema(texts::SchemaArgs),
    /// Print a script that completes arguments in a shell.
    Completions(texts::CompletionsArgs),
    /// Print the manual page, or write those of all commands.
    Man(texts::ManArgs),
}

/// Choice of adapters.
#[derive(Args, Clone, Default)]
struct AdapterChoice {
    /// Indices, parts of names, `discrete`, `integrated`, `gpu`, `cpu`, `software` or `all`, with commas.
    ///
    /// `all` is every GPU, or the CPU where there is none. An adapter named twice is opened twice. Default: `adapters` of the
    /// settings file, else the environment variable `MANYHANDS_ADAPTERS`, else `all`; of `doctor` and `bench report` every adapter that
    /// `manyhands adapters` lists.
    #[arg(long, value_name = "CHOICE")]
    adapters: Option<String>,
}

impl AdapterChoice {
    /// The chosen adapters, or all of the machine.
    fn or_all(&self) -> Result<Vec<Info>> {
        match &self.adapters {
            Some(wanted) => adapters::choose(Some(wanted), None),
            None => Ok(manyhands_engine::adapters::list()),
        }
    }
}

/// Most memory that a model may take.
#[derive(Args, Clone, Default)]
struct MemoryChoice {
    /// Most memory for the model on adapters: `0=6GB,cpu=2GB`, by position, name or kind.
    ///
    /// Positions count in the order of `--adapters`, from 0. Where a batch takes more, an adapter runs its rows in pieces.
    /// Default: `memory` of the settings file, else what the driver gives.
    #[arg(long, value_name = "ADAPTER=AMOUNT", value_parser = parse_memory)]
    memory: Option<MemoryLimits>,
}

impl MemoryChoice {
    /// The limits of the flag, else of the settings file.
    fn or(&self, setting: Option<&MemoryLimits>) -> MemoryLimits {
        self.memory.as_ref().or(setting).cloned().unwrap_or_default()
    }
}

fn parse_memory(text: &str) -> Result<MemoryLimits, String> {
    text.parse().map_err(|error: manyhands::Error| error.to_string())
}

/// Paths of data and losses.
#[derive(Args)]
struct DataChoice {
    /// Settings file: its data and losses are used, in place of those that the model file names.
    #[arg(long, value_name = "CONFIG.toml")]
    config: Option<PathBuf>,
    /// Data of the kind that the model was trained on: a table, a folder of images, a folder of IDX files or of
    /// CIFAR-10. A model of the digits needs none.
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    data: Option<PathBuf>,
    /// Resolves relative data paths against this folder. Default: the current one.
    #[arg(long, value_name = "FOLDER")]
    data_folder: Option<PathBuf>,
}

impl DataChoice {
    /// Data with their paths resolved.
    fn rooted(&self, data: DataConfig) -> DataConfig {
        match &self.data_folder {
            Some(folder) => data.rooted_at(folder),
            None => data,
        }
    }
}

/// Exit status of a command that failed.
const FAILURE: i32 = 1;

/// The program `manyhands`: runs the command that its arguments name, and gives its exit status.
pub fn main() -> i32 {
    #[cfg(feature = "mpi")]
    return main_in(manyhands_mpi::world);
    #[cfg(not(feature = "mpi"))]
    main_in(|| Ok(Group::alone()))
}

/// The program as one of the processes that `join` gives, each of which runs the same command.
#[doc(hidden)]
pub fn main_in(join: impl FnOnce() -> Result<Group>) -> i32 {
    // First, since it may begin the program anew.
    drivers::silence();
    match join() {
        Ok(group) => run_in(std::env::args_os(), &group),
        Err(error) => {
            Terminal::new(false).error(&error);
            FAILURE
        }
    }
}

/// Runs the command that arguments name, the first of which is the program's name; gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    run_in(arguments, &Group::alone())
}

fn run_in(arguments: impl IntoIterator<Item = OsString>, group: &Group) -> i32 {
    let words: Vec<OsString> = arguments.into_iter().collect();
    let arguments = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(error) => {
            if group.is_first() {
                // If nobody reads what it says, the status still tells.
                error.print().ok();
            }
            return error.exit_code();
        }
    };
    let terminal = Terminal::in_process(arguments.quiet, group.rank());
    terminal.start_log(arguments.verbose);
    let done = run_command(&arguments.command, &words, &terminal, group);
    // All processes end together: an error of one that ends late is that of all.
    match pollster::block_on(group.close(done)) {
        Ok(Some(status)) => status,
        Ok(None) if terminal.has_failed() => FAILURE,
        Ok(None) => 0,
        Err(error) => {
            if group.is_first() {
                terminal.error(&error);
            } else if group.is_broken() {
                Terminal::new(false).error(&error);
            }
            FAILURE
        }
    }
}

/// Runs a command; gives its exit status if it has one of its own.
fn run_command(command: &Verb, words: &[OsString], terminal: &Terminal, group: &Group) -> Result<Option<i32>> {
    let done = match command {
        Verb::Train(args) => return train::run(args, &as_typed(words), terminal, group),
        #[cfg(feature = "text")]
        Verb::Finetune(args) => return finetune::run(args, &as_typed(words), terminal, group),
        Verb::Evaluate(args) => infer::evaluate(args, terminal, group),
        Verb::Predict(args) => infer::predict(args, terminal, group),
        // The others are no work for several.
        _ if !group.is_first() => Ok(()),
        Verb::Adapters(args) => adapters::run(args, terminal),
        Verb::Doctor(args) => doctor::run(args, terminal),
        Verb::Init(args) => init::run(args, terminal),
        Verb::Sweep(args) => return sweep::run(args, terminal),
        Verb::Report(args) => report::run(args, terminal),
        #[cfg(feature = "text")]
        Verb::Generate(args) => generate::run(args, terminal),
        #[cfg(feature = "text")]
        Verb::Merge(args) => merge::run(args, terminal),
        Verb::Export(args) => export::run(args, terminal),
        Verb::Summary(args) => summary::run(args, terminal),
        Verb::Simulate(args) => simulate::run(args, terminal),
        Verb::Bench(args) => bench::run(args, terminal),
        Verb::Schema(args) => {
            texts::schema(args, terminal);
            Ok(())
        }
        Verb::Completions(args) => {
            texts::completions(args, Arguments::command(), terminal);
            Ok(())
        }
        Verb::Man(args) => texts::man(args, Arguments::command(), terminal),
    };
    done.map(|()| None)
}

/// The words of the command, with the program's name alone in place of its path.
fn as_typed(words: &[OsString]) -> Vec<String> {
    let name = |word: &OsString| {
        let file = std::path::Path::new(word).file_stem();
        file.unwrap_or_default().to_string_lossy().into_owned()
    };
    let program = words.first().map(name).into_iter();
    program.chain(words.iter().skip(1).map(|word| word.to_string_lossy().into_owned())).collect()
}

/// A batch size or a number of epochs: at least 1.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("a whole number from 1 up is needed".into()),
    }
}
