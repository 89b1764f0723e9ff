//! Settings for a table.

use std::path::Path;
use std::sync::Arc;

use manyhands::data::csv::sketch::{ColumnSketch, NoInput, Sketch, sketch};
use manyhands::data::{Aside, Batch, Column, ColumnKind, Dataset, Description};
use manyhands::schema::few;
use manyhands::{Error, Result};
use manyhands_engine::table::Table;
use manyhands_engine::{
    names,
    shown::{shown, thousands},
};

use super::{
    InitArgs, Proposal, TrainingLength, class_weights, commented, data_of, n_classes, quoted, quoted_path, texts,
};

/// Names of columns that are mostly to be predicted.
const TARGETS: [&str; 9] = ["target", "label", "labels", "outcome", "diagnosis", "species", "survived", "class", "y"];
/// Different whole numbers up to which a target counts as classes.
const MOST_CLASSES: usize = 20;
/// Rows for each class, at least, of a target of whole numbers.
const ROWS_OF_CLASS: usize = 5;
/// Columns that are listed one by one, at most.
const MOST_LISTED: usize = 60;
/// Skewness of a target above 0 from which on its highest values would lead squared errors. Source: Bulmer 1979, "Principles of
/// statistics": above 1 a distribution is highly skewed.
const SKEWED: f64 = 1.0;
/// Standard deviation of a target below which its gradients are small beside Adam's epsilon.
const SMALL: f64 = 0.1;

pub(super) fn propose(args: &InitArgs) -> Result<Proposal> {
    let path = &args.data;
    let sketch = sketch(path)?;
    if sketch.rows == 0 {
        let problem = "needs at least one row below the names of its columns, but has none";
        return Err(Error::data(format!("`{}`", shown(path)), problem, "check that it is the right file"));
    }
    let target = target(path, &sketch, args.target.as_deref())?;
    let is_class = match args.target_kind.as_deref() {
        Some(kind) => kind == "classes",
        None => is_class(target, sketch.rows),
    };
    check_target(path, target, is_class)?;
    let inputs = ColumnsToSet::of(path, &sketch, target, args)?;
    let learning_rate = if inputs.text.is_some() { "0.005" } else { "0.001" };
    let schedule = TrainingLength { rows: sketch.rows, epochs: 200, patience: 20, learning_rate, has_cosine: false };
    let data = data_text(path, target, is_class, (&sketch, &inputs))?;
    let aside = schedule
        .validation()
        .and_then(|fraction| Some(Aside { fraction: Some(fraction.parse().ok()?), ..Aside::default() }));
    let train = data_of(&data)?.open_aside(aside)?.train;
    let description = Description::of("data", &train)?;
    let passed_over = if args.target.is_none() { passed_over(&sketch, target) } else { String::new() };
    let seen = format!(
        "{}\n{description}\n{passed_over}{}{}",
        columns(&sketch, target, &inputs),
        says(target, is_class),
        unread_text(&sketch, target, &inputs) + &other_model(path, is_class, &inputs)
    );
    let (layers, loss, metrics, epsilon) = if is_class {
        let classes = description.targets.iter().flat_map(|(_, counts)| counts).map(|class| class.name.clone());
        let names = few(&classes.collect::<Vec<_>>());
        let last = commented(&format!("  {{ type = \"Dense\", units = {} }},", n_classes(&description)), &names);
        let more = class_weights(&description);
        (last, "type = \"SparseCategoricalCrossentropy\"\n".to_owned(), more, None)
    } else {
        let Spread { mean, deviation, is_skewed } = Spread::of(&train, aside)?;
        let last = format!(
            "  {{ type = \"Dense\", units = 1 }},\n  # From around 0 to the target's own numbers: their standard deviation and mean.\n  \
             {{ type = \"Rescaling\", scale = {deviation:?}, offset = {mean:?} }},\n"
        );
        let metrics = "metrics = [\"mean_absolute_error\", \"r2_score\"]\n".to_owned();
        let epsilon = (deviation < SMALL).then_some(1e-7 * deviation * deviation);
        let loss = if is_skewed { calm_loss(deviation) } else { "type = \"MeanSquaredError\"\n".into() };
        (last, loss, metrics, epsilon)
    };
    let first = match inputs.text {
        Some(text) => texts::layers(&train, text),
        None => first_layers(&train, sketch.rows),
    };
    let settings = format!("{data}\n[model]\n{first}{layers}]\n\n[loss]\n{loss}\n{}", schedule.text(epsilon, &metrics));
    Ok(Proposal { seen, settings })
}

/// The model up to its last layer.
fn first_layers(train: &dyn Dataset, rows: usize) -> String {
    let width = train.input_shapes().first().map_or(0, manyhands::Shape::len);
    let hidden = hidden(rows);
    format!(
        "# Its input is a row of the data: {width} numbers. `input = [{width}]` would fix that.\nlayers = [\n{hidden}"
    )
}

/// The column to predict.
pub(super) fn target<'a>(path: &Path, sketch: &'a Sketch, asked: Option<&str>) -> Result<&'a ColumnSketch> {
    if let Some(name) = asked {
        return named(path, sketch, "--target", name);
    }
    let known = TARGETS.iter().find_map(|name| {
        let is_known = |it: &&ColumnSketch| it.column.name.as_ref().is_some_and(|it| it.eq_ignore_ascii_case(name));
        sketch.columns.iter().filter(can_be).find(is_known)
    });
    known.or_else(|| sketch.columns.iter().rev().find(can_be)).ok_or_else(|| {
        Error::data(
            format!("`{}`", shown(path)),
            "needs a column of classes or numbers to predict, but has none",
            "name one by `--target`; `--target-kind classes` takes any column's values as classes",
        )
    })
}

/// The column that an option names.
pub(super) fn named<'a>(path: &Path, sketch: &'a Sketch, option: &str, name: &str) -> Result<&'a ColumnSketch> {
    let is = |column: &&ColumnSketch| match column.key() {
        Column::Name(known) => known == name,
        Column::Index(index) => index.to_string() == name,
    };
    let by_index = || name.parse().ok().and_then(|index: usize| sketch.columns.get(index));
    sketch.columns.iter().find(is).or_else(by_index).ok_or_else(|| {
        let columns: Vec<String> = sketch.columns.iter().map(|column| column.column.to_string()).collect();
        let known: Vec<&str> = columns.iter().map(String::as_str).collect();
        Error::setting(
            format!("`{}`, `{option}`", shown(path)),
            format!("needs a column of the table, but is `{}`", shown(name)),
            format!("{}its columns are {}", names::meant(name, &known), few(&known)),
        )
    })
}

/// Columns whose use needs a setting.
struct ColumnsToSet<'a> {
    /// Columns for `ignore`.
    ignored: Vec<&'a ColumnSketch>,
    /// Columns for `kinds`: inputs that seem to be none.
    kept: Vec<&'a ColumnSketch>,
    /// The column of texts that is the only input, where nothing else can be one.
    text: Option<&'a ColumnSketch>,
}

impl<'a> ColumnsToSet<'a> {
    fn of(path: &Path, sketch: &'a Sketch, target: &ColumnSketch, args: &InitArgs) -> Result<Self> {
        let all = |option: &str, names: &[String]| -> Result<Vec<&'a ColumnSketch>> {
            names.iter().map(|name| named(path, sketch, option, name)).collect()
        };
        let (ignored, kept) = (all("--ignore", &args.ignore)?, all("--keep", &args.keep)?);
        let has = |columns: &[&ColumnSketch], column: &ColumnSketch| {
            columns.iter().any(|other| other.column.index == column.column.index)
        };
        if let Some(column) = ignored.iter().find(|column| has(&kept, column) || has(&[target], column)) {
            return Err(Error::setting(
                format!("`{}`, `--ignore`", shown(path)),
                format!("names `{}`, which is the target or to be kept", shown(&column.column.to_string())),
                "name each column once",
            ));
        }
        let unclear = |column: &&&ColumnSketch| column.no_input == Some(NoInput::UnclearDate);
        if let Some(column) = kept.iter().find(unclear) {
            return Err(Error::setting(
                format!("`{}`, `--keep`", shown(path)),
                format!("names `{}`, whose days and months can be confused", shown(&column.column.to_string())),
                "say its form in the new file: `kinds = { day = \"%d/%m/%Y\" }`",
            ));
        }
        let is_other = |column: &&ColumnSketch| {
            !has(&[target], column) && !has(&ignored, column) && !has(&kept, column) && column.no_input.is_none()
        };
        let (suspects, others): (Vec<_>, Vec<_>) =
            sketch.columns.iter().filter(is_other).partition(|column| column.suspect.is_some());
        let has_others = !others.is_empty() || !kept.is_empty();
        let text = if has_others { None } else { texts::column(sketch, target, &ignored) };
        // A table of one column and its target has nothing else to learn from.
        let suspects = if has_others || text.is_some() { suspects } else { Vec::new() };
        Ok(Self { ignored: ignored.into_iter().chain(suspects).collect(), kept, text })
    }

    fn uses(&self, column: &ColumnSketch) -> bool {
        let is = |other: &&ColumnSketch| other.column.index == column.column.index;
        self.kept.iter().chain(&self.text).any(is) || (column.no_input.is_none() && !self.ignored.iter().any(is))
    }
}

/// Whether a column is a target by itself.
fn can_be(column: &&ColumnSketch) -> bool {
    column.no_input.is_none() && column.suspect.is_none() && !matches!(column.kind, ColumnKind::Date(_))
}

/// The reason why the last column is not the target, where that can surprise.
fn passed_over(sketch: &Sketch, target: &ColumnSketch) -> String {
    let is_named = |column: &ColumnSketch| {
        column.column.name.as_ref().is_some_and(|name| TARGETS.iter().any(|known| name.eq_ignore_ascii_case(known)))
    };
    match sketch.columns.last() {
        Some(last) if !can_be(&last) && !is_named(target) => {
            let name = last.column.to_string();
            format!("`{}`, the last column, is not the target: it holds {}\n", shown(&name), last.what())
        }
        _ => String::new(),
    }
}

/// Whether a target's values are classes.
fn is_class(target: &ColumnSketch, rows: usize) -> bool {
    match target.kind {
        ColumnKind::Number => {
            let few = target.n_values.filter(|values| *values <= MOST_CLASSES && values * ROWS_OF_CLASS <= rows);
            target.is_whole && few.is_some()
        }
        _ => true,
    }
}

pub(super) fn check_target(path: &Path, target: &ColumnSketch, is_class: bool) -> Result<()> {
    let who = format!("`{}`, the target `{}`", shown(path), shown(&target.column.to_string()));
    if !is_class && target.kind != ColumnKind::Number && !target.is_code {
        let problem = format!("needs numbers to predict, but holds: {}", target.what());
        return Err(Error::data(
            who,
            problem,
            "predict it as `--target-kind classes`, or name another column by `--target`",
        ));
    }
    if is_class && (target.n_values.is_none() || target.n_values < Some(2)) {
        let values = target.n_values.map_or("more than can be counted".into(), |values| values.to_string());
        let problem = format!("needs at least 2 classes, of several rows each, but has {values} values");
        return Err(Error::data(who, problem, "name another column by `--target`, or try `--target-kind values`"));
    }
    Ok(())
}

/// The columns, as a table.
fn columns(sketch: &Sketch, target: &ColumnSketch, inputs: &ColumnsToSet<'_>) -> String {
    let mut table = Table::new(["column", "holds", "values", "missing", "use"]).numbers([3]);
    let mut others = 0;
    for column in &sketch.columns {
        if column.column.index >= MOST_LISTED && column.column.index != target.column.index {
            others += 1;
            continue;
        }
        let values = match (&column.kind, column.n_values) {
            (ColumnKind::Number, _) if column.n_values != Some(0) => format!("{} to {}", column.lowest, column.highest),
            (_, Some(values)) => format!("{} different", thousands(values)),
            (_, None) => "many".into(),
        };
        let used = match inputs.uses(column) {
            _ if column.column.index == target.column.index => "target",
            false => "left out",
            true => "input",
        };
        let missing = if column.missing == 0 { String::new() } else { thousands(column.missing) };
        table.row([column.column.to_string(), column.what().to_owned(), values, missing, used.to_owned()]);
    }
    let others = if others > 0 { format!("… and {} others\n", thousands(others)) } else { String::new() };
    let sign = match sketch.delimiter {
        ',' => "commas".to_owned(),
        ';' => "semicolons".into(),
        '\t' => "tabs".into(),
        other => format!("`{other}`"),
    };
    let decimal = if sketch.decimal == ',' { ", decimal commas" } else { "" };
    format!("{table}\n{others}fields separated by {sign}{decimal}")
}

fn says(target: &ColumnSketch, is_class: bool) -> String {
    let what = if is_class { "the class" } else { "the number" };
    format!("the model predicts {what} in `{}`; `--target` names another column", shown(&target.column.to_string()))
}

/// A way to learn from free text that is left out beside other columns.
fn unread_text(sketch: &Sketch, target: &ColumnSketch, inputs: &ColumnsToSet<'_>) -> String {
    match texts::column(sketch, target, &inputs.ignored) {
        Some(text) if inputs.text.is_none() => {
            let name = text.column.to_string();
            format!("\n`{}` holds free text: `--ignore` all other columns to learn from it", shown(&name))
        }
        _ => String::new(),
    }
}

/// A model that knows the words of texts before it sees these.
fn other_model(path: &Path, is_class: bool, inputs: &ColumnsToSet<'_>) -> String {
    if !is_class || inputs.text.is_none() {
        return String::new();
    }
    let path = shown(path);
    format!(
        "\na model that others have taught the language often needs fewer texts: `manyhands finetune MiniLM/ {path}` (docs/guide/texts.md)"
    )
}

/// A column as a value in a settings file.
pub(super) fn key(column: &ColumnSketch) -> String {
    match column.key() {
        Column::Name(name) => quoted(&name),
        Column::Index(index) => index.to_string(),
    }
}

fn data_text(
    path: &Path,
    target: &ColumnSketch,
    is_class: bool,
    (sketch, inputs): (&Sketch, &ColumnsToSet<'_>),
) -> Result<String> {
    let key = key(target);
    let (kind, other) = if is_class { ("classes", "\"values\": numbers") } else { ("values", "\"classes\": classes") };
    let mut text = format!("[data]\ntype = \"csv\"\ntrain = {}\n", quoted_path(path)?);
    text += &commented(&format!("target = {key}"), "the column to predict");
    text += &commented(&format!("target_kind = \"{kind}\""), &format!("{other} to predict"));
    if !sketch.classes.is_empty() {
        text += &format!("# The first line names the classes: {}.\n", few(&sketch.classes));
    }
    let is_left_out = |column: &&ColumnSketch| {
        column.no_input.is_some() && column.column.index != target.column.index && !inputs.uses(column)
    };
    let left_out: Vec<String> = sketch.columns.iter().filter(is_left_out).map(|it| it.column.to_string()).collect();
    if !left_out.is_empty() {
        text += &format!("# Left out by itself: {}.\n", few(&left_out));
    }
    if let Some(column) = inputs.text {
        return texts::data_text(&text, column, &self::key(column));
    }
    let first = sketch.columns.iter().find(|column| column.column.index != target.column.index);
    let first = first.filter(|first| first.no_input.is_none()).unwrap_or(target);
    let ignored: Vec<String> = inputs.ignored.iter().map(|column| self::key(column)).collect();
    text += &match &ignored[..] {
        [] => commented(&format!("# ignore = [{}]", self::key(first)), "columns that are no input"),
        ignored => {
            let suspects = inputs.ignored.iter().filter(|column| column.suspect.is_some());
            let names: Vec<String> = suspects.map(|it| format!("{} ({})", it.column, it.what())).collect();
            let why =
                if names.is_empty() { String::new() } else { format!(", such as what names rows: {}", few(&names)) };
            commented(&format!("ignore = [{}]", ignored.join(", ")), &format!("columns that are no input{why}"))
        }
    };
    let kind = |column: &ColumnSketch, kind: &str| {
        let name = column.column.name.clone().unwrap_or_else(|| column.column.index.to_string());
        format!("{} = {}", quoted(&name), quoted(kind))
    };
    let kept: Vec<String> = inputs.kept.iter().map(|it| kind(it, &String::from(it.kind.clone()))).collect();
    let kinds = if kept.is_empty() {
        format!("# kinds = {{ {} }}", kind(first, "category"))
    } else {
        format!("kinds = {{ {} }}", kept.join(", "))
    };
    text += &commented(&kinds, "or \"number\", \"boolean\", \"date\", \"%d/%m/%Y\"");
    text += &commented("# numbers = \"standardize\"", "or \"min_max\", \"unchanged\"");
    let missing = sketch.columns.iter().any(|column| column.missing > 0);
    let fill =
        if missing { "fills gaps by mean or most frequent value; \"error\" refuses them" } else { "or \"error\"" };
    text += &commented("# missing = \"fill\"", fill);
    Ok(text)
}

/// Hidden layers: more for more rows.
pub(super) fn hidden(rows: usize) -> String {
    let (first, second, rate) = match rows {
        0..2_000 => (64, 32, "0.1"),
        2_000..50_000 => (128, 64, "0.1"),
        _ => (256, 128, "0.1"),
    };
    format!(
        "  {{ type = \"Dense\", units = {first}, activation = \"relu\" }},\n  {{ type = \"Dropout\", rate = {rate} }},\n  \
         {{ type = \"Dense\", units = {second}, activation = \"relu\" }},\n"
    )
}

/// The loss for a target of which few values are far above most, as prices and incomes are.
fn calm_loss(deviation: f64) -> String {
    let delta = deviation / 2.0;
    format!(
        "# The target is above 0, and few values are far above most, as with prices. Errors above `delta`, half of its standard\n# \
         deviation, count in proportion: their squares, in `MeanSquaredError`, would follow the few.\ntype = \"Huber\"\ndelta = {delta:?}\n"
    )
}

/// The target in the rows to train on.
struct Spread {
    mean: f32,
    /// Standard deviation.
    deviation: f64,
    /// Whether all values are above 0, and few far above most.
    is_skewed: bool,
}

impl Spread {
    #[allow(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^52")]
    fn of(train: &Arc<dyn Dataset>, aside: Option<Aside>) -> Result<Self> {
        let rows: Arc<dyn Dataset> = match aside {
            Some(Aside { fraction: Some(fraction), seed, .. }) => {
                Arc::new(manyhands::data::split(train.clone(), fraction, seed)?.0)
            }
            _ => train.clone(),
        };
        let all: Vec<usize> = (0..rows.len()).collect();
        let values: Vec<f64> = Batch::fetch(&rows, &all)?.targets[0].iter().copied().map(f64::from).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let moment = |power| values.iter().map(|value| (value - mean).powi(power)).sum::<f64>() / values.len() as f64;
        let is_skewed = values.iter().all(|value| *value > 0.0) && moment(3) > SKEWED * moment(2).powf(1.5);
        #[allow(clippy::cast_possible_truncation, reason = "settings are f32")]
        let (mean, deviation) = (mean as f32, moment(2).sqrt() as f32);
        let deviation = if deviation > 0.0 { deviation } else { 1.0 };
        // The shortest text of an f32, as a number that is multiplied later.
        Ok(Self { mean, deviation: deviation.to_string().parse().unwrap_or(1.0), is_skewed })
    }
}
