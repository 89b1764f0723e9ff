//! The arguments of `train`: those of other commands, and what they mean for settings and files.

#[cfg(feature = "text")]
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use manyhands::{Error, Result, SplitMode};
use manyhands_engine::files as written;

use super::parse_throttle;
use crate::run_folder::RunFolder;
use crate::settings::{OTHER_RATES, OTHER_RATES_HELP, SettingChange, SettingsFile, parse_split};
use crate::{AdapterChoice, MemoryChoice, at_least_one};

#[derive(Args, Default)]
pub struct TrainArgs {
    /// Settings file; without one, a small network learns to read handwritten digits.
    pub(super) config: Option<PathBuf>,
    /// Print the settings of the digits, to copy from, and end.
    #[arg(long)]
    pub(super) print_config: bool,
    #[command(flatten)]
    pub(super) adapters: AdapterChoice,
    #[command(flatten)]
    pub(super) memory: MemoryChoice,
    /// Split of each batch: `learned` from speed, `even`, or proportions such as `3:1`.
    #[arg(long, value_parser = parse_split)]
    pub(super) split: Option<SplitMode>,
    /// Repeat the splits of another run from the log that it wrote with `--json`: gives the same bits.
    #[arg(long, value_name = "FILE", conflicts_with = "split")]
    pub(super) split_from: Option<PathBuf>,
    /// Epochs of the run, counted from its start.
    #[arg(long, value_parser = at_least_one)]
    pub(super) epochs: Option<usize>,
    /// Rows of a batch, over all adapters.
    #[arg(long, value_parser = at_least_one)]
    pub(super) batch_size: Option<usize>,
    /// Learning rate before any schedule.
    #[arg(long)]
    pub(super) learning_rate: Option<f32>,
    /// Seed of initial weights, shuffling and dropout.
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Cross-validation: cut the training rows into so many parts, train once without each, and show each model's score on the part
    /// that it has not seen, with their mean and standard deviation. Each class is spread evenly over the parts.
    #[arg(long, value_name = "FOLDS", value_parser = at_least_one)]
    #[arg(conflicts_with_all = ["save", "overwrite", "json", "csv", "trace", "tensorboard", "save_every", "split_from"])]
    #[arg(conflicts_with_all = ["find_learning_rate", "find_batch"])]
    pub(super) folds: Option<usize>,
    /// Resolves relative data paths against this folder. Default: the current one.
    #[arg(long, value_name = "FOLDER")]
    pub(super) data_folder: Option<PathBuf>,
    /// Folder for all that the run gives: settings, log, checkpoints (best and last), and `report.html` [default: `runs/1`,
    /// `runs/2` and so on].
    #[arg(long, value_name = "FOLDER", conflicts_with = "save")]
    pub(super) run: Option<PathBuf>,
    /// File to save the run to, after each epoch and at the end, without a run folder [default with `--resume FILE`: that
    /// file].
    #[arg(long, value_name = "FILE")]
    pub(super) save: Option<PathBuf>,
    /// Save after each so many steps, too.
    #[arg(long, value_name = "STEPS", value_parser = at_least_one)]
    pub(super) save_every: Option<usize>,
    /// Replace the files of an earlier run.
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Resume a saved run [default: that of `--run` or `--save`, else the latest in `runs`]. Logs are continued.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(super) resume: Option<Option<PathBuf>>,
    /// Write a line of JSON for each step and each epoch.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write a line of CSV for each epoch.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write the numbers of each epoch for TensorBoard.
    #[arg(long, value_name = "FOLDER")]
    pub(super) tensorboard: Option<PathBuf>,
    /// Write a trace of all work; <https://ui.perfetto.dev> shows it.
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Slow an adapter down, for trials: `1=4` makes the second one take 4 times as long. Repeatable.
    #[arg(long, value_name = "IDX=FACTOR", value_parser = parse_throttle)]
    pub(super) throttle: Vec<(usize, f64)>,
    /// Train 100 steps while the learning rate rises from 1e-6 to 3, suggest a rate, write the curve to a page, and end
    /// [default file: learning-rate.html].
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "learning-rate.html")]
    #[arg(conflicts_with_all = ["run", "save", "resume", "dry_run", "json", "csv", "trace", "tensorboard"])]
    pub(super) find_learning_rate: Option<PathBuf>,
    /// Train some steps with batches of more and more rows on each adapter, alone; show memory and speed of each size, the largest
    /// that fits, and the smallest with 95 % of the best speed; and end. Writes nothing.
    #[arg(long, conflicts_with_all = ["find_learning_rate", "run", "save", "resume", "dry_run", "json", "csv", "trace"])]
    #[arg(conflicts_with_all = ["tensorboard", "batch_size", "throttle"])]
    pub(super) find_batch: bool,
    /// Check settings, data, model and adapters, say what would be done, and end. Writes nothing; files of an earlier run are
    /// no hindrance.
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl TrainArgs {
    /// Arguments of a run that is begun from another command.
    #[cfg(feature = "text")]
    pub fn new(
        run: Option<&Path>,
        overwrite: bool,
        dry_run: bool,
        adapters: &AdapterChoice,
        memory: &MemoryChoice,
    ) -> Self {
        let (adapters, memory) = (adapters.clone(), memory.clone());
        Self { run: run.map(Path::to_owned), overwrite, dry_run, adapters, memory, ..Self::default() }
    }

    /// Arguments of a run in a folder that goes on.
    #[cfg(feature = "text")]
    pub fn resumed(run: &Path, epochs: Option<usize>, adapters: &AdapterChoice, memory: &MemoryChoice) -> Self {
        let (adapters, memory) = (adapters.clone(), memory.clone());
        Self { run: Some(run.to_owned()), resume: Some(None), epochs, adapters, memory, ..Self::default() }
    }

    /// The settings file: the one that is named, or that of the folder of the resumed run.
    pub(super) fn config_file(&self) -> Option<PathBuf> {
        let own = || self.resumed_folder().map(|folder| folder.settings()).filter(|file| file.is_file());
        self.config.clone().or_else(own)
    }

    /// The folder of the run that goes on, as far as flags name it.
    fn resumed_folder(&self) -> Option<RunFolder> {
        let named = self.run.as_ref().filter(|_| matches!(self.resume, Some(None))).map(RunFolder::new);
        named.or_else(|| self.latest())
    }

    /// Whether no file and no folder is named to which the run goes.
    pub(super) fn is_numbered(&self) -> bool {
        let is_search = self.find_learning_rate.is_some() || self.find_batch;
        self.run.is_none() && self.save.is_none() && !is_search && !matches!(self.resume, Some(Some(_)))
    }

    /// The numbered run that goes on, since none is named.
    pub(super) fn latest(&self) -> Option<RunFolder> {
        if !self.is_numbered() || self.resume.is_none() {
            return None;
        }
        let settings = self.config.as_deref().map(written::read_text).transpose();
        // A file that can't be read is refused where it is read for itself.
        RunFolder::latest(settings.ok()?.as_deref())
    }

    /// Changes of the settings by flags.
    pub(super) fn changes(&self, seed: u64) -> Vec<SettingChange> {
        let text = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let split = self.split.as_ref().and_then(|split| match split {
            SplitMode::Learned => Some("learned".to_owned()),
            SplitMode::Even => Some("even".to_owned()),
            SplitMode::Fixed(parts) => Some(parts.iter().map(f64::to_string).collect::<Vec<_>>().join(":")),
            SplitMode::Recorded(_) => None,
        });
        let training = [
            ("epochs", self.epochs.map(|epochs| epochs.to_string())),
            ("batch_size", self.batch_size.map(|rows| rows.to_string())),
            ("seed", Some(seed.to_string())),
            ("split", split.map(|split| text(&split))),
            ("adapters", self.adapters.adapters.as_deref().map(text)),
            ("memory", self.memory.memory.as_ref().map(|limits| text(&limits.to_string()))),
        ];
        let training = training.into_iter().filter_map(|(key, value)| Some(("training", key, value?)));
        // The shortest text that means the same, with a point or an exponent.
        let rate = self.learning_rate.map(|rate| ("optimizer", "learning_rate", format!("{rate:?}")));
        training.chain(rate).collect()
    }

    /// The settings, overridden by the flags.
    pub(super) fn settings(&self) -> Result<SettingsFile> {
        if let Some(folder) = self.resumed_folder() {
            folder.check_files()?;
        }
        let mut settings = SettingsFile::of(self.config_file().as_deref())?;
        settings.start_paths_at(self.data_folder.as_deref());
        if let Some(epochs) = self.epochs {
            settings.set_epochs(epochs as u64);
        }
        let training = &mut settings.training;
        training.batch_size = self.batch_size.unwrap_or(training.batch_size);
        training.seed = self.seed.or(training.seed);
        training.split = self.split.clone().unwrap_or(training.split.clone());
        if let Some(rate) = self.learning_rate {
            if !settings.schedule.starts_from_rate() {
                return Err(Error::setting("`--learning-rate`", OTHER_RATES, OTHER_RATES_HELP));
            }
            settings.optimizer = settings.optimizer.with_learning_rate(rate);
        }
        Ok(settings)
    }
}
