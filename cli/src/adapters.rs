//! `manyhands adapters`, and the choice of adapters for the other commands.

use std::env::{self, VarError};
use std::path::{Path, PathBuf};

use clap::Args;
use manyhands::adapters::{ADAPTERS_VARIABLE, Info, Kind};
use manyhands::{Error, MemoryNeed, Result, Trainer};
use manyhands_engine::adapters;
use manyhands_engine::shown::bytes;
use manyhands_engine::table::Table;
use serde::Serialize;

use super::MemoryChoice;
use super::settings::SettingsFile;
use super::summary;
use super::terminal::Terminal;

#[derive(Args)]
pub struct AdaptersArgs {
    /// Settings file whose training is to be shown with the memory that it takes on each adapter.
    config: Option<PathBuf>,
    #[command(flatten)]
    memory: MemoryChoice,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
}

/// An adapter of the list, for JSON.
#[derive(Serialize)]
struct ListedAdapter<'a> {
    #[serde(flatten)]
    info: &'a Info,
    is_default: bool,
    /// Most bytes that a model may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_limit: Option<u64>,
    /// Rows that training by the settings runs at once, and the bytes that they take; `null` if one row takes more.
    #[serde(skip_serializing_if = "Option::is_none")]
    training: Option<Option<MemoryNeed>>,
}

/// A model of a settings file, to be trained by it.
struct ModelOfSettings {
    settings: SettingsFile,
    trainer: Trainer,
}

impl ModelOfSettings {
    fn of(file: &Path) -> Result<Self> {
        let settings = SettingsFile::of(Some(file))?;
        let model = settings.build_model(0)?;
        let compile = settings.compile(&model, 0)?;
        let trainer = Trainer::new(model, compile)?.placement(settings.training.placement.clone());
        Ok(Self { trainer, settings })
    }

    /// Memory of training on an adapter of a kind; of several stages, that of the largest.
    fn on(&self, kind: Kind, limit: Option<u64>) -> Result<Option<MemoryNeed>> {
        let training = &self.settings.training;
        let needs = self.trainer.stage_needs(kind, training.batch_size, training.micro_batches, limit)?;
        let largest = |needs: Vec<MemoryNeed>| needs.into_iter().max_by_key(|need| need.bytes);
        Ok(needs.into_iter().collect::<Option<Vec<_>>>().and_then(largest))
    }
}

/// Lists the adapters, marks those in use, and explains how to choose others.
pub fn run(args: &AdaptersArgs, terminal: &Terminal) -> Result<()> {
    let list = adapters::list();
    let trained = args.config.as_deref().map(ModelOfSettings::of).transpose()?;
    let limits = args.memory.or(trained.as_ref().and_then(|trained| trained.settings.training.memory.as_ref()));
    let setting = trained.as_ref().and_then(|trained| trained.settings.training.adapters.as_deref());
    let wanted = from_environment()?;
    let chosen = adapters::choose(&list, wanted.as_deref().unwrap_or(""));
    let defaults = chosen.as_deref().unwrap_or(&[]);
    // Limits count the adapters that a run with these settings has; without settings, those of the list.
    let named = setting.map(|wanted| adapters::choose(&list, wanted)).transpose()?;
    let in_use = match (&named, &chosen) {
        (Some(named), _) => named,
        (None, Ok(defaults)) if trained.is_some() => defaults,
        _ => &list,
    };
    limits.check(in_use)?;
    let mut listed = Vec::new();
    for info in &list {
        let is_default = defaults.iter().any(|chosen| chosen.index == info.index);
        let place = in_use.iter().position(|chosen| chosen.index == info.index);
        // An adapter that is not in use may join later: a limit by its name is its own, one by a position is not.
        let memory_limit = limits.of(place.unwrap_or(usize::MAX), info, in_use);
        let training = trained.as_ref().map(|trained| trained.on(info.kind, memory_limit)).transpose()?;
        listed.push(ListedAdapter { info, is_default, memory_limit, training });
    }
    if args.json {
        let text = serde_json::to_string_pretty(&listed).map_err(|error| {
            Error::adapter("the list of adapters", format!("can't be shown: {error}"), "leave out `--json`")
        })?;
        terminal.verbatim(text);
        return chosen.map(drop);
    }
    terminal.report(&table(&listed));
    terminal.line(explanation(&list, wanted.as_deref()));
    chosen.map(drop)
}

fn table(listed: &[ListedAdapter<'_>]) -> Table {
    let has_limits = listed.iter().any(|listed| listed.memory_limit.is_some());
    let is_trained = listed.iter().any(|listed| listed.training.is_some());
    let more = [("memory limit", has_limits), ("rows at once", is_trained), ("training takes", is_trained)];
    let more = more.iter().filter(|(_, is_shown)| *is_shown).map(|(name, _)| *name);
    let header = ["index", "name", "kind", "backend", "driver", "used by default"].into_iter().chain(more);
    let mut table = Table::new(header);
    for ListedAdapter { info, is_default, memory_limit, training } in listed {
        let used = if *is_default { "yes" } else { "" };
        let index = info.index.to_string();
        let cells = [index.as_str(), &info.name, kind(info.kind), &info.backend, &info.driver, used].map(String::from);
        let limit = has_limits.then(|| memory_limit.map_or_else(String::new, bytes));
        let taken = training.map(summary::need_cells);
        table.row(cells.into_iter().chain(limit).chain(taken.into_iter().flatten()));
    }
    table
}

fn explanation(list: &[Info], wanted: Option<&str>) -> String {
    let has_gpu = list.iter().any(|info| info.kind.is_gpu());
    let reason = match wanted {
        Some(wanted) => format!("{ADAPTERS_VARIABLE} is set to `{wanted}`."),
        None if has_gpu => "By default every GPU is used.".into(),
        None => "There is no GPU, so the CPU is used by default.".into(),
    };
    let old = list.iter().find(|info| adapters::list::is_fxc(info));
    let old = old.map_or(String::new(), |info| {
        format!(
            "\nDX12 has FXC here, the old shader compiler: shaders for `{}` take about three times as long to build.\n  \
             help: {}",
            info.name,
            adapters::list::Dxc::of_program().advice()
        )
    });
    format!(
        "{reason} Choose with `--adapters` (or {ADAPTERS_VARIABLE}): indices or parts of names with commas, `discrete`, \
         `integrated`, `gpu`, `cpu`, `software` or `all`. Software adapters compute on the CPU, slower than `cpu`.{old}"
    )
}

/// Kind of an adapter, in words.
pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::DiscreteGpu => "discrete GPU",
        Kind::IntegratedGpu => "integrated GPU",
        Kind::VirtualGpu => "virtual GPU",
        Kind::Cpu => "CPU",
        Kind::Software => "software",
    }
}

fn from_environment() -> Result<Option<String>> {
    match env::var(ADAPTERS_VARIABLE) {
        Ok(wanted) if wanted.trim().is_empty() => Ok(None),
        Ok(wanted) => Ok(Some(wanted)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Error::setting(
            ADAPTERS_VARIABLE,
            "needs to be text, but is not Unicode",
            "unset it, or name adapters in it",
        )),
    }
}

/// Whether flag, settings file or environment choose adapters.
pub fn has_choice(flag: Option<&str>, setting: Option<&str>) -> bool {
    flag.or(setting).is_some() || from_environment().is_ok_and(|wanted| wanted.is_some())
}

/// The adapters to use: those of the flag, else of the settings file, else of the environment, else the default.
pub fn choose(flag: Option<&str>, setting: Option<&str>) -> Result<Vec<Info>> {
    let wanted = match flag.or(setting) {
        Some(wanted) => wanted.to_owned(),
        None => from_environment()?.unwrap_or_default(),
    };
    // An empty flag is an error, and must not fall back to the default silently.
    if wanted.trim().is_empty() && flag.or(setting).is_some() {
        return Err(Error::adapter(
            "the choice of adapters",
            "needs at least one name, but is empty",
            "see `manyhands adapters`",
        ));
    }
    adapters::choose(&pollster::block_on(adapters::list_for(&wanted)), &wanted)
}
