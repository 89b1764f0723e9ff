//! `manyhands simulate`.

use std::path::{Path, PathBuf};

use clap::Args;
use manyhands::placer::rig::simulate_placed;
use manyhands::simulator::cards::{self, CARDS};
use manyhands::simulator::{AdapterSpec, RigConfig};
use manyhands::{Error, Model, Result, SplitMode};
use manyhands_bench::workloads;
use manyhands_engine::files;
use manyhands_engine::table::Table;

use super::settings::SettingsFile;
use super::terminal::Terminal;

/// Rows of a batch of a model that `bench` does not measure.
const BATCH_SIZE: u32 = 64;
/// Bytes that the host of cards without a rig reads and writes, in 10⁹ a second: two channels of DDR4 at about half of their peak.
const HOST_GB_S: f64 = 20.0;

#[derive(Args)]
#[command(after_help = "Examples:\n  manyhands simulate --cards \"RTX 3060, RX 6600\" --model resnet18\n  \
    manyhands simulate run.toml --cards \"RX 6600, GTX 1060\"\n  manyhands simulate rig.toml")]
pub struct SimulateArgs {
    /// Rig (see `examples/rigs/`), or settings file of `train` with its model; may be left out beside `--model`.
    #[arg(value_name = "FILE", required_unless_present_any = ["model", "list_cards"])]
    file: Option<PathBuf>,
    /// Names of cards, with commas, in place of the adapters of a rig: `"RTX 3060, RX 6600"`.
    #[arg(long, value_name = "NAMES", required_unless_present_any = ["file", "list_cards"])]
    cards: Option<String>,
    /// Name of a model, in the size that `bench` measures: `resnet18`.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Rows of a batch. Default: those of the file; of `--model`, those of `bench`.
    #[arg(long, value_name = "ROWS")]
    batch_size: Option<u32>,
    /// Split of each batch: `learned` from speed, or `even`. Default: `split` of the file, else `learned`.
    #[arg(long, value_name = "SPLIT")]
    split: Option<String>,
    /// List the cards that have a name, with their numbers and where these come from.
    #[arg(long, exclusive = true)]
    list_cards: bool,
    /// Show all numbers as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Shows the predicted speed of each card alone, and of the fastest 1 to N together.
pub fn run(args: &SimulateArgs, terminal: &Terminal) -> Result<()> {
    if args.list_cards {
        terminal.report(&table_of_cards());
        return Ok(());
    }
    let (rig, model) = asked(args)?;
    let (report, chosen) = simulate_placed(&rig, &model)?;
    if args.json {
        let text = serde_json::to_string(&report).map_err(|error| {
            Error::setting("the prediction", format!("can't be shown: {error}"), "leave out `--json`")
        })?;
        terminal.verbatim(text);
        return Ok(());
    }
    if let Some(chosen) = chosen {
        terminal.report(&chosen);
    }
    terminal.report(&report);
    Ok(())
}

/// The rig and the model that arguments name.
fn asked(args: &SimulateArgs) -> Result<(RigConfig, Model)> {
    let mut rig = match &args.file {
        Some(file) if is_settings(file)? => return asked_of_settings(file, args),
        Some(file) => RigConfig::load(file)?,
        None => RigConfig::on_host(HOST_GB_S),
    };
    if let Some(name) = &args.model {
        rig.set_preset(name)?;
        if let Ok(measured) = workloads::by_name(name) {
            rig.optimizer.get_or_insert(measured.optimizer);
            rig.batch_size = if args.file.is_none() { measured.batch_size } else { rig.batch_size };
        }
    }
    if rig.batch_size == 0 {
        rig.batch_size = BATCH_SIZE;
    }
    change(&mut rig, args)?;
    let model = rig.build_model()?;
    Ok((rig, model))
}

/// Whether a file is one of `train`: rigs have none of its tables.
fn is_settings(file: &Path) -> Result<bool> {
    let table: std::result::Result<toml::Table, _> = files::read_text(file)?.parse();
    Ok(table.is_ok_and(|table| table.contains_key("data") || table.contains_key("training")))
}

/// The model and training of a settings file, on cards.
fn asked_of_settings(file: &Path, args: &SimulateArgs) -> Result<(RigConfig, Model)> {
    if args.cards.is_none() || args.model.is_some() {
        let problem = "is a settings file of `train`: it has a model, but no speeds of adapters";
        let help = "name cards, `--cards \"RTX 3060, RX 6600\"`, and no `--model`";
        return Err(Error::setting(format!("`{}`", manyhands_engine::shown(file)), problem, help));
    }
    let settings = SettingsFile::of(Some(file))?;
    let model = settings.build_model(0)?;
    let (compile, training) = (settings.compile(&model, 0)?, &settings.training);
    let mut rig = RigConfig {
        batch_size: u32::try_from(training.batch_size).unwrap_or(u32::MAX),
        optimizer: Some(compile.optimizer),
        batch_statistics: compile.batch_statistics,
        gradient_compression: compile.gradient_compression,
        placement: training.placement.clone(),
        micro_batches: (training.micro_batches > 1).then_some(training.micro_batches),
        split: if training.split == SplitMode::Even { SplitMode::Even } else { SplitMode::Learned },
        ..RigConfig::on_host(HOST_GB_S)
    };
    change(&mut rig, args)?;
    Ok((rig, model))
}

/// Applies the flags that change a rig.
fn change(rig: &mut RigConfig, args: &SimulateArgs) -> Result<()> {
    if let Some(names) = &args.cards {
        rig.machine.clear();
        rig.adapters = named(names)?;
    }
    rig.batch_size = args.batch_size.unwrap_or(rig.batch_size);
    match args.split.as_deref() {
        None => {}
        Some("learned") => rig.split = SplitMode::Learned,
        Some("even") => rig.split = SplitMode::Even,
        Some(other) => {
            let problem = format!("needs `learned` or `even`, but is `{}`", manyhands_engine::shown(other));
            return Err(Error::setting("`--split`", problem, "leave it out: the even split is shown, too"));
        }
    }
    Ok(())
}

/// The cards of names with commas; like ones are numbered.
fn named(names: &str) -> Result<Vec<AdapterSpec>> {
    let mut adapters: Vec<AdapterSpec> = Vec::new();
    for name in names.split(',').map(str::trim) {
        let card = cards::find(name).map_err(|error| Error::setting("`--cards`", error.problem(), error.help()))?;
        let like = adapters.iter().filter(|known| known.card == Some(card)).count();
        let mut spec = AdapterSpec::of_card(card);
        if like > 0 {
            spec.name = format!("{} #{}", spec.name, like + 1);
        }
        adapters.push(spec);
    }
    Ok(adapters)
}

fn table_of_cards() -> Table {
    let header = ["card", "units", "lanes", "boost MHz", "TFLOP/s", "memory GB", "GB/s", "PCIe", "source"];
    let mut table = Table::new(header).numbers(1..7);
    for card in CARDS {
        table.row([
            card.name.to_owned(),
            card.units.to_string(),
            card.lanes.to_string(),
            card.boost_mhz.to_string(),
            card.tflops.to_string(),
            card.memory_gb.map_or("shared".into(), |gb| gb.to_string()),
            card.memory_gb_s.to_string(),
            card.slot.map_or("-".into(), |(generation, lanes)| format!("{generation}.0 x{lanes}")),
            card.vendor.source().to_owned(),
        ]);
    }
    table
}
