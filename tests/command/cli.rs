//! Does the `manyhands` command do what a user asks: output, mistakes, resumption? It is run as a user runs it.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

mod predictions;
mod signals;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use manyhands::adapters::ADAPTERS_VARIABLE;
use manyhands::{Checkpoint, Model};
use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, outputs, outputs_of, program, refused, run, succeed, text, wait};
use crate::flowers;

fn write(folder: &TempDir, name: &str, text: impl AsRef<[u8]>) {
    fs::write(folder.path().join(name), text).unwrap();
}

fn json_lines(folder: &TempDir, name: &str) -> Vec<Value> {
    let log = fs::read_to_string(folder.path().join(name)).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Each tensor of a file: its shape and bits.
fn tensors(file: &Path) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    let bytes = fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let entry = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        (name, (view.shape().to_vec(), view.data().to_vec()))
    };
    tensors.tensors().into_iter().map(entry).collect()
}

/// A small settings file over a table of 40 rows, 2 columns and 3 classes.
fn write_table(folder: &TempDir, inputs: usize, units: usize, more: &str) {
    write(folder, "table.csv", flowers::table("x,y,kind", ["a", "b", "c"]));
    let settings = flowers::SETTINGS.replace("[2]", &format!("[{inputs}]")).replace("3 }", &format!("{units} }}"));
    let settings = settings + more;
    write(folder, "table.toml", settings);
}

#[test]
fn adapters_are_listed_and_none_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let listed = |arguments: &str| {
        let output =
            command(&folder, arguments).env_remove(ADAPTERS_VARIABLE).env("RUST_LOG", "trace").output().unwrap();
        assert!(output.status.success());
        let log = text(&output.stderr);
        assert!(!log.contains("create_device") && !log.contains("request_device"), "{log}");
        text(&output.stdout)
    };
    let list: Vec<Value> = serde_json::from_str(&listed("adapters --json")).unwrap();
    assert!(list.iter().any(|adapter| adapter["kind"] == "cpu" && adapter["backend"] == "host"));
    assert!(list.iter().any(|adapter| adapter["is_default"] == true));
    assert!(list.iter().all(|adapter| adapter["kind"] != "software" || adapter["is_default"] == false));
    let table = listed("adapters");
    for adapter in &list {
        assert!(table.contains(adapter["name"].as_str().unwrap()), "{table}");
    }
    assert!(table.contains("Choose with `--adapters` (or MANYHANDS_ADAPTERS)"), "{table}");
}

/// Rows at once and memory of the CPU adapter are those that a run then takes.
#[test]
fn memory_is_limited_and_told_before_and_after() {
    let folder = tempfile::tempdir().unwrap();
    write(
        &folder,
        "run.toml",
        format!("{DENSE_DIGITS}[training]\nbatch_size = 512\nepochs = 1\nmemory = \"cpu=100kB\"\n"),
    );
    let cells = |table: &str, row: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.contains(row)).unwrap_or_else(|| panic!("no {row} in {table}"));
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(String::from).collect()
    };
    let summary = succeed(&folder, "summary run.toml");
    let (whole, limited) = (cells(&summary, "the CPU adapter"), cells(&summary, "100,000 bytes"));
    assert_eq!((whole[1].as_str(), limited[0].as_str()), ("512", "cpu"), "{summary}");
    let listed = succeed(&folder, "adapters run.toml --json");
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let cpu = listed.iter().find(|adapter| adapter["kind"] == "cpu").unwrap();
    assert_eq!(cpu["memory_limit"], 100_000);
    assert_eq!(cpu["training"]["rows"].to_string(), limited[1]);
    assert!(cpu["training"]["bytes"].as_u64().unwrap() <= 100_000);
    let table = succeed(&folder, "adapters run.toml");
    for text in ["memory limit", "rows at once", &limited[2]] {
        assert!(table.contains(text), "{table}");
    }
    let (shown, log) = outputs(&folder, "train run.toml");
    assert!(shown.contains(&limited[2]), "{shown}");
    assert!(
        log.contains("it now takes 256 rows at once") && log.contains("more than its limit of 100,000 bytes"),
        "{log}"
    );
    // Numbers count the adapters of the settings, not those of the machine.
    write(
        &folder,
        "two.toml",
        format!("{DENSE_DIGITS}[training]\nadapters = \"cpu,cpu\"\nmemory = \"0=200kB,1=100kB\"\n"),
    );
    let listed: Vec<Value> = serde_json::from_str(&succeed(&folder, "adapters two.toml --json")).unwrap();
    let limits = |is_cpu: bool| {
        let those = listed.iter().filter(move |adapter| (adapter["kind"] == "cpu") == is_cpu);
        those.map(|adapter| adapter["memory_limit"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(limits(true), [200_000]);
    assert!(limits(false).iter().all(Value::is_null), "{listed:?}");
    // Without adapters in the settings they count those that a run takes by default.
    write(&folder, "default.toml", format!("{DENSE_DIGITS}[training]\nmemory = \"0=300kB,llvmpipe=200kB\"\n"));
    if let Some(software) = listed.iter().find(|adapter| adapter["name"].as_str().unwrap().contains("llvmpipe")) {
        let mut command = command(&folder, "adapters default.toml --json");
        command.env(ADAPTERS_VARIABLE, "llvmpipe");
        let listed: Vec<Value> = serde_json::from_str(&outputs_of(&mut command).0).unwrap();
        let limit = |index: &Value| {
            let adapter = listed.iter().find(|adapter| adapter["index"] == *index).unwrap();
            adapter["memory_limit"].clone()
        };
        assert_eq!(limit(&software["index"]), 200_000, "the last limit that names an adapter counts");
        assert_eq!(limit(&cpu["index"]), Value::Null);
    }
    // The flag wins over the file.
    let (_, log) = outputs(&folder, "train run.toml --memory cpu=1GB --overwrite");
    assert!(!log.contains("too little memory"), "{log}");
}

#[test]
fn the_environment_chooses_and_the_flag_wins() {
    let folder = tempfile::tempdir().unwrap();
    let output = command(&folder, "train --epochs 1").env(ADAPTERS_VARIABLE, "nonsense").output().unwrap();
    assert!(text(&output.stderr).contains("names no adapter of this machine: `nonsense`"), "{}", text(&output.stderr));
    let output =
        command(&folder, "train --epochs 1 --adapters cpu").env(ADAPTERS_VARIABLE, "nonsense").output().unwrap();
    assert!(output.status.success());
}

#[test]
fn what_is_trained_is_evaluated_and_predicts() {
    let folder = tempfile::tempdir().unwrap();
    let shown = succeed(
        &folder,
        "train --epochs 2 --save runs/a.safetensors --json logs/a.jsonl --csv logs/a.csv --trace logs/a.json",
    );
    let trace = std::fs::read_to_string(folder.path().join("logs/a.json")).unwrap();
    assert!(serde_json::from_str::<Value>(&trace).unwrap()["traceEvents"].as_array().unwrap().len() > 100);
    for expected in
        ["33658 trainable parameters", "epoch 2/2  loss 0.", "val_accuracy 0.9", "saved to `runs/a.safetensors`"]
    {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let log = json_lines(&folder, "logs/a.jsonl");
    assert_eq!(log.iter().filter(|line| line["kind"] == "step").count(), 2 * 23);
    assert_eq!(fs::read_to_string(folder.path().join("logs/a.csv")).unwrap().lines().count(), 3);
    let reported = log.last().unwrap()["val_accuracy"].as_f64().unwrap();

    let evaluated: Value = serde_json::from_str(&succeed(&folder, "evaluate runs/a.safetensors --json")).unwrap();
    assert_eq!(evaluated["accuracy"].as_f64(), Some(reported));
    assert!(succeed(&folder, "evaluate runs/a.safetensors").contains(&format!("accuracy {reported:.4}")));

    succeed(&folder, "predict runs/a.safetensors --output a.csv");
    succeed(&folder, "predict runs/a.safetensors --output b.csv --batch-size 7");
    let mut right = 0;
    let labels = {
        let test = manyhands::data::digits::test().unwrap();
        let rows: Vec<usize> = (0..360).collect();
        manyhands::data::Batch::fetch(&test, &rows).unwrap().targets[0].clone()
    };
    let mut table = csv::Reader::from_path(folder.path().join("a.csv")).unwrap();
    assert_eq!(table.headers().unwrap().iter().take(3).collect::<Vec<_>>(), ["row", "class", "probability_0"]);
    for (row, record) in table.records().enumerate() {
        let record = record.unwrap();
        assert_eq!(record[0], row.to_string());
        right += u32::from(record[1] == labels[row].to_string());
        let sum: f64 = record.iter().skip(2).map(|field| field.parse::<f64>().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "row {row}: {sum}");
    }
    assert!((f64::from(right) / 360.0 - reported).abs() < 1e-12);
    let classes = |name: &str| -> Vec<String> {
        let table = fs::read_to_string(folder.path().join(name)).unwrap();
        table.lines().map(|line| line.split(',').take(2).collect::<Vec<_>>().join(",")).collect()
    };
    assert_eq!(classes("a.csv"), classes("b.csv"));
    assert_eq!(classes("a.csv").len(), 361);
    assert!(
        succeed(&folder, "predict runs/a.safetensors --logits --part train")
            .lines()
            .nth(1437)
            .unwrap()
            .starts_with("1436,")
    );
    assert!(succeed(&folder, "summary runs/a.safetensors").contains("checkpoint of `Adam` after 2 epochs, 46 steps"));
}

#[test]
fn the_digits_are_learned() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..3 {
        succeed(&folder, &format!("train --quiet --overwrite --seed {seed} --json log.jsonl"));
        let accuracy = json_lines(&folder, "log.jsonl").last().unwrap()["val_accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.97, "seed {seed}: {accuracy}");
    }
}

/// A command over the files of the test below, and what it says.
const MISTAKES: &[(&str, &str)] = &[
    (
        "train --adapters voodoo",
        "error: the choice of adapters names no adapter of this machine: `voodoo`\n  help: give indices, name parts,",
    ),
    ("train --throttle 1=2", "error: `--throttle` needs an adapter in use, from 0 to 0, but got 1"),
    ("train --split 1:2:3", "error: split needs 1 parts from 0 up, one for each adapter, but got [1.0, 2.0, 3.0]"),
    ("train nowhere.toml", "error: `nowhere.toml` can't be read: "),
    (
        "train table.csv",
        "error: `table.csv` needs to be a settings file, but is data\n  help: `manyhands init table.csv` looks at it",
    ),
    (
        "sweep . --vary batch_size=1,2",
        "error: `.` needs to be a settings file, but is a folder\n  help: `manyhands init .`",
    ),
    (
        "train model.safetensors",
        "error: `model.safetensors` needs to be a settings file, but is a model file\n  help: `manyhands evaluate` and `predict`",
    ),
    (
        "train foreign.safetensors",
        "error: `foreign.safetensors` needs to be a settings file, but is data\n  help: `manyhands init foreign.safetensors` looks at it",
    ),
    (
        "predict key.toml",
        "error: `key.toml` needs to be a safetensors file, but is text\n  help: a model file is what `manyhands train run.toml",
    ),
    (
        "train key.toml",
        "error: `key.toml`, line 12, key `batchsize`, is not known here\n  help: did you mean `batch_size`?",
    ),
    (
        "train layer.toml",
        "error: `layer.toml`, line 6, layer 1 `Dense`, key `unit`, is not known here\n  help: did you mean `units`?",
    ),
    (
        "train piecewise.toml --learning-rate 0.1",
        "error: `--learning-rate` needs a schedule that starts from the optimizer's rate, but `PiecewiseConstantDecay` has all",
    ),
    ("train shape.toml", "error: input `input` needs shape [batch, 3], but the dataset gives [batch, 2]"),
    ("train label.toml", "needs labels"),
    (
        "train table.toml --resume",
        "error: `--resume` needs an earlier run with these data, model and losses, but `runs` holds none\n  help: name its folder",
    ),
    (
        "train --resume other.safetensors",
        "error: the checkpoint needs the model it was made with, but got another model",
    ),
    (
        "train table.toml --resume model.safetensors",
        "error: `model.safetensors` needs metadata `manyhands.training`, but has none\n  help: this file holds a model, not a run",
    ),
    ("evaluate nowhere.safetensors", "error: `nowhere.safetensors` can't be read: "),
    ("evaluate cut.safetensors", "error: `cut.safetensors` needs to be a whole safetensors file, but is not: "),
    ("predict noise.safetensors", "error: `noise.safetensors` needs to be a whole safetensors file, but is not: "),
    ("summary foreign.safetensors", "error: `foreign.safetensors` needs metadata `manyhands.model`, but has none"),
    (
        "evaluate other.safetensors",
        "error: the data are needed, but none are named\n  help: name them after the model file, or settings by `--config`; \
         the model was trained on a table with the columns x, y and the target kind",
    ),
    (
        "evaluate old.safetensors",
        "but the dataset gives [batch, 8, 8, 1]\n  help: without `--config` the data are the digits",
    ),
    ("evaluate other.safetensors --config table.toml", "error: the test data are needed, but the settings name none"),
    (
        "predict old.safetensors --input table.csv",
        "error: the input `table.csv` needs data of type `csv`, `text`, `image_folder`, `idx`, `idx_files`, `npy`, `npz` or \
         `safetensors`, but the data is of type `digits`\n  help: without `--config` the data are the digits",
    ),
    (
        "predict other.safetensors --config cifar.toml --input table.csv",
        "but the data is of type `cifar10`\n  help: name settings whose data is of such a type",
    ),
    (
        "predict other.safetensors --config table.toml --input narrow.csv",
        "error: `narrow.csv` needs a column `y`, but has none\n  help: its columns are x, kind",
    ),
    (
        "train column.toml",
        "error: `table.csv` needs a column `knid`, but has none\n  help: did you mean `kind`? its columns are x, y, kind",
    ),
    ("predict other.safetensors --config table.toml --input nowhere.csv", "error: `nowhere.csv` can't be read: "),
    (
        "predict other.safetensors --config table.toml --input table.csv -o ./table.csv",
        "error: the file `./table.csv` is an input of this run, and can't be written",
    ),
    ("train --json log --csv log", "error: the file `log` needs to be one output's, but is named for two"),
    (
        "train table.toml --epochs 1 --csv table.csv",
        "error: the file `table.csv` is an input of this run, and can't be written",
    ),
    (
        "train table.toml --epochs 1 --csv narrow.csv",
        "error: the file `narrow.csv` needs to be a log that `--csv` wrote or a new file, but holds something else",
    ),
    ("train --save .", "error: `.` needs to be a file, but is a folder"),
    (
        "train --memory radeon=1GB",
        "error: the memory limit for `radeon` needs an adapter in use, but names none\n  help: numbers count the adapters in use, in their order: 0 `CPU",
    ),
    ("train memory.toml", "a memory limit needs an adapter and an amount, such as `0=6GB`, but is `cpu=1`"),
    (
        "train --memory cpu=1kB",
        "more than its limit of 1,000 bytes\n  help: compute values again (`recompute`), place its layers on several adapters (`placement`), or allow more memory",
    ),
    (
        "train monitor.toml",
        "error: monitor `val_acc` is needed, but an epoch reports only loss, accuracy, val_loss, val_accuracy",
    ),
];

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    write_table(&folder, 2, 3, "[training]\nbatchsize = 8\n");
    fs::rename(folder.path().join("table.toml"), folder.path().join("key.toml")).unwrap();
    write_table(&folder, 3, 3, "");
    fs::rename(folder.path().join("table.toml"), folder.path().join("shape.toml")).unwrap();
    write_table(&folder, 2, 2, "");
    fs::rename(folder.path().join("table.toml"), folder.path().join("label.toml")).unwrap();
    write_table(&folder, 2, 3, "");
    succeed(&folder, "train table.toml --epochs 1 --save other.safetensors");
    let whole = fs::read(folder.path().join("other.safetensors")).unwrap();
    write(&folder, "cut.safetensors", &whole[..whole.len() - 5]);
    write(&folder, "noise.safetensors", [7; 300]);
    let none: [(&str, safetensors::tensor::TensorView<'_>); 0] = [];
    write(&folder, "foreign.safetensors", safetensors::serialize(none, None).unwrap());
    Model::load(folder.path().join("other.safetensors"))
        .unwrap()
        .save(folder.path().join("model.safetensors"))
        .unwrap();
    write(&folder, "narrow.csv", "x,kind\n1,a\n");
    // As a file of a version that wrote no names.
    let old = Model::load(folder.path().join("other.safetensors")).unwrap().config().build(0).unwrap();
    old.save(folder.path().join("old.safetensors")).unwrap();
    let table = fs::read_to_string(folder.path().join("table.toml")).unwrap();
    write(&folder, "column.toml", table.replace("\"kind\"", "\"knid\""));
    let model = &table[table.find("[model]").unwrap()..];
    write(&folder, "cifar.toml", format!("[data]\ntype = \"cifar10\"\nfolder = \"nowhere\"\n{model}"));
    write(&folder, "layer.toml", DENSE_DIGITS.replace("units", "unit"));
    let schedule = "[schedule]\ntype = \"PiecewiseConstantDecay\"\nboundaries = [1]\nvalues = [0.1, 0.2]\n";
    write(&folder, "piecewise.toml", format!("{DENSE_DIGITS}{schedule}"));
    let stopping = "[training]\nearly_stopping = { monitor = \"val_acc\", patience = 3 }";
    write(&folder, "monitor.toml", format!("{DENSE_DIGITS}{stopping}\n"));
    write(&folder, "memory.toml", format!("{DENSE_DIGITS}[training]\nmemory = \"cpu=1\"\n"));

    for (line, expected) in MISTAKES {
        let error = refused(&folder, line);
        assert!(error.contains(expected), "{line}: {error}");
    }
    let two_inputs = "predict other.safetensors --config table.toml --input table.csv --part train";
    for line in
        ["train --split odd", "train --memory 6GB", "train --epochs 0", "train --nonsense", "predict", two_inputs]
    {
        assert_eq!(run(&folder, line).status.code(), Some(2), "{line}");
    }
    assert!(!folder.path().join("runs").exists(), "a refused run writes nothing");
}

const DENSE_DIGITS: &str = r#"
[data]
type = "digits"
[model]
input = [8, 8, 1]
layers = [{ type = "Flatten" }, { type = "Dense", units = 10 }]
[loss]
type = "SparseCategoricalCrossentropy"
"#;

#[test]
fn warnings_are_shown_with_their_help() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&folder, "train --quiet --epochs 1 --batch-size 16 --adapters cpu,cpu,cpu --split even");
    let log = text(&output.stderr);
    assert!(
        log.contains("warning: a batch of 16 rows is small for 3 adapters: some will get none\n  help: use 24 rows"),
        "{log}"
    );
    let best = "runs/1/best.safetensors";
    let told = format!("best model in `{best}`; predict with `manyhands predict {best}`\n");
    assert_eq!(text(&output.stdout), told);
}

#[test]
fn a_reader_that_goes_away_is_no_crash() {
    let folder = tempfile::tempdir().unwrap();
    succeed(&folder, "train --quiet --epochs 1");
    let best = "runs/1/best.safetensors";
    for line in [&format!("predict {best}"), &format!("summary {best}"), "adapters", "train --epochs 1"] {
        let mut child = command(&folder, line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {}", text(&output.stderr));
    }
}

#[test]
fn a_file_fits_any_number_of_adapters() {
    let folder = tempfile::tempdir().unwrap();
    succeed(&folder, "train --epochs 1 --adapters cpu,cpu,cpu --save a.safetensors --json a.jsonl");
    let step = &json_lines(&folder, "a.jsonl")[0];
    assert_eq!(step["adapters"].as_array().unwrap().len(), 3, "{step}");
    let evaluated: Value = serde_json::from_str(&succeed(&folder, "evaluate a.safetensors --json")).unwrap();
    assert_eq!(evaluated["accuracy"], json_lines(&folder, "a.jsonl").last().unwrap()["val_accuracy"]);
    succeed(&folder, "train --epochs 2 --resume a.safetensors --adapters cpu,cpu --split 3:1 --save b.safetensors");
    succeed(&folder, "train --epochs 2 --save c.safetensors");
    let shapes = |name: &str| -> Vec<(String, Vec<usize>)> {
        tensors(&folder.path().join(name)).into_iter().map(|(name, (shape, _))| (name, shape)).collect()
    };
    assert_eq!(shapes("a.safetensors"), shapes("b.safetensors"));
    assert_eq!(shapes("a.safetensors"), shapes("c.safetensors"));
    let size = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
    // After the same epochs not even the progress in the header differs in length.
    assert_eq!(size("b.safetensors"), size("c.safetensors"));
}

#[test]
fn a_learned_split_is_repeated_from_its_log_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let start = "train --epochs 1 --adapters cpu,cpu --quiet";
    succeed(&folder, &format!("{start} --throttle 1=3 --json a.jsonl --save a.safetensors"));
    succeed(&folder, &format!("{start} --split-from a.jsonl --json b.jsonl --save b.safetensors"));
    let rows = |name: &str| -> Vec<Vec<u64>> {
        let steps = json_lines(&folder, name).into_iter().filter(|line| line["kind"] == "step");
        let of =
            |step: &Value| step["adapters"].as_array().unwrap().iter().filter_map(|it| it["rows"].as_u64()).collect();
        steps.map(|step| of(&step)).collect()
    };
    assert!(rows("a.jsonl").iter().any(|shares| shares != &[32, 32]), "the split was learned");
    assert_eq!(rows("a.jsonl"), rows("b.jsonl"));
    assert_eq!(tensors(&folder.path().join("a.safetensors")), tensors(&folder.path().join("b.safetensors")));
    succeed(&folder, &format!("{start} --split 3:1 --json c.jsonl"));
    let error = refused(&folder, "train --adapters cpu --split-from c.jsonl --overwrite");
    assert!(error.contains("needs at least 2 adapters, but the run uses 1"), "{error}");
}

#[test]
fn early_stopping_goes_back_to_the_best_weights_over_a_resumption() {
    let folder = tempfile::tempdir().unwrap();
    let stopping = "[training]\nbatch_size = 64\nearly_stopping = { monitor = \"val_loss\", patience = 2 }\n";
    // So high a rate that the validation loss goes up and down.
    write(&folder, "a.toml", format!("{DENSE_DIGITS}{stopping}[optimizer]\ntype = \"Adam\"\nlearning_rate = 0.3\n"));
    let shown = succeed(&folder, "train a.toml --epochs 40 --save whole.safetensors --csv whole.csv");
    assert!(shown.contains("stopped early; the best weights: val_loss "), "{shown}");
    let epochs = fs::read_to_string(folder.path().join("whole.csv")).unwrap().lines().count() - 1;
    assert!((3..40).contains(&epochs), "{epochs}");
    succeed(&folder, &format!("train a.toml --epochs {} --save a.safetensors --csv a.csv", epochs - 1));
    succeed(&folder, "train a.toml --epochs 40 --resume a.safetensors --csv a.csv");
    let file = |name: &str| folder.path().join(name);
    assert!(tensors(&file("whole.safetensors")) == tensors(&file("a.safetensors")));
    let column = |name: &str, column: usize| -> Vec<String> {
        let mut table = csv::Reader::from_path(file(name)).unwrap();
        table.records().map(|record| record.unwrap()[column].to_owned()).collect()
    };
    assert_eq!(
        [0, 1, 4, 5, 6, 7].map(|idx| column("whole.csv", idx)),
        [0, 1, 4, 5, 6, 7].map(|idx| column("a.csv", idx))
    );
    assert!(
        succeed(&folder, "train a.toml --epochs 40 --resume a.safetensors")
            .contains("nothing to do: early stopping ended")
    );
}

#[test]
fn a_run_that_is_done_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    succeed(&folder, "train --epochs 1");
    let before = fs::read(folder.path().join("runs/1/last.safetensors")).unwrap();
    assert!(succeed(&folder, "train --epochs 1 --resume").contains("nothing to do: 1 epoch done"));
    assert_eq!(fs::read(folder.path().join("runs/1/last.safetensors")).unwrap(), before);
    assert!(!folder.path().join("runs/2").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_that_ends_with_an_error_keeps_what_was_trained() {
    let folder = tempfile::tempdir().unwrap();
    write_table(&folder, 2, 3, "");
    let error = refused(&folder, "train table.toml --batch-size 4 --epochs 2 --json /dev/full --save run.safetensors");
    assert!(error.contains("`/dev/full` can't be written"), "{error}");
    let goes_on = succeed(&folder, "train table.toml --batch-size 4 --epochs 2 --resume run.safetensors");
    // The step that was under way counts, too.
    assert!(goes_on.contains("resuming after step 2, with 0 of 2 epochs done"), "{goes_on}");
}

/// The widest line of a text, in columns.
fn widest(text: &str) -> (usize, &str) {
    text.lines().map(|line| (line.chars().count(), line)).max().unwrap_or_default()
}

#[test]
fn what_is_shown_fits_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let name = "a_dense_layer_with_a_name_that_says_very_exactly_what_it_is_there_for";
    let named = DENSE_DIGITS.replace("type = \"Dense\"", &format!("name = \"{name}\", type = \"Dense\""));
    write(&folder, "named.toml", named);
    let rig = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/rigs/eight.toml");
    let lines = [
        "adapters".to_owned(),
        "train --epochs 1 --adapters cpu,cpu,cpu --split 3:2:1".into(),
        "summary named.toml".into(),
        "summary runs/1/last.safetensors".into(),
        format!("simulate {rig}"),
        "bench steps --models mlp --steps 1 --rounds 1 --batch-size 8 --adapters cpu,cpu --split even".into(),
    ];
    for columns in [60, 80, 200] {
        for line in &lines {
            let mut command = command(&folder, line);
            let output = command.env_remove(ADAPTERS_VARIABLE).env("COLUMNS", columns.to_string()).output().unwrap();
            let shown = text(&output.stdout);
            assert!(output.status.success(), "{line}: {shown}{}", text(&output.stderr));
            assert!(widest(&shown).0 <= columns, "{line} at {columns}: {:?}\n{shown}", widest(&shown));
        }
    }
    // A table can be no wider than a format says: 65,535 columns.
    let wide = |columns| outputs_of(command(&folder, &lines[4]).env("COLUMNS", columns)).0;
    assert_eq!(wide("65536"), wide("65535"));
    // What other programs read stays as it is.
    let json = command(&folder, "adapters --json").env("COLUMNS", "20").output().unwrap();
    assert!(serde_json::from_slice::<Value>(&json.stdout).is_ok());
    let printed = command(&folder, "train --print-config").env("COLUMNS", "20").output().unwrap();
    assert_eq!(text(&printed.stdout), include_str!("../../cli/src/digits.toml"));
    // So does what no terminal shows.
    assert!(succeed(&folder, "summary named.toml").lines().any(|line| line.contains(name)));
}

#[test]
fn names_of_files_do_not_steer_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let named = DENSE_DIGITS.replace("type = \"Dense\"", "name = \"a\\u001B[31mb\", type = \"Dense\"");
    write(&folder, "named.toml", named);
    write_table(&folder, 2, 3, "");
    let table = fs::read_to_string(folder.path().join("table.csv")).unwrap();
    write(&folder, "table.csv", table.replace(",c\n", ",\u{1b}[2Jc\n"));
    for line in
        ["train named.toml --epochs 1", "summary runs/1/last.safetensors", "train table.toml --epochs 1 --save b"]
    {
        let output = run(&folder, line);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(!shown.contains('\u{1b}'), "{line}: {shown:?}");
    }
    assert!(succeed(&folder, "summary runs/1/last.safetensors").contains("a\\u{1b}[31mb (Dense)"));
}

/// Mesa's layer that looks for a desktop prints where there is none, and starting any driver takes time.
#[test]
fn drivers_are_quiet_and_not_started_for_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let output = |line: &str, log: &str| {
        let mut command = command(&folder, line);
        command.env_remove("XDG_RUNTIME_DIR").env_remove("NODEVICE_SELECT").env_remove(ADAPTERS_VARIABLE);
        let output = command.env("RUST_LOG", log).output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    assert_eq!(output("adapters", "error"), "");
    assert_eq!(output("train --epochs 1 --quiet", "error"), "");
    if cfg!(feature = "gpu") {
        assert_ne!(output("adapters", "wgpu_hal=trace"), "");
    }
    assert_eq!(output("train --epochs 1 --quiet --overwrite --adapters cpu,CPU", "wgpu_hal=trace"), "");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command(&folder, "train --epochs 2").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr).matches("`stdout` can't be written").count(), 1, "{}", text(&output.stderr));
}

#[cfg(target_os = "linux")]
#[test]
fn a_result_that_can_not_be_written_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let status = command(&folder, "train --print-config").stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_batch_is_planned_for_no_more_rows_than_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let log = |batch_size: &str| {
        let output =
            run(&folder, &format!("train --epochs 1 --overwrite --batch-size {batch_size} --json {batch_size}.jsonl"));
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{batch_size}");
        json_lines(&folder, &format!("{batch_size}.jsonl"))
            .into_iter()
            .map(|line| line["loss"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(log("9000000000000"), log("1437"));
    let evaluated = succeed(&folder, "evaluate runs/1/last.safetensors --batch-size 9000000000000");
    assert!(evaluated.starts_with("360 rows: "), "{evaluated}");
}

/// Whatever the system refuses, the answer is a message: no panic, and none while another unwinds.
#[cfg(target_os = "linux")]
#[test]
fn tiny_limits_end_in_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let limits = (4..=12)
        .map(|files| format!("ulimit -n {files}"))
        .chain((20_000..=60_000).step_by(4_000).map(|kib| format!("ulimit -v {kib}")));
    for limit in limits {
        let starts = format!("{limit} && exec '{}' --version", env!("CARGO_BIN_EXE_manyhands"));
        // A program that is larger than its limit is killed by the system before its first instruction.
        if !program(&folder, "sh").args(["-c", &starts]).output().unwrap().status.success() {
            continue;
        }
        let told = fs::File::create(folder.path().join("told")).unwrap();
        let script = format!("{limit} && exec '{}' train --epochs 1 --overwrite", env!("CARGO_BIN_EXE_manyhands"));
        let mut child = program(&folder, "sh").args(["-c", &script]).stderr(told).spawn().unwrap();
        let status = wait(&mut child);
        let error = fs::read_to_string(folder.path().join("told")).unwrap();
        // Rust panics where a new thread gets no memory for the stack of its signals.
        let is_of_rust = error.contains("failed to allocate an alternative stack");
        assert!(!error.contains("panicked") || is_of_rust, "{limit}: {error}");
        match status.code() {
            Some(0) => {}
            _ if is_of_rust => {}
            Some(1) => assert!(error.contains("error: ") && error.contains("  help: "), "{limit}: {error}"),
            // Rust and the C library end a program that gets no memory for a small thing, with messages of their own.
            None if ["memory allocation of ", "Fatal glibc error"].iter().any(|it| error.contains(it)) => {}
            other => panic!("{limit}: {other:?} {error}"),
        }
    }
}

#[test]
fn what_was_read_is_told_first() {
    let folder = tempfile::tempdir().unwrap();
    write_table(&folder, 2, 3, "");
    let shown = succeed(&folder, "train table.toml --epochs 1");
    let expected = "training data: 40 rows of 2 input columns: x, y\n  3 classes of `kind`: a (14), b (13), c (13)\n";
    assert!(shown.contains(expected), "{shown}");
    assert!(succeed(&folder, "train --epochs 1 --overwrite").contains("validation data: 360 rows of [8, 8, 1]\n"));
    assert!(!succeed(&folder, "train table.toml --epochs 1 --overwrite --quiet").contains("training data"));
}

#[test]
fn an_image_that_can_t_be_read_stops_no_other_prediction() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["train/a/1.png", "train/b/2.png", "new/1.png", "new/3.png"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        image::RgbImage::from_pixel(2, 2, image::Rgb([9, 90, 200])).save(path).unwrap();
    }
    write(&folder, "new/2.png", "no image");
    let settings = |more: &str| {
        format!(
            "[data]\ntype = \"image_folder\"\ntrain = \"train\"\nheight = 2\nwidth = 2\n{more}\n[model]\ninput = [2, 2, 3]\n\
             layers = [{{ type = \"Flatten\" }}, {{ type = \"Dense\", units = 2 }}]\n\
             [loss]\ntype = \"SparseCategoricalCrossentropy\"\n"
        )
    };
    write(&folder, "run.toml", settings(""));
    write(&folder, "skip.toml", settings("unreadable = \"skip\""));
    succeed(&folder, "train run.toml --epochs 1");
    let output = run(&folder, "predict runs/1/last.safetensors --config run.toml --input new");
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<String> = text(&output.stdout).lines().map(String::from).collect();
    assert_eq!((lines.len(), lines[2].as_str()), (4, "1,2.png,,,"), "{lines:?}");
    assert!(lines[3].starts_with("2,3.png,") && !lines[3].ends_with(','), "{lines:?}");
    let error = text(&output.stderr);
    assert!(error.contains("new/2.png` needs to be PNG, JPEG or BMP, but is none of them"), "{error}");
    assert!(error.contains("error: 1 of 3 rows need a file that can be read"), "{error}");
    let skipped = succeed(&folder, "predict runs/1/last.safetensors --config skip.toml --input new");
    assert_eq!(skipped.lines().count(), 3, "{skipped}");
    write(&folder, "train/a/bad.png", "no image");
    assert!(
        refused(&folder, "train run.toml --epochs 1 --overwrite")
            .contains("train/a/bad.png` needs to be PNG, JPEG or BMP")
    );
    let trained = succeed(&folder, "train skip.toml --epochs 1 --save skipped.safetensors");
    assert!(trained.contains("1 file is left out, unreadable: `a/bad.png`"), "{trained}");
}
