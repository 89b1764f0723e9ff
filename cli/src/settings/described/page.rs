//! The page `docs/settings.md`: sections and tables from the schema, and what a schema can't say.

use std::fmt::Write as _;

use manyhands::data::csv::{ColumnKind, InputColumns, NumberScale, OutputColumns, TargetKind};
use manyhands::data::{Augmentation, DataConfig, FillMode, FlipMode, TokenSettings, Unreadable};
use manyhands::layers::{Activation, Initializer, Interpolation, MergeMode, Padding, Padding1D};
use manyhands::schema::{LabelMode, Missing, Pixels};
use manyhands::{Loss, Metric, Optimizer, Schedule};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::super::TrainingTable;
use super::super::early_stopping::EarlyStoppingTable;
use super::super::model::ModelTable;
use super::{AnyLayer, schema_of};

const HEAD: &str = "# Settings

All that a settings file takes. [Settings files](guide/settings-file.md) explains how the parts work together, and
[`examples/settings`](../examples/settings) has files that run. This page is written from the code: `UPDATE=1 cargo test -p manyhands-cli
described` writes it again. Settings that must be given come first, then the others by name.

Worth knowing:

- `ReduceLROnPlateau` watches `val_loss`, or `loss` where there are no validation data.
- `validation = 0.2` draws the rows at random, by `seed`, from each class the same part; `manyhands evaluate runs/1 --config runs/1/run.toml --part validation` finds them again.
- `{ top_k_categorical_accuracy = { k = 5 } }` is reported as `top_5_accuracy`.
- A layer that is used again (`reuse = \"name\"`) has the outputs `name:1`, `name:2`, …, by which later layers refer to them.
- A model without `input` takes the shape of its data. Encodings decide how many numbers a row of a table has: `manyhands train` says how many.
- Numbers to predict that lie far from 0 are learned sooner by a last layer `{ type = \"Rescaling\", scale = DEVIATION, offset = MEAN }`, as
  `manyhands init` writes it; losses and predictions keep their unit.
- A model file holds its architecture as JSON under `manyhands.model` in the metadata, names of columns and classes under
  `manyhands.schema`, losses and metrics under `manyhands.evaluation`.
";

/// The whole page.
pub fn page() -> String {
    let mut rest = String::new();
    data(&mut rest);
    model(&mut rest);
    layers(&mut rest);
    losses_and_metrics(&mut rest);
    optimizers(&mut rest);
    rest.push_str("\n## `[training]`\n");
    settings(&mut rest, &schema_of::<TrainingTable>(), &[]);
    rest.push_str("\n### `early_stopping`\n");
    settings(&mut rest, &schema_of::<EarlyStoppingTable>(), &[]);
    augmentation(&mut rest);
    format!("{HEAD}{}{rest}", contents(&rest))
}

/// A line for each section, with the names of its parts.
fn contents(page: &str) -> String {
    let mut lines = String::new();
    for heading in page.lines().filter(|line| line.starts_with("##")) {
        let (is_part, title) = (heading.starts_with("###"), heading.trim_start_matches('#').trim());
        let link = format!("[{title}](#{})", anchor(title));
        match (is_part, lines.ends_with(':')) {
            (false, _) => write!(lines, "\n- **{link}**:"),
            (true, true) => write!(lines, " {link}"),
            (true, false) => write!(lines, ", {link}"),
        }
        .unwrap();
    }
    lines.replace(":\n", "\n").trim_end_matches(':').to_owned() + "\n"
}

/// The name that a heading has in a link.
fn anchor(title: &str) -> String {
    let kept = title.to_lowercase().replace(' ', "-");
    kept.chars().filter(|sign| sign.is_alphanumeric() || "-_".contains(*sign)).collect()
}

fn model(page: &mut String) {
    page.push_str(
        "\n## `[model]`\n\nA new model, or new layers behind those of a trained one. `model = \"trained.safetensors\"` above all tables \
         goes on with a whole model.\n",
    );
    settings(page, &schema_of::<ModelTable>(), &[]);
    choices::<Pixels>(page, "`pixels`");
}

fn data(page: &mut String) {
    page.push_str("\n## `[data]`\n");
    kinds(page, &schema_of::<DataConfig>(), &[]);
    choices::<TargetKind>(page, "`target_kind`");
    choices::<ColumnKind>(page, "`kinds`");
    choices::<NumberScale>(page, "`numbers`");
    choices::<Missing>(page, "`missing`");
    choices::<LabelMode>(page, "`label_mode`");
    choices::<Unreadable>(page, "`unreadable`");
    section(page, "[[data.inputs]]", &schema_of::<InputColumns>(), &[]);
    section(page, "[[data.outputs]]", &schema_of::<OutputColumns>(), &[]);
    section(page, "tokens", &schema_of::<TokenSettings>(), &[]);
}

/// Random changes of images.
fn augmentation(page: &mut String) {
    page.push_str(
        "\n## `augment`\n\nA list in `[training]`: random changes of training images, in order, with the names of Keras' layers. They are \
         drawn from `seed`, epoch and row alone, so that neither adapters nor `workers` nor a resumption change them. Validation and \
         prediction see images unchanged. A `factor` is a number, or its smallest and largest value: `[-0.2, 0.1]`.\n",
    );
    kinds(page, &schema_of::<Augmentation>(), &[]);
    choices::<FlipMode>(page, "`mode` of `RandomFlip`");
    choices::<FillMode>(page, "`fill_mode`");
}

fn layers(page: &mut String) {
    page.push_str(
        "\n## Layers\n\nBeside `type` each takes `name`, `inputs`, the names of what it reads, and \
         `trainable`: with `trainable = false` training leaves its weights and moving statistics as they are. \
         `packed` names frozen weights that are kept in blocks of 8 or 4 bits: `{ kernel = \"q8_0\" }`, `{ embeddings = \"q4_0\" }`. Each takes \
         penalties that are added to the loss, as in Keras: `activity_regularizer` of its outputs, divided by the rows of \
         the batch, and of its parameters `kernel_regularizer`, `bias_regularizer`, `gamma_regularizer` and so on: \
         `{ l1 = 0.01 }`, `{ l2 = 0.01 }`, both, or `\"l2\"` with Keras' factor of 0.01.\n",
    );
    let layers = schema_of::<AnyLayer>();
    kinds(page, &layers, &shared(&layers));
    choices::<Activation>(page, "`activation`");
    choices::<Padding>(page, "`padding`");
    choices::<Padding1D>(page, "`padding` of `Conv1D`");
    choices::<MergeMode>(page, "`merge_mode`");
    choices::<Interpolation>(page, "`interpolation`");
    choices::<Initializer>(page, "`kernel_initializer`");
}

fn losses_and_metrics(page: &mut String) {
    page.push_str("\n## `[loss]`\n");
    kinds(page, &schema_of::<Loss>(), &[]);
    page.push_str(
        "\n## `metrics`\n\nA list in `[training]`. Each is a name, or a table with the name as its only key: \
         `{ auc = { curve = \"PR\" } }`. The first ones come with the loss, row by row; the others are counted over the whole \
         dataset from outputs and targets, where the loss takes logits from their probabilities.\n",
    );
    choices::<Metric>(page, "With the loss");
    let metrics = schema_of::<Metric>();
    for metric in metrics["oneOf"].as_array().unwrap() {
        if let Some(name) = metric["title"].as_str().filter(|_| metric["type"] == "object") {
            section(page, name, &metric["properties"][name], &[]);
        }
    }
}

fn optimizers(page: &mut String) {
    page.push_str(
        "\n## `[optimizer]`\n\nBeside its own settings each takes `clipnorm`, the norm to which the gradient of each parameter \
         is scaled down where it is larger, or `clipvalue`, which no value of a gradient exceeds. The global norm is \
         `clip_norm` of `[training]`. With `use_ema = true` each keeps an exponential moving average of the weights, of which \
         `ema_momentum` (`0.99`) stays in each step; the model gets it after the last epoch, and the weights take it over after \
         each `ema_overwrite_frequency` steps, if that is given. `exclude_from_weight_decay = [\"bias\"]` lists parameters without \
         weight decay, by their names (`dense/bias`) or the last parts of these. `groups = [{ parameters = [\"head/kernel\", \"bias\"], \
         learning_rate_factor = 10.0, weight_decay = 0.0 }]` gives parameters, named likewise, a factor of the learning rate and settings of \
         their own. With `gradient_accumulation_steps = 4` the mean gradient of 4 steps makes an update, after the last of them: \
         schedules count steps, and sums go on over epochs.\n",
    );
    let optimizers = schema_of::<Optimizer>();
    kinds(page, &optimizers, &shared(&optimizers));
    page.push_str("\n## `[schedule]`\n");
    kinds(page, &schema_of::<Schedule>(), &[]);
}

/// Settings that all kinds of a table have: its introduction tells them.
fn shared(schema: &Value) -> Vec<String> {
    let mut kinds = schema["oneOf"].as_array().unwrap().iter().filter_map(|kind| kind["properties"].as_object());
    let first = kinds.next().unwrap();
    let rest: Vec<_> = kinds.filter(|properties| properties.contains_key("type")).collect();
    first.keys().filter(|name| rest.iter().all(|kind| kind.contains_key(*name))).cloned().collect()
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

/// The first paragraph of documentation, in one line and without links.
pub fn first_paragraph(text: &str) -> String {
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let paragraph = without_links(&lines.collect::<Vec<_>>().join(" "));
    // What concerns those who write layers.
    let end = [" Kept for backward", " Nothing is"].iter().filter_map(|start| paragraph.find(start)).min();
    paragraph[..end.unwrap_or(paragraph.len())].to_owned()
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

/// Floats of a default as the shortest that mean the same f32.
pub fn shorten(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(shorten),
        Value::Object(values) => values.values_mut().for_each(shorten),
        Value::Number(number) if number.is_f64() => {
            #[allow(clippy::cast_possible_truncation, reason = "settings are f32")]
            let short =
                number.as_f64().map(|number| (number, number as f32)).filter(|(long, it)| f64::from(*it) == *long);
            if let Some((_, short)) = short {
                *value = serde_json::from_str(&format!("{short:?}")).unwrap();
            }
        }
        _ => {}
    }
}

fn doc(schema: &Value) -> String {
    first_paragraph(schema["description"].as_str().unwrap_or_default())
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Names of the settings of a table: those that must be given, in their order, then the others.
fn names(table: &Value) -> Vec<&str> {
    let given = table["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut names: Vec<&str> = given.collect();
    for name in table["properties"].as_object().into_iter().flat_map(Map::keys) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.retain(|name| *name != "type");
    names
}

/// Before the default in the documentation of a setting that has none of its own.
const DEFAULT: &str = " Default: ";

fn default_of(table: &Value, name: &str) -> String {
    if table["required"].as_array().is_some_and(|required| required.iter().any(|given| given == name)) {
        return "must be given".into();
    }
    let mut default = table["properties"][name]["default"].clone();
    shorten(&mut default);
    if ![Value::Null, json!([]), json!({})].contains(&default) {
        return format!("`{default}`");
    }
    let doc = doc(&table["properties"][name]);
    let told = doc.split_once(DEFAULT).map(|(_, told)| cell(told.trim_end_matches('.')));
    told.unwrap_or_else(|| "none".into())
}

/// The settings of a table, but for some that are told elsewhere.
fn settings(page: &mut String, table: &Value, but: &[String]) {
    let names: Vec<&str> = names(table).into_iter().filter(|name| !but.iter().any(|other| other == name)).collect();
    if names.is_empty() {
        return;
    }
    page.push_str("\n| setting | default | is |\n| --- | --- | --- |\n");
    for name in names {
        let doc = doc(&table["properties"][name]);
        let is = cell(doc.split_once(DEFAULT).map_or(&doc, |(is, _)| is));
        writeln!(page, "| `{name}` | {} | {is} |", default_of(table, name)).unwrap();
    }
}

fn section(page: &mut String, name: &str, table: &Value, but: &[String]) {
    write!(page, "\n### `{name}`\n\n{}\n", doc(table)).unwrap();
    settings(page, table, but);
}

/// A section for each kind of a table with a `type`.
fn kinds(page: &mut String, schema: &Value, but: &[String]) {
    for kind in schema["oneOf"].as_array().unwrap() {
        // A further use of a layer has none.
        if let Some(name) = kind["properties"]["type"]["const"].as_str() {
            section(page, name, kind, but);
        }
    }
}

/// The values of a type, each with its documentation.
fn choices<T: JsonSchema>(page: &mut String, title: &str) {
    write!(page, "\n### {title}\n\n| value | is |\n| --- | --- |\n").unwrap();
    let schema = schema_of::<T>();
    let all = schema["oneOf"].as_array().or(schema["anyOf"].as_array()).unwrap();
    all.iter().filter_map(|choice| Some((choice_name(choice)?, doc(choice)))).for_each(|(name, doc)| {
        writeln!(page, "| {name} | {} |", cell(&doc)).unwrap();
    });
}

/// A name, or the name that is the only key of a table with these settings. Kinds of a table of their own have a title.
fn choice_name(choice: &Value) -> Option<String> {
    if choice["type"] == "string" {
        return choice["title"].as_str().or(choice["const"].as_str()).map(|name| format!("`{name}`"));
    }
    let (name, settings) = choice["properties"].as_object().filter(|_| choice.get("title").is_none())?.iter().next()?;
    Some(format!("`{name}` (`{}`)", names(settings).join("`, `")))
}
