//! Does `docs/settings.md` say what the code says? Names and documentation are read from the source, defaults from values that the code made.

use std::fmt::{Debug, Write as _};
use std::fs;
use std::path::Path;

use manyhands::data::csv::InputColumns;
use manyhands::data::{Augmentation, DataConfig, LoaderSettings, TokenSettings};
use manyhands::layers::LAYERS;
use manyhands::losses::LOSSES;
use manyhands::metrics::METRICS;
use manyhands::optimizers::OPTIMIZERS;
use manyhands::{BatchStatistics, NonFinite, Placement, Precision, Reduction, Schedule, SplitMode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

const HEAD: &str = "# Settings

All that a settings file takes. [Settings files](guide/settings-file.md) explains how the parts work together, and
[`examples/settings`](../examples/settings) has files that run. This page is written from the code: `UPDATE=1 cargo test --test house`
writes it again.

Worth knowing:

- `ReduceLROnPlateau` watches `val_loss`, or `loss` where there are no validation data.
- `validation = 0.2` draws the rows at random, by `seed`, from each class the same part; `manyhands evaluate model.safetensors --part validation` finds them again.
- `{ top_k_categorical_accuracy = { k = 5 } }` is reported as `top_5_accuracy`.
- A layer that is used again (`reuse = \"name\"`) has the outputs `name:1`, `name:2`, …, by which later layers refer to them.
- A model without `input` takes the shape of its data. Encodings decide how many numbers a row of a table has: `manyhands train` says how many.
- Numbers to predict that lie far from 0 are learned sooner by a last layer `{ type = \"Rescaling\", scale = DEVIATION, offset = MEAN }`, as
  `manyhands init` writes it; losses and predictions keep their unit.
- A model file holds its architecture as JSON under `manyhands.model` in the metadata, names of columns and classes under
  `manyhands.schema`, losses and metrics under `manyhands.evaluation`.
";

/// A struct, or a variant of an enum, as its source has it.
pub struct Item {
    pub doc: String,
    pub fields: Vec<Field>,
}

pub struct Field {
    pub name: String,
    pub doc: String,
    pub kind: String,
}

/// The text of all files of a folder.
pub fn source(folder: &str) -> String {
    let mut files: Vec<_> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let rust = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    rust.map(|path| fs::read_to_string(path).unwrap()).collect::<Vec<_>>().join("\n")
}

/// The first paragraph of the documentation that stands before a line, without links.
fn doc_before(lines: &[&str], at: usize) -> String {
    let mut first = at;
    while first > 0 && ["///", "#[", "#!["].iter().any(|start| lines[first - 1].trim().starts_with(start)) {
        first -= 1;
    }
    let docs = lines[first..at].iter().filter_map(|line| line.trim().strip_prefix("///"));
    let paragraph: Vec<&str> = docs.map(str::trim).take_while(|line| !line.is_empty()).collect();
    let doc = without_links(&paragraph.join(" "));
    // What concerns those who write layers.
    doc.split(" Kept for backward")
        .next()
        .and_then(|doc| doc.split(" Nothing is").next())
        .unwrap_or_default()
        .to_owned()
}

/// ``[`CsvSettings`](path)`` as `` `CsvSettings` ``.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("[`") {
        let Some(end) = rest[start..].find("`]").map(|end| start + end) else { break };
        out.push_str(&rest[..start]);
        out.push_str(&rest[start + 1..=end]);
        rest = &rest[end + 2..];
        if let Some(target) = rest.strip_prefix('(') {
            rest = target.split_once(')').map_or(target, |(_, rest)| rest);
        }
    }
    out + rest
}

/// The fields between a line that opens a brace and the one that closes it.
fn fields(lines: &[&str], open: usize) -> Vec<Field> {
    let indent = lines[open].len() - lines[open].trim_start().len();
    let is_end = |line: &&str| line.trim_start().starts_with('}') && line.len() - line.trim_start().len() == indent;
    let end = open + 1 + lines[open + 1..].iter().position(is_end).unwrap();
    let field = |at: usize| {
        let line = lines[at].trim().strip_prefix("pub ").unwrap_or(lines[at].trim());
        let is_skipped = lines[at - 1].trim() == "#[serde(skip)]";
        let is_code = !is_skipped && !line.starts_with("///") && !line.starts_with(['#', '$']);
        let (name, kind) = line.trim_end_matches(',').split_once(": ").filter(|_| is_code)?;
        // A macro's fields have their default beside them.
        let kind = kind.split(" = ").next()?;
        Some(Field { name: name.into(), doc: doc_before(lines, at), kind: kind.into() })
    };
    (open + 1..end).filter_map(field).collect()
}

/// A struct of the source.
pub fn structure(source: &str, name: &str) -> Item {
    let lines: Vec<&str> = source.lines().collect();
    let opens = |line: &&str| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line == format!("struct {name} {{") || line == format!("struct {name} {{}}")
    };
    let is_unit = |line: &&str| **line == format!("pub struct {name};");
    let Some(at) = lines.iter().position(|line| opens(line) || is_unit(line)) else {
        return made_by_macro(&lines, name).unwrap_or_else(|| panic!("no struct {name}"));
    };
    let fields = if lines[at].ends_with('{') { fields(&lines, at) } else { Vec::new() };
    Item { doc: doc_before(&lines, at), fields }
}

/// A struct that a macro of the source makes: `macro! { /// Documentation. Name { fields }, … }`.
fn made_by_macro(lines: &[&str], name: &str) -> Option<Item> {
    let is_name = |line: &&str| {
        let rest = line.trim().strip_prefix(name);
        line.starts_with("    ") && rest.is_some_and(|rest| rest.starts_with(',') || rest.starts_with(" {"))
    };
    let call = |at: usize| {
        let before = lines[..at].iter().rev().find(|line| !line.trim().starts_with("///"))?;
        before.strip_suffix("! {").map(str::to_owned)
    };
    let (at, macro_name) = (0..lines.len()).filter(|at| is_name(&lines[*at])).find_map(|at| Some((at, call(at)?)))?;
    let start = lines.iter().position(|line| **line == format!("macro_rules! {macro_name} {{"))?;
    let end = start + lines[start..].iter().position(|line| *line == "}")?;
    let shared = lines[start..end].iter().position(|line| line.trim() == "pub struct $name {");
    // Those of the macro, then the struct's own.
    let mut all = shared.map_or_else(Vec::new, |open| fields(lines, start + open));
    if lines[at].ends_with('{') {
        all.extend(fields(lines, at));
    }
    let fields = all;
    Some(Item { doc: doc_before(lines, at), fields })
}

/// The variants of an enum: `None` in place of fields where a variant is another struct.
pub fn variants(source: &str, name: &str) -> Vec<(String, Item, Option<String>)> {
    let lines: Vec<&str> = source.lines().collect();
    let start = lines.iter().position(|line| *line == format!("pub enum {name} {{")).unwrap();
    let end = start + lines[start..].iter().position(|line| *line == "}").unwrap();
    let variant = |at: usize| {
        let line = lines[at].strip_prefix("    ").filter(|line| line.starts_with(char::is_uppercase))?;
        if lines[at - 1].trim() == "#[serde(skip)]" {
            return None;
        }
        let name: String = line.chars().take_while(|letter| letter.is_alphanumeric()).collect();
        let inner = line.split_once('(').map(|(_, inner)| inner.trim_end_matches("),").to_owned());
        let fields = if line.ends_with('{') { fields(&lines, at) } else { Vec::new() };
        Some((name, Item { doc: doc_before(&lines, at), fields }, inner))
    };
    (start + 1..end).filter_map(variant).collect()
}

/// `LeakyRelu` as `leaky_relu`.
pub fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// A value that a setting without a default can have, by its type.
fn sample(kind: &str) -> Value {
    match kind {
        "usize" | "u64" | "u32" | "i32" => json!(2),
        "f32" | "f64" | "Values" => json!(0.5),
        "[usize; 2]" => json!([2, 2]),
        "Factor" => json!(0.5),
        "PathBuf" | "String" => json!("file"),
        "Activation" => json!("relu"),
        "RecurrentLayer" => json!({ "type": "LSTM", "units": 2 }),
        _ if kind.starts_with("Vec") || kind == "Shape" => json!([2]),
        _ => panic!("give a sample of `{kind}`"),
    }
}

/// All settings of a value that is made from those that must be given, and these.
pub struct Defaults {
    pub all: Map<String, Value>,
    pub given: Map<String, Value>,
}

pub fn defaults(fields: &[Field], make: impl Fn(Value) -> Result<Value, String>) -> Defaults {
    let mut given = Map::new();
    loop {
        match make(Value::Object(given.clone())) {
            Ok(Value::Object(all)) => return Defaults { all, given },
            Ok(other) => panic!("settings are a table, not {other}"),
            Err(error) => {
                let name = error.split("missing field `").nth(1).and_then(|rest| rest.split('`').next());
                let field = name.and_then(|name| fields.iter().find(|field| field.name == name));
                let field = field.unwrap_or_else(|| panic!("{error}"));
                given.insert(field.name.clone(), sample(&field.kind));
            }
        }
    }
}

/// A default as it stands in a file; a float is the shortest that means the same f32.
fn shown(value: &Value) -> String {
    #[allow(clippy::cast_possible_truncation, reason = "settings are f32")]
    match value.as_f64().filter(|_| value.is_f64()) {
        Some(number) if f64::from(number as f32) == number => format!("`{:?}`", number as f32),
        _ => format!("`{value}`"),
    }
}

fn section(page: &mut String, name: &str, item: &Item, defaults: &Defaults) {
    write!(page, "\n### `{name}`\n\n{}\n", item.doc).unwrap();
    if item.fields.is_empty() {
        return;
    }
    page.push_str("\n| setting | default | is |\n| --- | --- | --- |\n");
    for Field { name, doc, .. } in &item.fields {
        let default = match defaults.all.get(name) {
            _ if defaults.given.contains_key(name) => "must be given".into(),
            None | Some(Value::Null) => "none".into(),
            Some(value) => shown(value),
        };
        writeln!(page, "| `{name}` | {default} | {} |", doc.replace('|', "\\|")).unwrap();
    }
}

/// The entries of a table `[entry::<Type>("Name")]`: names, and the structs of their settings.
pub fn table_entries(folder: &str) -> Vec<(String, Item)> {
    let source = source(folder);
    let entries = source.split("entry::<").skip(1).filter_map(|it| it.split_once(">(\""));
    let named = entries.filter(|(name, _)| name.chars().all(char::is_alphanumeric));
    named.map(|(name, rest)| (rest.split('"').next().unwrap().to_owned(), structure(&source, name))).collect()
}

/// The sections of such a table.
fn table(page: &mut String, folder: &str, config: impl Fn(&str, Value) -> Result<Value, String>) -> usize {
    let entries = table_entries(folder);
    for (name, item) in &entries {
        section(page, name, item, &defaults(&item.fields, |value| config(name, value)));
    }
    entries.len()
}

/// The kinds of an enum with a `type`.
pub fn tagged_config<T: Serialize + DeserializeOwned>(
    source: &str,
    name: &str,
    rename: fn(&str) -> String,
) -> Vec<(String, Item, Defaults)> {
    let of_variant = |(variant, item, inner): (String, Item, Option<String>)| {
        let kind = rename(&variant);
        let inner = inner.map(|inner| structure(source, &inner));
        let fields = inner.map_or(item.fields, |inner| inner.fields);
        let item = Item { doc: item.doc, fields };
        let make = |value: Value| {
            let Value::Object(mut settings) = value else { return Err("no table".into()) };
            settings.insert("type".into(), kind.clone().into());
            let value: T = serde_json::from_value(Value::Object(settings)).map_err(|error| error.to_string())?;
            serde_json::to_value(&value).map_err(|error| error.to_string())
        };
        let defaults = defaults(&item.fields, make);
        (kind, item, defaults)
    };
    variants(source, name).into_iter().map(of_variant).collect()
}

/// Their sections.
fn tagged<T: Serialize + DeserializeOwned>(page: &mut String, source: &str, name: &str, rename: fn(&str) -> String) {
    for (kind, item, defaults) in tagged_config::<T>(source, name, rename) {
        section(page, &kind, &item, &defaults);
    }
}

/// What a setting of this type can be.
fn choices(page: &mut String, source: &str, name: &str, title: &str) {
    write!(page, "\n### {title}\n\n| value | is |\n| --- | --- |\n").unwrap();
    // A variant that holds a struct of its name stands for a table of its own.
    for (variant, item, _) in variants(source, name).into_iter().filter(|(name, _, inner)| inner.as_ref() != Some(name))
    {
        let fields: Vec<&str> = item.fields.iter().map(|field| field.name.as_str()).collect();
        let with = if fields.is_empty() { String::new() } else { format!(" (`{}`)", fields.join("`, `")) };
        writeln!(page, "| `{}`{with} | {} |", snake(&variant), item.doc.replace('|', "\\|")).unwrap();
    }
}

fn losses_and_metrics(page: &mut String) {
    let unknown = |kind: &str| format!("no `{kind}`");
    page.push_str("\n## `[loss]`\n");
    let count = table(page, "src/losses", |kind, value| {
        let entry = LOSSES.iter().find(|entry| entry.kind == kind).ok_or_else(|| unknown(kind))?;
        let loss = (entry.from_config)(value).map_err(|error| error.to_string())?;
        Ok(loss.config().iter().map(|(name, value)| (name.to_owned(), value.clone())).collect())
    });
    assert_eq!(count, LOSSES.len(), "each loss has a section");

    page.push_str(
        "\n## `metrics`\n\nA list in `[training]`. Each is a name, or a table with the name as its only key: \
         `{ auc = { curve = \"PR\" } }`. The first ones come with the loss, row by row; the others are counted over the whole \
         dataset from outputs and targets, where the loss takes logits from their probabilities.\n",
    );
    choices(page, &source("src/metrics"), "Metric", "With the loss");
    let count = table(page, "src/metrics", |kind, value| {
        let entry = METRICS.iter().find(|entry| entry.kind == kind).ok_or_else(|| unknown(kind))?;
        let metric = (entry.from_config)(value).map_err(|error| error.to_string())?;
        Ok(metric.config().iter().map(|(name, value)| (name.to_owned(), value.clone())).collect())
    });
    assert_eq!(count, METRICS.len(), "each metric has a section");
}

/// Random changes of images.
fn augmentation(page: &mut String) {
    page.push_str(
        "\n## `augment`\n\nA list in `[training]`: random changes of training images, in order, with the names of Keras' layers. They are \
         drawn from `seed`, epoch and row alone, so that neither adapters nor `workers` nor a resumption change them. Validation and \
         prediction see images unchanged. A `factor` is a number, or its smallest and largest value: `[-0.2, 0.1]`.\n",
    );
    let augment = source("src/data/augment");
    tagged::<Augmentation>(page, &augment, "Augmentation", str::to_owned);
    choices(page, &augment, "FlipMode", "`mode` of `RandomFlip`");
    choices(page, &augment, "FillMode", "`fill_mode`");
}

/// Default of a key of `[training]`, whose source writes it as `value`.
fn default_of_training(key: &str, value: &str) -> String {
    let quoted = |value: &dyn Debug| quoted_name(&format!("{value:?}"));
    match (key, value) {
        ("metrics", _) => "by the loss".into(),
        ("workers", _) => "one for each core, at most 8".into(),
        ("prefetch", _) => format!("`{}`", LoaderSettings::default().prefetch),
        ("split", _) => quoted(&SplitMode::default()),
        ("batch_statistics", _) => quoted(&BatchStatistics::default()),
        ("precision", _) => quoted(&Precision::default()),
        ("placement", _) => quoted(&Placement::default()),
        ("reduction", _) => quoted(&Reduction::default()),
        ("non_finite", _) => quoted(&NonFinite::default()),
        (_, "None" | "Vec::new()" | "BTreeMap::new()") => "none".into(),
        (key, value) if value.contains('(') => panic!("say the default of `{key}`, which is `{value}`"),
        (_, value) => value.rsplit_once("::").map_or_else(|| format!("`{value}`"), |(_, name)| quoted_name(name)),
    }
}

/// A variant as a file writes it.
fn quoted_name(variant: &str) -> String {
    format!("`\"{}\"`", snake(variant))
}

/// The keys of `[training]`.
fn training(page: &mut String) {
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("cli/src/settings.rs")).unwrap();
    let values = source.split("impl Default for TrainingTable {").nth(1).unwrap();
    page.push_str("\n## `[training]`\n\n| setting | default | is |\n| --- | --- | --- |\n");
    for Field { name, doc, .. } in structure(&source, "TrainingTable").fields {
        let start = format!("{name}: ");
        let value = values.lines().find_map(|line| line.trim().strip_prefix(&start)).unwrap().trim_end_matches(',');
        writeln!(page, "| `{name}` | {} | {} |", default_of_training(&name, value), doc.replace('|', "\\|")).unwrap();
    }
}

/// Settings of the data.
fn data_settings(page: &mut String) {
    let data = source("src/data/formats") + &source("src/data/csv");
    page.push_str("\n## `[data]`\n");
    tagged::<DataConfig>(page, &data, "DataConfig", snake);
    choices(page, &data, "TargetKind", "`target_kind`");
    choices(page, &data, "ColumnKind", "`kinds`");
    choices(page, &data, "NumberScale", "`numbers`");
    choices(page, &fs::read_to_string("src/schema.rs").unwrap(), "Missing", "`missing`");
    choices(page, &fs::read_to_string("src/schema.rs").unwrap(), "LabelMode", "`label_mode`");
    choices(page, &source("src/data/images"), "Unreadable", "`unreadable`");
    let inputs = structure(&data, "InputColumns");
    let make = |value| {
        serde_json::from_value::<InputColumns>(value).and_then(serde_json::to_value).map_err(|it| it.to_string())
    };
    section(page, "[[data.inputs]]", &inputs, &defaults(&inputs.fields, make));
    let text = source("src");
    let tokens = structure(&text, "TokenSettings");
    let make = |value| {
        serde_json::from_value::<TokenSettings>(value).and_then(serde_json::to_value).map_err(|it| it.to_string())
    };
    section(page, "tokens", &tokens, &defaults(&tokens.fields, make));
}

/// The whole page.
fn page() -> String {
    let mut page = HEAD.to_owned();
    let layers = source("src/layers");
    data_settings(&mut page);
    augmentation(&mut page);

    page.push_str(
        "\n## Layers\n\nBeside `type` each takes `name`, `inputs`, the names of what it reads, and \
         `trainable`: with `trainable = false` training leaves its weights and moving statistics as they are. Each takes \
         penalties that are added to the loss, as in Keras: `activity_regularizer` of its outputs, divided by the rows of \
         the batch, and of its parameters `kernel_regularizer`, `bias_regularizer`, `gamma_regularizer` and so on: \
         `{ l1 = 0.01 }`, `{ l2 = 0.01 }`, both, or `\"l2\"` with Keras' factor of 0.01.\n",
    );
    let unknown = |kind: &str| format!("no `{kind}`");
    let count = table(&mut page, "src/layers", |kind, value| {
        let entry = LAYERS.iter().find(|entry| entry.kind == kind).ok_or_else(|| unknown(kind))?;
        (entry.from_config)(value).map(|layer| layer.config()).map_err(|error| error.to_string())
    });
    assert_eq!(count, LAYERS.len(), "each layer has a section");
    choices(&mut page, &layers, "Activation", "`activation`");
    choices(&mut page, &layers, "Padding", "`padding`");
    choices(&mut page, &layers, "Padding1D", "`padding` of `Conv1D`");
    choices(&mut page, &layers, "MergeMode", "`merge_mode`");
    choices(&mut page, &layers, "Interpolation", "`interpolation`");
    choices(&mut page, &layers, "Initializer", "`kernel_initializer`");

    losses_and_metrics(&mut page);

    page.push_str(
        "\n## `[optimizer]`\n\nBeside its own settings each takes `clipnorm`, the norm to which the gradient of each parameter \
         is scaled down where it is larger, or `clipvalue`, which no value of a gradient exceeds. The global norm is \
         `clip_norm` of `[training]`. With `use_ema = true` each keeps an exponential moving average of the weights, of which \
         `ema_momentum` (`0.99`) stays in each step; the model gets it after the last epoch, and the weights take it over after \
         each `ema_overwrite_frequency` steps, if that is given. `exclude_from_weight_decay = [\"bias\"]` lists parameters without \
         weight decay, by their names (`dense/bias`) or the last parts of these.\n",
    );
    let count = table(&mut page, "src/optimizers", |kind, value| {
        let entry = OPTIMIZERS.iter().find(|entry| entry.kind == kind).ok_or_else(|| unknown(kind))?;
        let optimizer = (entry.from_config)(value).map_err(|error| error.to_string())?;
        Ok(optimizer.config().iter().map(|(name, value)| (name.to_owned(), value.clone())).collect())
    });
    assert_eq!(count, OPTIMIZERS.len(), "each optimizer has a section");

    page.push_str("\n## `[schedule]`\n");
    tagged::<Schedule>(&mut page, &source("src/optimizers"), "Schedule", str::to_owned);

    training(&mut page);
    let early_stopping = structure(&source("cli/src/settings"), "EarlyStoppingTable");
    page.push_str("\n### `early_stopping`\n\n| setting | is |\n| --- | --- |\n");
    for Field { name, doc, .. } in early_stopping.fields {
        writeln!(page, "| `{name}` | {} |", doc.replace('|', "\\|")).unwrap();
    }
    page
}

/// `UPDATE=1 cargo test --test house` writes it again.
#[test]
fn the_page_of_settings_is_that_of_the_code() {
    let (path, page) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/settings.md"), page());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    assert!(written == page, "docs/settings.md is not what the code says: run `UPDATE=1 cargo test --test house`");
}
