//! `manyhands evaluate` and `manyhands predict`.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use manyhands::data::{self, DataConfig, DataPair, HeldOut, Inputs, Schema};
use manyhands::losses::Head;
use manyhands::processes::Group;
use manyhands::schema::{DataPlace, few};
use manyhands::{Compile, Error, ErrorKind, Loss, Model, Result, Shape, Trainer};
use manyhands_engine::files::{self, FileKind, Output};
use ndarray::ArrayD;

use super::baseline::Baseline;
use super::classes::{Names, largest, softmax};
use super::run_folder::{load_model, model_path};
use super::seen::{SeenClasses, listed, never_predicted, without_counts};
use super::settings::SettingsFile;
use super::terminal::{Terminal, check_file, make_folder_of, safe};
use super::{AdapterChoice, DataChoice, MemoryChoice, adapters, at_least_one};

/// Rows at once: inference gives the same for any number.
const BATCH_SIZE: &str = "256";

#[derive(Args)]
pub struct EvaluateArgs {
    #[command(flatten)]
    trained: TrainedModelArgs,
    /// Data to evaluate on, as `--data` names them.
    #[arg(value_name = "DATA", conflicts_with_all = ["data", "config"])]
    path: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct PredictArgs {
    #[command(flatten)]
    trained: TrainedModelArgs,
    /// Data to predict from, as `--input` names them.
    #[arg(value_name = "INPUT", conflicts_with_all = ["input", "part"])]
    path: Option<PathBuf>,
    /// Predict from data without targets: a table, a text, an image, a folder of images
    /// or an IDX file.
    ///
    /// Its format is that of the model's training data. `csv`: a table in which the inputs are found by the names of
    /// their columns, or, without a header, by their place. `text`: a text file, or a folder of them. `image_folder`: an image, or a folder of images at any
    /// depth; the output names the file of each. `idx`, `idx_files`: a file of images. `npy`, `npz`, `safetensors`: an array.
    #[arg(long, value_name = "PATH", conflicts_with = "part")]
    input: Option<PathBuf>,
    /// File to write to, in place of stdout.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the model's outputs unchanged, in place of probabilities.
    #[arg(long)]
    logits: bool,
}

/// A trained model and its data.
#[derive(Args)]
struct TrainedModelArgs {
    /// Model file or checkpoint, or the folder of a run: its best model.
    #[arg(value_parser = model_path())]
    file: PathBuf,
    #[command(flatten)]
    data: DataChoice,
    /// Rows of the data: those to test with, those that were trained on, or those that `validation = 0.2` set aside.
    #[arg(long, visible_alias = "rows", value_enum, default_value_t = DataPart::Test)]
    part: DataPart,
    #[command(flatten)]
    adapters: AdapterChoice,
    #[command(flatten)]
    memory: MemoryChoice,
    /// Rows at once, over all adapters.
    #[arg(long, value_parser = at_least_one, default_value = BATCH_SIZE)]
    batch_size: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DataPart {
    Test,
    Train,
    Validation,
}

/// A model ready to run, and its rows: with targets, if they are a part of the settings' data.
struct ReadyModel {
    trainer: Trainer,
    inputs: Inputs,
    compile: Compile,
    /// Classes that an evaluation counts, for each output that has one for a row.
    seen: Vec<Option<SeenClasses>>,
}

/// Source of the data.
struct DataSource {
    config: DataConfig,
    /// Whether the data are one table or folder, named without settings, without parts of its own.
    is_one: bool,
    workers: usize,
}

impl DataPart {
    fn open(self, source: &DataSource, model: &Model) -> Result<Inputs> {
        let DataPair { train, test } = source.config.open_like(model.schema())?;
        let trained = train.schema();
        let dataset = match (self, test, model.schema().held_out) {
            (Self::Train, _, Some(held_out)) => Arc::new(data::trained_on(train, held_out)?),
            (Self::Train, _, None) => train,
            (Self::Test, Some(test), _) => test,
            (Self::Test, None, _) if source.is_one => train,
            (Self::Test, None, Some(HeldOut { fold: Some(fold), .. })) => Arc::new(data::fold(train, fold)?.1),
            (Self::Test, None, held_out) => {
                let validation = if held_out.is_some() { "`--part validation` or " } else { "" };
                return Err(Error::data(
                    "the test data",
                    "are needed, but the settings name none",
                    format!("name them in `[data]` or by `--data`, or use {validation}`--part train`"),
                ));
            }
            (Self::Validation, _, Some(held_out)) => Arc::new(data::held_out(train, held_out)?),
            (Self::Validation, _, None) => {
                return Err(Error::data(
                    "`--part validation`",
                    "needs a model that was trained with held-out rows, but the file names none",
                    "`validation = 0.2` in `[training]` holds rows out; use `--part test` or `--part train`",
                ));
            }
        };
        Ok(Inputs { dataset, trained, names: None })
    }
}

impl TrainedModelArgs {
    /// With the rows of a part of the data, whose targets are checked, too.
    fn prepare(&self, path: Option<&Path>) -> Result<ReadyModel> {
        let ready =
            self.prepare_with(path.or(self.data.data.as_deref()), |source, model| self.part.open(source, model))?;
        ready.trainer.check_data(ready.inputs.dataset.as_ref()).map_err(|error| self.hint(error))?;
        Ok(ready)
    }

    /// With rows that have no targets.
    fn prepare_input(&self, path: &Path) -> Result<ReadyModel> {
        self.prepare_with(Some(path), |source, model| {
            let trained = Some(model.schema()).filter(|schema| **schema != Schema::default());
            source.config.open_inputs(path, trained).map_err(|error| self.hint(error))
        })
    }

    /// `path` names data without settings, if there are any.
    fn prepare_with(
        &self,
        path: Option<&Path>,
        open: impl FnOnce(&DataSource, &Model) -> Result<Inputs>,
    ) -> Result<ReadyModel> {
        let model = load_model(&self.file)?;
        model.check_finite().map_err(|error| in_file(&self.file, error))?;
        let settings = SettingsFile::of_choice(&self.data)?;
        let evaluation = model.evaluation().filter(|_| self.data.config.is_none());
        let compile = evaluation.map_or_else(|| settings.compile(&model, 0), |it| Ok(Compile::for_evaluation(it)))?;
        let mut watched = compile.clone();
        let seen = SeenClasses::watch(&model, &mut watched);
        let source = self.source(&settings, &model, path)?;
        SettingsFile::check_pixels(&source.config, &model).map_err(|error| in_file(&self.file, error))?;
        let inputs = open(&source, &model)?;
        let chosen = adapters::choose(self.adapters.adapters.as_deref(), settings.training.adapters.as_deref())?;
        let trainer = Trainer::new(model, watched).map_err(|error| self.hint(error))?;
        let trainer = trainer.on(chosen).memory(self.memory.or(settings.training.memory.as_ref()));
        Ok(ReadyModel { trainer: trainer.workers(source.workers), inputs, compile, seen })
    }

    /// The settings' data, or those at a path, of the kind that the model file names.
    fn source(&self, settings: &SettingsFile, model: &Model, path: Option<&Path>) -> Result<DataSource> {
        let (schema, workers) = (model.schema(), settings.training.workers);
        let facts = schema.facts();
        match path {
            _ if self.data.config.is_some() => {
                Ok(DataSource { config: settings.data_of(model)?, is_one: false, workers })
            }
            Some(path) if matches!(facts.place, DataPlace::Pair | DataPlace::Single) => {
                let config = DataConfig::of_schema(schema, path)?;
                Ok(DataSource { config: self.data.rooted(config), is_one: facts.place == DataPlace::Single, workers })
            }
            None if matches!(facts.place, DataPlace::Pair | DataPlace::Single) => Err(Error::data(
                "the data",
                "are needed, but none are named",
                format!(
                    "name them after the model file, or settings by `--config`; the model was trained on {}",
                    facts.description
                ),
            )),
            _ => Ok(DataSource { config: settings.data.clone(), is_one: false, workers }),
        }
    }

    /// Explains an error without settings: a model of other data was given the digits.
    fn hint(&self, error: Error) -> Error {
        let is_of_data = matches!(error.kind(), ErrorKind::Data | ErrorKind::Setting);
        if is_of_data && self.data.config.is_none() && self.data.data.is_none() && !is_described(&self.file) {
            let help =
                "without `--config` the data are the digits: name the settings file that the model was trained with";
            return Error::data(error.who(), error.problem(), help);
        }
        error
    }
}

/// Whether a model file describes its data.
fn is_described(file: &Path) -> bool {
    Model::load(file).is_ok_and(|model| model.schema().facts().place != DataPlace::Unknown)
}

/// An error of a model, with its file.
fn in_file(file: &Path, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Model => Error::model(format!("`{}`", file.display()), error.problem(), error.help()),
        ErrorKind::NonFinite => {
            Error::non_finite(format!("`{}`, {},", file.display(), error.who()), error.problem(), error.help())
        }
        _ => error,
    }
}

/// Prints loss and metrics.
pub fn evaluate(args: &EvaluateArgs, terminal: &Terminal, group: &Group) -> Result<()> {
    let ReadyModel { trainer, inputs: Inputs { dataset, .. }, compile, seen } =
        args.trained.prepare(args.path.as_deref())?;
    let mut trainer = trainer.processes(group.clone());
    let rows = dataset.len();
    let values = without_counts(&trainer.evaluate(dataset.clone(), args.trained.batch_size)?);
    if let Some((name, value)) = values.iter().find(|(_, value)| !value.is_finite()) {
        let outputs = trainer.predict(dataset, args.trained.batch_size)?;
        check_outputs(trainer.model(), &outputs)?;
        return Err(Error::non_finite(
            format!("`{name}` of {rows} rows"),
            format!("needs to be a finite number, but is {value}"),
            "the outputs are so large that the loss overflows: check the data's range",
        ));
    }
    if !group.is_first() {
        return Ok(());
    }
    let baseline = Baseline::of(trainer.model(), &compile, &dataset, args.trained.batch_size);
    let never = never_predicted(trainer.model(), &compile, &seen);
    if args.json {
        let mut object: serde_json::Map<String, serde_json::Value> =
            values.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        if let Some(baseline) = &baseline {
            object.insert("baseline".into(), serde_json::json!(baseline.values));
        }
        if !never.is_empty() {
            let names = |(output, never): &(String, Vec<(String, f64)>)| {
                (output.clone(), never.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().into())
            };
            let by_output: serde_json::Map<String, serde_json::Value> = never.iter().map(names).collect();
            object.insert("never_predicted".into(), by_output.into());
        }
        terminal.verbatim(serde_json::Value::Object(object));
        return Ok(());
    }
    terminal.line(format_args!("{rows} rows: {values}"));
    if let Some(baseline) = baseline {
        terminal.line(format_args!("baseline: {baseline}"));
    }
    for (output, never) in &never {
        let of = if compile.losses.len() > 1 { format!("output `{output}`: ") } else { String::new() };
        terminal.line(format_args!("{of}never predicted: {}", listed(never)));
    }
    Ok(())
}

/// Writes a prediction for each row.
pub fn predict(args: &PredictArgs, terminal: &Terminal, group: &Group) -> Result<()> {
    let TrainedModelArgs { file, data, .. } = &args.trained;
    let input = args.path.as_deref().or(args.input.as_deref());
    if let Some(output) = args.output.as_deref() {
        let named = [input, Some(file), data.config.as_deref(), data.data.as_deref()];
        let data_files = SettingsFile::of_choice(data)?.data.files();
        let read = named.into_iter().flatten().chain(data_files.iter().map(PathBuf::as_path));
        files::check_apart(&[output], &read.collect::<Vec<_>>())?;
    }
    let ReadyModel { trainer, inputs, compile, .. } = match input {
        Some(path) => args.trained.prepare_input(path)?,
        None => args.trained.prepare(None)?,
    };
    // Opened now, so that an error comes before all is computed.
    let output = args.output.as_deref().filter(|_| group.is_first()).map(open_output).transpose()?;
    let Inputs { dataset, trained, names } = inputs;
    let mut trainer = trainer.processes(group.clone());
    let outputs = trainer.predict(dataset.clone(), args.trained.batch_size)?;
    if !group.is_first() {
        return Ok(());
    }
    let unreadable = dataset.unreadable().into_iter().map(|(row, _)| row).collect();
    let rows = RowLabels { count: dataset.len(), names, unreadable };
    check_outputs(trainer.model(), &outputs)?;
    // An old file has no names: those of the settings' data are used.
    let schema = Some(trainer.model().schema()).filter(|schema| !schema.targets.is_empty()).unwrap_or(&trained);
    let named = trainer.model().outputs();
    let is_single = named.len() == 1;
    let columns = named
        .iter()
        .zip(&compile.losses)
        .zip(outputs.iter().map(|it| it.as_slice().unwrap_or_default()))
        .enumerate()
        .map(|(at, (((name, shape), loss), values))| {
            let head = head_of(loss, shape);
            Columns {
                prefix: if is_single { String::new() } else { format!("{name}_") },
                head,
                names: Names::of(head, shape.len(), schema.targets.get(at)),
                width: shape.len(),
                is_raw: args.logits,
                values,
            }
        });
    let columns: Vec<Columns<'_>> = columns.collect();
    warn_of_formulas(&rows, &columns);
    match output {
        Some((path, mut output)) => {
            write_csv(&mut output, &rows, &columns).map_err(|error| Error::writing(path, error))?;
            output.commit()
        }
        None if io::stdout().is_terminal() => {
            let mut table = Vec::new();
            write_csv(&mut table, &rows, &columns).map_err(|error| Error::writing("stdout", error))?;
            terminal.verbatim(safe(String::from_utf8_lossy(&table).trim_end()));
            Ok(())
        }
        None => match write_csv(io::stdout().lock(), &rows, &columns) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::writing("stdout", error)),
            _ => Ok(()),
        },
    }?;
    rows.check_readable()
}

/// Refuses outputs that are not finite: they give no class and no value.
fn check_outputs(model: &Model, outputs: &[ArrayD<f32>]) -> Result<()> {
    for ((name, _), values) in model.outputs().into_iter().zip(outputs) {
        if let Some((at, value)) = values.indexed_iter().find(|(_, value)| !value.is_finite()) {
            let row = at[0];
            return Err(Error::non_finite(
                format!("output `{name}` of row {row}"),
                format!("needs finite numbers, but holds {value}"),
                "check the row's values: they may be far outside the range of the training data",
            ));
        }
    }
    Ok(())
}

/// Opens a file for writing without changing its contents.
fn open_output(path: &Path) -> Result<(&Path, Output)> {
    check_file(path)?;
    make_folder_of(path)?;
    Ok((path, Output::create(path, FileKind::Predictions)?))
}

fn write_csv(out: impl Write, rows: &RowLabels, columns: &[Columns<'_>]) -> io::Result<()> {
    // Not `From`, which hides the kind: a broken pipe must be recognised.
    let io_error = |error: csv::Error| match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    };
    let mut out = csv::Writer::from_writer(out);
    let header = rows.header().into_iter().chain(columns.iter().flat_map(Columns::header));
    out.write_record(header.map(as_text)).map_err(io_error)?;
    for row in 0..rows.count {
        let is_readable = !rows.unreadable.contains(&row);
        let fields = columns.iter().flat_map(|columns| columns.fields(row));
        let fields = fields.map(|field| if is_readable { field } else { String::new() });
        out.write_record(rows.fields(row).into_iter().chain(fields).map(as_text)).map_err(io_error)?;
    }
    out.flush()
}

/// The shortest digits that read back as the same number, with an exponent where Python writes one.
fn as_number(value: &f32) -> String {
    let is_short = *value == 0.0 || (1e-4..1e16).contains(&value.abs());
    if is_short { value.to_string() } else { format!("{value:e}") }
}

/// Signs that make a spreadsheet compute a field, wide ones in Japanese and Chinese settings, too.
/// Source: OWASP, "CSV Injection".
const FORMULA: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

/// Whether a spreadsheet would compute a field in place of showing it. Numbers, and signs alone, are shown.
fn is_formula(field: &str) -> bool {
    let rest = field.trim_start_matches(FORMULA);
    let is_number = || rest.chars().all(|letter| letter.is_ascii_digit() || ".,".contains(letter));
    field.starts_with(FORMULA)
        && field.chars().nth(1).is_some()
        && field.parse::<f64>().is_err()
        && !(field.starts_with(['+', '-']) && field.len() == rest.len() + 1 && is_number())
}

/// A field that a spreadsheet shows as text: the quote in front is its sign for that.
fn as_text(field: String) -> String {
    if is_formula(&field) { format!("'{field}") } else { field }
}

/// Warns of names that are written with a quote in front: they are not what other programs look for.
fn warn_of_formulas(rows: &RowLabels, columns: &[Columns<'_>]) {
    let files = rows.names.iter().flatten();
    let classes = columns.iter().filter(|columns| columns.has_class()).flat_map(|columns| &columns.names.classes);
    let names: Vec<&String> = files.chain(classes).filter(|name| is_formula(name)).collect();
    if !names.is_empty() {
        log::warn!("a `'` is written before names that a spreadsheet would compute: {}", few(&names));
    }
}

/// Labels of the rows of a table.
struct RowLabels {
    count: usize,
    /// Names of the files, one a row.
    names: Option<Vec<String>>,
    /// Rows whose file is unreadable: their predictions are meaningless.
    unreadable: BTreeSet<usize>,
}

impl RowLabels {
    /// An error if there are rows without a prediction; each was named in a warning.
    fn check_readable(&self) -> Result<()> {
        match self.unreadable.len() {
            0 => Ok(()),
            count => Err(Error::data(
                format!("{count} of {} rows", self.count),
                "need a file that can be read: they have empty fields, all others are predicted",
                "see the warnings for the files; mend them, or take them out",
            )),
        }
    }

    fn header(&self) -> Vec<String> {
        let file = self.names.as_ref().map(|_| "file");
        std::iter::once("row").chain(file).map(String::from).collect()
    }

    fn fields(&self, row: usize) -> Vec<String> {
        let file = self.names.as_ref().map(|names| names[row].clone());
        std::iter::once(row.to_string()).chain(file).collect()
    }
}

/// Columns of an output. With classes at many positions, a row has no single class: the numbers are printed unchanged.
fn head_of(loss: &Loss, shape: &Shape) -> Head {
    match loss.head() {
        Head::Softmax if shape.positions() > 1 => Head::Values,
        head => head,
    }
}

/// The columns of one output.
struct Columns<'a> {
    prefix: String,
    head: Head,
    names: Names,
    width: usize,
    is_raw: bool,
    values: &'a [f32],
}

impl Columns<'_> {
    fn header(&self) -> Vec<String> {
        let Self { prefix, .. } = self;
        let what = match (self.head, self.is_raw) {
            (Head::Values, _) => "value",
            (_, true) => "logit",
            (_, false) => "probability",
        };
        let class = self.has_class().then(|| format!("{prefix}class"));
        let columns = self.names.columns.iter().map(|name| format!("{prefix}{what}_{name}"));
        class.into_iter().chain(columns).collect()
    }

    fn has_class(&self) -> bool {
        self.head == Head::Softmax || (self.head == Head::Sigmoid && self.width == 1)
    }

    fn fields(&self, row: usize) -> Vec<String> {
        let values = &self.values[row * self.width..(row + 1) * self.width];
        let class = match self.head {
            Head::Softmax => Some(self.names.classes[largest(values)].clone()),
            Head::Sigmoid if self.width == 1 => Some(self.names.classes[usize::from(values[0] > 0.0)].clone()),
            _ => None,
        };
        let shown = match self.head {
            _ if self.is_raw => values.to_vec(),
            Head::Softmax => softmax(values),
            Head::Sigmoid => values.iter().map(|value| 1.0 / (1.0 + (-value).exp())).collect(),
            Head::Values => values.to_vec(),
        };
        class.into_iter().chain(shown.iter().map(as_number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_numbers_have_exponents() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.25, "-0.25"),
            (1e-4, "0.0001"),
            (6.371_483_6e-12, "6.3714836e-12"),
            (-2e20, "-2e20"),
            (f32::MIN_POSITIVE, "1.1754944e-38"),
        ] {
            let shown = as_number(&value);
            assert_eq!(shown, expected);
            assert_eq!(shown.parse::<f32>().unwrap().to_bits(), value.to_bits());
        }
    }

    #[test]
    fn formulas_are_written_as_text() {
        for (field, is_text) in [
            ("=cmd|' /C calc'!A0", true),
            ("+1+cmd|' /C calc'!A0", true),
            ("-2+3", true),
            ("@SUM(1+1)", true),
            ("\t=1", true),
            ("＝1+1", true),
            ("-ve", true),
            ("-", false),
            ("+", false),
            ("-1", false),
            ("-1.5e-7", false),
            ("+1,5", false),
            ("a=b", false),
            ("<=50K", false),
            ("", false),
        ] {
            assert_eq!(as_text(field.into()) != field, is_text, "{field}");
        }
    }

    #[test]
    fn columns_follow_the_loss() {
        let of = |loss, values: &'static [f32], width| Columns {
            prefix: String::new(),
            head: head_of(&loss, &Shape::new([width])),
            names: Names::of(head_of(&loss, &Shape::new([width])), width, None),
            width,
            is_raw: false,
            values,
        };
        let classes = of(Loss::SPARSE_CATEGORICAL_CROSSENTROPY, &[0.0, 0.0, 1.0, 1.0], 2);
        assert_eq!(classes.header(), ["class", "probability_0", "probability_1"]);
        assert_eq!(classes.fields(1), ["0", "0.5", "0.5"]);
        let binary = of(Loss::BINARY_CROSSENTROPY, &[0.0, 100.0], 1);
        assert_eq!(
            (binary.fields(0), binary.fields(1)),
            (vec!["0".into(), "0.5".into()], vec!["1".into(), "1".into()])
        );
        let values = of(Loss::MEAN_SQUARED_ERROR, &[1.5, 2.5], 2);
        assert_eq!(
            (values.header(), values.fields(0)),
            (vec!["value_0".into(), "value_1".into()], vec!["1.5".to_string(), "2.5".into()])
        );
    }
}
