//! `manyhands init`: looks at data, and writes settings that train on them.

mod images;
mod table;
mod text;
#[cfg(feature = "text")]
mod text_columns;
mod texts;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use manyhands::data::{ClassCount, DataConfig, Description, source};
use manyhands::{Error, Result};
use manyhands_engine::files::{self, FileKind};
use manyhands_engine::{
    names,
    shown::{is_obeyed, shown},
};

#[cfg(feature = "text")]
pub use self::text_columns::TextColumns;
use super::settings::SettingsFile;
use super::terminal::{Terminal, check_file, make_folder_of};

#[derive(Args)]
pub struct InitArgs {
    /// A table, a folder with a sub-folder of images for each class, a folder of MNIST's files or of CIFAR-10, an `.npz` or
    /// `.safetensors` file, a text file or a folder of them.
    data: PathBuf,
    /// File to write; it must be new.
    #[arg(long, short, value_name = "FILE", default_value = "run.toml")]
    output: PathBuf,
    /// Column of a table to predict, by its name or its index from 0 [default: one whose name says so, else the last].
    #[arg(long, value_name = "COLUMN")]
    target: Option<String>,
    /// Whether the target is one of some `classes`, or holds `values` to predict [default: by its values].
    #[arg(long, value_name = "KIND", value_parser = ["classes", "values"])]
    target_kind: Option<String>,
    /// Column of a table that is no input, by its name or its index. May be repeated.
    #[arg(long, value_name = "COLUMN")]
    ignore: Vec<String>,
    /// Column of a table that is an input although it seems to be none, such as an id. May be repeated.
    #[arg(long, value_name = "COLUMN")]
    keep: Vec<String>,
}

/// Description of data, and settings for them.
struct Proposal {
    /// Lines for the user.
    seen: String,
    /// The settings file, without its head.
    settings: String,
}

/// Rows below which none are set aside for validation.
const FEWEST_ROWS: usize = 20;
/// Rows of the most frequent class for each of the rarest, from which on weights of classes are proposed.
const UNEVEN: usize = 5;
/// As many rows from which on they are used: a model would hardly ever name the rarest class.
const VERY_UNEVEN: usize = 50;
/// Column at which comments of the settings begin.
const COMMENTS: usize = 33;

/// Writes settings for data.
pub fn run(args: &InitArgs, terminal: &Terminal) -> Result<()> {
    refuse_existing(&args.output)?;
    check_file(&args.output)?;
    let Proposal { seen, settings } = propose(args)?;
    let data = shown(&args.data);
    let head = format!(
        "# Settings for `{data}`, written by `manyhands init`. Train with `manyhands train {}`.\n\
         # `docs/settings.md` lists all settings; paths start at the folder in which the command runs.\n\n",
        shown(&args.output)
    );
    let text = format!("{head}{settings}");
    SettingsFile::check_text(&text)?;
    make_folder_of(&args.output)?;
    // Looking at large data takes a while: another program may have written the file since.
    refuse_existing(&args.output)?;
    files::write(&args.output, FileKind::Settings, |out| out.write_all(text.as_bytes()))?;
    terminal.line(seen.trim_end());
    terminal.line(format_args!("wrote `{0}`: look at it, then `manyhands train {0}`", args.output.display()));
    Ok(())
}

fn refuse_existing(output: &Path) -> Result<()> {
    if output.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Error::setting(
        format!("the file `{}`", shown(output)),
        "needs to be new, but is there already",
        "name another one by `--output`, or move this one away first; nothing was written",
    ))
}

/// Looks at the data.
fn propose(args: &InitArgs) -> Result<Proposal> {
    let path = &args.data;
    let metadata = fs::metadata(path).map_err(|source| Error::reading(path, source))?;
    source::check_regular(path)?;
    let proposal = if metadata.is_dir() { folder(path)? } else { file(args)? };
    let is_table = proposal.settings.contains("type = \"csv\"");
    let asked = [
        ("`--target`", args.target.is_some()),
        ("`--target-kind`", args.target_kind.is_some()),
        ("`--ignore`", !args.ignore.is_empty()),
        ("`--keep`", !args.keep.is_empty()),
    ];
    if let (false, Some((option, _))) = (is_table, asked.iter().find(|(_, is_given)| *is_given)) {
        return Err(Error::setting(
            *option,
            format!("needs a table, but `{}` is none", shown(path)),
            "leave it out: the classes of images are their folders",
        ));
    }
    Ok(proposal)
}

/// Data of a folder.
fn folder(path: &Path) -> Result<Proposal> {
    let starts = |folder: &Path, start: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(start))
    };
    if starts(path, "train-images") {
        return images::idx(path);
    }
    if starts(path, "data_batch_") || path.join("cifar-10-batches-bin").is_dir() {
        return images::cifar10(path);
    }
    let entries: Vec<PathBuf> = fs::read_dir(path)
        .map_err(|source| Error::reading(path, source))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|entry| !entry.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")))
        .collect();
    if entries.iter().any(|entry| entry.is_dir()) {
        let has_texts = |entry: &PathBuf| {
            let mut files = fs::read_dir(entry).into_iter().flatten().flatten();
            files.any(|file| has_extension(&file.path(), &["txt"]))
        };
        return images::folder(path).map_err(|error| match entries.iter().any(has_texts) {
            true if error.problem().starts_with("needs images") => Error::data(
                error.who(),
                error.problem(),
                "texts of classes are read from a table: write each as a row, `text` and the name of its folder as `label`",
            ),
            _ => error,
        });
    }
    let has = |ends: &[&str]| entries.iter().any(|entry| has_extension(entry, ends));
    if has(&["txt"]) {
        return text::propose(path);
    }
    let help = if has(TABLES) {
        "name the table itself".to_owned()
    } else if has(IMAGES) {
        "put the images of each class into a sub-folder of its name".into()
    } else {
        names::help("", "known are", &["tables", "folders of images", "IDX files", "CIFAR-10", "texts"])
    };
    Err(Error::data(
        format!("the folder `{}`", shown(path)),
        "needs a sub-folder of images for each class, MNIST's or CIFAR-10's files, or `.txt` files, but has none",
        help,
    ))
}

/// Extensions of tables.
pub const TABLES: &[&str] = &["csv", "tsv", "tab", "data"];

/// Extensions of images.
const IMAGES: &[&str] = &["png", "jpg", "jpeg", "bmp"];

/// Whether there are data that `init` may look at.
pub fn is_data(path: &Path) -> bool {
    path.is_dir() || path.is_file() && (has_extension(path, TABLES) || has_extension(path, &["npz", "safetensors"]))
}

pub fn has_extension(path: &Path, ends: &[&str]) -> bool {
    path.extension().is_some_and(|extension| ends.iter().any(|end| extension.eq_ignore_ascii_case(end)))
}

/// Data of a file.
fn file(args: &InitArgs) -> Result<Proposal> {
    let path = &args.data;
    let refuse = |problem: &str, help: &str| Err(Error::data(format!("`{}`", shown(path)), problem, help));
    if has_extension(path, &["txt", "md"]) && args.target.is_none() {
        return text::propose(path);
    }
    if has_extension(path, IMAGES) {
        return refuse(
            "needs to be a table, a text or a folder, but is an image",
            "name the folder that has a sub-folder of images for each class",
        );
    }
    if has_extension(path, &["npz"]) {
        return images::arrays("npz", path);
    }
    if has_extension(path, &["safetensors"]) {
        return images::arrays("safetensors", path);
    }
    if has_extension(path, &["npy"]) {
        return refuse(
            "needs its targets, too, but is one array",
            "write both into one file by `numpy.savez(FILE, x=…, y=…)`",
        );
    }
    let mut begin = [0; 4];
    let read = files::open(path)?.read(&mut begin).map_err(|source| Error::reading(path, source))?;
    let is_text = (!begin[..read].contains(&0) || files::is_utf16(&begin)) && !begin.starts_with(&[0x1f, 0x8b]);
    if !has_extension(path, TABLES) && !is_text {
        return refuse(
            "needs to be a table, a text or a folder, but is none of them",
            "of IDX files, plain or gzipped, name the folder; unpack other files first",
        );
    }
    if let Some(row) = row_of_json(path)? {
        let is_of_texts = ["messages", "prompt", "text"].iter().any(|key| row.contains_key(*key));
        let help = if is_of_texts {
            format!("fine-tune a language model on it by `manyhands finetune MODEL {}`", shown(path))
        } else {
            "write it as a table, by pandas: `read_json(FILE, lines=True).to_csv(\"table.csv\", index=False)`".into()
        };
        return refuse("needs to be a table, a text or a folder, but holds rows of JSON", &help);
    }
    table::propose(args)
}

/// The object that a file begins with, if it is one line of JSON Lines.
fn row_of_json(path: &Path) -> Result<Option<serde_json::Map<String, serde_json::Value>>> {
    const MOST_BYTES: u64 = 1 << 20;
    let mut line = String::new();
    let read = BufReader::new(files::open(path)?.take(MOST_BYTES)).read_line(&mut line);
    // Tables may have another encoding.
    Ok(read.ok().and_then(|_| serde_json::from_str(&line).ok()))
}

/// The data of a text of settings that has `[data]` alone.
pub fn data_of(text: &str) -> Result<DataConfig> {
    let failed = |error: toml::de::Error| Error::setting("`[data]`", error.to_string(), "please report this");
    #[derive(serde::Deserialize)]
    struct DataTable {
        data: DataConfig,
    }
    Ok(toml::from_str::<DataTable>(text).map_err(failed)?.data)
}

/// A path as a value in a settings file.
pub fn quoted_path(path: &Path) -> Result<String> {
    match path.to_str() {
        Some(path) => Ok(quoted(path)),
        None => Err(Error::data(
            format!("`{}`", shown(path)),
            "needs a name in UTF-8 for a settings file, but has other bytes",
            "rename it",
        )),
    }
}

/// A text as a value or key in a settings file, on one line: a line break would end the comment that some of them stand in.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            _ if is_obeyed(letter) => quoted += &format!("\\U{:08x}", u32::from(letter)),
            _ => quoted.push(letter),
        }
    }
    quoted + "\""
}

/// A line of the settings with a comment behind it.
fn commented(line: &str, comment: &str) -> String {
    let comment: String = shown(comment).to_string();
    format!("{line:<COMMENTS$} # {comment}\n")
}

/// The rows of each class.
fn counts(description: &Description) -> &[ClassCount] {
    description.targets.first().map_or(&[], |(_, counts)| counts)
}

/// The number of classes: of the names, else of the labels.
fn n_classes(description: &Description) -> usize {
    counts(description).len()
}

/// Weights of classes, where some are far rarer than others: each class then counts alike.
fn class_weights(description: &Description) -> String {
    let counts = counts(description);
    let counted = || counts.iter().map(|class| class.rows).filter(|rows| *rows > 0);
    let (Some(most), Some(fewest)) = (counted().max(), counted().min()) else { return String::new() };
    if most < fewest * UNEVEN {
        return String::new();
    }
    let (is_used, doing) = if most < fewest * VERY_UNEVEN { ("# ", "would count") } else { ("", "count") };
    format!(
        "# Some classes have few rows. With weights all {doing} alike: rare ones are found more often, accuracy is lower, and\n# \
         probabilities are too high for them.\n{is_used}class_weight = \"balanced\"\n"
    )
}

/// Length of a training, with a part of the rows set aside to end early by.
struct TrainingLength {
    rows: usize,
    epochs: usize,
    patience: usize,
    learning_rate: &'static str,
    /// Whether the rate rises for an epoch, then falls to 0: the last epochs are calm.
    has_cosine: bool,
}

impl TrainingLength {
    /// Rows of a batch: small data need many steps, large data large batches.
    fn batch_size(&self) -> usize {
        match self.rows {
            0..500 => 16,
            500..5_000 => 32,
            5_000..50_000 => 128,
            _ => 256,
        }
    }

    /// The fraction of the rows to set aside.
    fn validation(&self) -> Option<&'static str> {
        match self.rows {
            0..FEWEST_ROWS => None,
            FEWEST_ROWS..5_000 => Some("0.2"),
            _ => Some("0.1"),
        }
    }

    /// `[schedule]`, if there is one.
    fn schedule(&self) -> String {
        if !self.has_cosine {
            return String::new();
        }
        // The tenths of the rows that are trained on.
        let tenths = match self.validation() {
            None => 10,
            Some("0.2") => 8,
            Some(_) => 9,
        };
        let steps = (self.rows * tenths / 10).div_ceil(self.batch_size()).max(1);
        let decay_steps = format!("decay_steps = {}", steps * self.epochs.saturating_sub(1));
        format!(
            "\n[schedule]\ntype = \"CosineDecay\"\n{}{}",
            commented(&format!("warmup_steps = {steps}"), "an epoch in which the learning rate rises"),
            commented(&decay_steps, "it falls to 0 until the last epoch; change both with `epochs`")
        )
    }

    /// `[optimizer]`, `[schedule]` and `[training]`; `more` are further lines of it.
    fn text(&self, epsilon: Option<f64>, more: &str) -> String {
        let mut text = format!("[optimizer]\ntype = \"Adam\"\nlearning_rate = {}\n", self.learning_rate);
        if let Some(epsilon) = epsilon {
            text +=
                &commented(&format!("epsilon = {epsilon:e}"), "the target's values are small, and so are gradients");
        }
        let at_most = if self.validation().is_some() { "at most: training ends when it gets no better" } else { "" };
        let epochs = format!("epochs = {}", self.epochs);
        text += &self.schedule();
        text += "\n[training]\n";
        text += &if at_most.is_empty() { format!("{epochs}\n") } else { commented(&epochs, at_most) };
        text += &commented(&format!("batch_size = {}", self.batch_size()), "over all adapters");
        text += &commented("seed = 0", "another one draws other weights and other validation rows");
        match self.validation() {
            Some(fraction) => {
                text +=
                    &commented(&format!("validation = {fraction}"), "part of the rows, to tell when it gets no better");
                writeln!(text, "early_stopping = {{ monitor = \"val_loss\", patience = {} }}", self.patience)
                    .unwrap_or_default();
            }
            None => text += &commented("validation = \"none\"", "too few rows to set some aside"),
        }
        text + more
    }
}
