//! `manyhands evaluate` and `manyhands predict`.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use manyhands::data::{DataConfig, DataPair, Inputs};
use manyhands::losses::Head;
use manyhands::{Error, Loss, Model, Result, Shape, Trainer};

use super::settings::Settings;
use super::terminal::{Terminal, check_distinct, check_file, make_folder_of};
use super::{AdapterChoice, DataChoice, adapters, at_least_one};

/// Rows at once: inference gives the same for any number.
const BATCH_SIZE: &str = "256";

#[derive(Args)]
pub struct EvaluateArgs {
    #[command(flatten)]
    trained: Trained,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct PredictArgs {
    #[command(flatten)]
    trained: Trained,
    /// Predict from data without targets, in place of the settings' data: a table, an image, a folder of images or an
    /// IDX file.
    ///
    /// What it must be follows from the settings' data. `csv`: a table in which the inputs are found by the names of their
    /// columns, or, without a header, by their place. `image_folder`: an image, or a folder of images at any depth; the
    /// output names the file of each. `idx`, `idx_files`: a file of images.
    #[arg(long, value_name = "PATH", conflicts_with = "part")]
    input: Option<PathBuf>,
    /// File to write to, in place of stdout.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the model's outputs as they are, in place of probabilities.
    #[arg(long)]
    logits: bool,
}

/// A trained model, and what to run it on.
#[derive(Args)]
struct Trained {
    /// Model file or checkpoint.
    file: PathBuf,
    #[command(flatten)]
    data: DataChoice,
    /// Which part of the data.
    #[arg(long, value_enum, default_value_t = Part::Test)]
    part: Part,
    #[command(flatten)]
    adapters: AdapterChoice,
    /// Rows at once, over all adapters.
    #[arg(long, value_parser = at_least_one, default_value = BATCH_SIZE)]
    batch_size: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    Test,
    Train,
}

/// A model ready to run, and its rows: with targets, if they are a part of the settings' data.
struct Ready {
    trainer: Trainer,
    inputs: Inputs,
    losses: Vec<Loss>,
}

impl Part {
    fn open(self, data: &DataConfig) -> Result<Inputs> {
        let DataPair { train, test } = data.open()?;
        let trained = train.schema();
        let dataset = match self {
            Self::Train => train,
            Self::Test => test.ok_or_else(|| {
                Error::data(
                    "the test data",
                    "are needed, but the settings name none",
                    "name them in `[data]`, or use `--part train`",
                )
            })?,
        };
        Ok(Inputs { dataset, trained, names: None })
    }
}

impl Trained {
    /// With the rows of a part of the data, whose targets are checked, too.
    fn prepare(&self) -> Result<Ready> {
        let ready = self.prepare_with(|data| self.part.open(data))?;
        ready.trainer.check_data(ready.inputs.dataset.as_ref()).map_err(|error| self.hint(error))?;
        Ok(ready)
    }

    /// With rows that have no targets.
    fn prepare_input(&self, path: &Path) -> Result<Ready> {
        self.prepare_with(|data| data.open_inputs(path, None).map_err(|error| self.hint(error)))
    }

    fn prepare_with(&self, open: impl FnOnce(&DataConfig) -> Result<Inputs>) -> Result<Ready> {
        let model = Model::load(&self.file)?;
        let settings = Settings::of_choice(&self.data)?;
        let compile = settings.compile(&model, 0)?;
        let losses = compile.losses.clone();
        let inputs = open(&settings.data)?;
        let chosen = adapters::choose(self.adapters.adapters.as_deref(), settings.training.adapters.as_deref())?;
        let trainer = Trainer::new(model, compile).map_err(|error| self.hint(error))?.on(chosen);
        Ok(Ready { trainer, inputs, losses })
    }

    /// Where no settings are named, a model of something else than digits meets digits.
    fn hint(&self, error: Error) -> Error {
        match error {
            Error::Data { who, problem, .. } | Error::Setting { who, problem, .. } if self.data.config.is_none() => Error::Data {
                who,
                problem,
                help: "without `--config` the data are the digits: name the settings file that the model was trained with".into(),
            },
            error => error,
        }
    }
}

/// Prints loss and metrics.
pub fn evaluate(args: &EvaluateArgs, terminal: &Terminal) -> Result<()> {
    let Ready { mut trainer, inputs: Inputs { dataset, .. }, .. } = args.trained.prepare()?;
    let rows = dataset.len();
    let values = trainer.evaluate(dataset, args.trained.batch_size)?;
    if args.json {
        let object: serde_json::Map<String, serde_json::Value> =
            values.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        terminal.line(serde_json::Value::Object(object));
        return Ok(());
    }
    terminal.line(format_args!("{rows} rows: {values}"));
    Ok(())
}

/// Writes what the model says of each row.
pub fn predict(args: &PredictArgs) -> Result<()> {
    let Trained { file, data, .. } = &args.trained;
    if let Some(output) = args.output.as_deref() {
        for read in [args.input.as_deref(), Some(file), data.config.as_deref()].into_iter().flatten() {
            check_distinct([read, output].into_iter())?;
        }
    }
    let Ready { mut trainer, inputs, losses } = match &args.input {
        Some(path) => args.trained.prepare_input(path)?,
        None => args.trained.prepare()?,
    };
    // Opened now: that it can't be is found out before all is computed.
    let output = args.output.as_deref().map(open_output).transpose()?;
    let Inputs { dataset, trained, names } = inputs;
    let classes = Some(trained.classes(0).to_vec());
    let rows = Rows { count: dataset.len(), names };
    let outputs = trainer.predict(dataset, args.trained.batch_size)?;
    let named = trainer.model().outputs();
    let is_single = named.len() == 1;
    let columns = named.iter().zip(&losses).zip(&outputs).map(|(((name, shape), loss), values)| Columns {
        prefix: if is_single { String::new() } else { format!("{name}_") },
        head: head_of(loss, shape),
        // The names belong to the one target that the data have.
        classes: classes.as_ref().filter(|classes| is_single && classes.len() == shape.len()),
        width: shape.len(),
        is_raw: args.logits,
        values,
    });
    let columns: Vec<Columns<'_>> = columns.collect();
    match output {
        Some((path, file)) => write_file(&file, &rows, &columns).map_err(|error| Error::writing(path, error)),
        None => match write_csv(io::stdout().lock(), &rows, &columns) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::writing("stdout", error)),
            _ => Ok(()),
        },
    }
}

/// Opens a file to write without touching what it holds.
fn open_output(path: &Path) -> Result<(&Path, File)> {
    check_file(path)?;
    make_folder_of(path)?;
    let opened = File::options().write(true).create(true).truncate(false).open(path);
    Ok((path, opened.map_err(|error| Error::writing(path, error))?))
}

fn write_file(file: &File, rows: &Rows, columns: &[Columns<'_>]) -> io::Result<()> {
    // A pipe has no length.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    write_csv(BufWriter::new(file), rows, columns)
}

fn write_csv(out: impl Write, rows: &Rows, columns: &[Columns<'_>]) -> io::Result<()> {
    // Not `From`, which hides the kind: a broken pipe has to be known.
    let io_error = |error: csv::Error| match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    };
    let mut out = csv::Writer::from_writer(out);
    let header = rows.header().into_iter().chain(columns.iter().flat_map(Columns::header));
    out.write_record(header).map_err(io_error)?;
    for row in 0..rows.count {
        let fields = columns.iter().flat_map(|columns| columns.fields(row));
        out.write_record(rows.fields(row).into_iter().chain(fields)).map_err(io_error)?;
    }
    out.flush()
}

/// What says which row a line is of.
struct Rows {
    count: usize,
    /// The file of each.
    names: Option<Vec<String>>,
}

impl Rows {
    fn header(&self) -> Vec<String> {
        let file = self.names.as_ref().map(|_| "file");
        std::iter::once("row").chain(file).map(String::from).collect()
    }

    fn fields(&self, row: usize) -> Vec<String> {
        let file = self.names.as_ref().map(|names| names[row].clone());
        std::iter::once(row.to_string()).chain(file).collect()
    }
}

/// How an output is shown. Of classes at many positions, no row has one class: the numbers are shown as they are.
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
    classes: Option<&'a Vec<String>>,
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
        let columns = (0..self.width).map(|column| format!("{prefix}{what}_{}", self.name(column)));
        class.into_iter().chain(columns).collect()
    }

    fn has_class(&self) -> bool {
        self.head == Head::Softmax || (self.head == Head::Sigmoid && self.width == 1)
    }

    fn name(&self, class: usize) -> String {
        self.classes.map_or_else(|| class.to_string(), |names| names[class].clone())
    }

    fn fields(&self, row: usize) -> Vec<String> {
        let values = &self.values[row * self.width..(row + 1) * self.width];
        let class = match self.head {
            Head::Softmax => Some(self.name(largest(values))),
            Head::Sigmoid if self.width == 1 => Some(u8::from(values[0] > 0.0).to_string()),
            _ => None,
        };
        let shown = match self.head {
            _ if self.is_raw => values.to_vec(),
            Head::Softmax => softmax(values),
            Head::Sigmoid => values.iter().map(|value| 1.0 / (1.0 + (-value).exp())).collect(),
            Head::Values => values.to_vec(),
        };
        class.into_iter().chain(shown.iter().map(f32::to_string)).collect()
    }
}

/// The first of the largest values.
fn largest(values: &[f32]) -> usize {
    (0..values.len()).rev().max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap_or(0)
}

fn softmax(values: &[f32]) -> Vec<f32> {
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = values.iter().map(|value| (value - largest).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_follow_the_loss() {
        let of = |loss, values: &'static [f32], width| Columns {
            prefix: String::new(),
            head: head_of(&loss, &Shape::new([width])),
            classes: None,
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
