//! `train --folds`: trains once for each fold of the training rows, and scores each model on the fold that it never saw.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manyhands::processes::Group;
use manyhands::{Error, Result};
use manyhands_engine::files;
use manyhands_engine::shown::{counted, shown, thousands};

use super::part_run::PartRun;
use super::{TrainArgs, check_throttles, choose};
use crate::interrupt::Interrupt;
use crate::report::folds::{mean_of, values_of};
use crate::report::results::Results;
use crate::run_folder::RunFolder;
use crate::settings::{SettingsFile, with_value};
use crate::terminal::Terminal;

/// Trains once for each of so many folds. Returns the exit status for a signal, if one came.
pub(super) fn run(
    settings: &SettingsFile,
    count: usize,
    args: &TrainArgs,
    terminal: &Terminal,
    group: &Group,
) -> Result<Option<i32>> {
    group.refuse("`--folds`", "start one process")?;
    if count < 2 {
        return Err(Error::setting("`--folds`", format!("needs at least 2, but is {count}"), "5 are usual"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let texts = (1..=count).map(|number| of_fold(settings, args, number, count)).collect::<Result<Vec<_>>>()?;
    // What is wrong with all folds is told before the first.
    let first = part_run(&texts[0], RunFolder::new(""), args, &stop)?;
    let validates_by_fold = first.settings.validates_by_fold();
    first.check(&terminal.silent())?;
    let named = args.run.as_ref().or(settings.training.run.as_ref()).map(RunFolder::new);
    if let Some(folder) = &named {
        check_folder(folder, &texts, args)?;
    }
    if args.dry_run {
        terminal.line(format_args!("dry run: {} would be trained; nothing was written", counted(count, "fold")));
        return Ok(None);
    }
    if args.resume.is_some() && named.is_none() {
        return Err(Error::setting(
            "`--resume` with `--folds`",
            "needs the folder of the earlier folds, but none is named",
            "name it: `--run runs/1`",
        ));
    }
    let folder = named.map_or_else(RunFolder::make_next, Ok)?;
    let interrupt = Interrupt::catch(stop.clone(), terminal)?;
    let mut scores = Vec::new();
    for (number, text) in (1..).zip(&texts) {
        let of_fold = folder.fold(number);
        part_run(text, of_fold.clone(), args, &stop)?.train(&terminal.silent())?;
        if stop.load(Ordering::Relaxed) {
            let path = folder.path().display();
            terminal.line(format_args!("interrupted; the same command with `--run {path} --resume` goes on"));
            return Ok(interrupt.status());
        }
        let Some(score) = Results::read(&of_fold.results())?.end.and_then(|end| end.fold) else { continue };
        let (rows, values) = (thousands(score.rows), values_of(&score.values));
        if !terminal.is_quiet() {
            terminal.line(format_args!("fold {number} of {count}: {rows} rows: {values}"));
        }
        scores.push(score.values);
    }
    terminal.line(mean_of(&scores));
    if terminal.is_quiet() {
        return Ok(interrupt.status());
    }
    if validates_by_fold {
        terminal.line(
            "each fold also chose the best epoch of its model, so its score is too good: `validation = 0.2` in `[training]` sets \
             other rows aside for that",
        );
    }
    let path = folder.path().display();
    terminal.line(format_args!("the folds are in `{path}`; compare them with `manyhands report {path}`"));
    Ok(interrupt.status())
}

/// The text of the settings of a fold.
fn of_fold(settings: &SettingsFile, args: &TrainArgs, number: usize, count: usize) -> Result<String> {
    let fold = format!("\"{number}/{count}\"");
    let seed = settings.training.seed.unwrap_or(0);
    // As the run of the fold writes them into its folder.
    let own = [("training", "epochs", settings.training.epochs.to_string()), ("training", "fold", fold)];
    args.changes(seed).into_iter().chain(own).try_fold(settings.text().to_owned(), |text, (table, key, value)| {
        with_value(&text, &[table.into(), key.into()], &value).ok_or_else(|| {
            let problem =
                format!("needs settings in which `{key}` of `[{table}]` can be set, but `[{table}]` is no table");
            Error::setting("`--folds`", problem, "write it as a table of its own")
        })
    })
}

fn part_run(text: &str, folder: RunFolder, args: &TrainArgs, stop: &Arc<AtomicBool>) -> Result<PartRun> {
    let mut settings = SettingsFile::parse(text, "the settings of the folds")?;
    settings.start_paths_at(args.data_folder.as_deref());
    let chosen = choose(args, &settings)?;
    check_throttles(&args.throttle, chosen.len())?;
    Ok(PartRun {
        folder: folder.path().to_owned(),
        epochs: settings.training.epochs,
        adapters: (args.adapters.adapters.clone(), chosen),
        limits: args.memory.memory.clone().unwrap_or_default(),
        throttles: args.throttle.clone(),
        data_folder: args.data_folder.clone(),
        objective: None,
        stop: stop.clone(),
        settings,
    })
}

/// Refuses a folder with a run or with folds, if they are not those that are resumed.
fn check_folder(folder: &RunFolder, texts: &[String], args: &TrainArgs) -> Result<()> {
    folder.check(manyhands::Existing::Refuse, None)?;
    let who = || format!("the run folder `{}`", shown(folder.path()));
    for (number, text) in (1..).zip(texts) {
        let earlier = folder.fold(number).settings();
        if !earlier.exists() {
            continue;
        }
        if args.resume.is_none() {
            return Err(Error::setting(
                who(),
                "needs to be a new one, but holds folds",
                "continue them (`--resume`), or name another folder (`--run`)",
            ));
        }
        if what_models_depend_on(&files::read_text(&earlier)?) != what_models_depend_on(text) {
            return Err(Error::setting(
                who(),
                format!("needs folds of the same settings, but those of fold {number} differ"),
                "resume with the settings, flags and number of folds of before, or name another folder (`--run`)",
            ));
        }
    }
    Ok(())
}

/// Settings without what other adapters may change: they give the same models, up to rounding.
fn what_models_depend_on(text: &str) -> Option<toml::Table> {
    let mut table: toml::Table = text.parse().ok()?;
    let training = table.get_mut("training")?.as_table_mut()?;
    ["adapters", "memory", "split"].iter().for_each(|key| drop(training.remove(*key)));
    Some(table)
}
