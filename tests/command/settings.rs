//! Do the example settings train, evaluate and predict?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::path::Path;

use manyhands::Model;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{refused, succeed};

/// Where the paths of the examples start.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const DATA: &str = "examples/settings/data";

/// Trains an example; gives the folder with its file, and what an evaluation of it says.
fn trained(name: &str, evaluate: &str) -> (TempDir, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors").display().to_string();
    let root = Path::new(ROOT);
    succeed(root, &format!("train examples/settings/{name}.toml --quiet --save {file}"));
    let said = succeed(root, &format!("evaluate {file} --json {evaluate}"));
    (folder, serde_json::from_str(&said).unwrap())
}

fn predicted(folder: &TempDir, input: &str) -> Vec<Vec<String>> {
    let file = folder.path().join("model.safetensors").display().to_string();
    let table = succeed(Path::new(ROOT), &format!("predict {file} --input {DATA}/{input}"));
    table.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn number(values: &Value, name: &str) -> f64 {
    values[name].as_f64().unwrap_or_else(|| panic!("{name}: {values}"))
}

/// `>` of Windows PowerShell 5.1 writes UTF-16.
#[test]
fn settings_may_be_utf_16() {
    let folder = tempfile::tempdir().unwrap();
    let units = format!("\u{feff}{}", succeed(&folder, "train --print-config")).encode_utf16().collect::<Vec<_>>();
    let bytes = |of: fn(u16) -> [u8; 2]| units.iter().flat_map(|unit| of(*unit)).collect::<Vec<u8>>();
    for (name, bytes) in [("little.toml", bytes(u16::to_le_bytes)), ("big.toml", bytes(u16::to_be_bytes))] {
        fs::write(folder.path().join(name), &bytes).unwrap();
        succeed(&folder, &format!("train {name} --dry-run --adapters cpu"));
        fs::write(folder.path().join("half.toml"), &bytes[..bytes.len() - 1]).unwrap();
        assert!(refused(&folder, "train half.toml --dry-run").contains("starts as UTF-16"), "{name}");
    }
}

#[test]
fn a_table_with_classes() {
    let (folder, values) = trained("table", &format!("--data {DATA}/flowers_test.csv"));
    assert!(number(&values, "accuracy") > 0.9, "{values}");
    let rows = predicted(&folder, "flowers_test.csv");
    assert_eq!(rows[0], ["row", "class", "probability_daisy", "probability_rose", "probability_tulip"]);
    assert_eq!(rows.len(), 31);
    assert_eq!((&*rows[1][1], &*rows[2][1], &*rows[3][1]), ("daisy", "rose", "tulip"));
}

/// Keys of Keras that concern training, in a file: what is right trains, what is wrong is told with its key.
#[test]
fn penalties_clipping_and_weights_of_classes() {
    let (folder, root) = (tempfile::tempdir().unwrap(), Path::new(ROOT));
    let example = fs::read_to_string(root.join("examples/settings/table.toml")).unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let command = format!("train {} --quiet --overwrite --epochs 2 --save {}", at("run.toml"), at("run.safetensors"));
    let write = |layer: &str, optimizer: &str, training: &str| {
        let text = example.replacen("type = \"Dense\",", &format!("type = \"Dense\", {layer},"), 1);
        let text = text.replacen("[optimizer]", &format!("[optimizer]\n{optimizer}"), 1);
        let text = text.replacen("[training]", &format!("[training]\n{training}"), 1);
        assert!([layer, optimizer, training].iter().all(|part| text.contains(part)), "{text}");
        fs::write(at("run.toml"), text).unwrap();
    };
    let (layer, weights) = ("kernel_regularizer = { L2 = 0.01 }", "class_weight = { rose = 2.0, 1 = 0.5 }");
    write(layer, "clipvalue = 0.5", weights);
    succeed(root, &command);
    let model = Model::load(at("run.safetensors")).unwrap();
    assert_eq!(model.config().layers[0].settings["kernel_regularizer"]["l2"], 0.01);
    for (layer, optimizer, training, needed) in [
        (
            "kernel_regularizer = \"l7\"",
            "clipnorm = 1",
            weights,
            "key `kernel_regularizer`, needs a known name, but got `l7`",
        ),
        (
            "gamma_regularizer = \"l2\"",
            "clipnorm = 1",
            weights,
            "has a `gamma_regularizer`, but its parameters are: `kernel`, `bias`",
        ),
        (layer, "clipnorm = 0", weights, "needs `clipnorm` above 0, but got 0"),
        (layer, "global_clipnorm = 1.0", weights, "write `clip_norm` in `[training]`"),
        (layer, "clipnorm = 1.0", "class_weight = { ros = 2.0 }", "did you mean `rose`?"),
        (layer, "clipnorm = 1.0", "class_weight = { 3 = 2.0 }", "needs classes from 0 to 2, but names 3"),
        (
            layer,
            "clipnorm = 1.0",
            "class_weight = \"even\"",
            "needs \"balanced\", or weights of classes such as { rose = 2.0 }",
        ),
    ] {
        write(layer, optimizer, training);
        let error = refused(root, &command);
        assert!(error.contains(needed), "{error}");
    }
}

#[test]
fn a_table_of_texts() {
    let (folder, values) = trained("sentences", &format!("--data {DATA}/sentences_test.csv"));
    assert!(number(&values, "accuracy") > 0.9, "{values}");
    let rows = predicted(&folder, "sentences_test.csv");
    assert_eq!(rows[0], ["row", "class", "probability_food", "probability_weather"]);
    assert_eq!((&*rows[1][1], &*rows[2][1], rows.len()), ("food", "weather", 31));
}

#[test]
fn a_text() {
    let (_folder, values) = trained("text", "--data CONTRIBUTING.md");
    // The characters of another text, with the numbers that the training text gave them.
    assert!(number(&values, "accuracy") > 0.25, "{values}");
}

#[test]
fn a_folder_of_images() {
    let (folder, values) = trained("images", &format!("--data {DATA}/bars/test"));
    assert!(number(&values, "accuracy") > 0.8, "{values}");
    let rows = predicted(&folder, "bars/test");
    assert_eq!(rows[0], ["row", "file", "class", "probability_across", "probability_upright"]);
    assert_eq!((&*rows[1][1], rows.len()), ("across/1.png", 7));
}

/// The trunk of `images` stays to the bit; `frozen` trains its head.
#[test]
fn a_trained_model_with_frozen_layers() {
    let (folder, _) = trained("images", &format!("--data {DATA}/bars/test"));
    let at = |name: &str| folder.path().join(name).display().to_string();
    let example = fs::read_to_string(Path::new(ROOT).join("examples/settings/frozen.toml")).unwrap();
    let settings = example.replace("\"bars.safetensors\"", &format!("'{}'", at("model.safetensors")));
    fs::write(at("frozen.toml"), &settings).unwrap();
    let root = Path::new(ROOT);
    succeed(root, &format!("train {} --quiet --save {}", at("frozen.toml"), at("head.safetensors")));
    let [before, after] = ["model.safetensors", "head.safetensors"].map(|name| Model::load(at(name)).unwrap());
    for (name, is_same) in [("conv2d/kernel", true), ("conv2d/bias", true), ("dense/kernel", false)] {
        assert_eq!(before.tensor(name) == after.tensor(name), is_same, "{name}");
    }
    assert_eq!((after.is_trainable("conv2d"), after.is_trainable("dense")), (Some(false), Some(true)));
    // A run that goes on has the same layers frozen.
    succeed(root, &format!("train {} --quiet --epochs 11 --resume {}", at("frozen.toml"), at("head.safetensors")));

    fs::write(at("typo.toml"), settings.replace("[\"dense\"]", "[\"desne\"]")).unwrap();
    let error = refused(root, &format!("train {} --quiet --save {}", at("typo.toml"), at("other.safetensors")));
    assert!(error.contains("key `trainable`, layer `desne` needs to be a layer of the model"), "{error}");
    assert!(error.contains("did you mean `dense`?"), "{error}");
}

#[test]
fn regression() {
    let (folder, values) = trained("regression", "--part validation --config examples/settings/regression.toml");
    // The prices' own variance is about 1.
    assert!(number(&values, "loss") < 0.2, "{values}");
    let rows = predicted(&folder, "houses_test.csv");
    assert_eq!((&rows[0][..], rows.len()), (&["row".to_owned(), "value_price".to_owned()][..], 41));
    let settings = fs::read_to_string(Path::new(ROOT).join("examples/settings/regression.toml")).unwrap();
    let balanced = folder.path().join("balanced.toml");
    fs::write(&balanced, settings.replace("[training]", "[training]\nclass_weight = \"balanced\"")).unwrap();
    let error = refused(Path::new(ROOT), &format!("train {} --quiet --dry-run", balanced.display()));
    assert!(error.contains("`class_weight = \"balanced\"` needs a target of classes"), "{error}");
    let file = folder.path().join("model.safetensors").display().to_string();
    let error = refused(Path::new(ROOT), &format!("evaluate {file} --config examples/settings/regression.toml"));
    assert!(error.contains("or use `--part validation` or `--part train`"), "{error}");
}

/// Mean of each column of numbers of a table but the last one, which is the target.
fn column_means(table: &str) -> Vec<f64> {
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let header: Vec<&str> = table.lines().next().unwrap().split(',').collect();
    let inputs = header.iter().enumerate().filter(|(_, name)| !["kind", "price"].contains(name));
    let mean = |at: usize| rows.iter().map(|row| row[at].parse::<f64>().unwrap()).sum::<f64>() / rows.len() as f64;
    inputs.map(|(at, _)| mean(at)).collect()
}

/// Before its first step, a run brings inputs to mean 0 by the training rows; one that goes on leaves them.
#[test]
fn a_normalization_is_adapted_to_the_training_rows() {
    let (folder, root) = (tempfile::tempdir().unwrap(), Path::new(ROOT));
    let example = fs::read_to_string(root.join("examples/settings/regression.toml")).unwrap();
    let layers = "layers = [{ type = \"Normalization\" }, ";
    let (settings, file) = (folder.path().join("run.toml"), folder.path().join("model.safetensors"));
    let text = example
        .replace("layers = [", layers)
        .replace("[data]", "[data]\nnumbers = \"unchanged\"")
        .replace("epochs = 40", "epochs = 1")
        .replace("validation = 0.2", "");
    fs::write(&settings, text).unwrap();
    let [settings, file] = [settings, file].map(|path| path.display().to_string());
    succeed(root, &format!("train {settings} --quiet --save {file}"));
    let needed = column_means(&fs::read_to_string(root.join(DATA).join("houses_train.csv")).unwrap());
    let adapted = || Model::load(&file).unwrap().tensor("normalization/mean").unwrap().to_vec();
    let first = adapted();
    for (mean, needed) in first.iter().zip(&needed) {
        assert!((f64::from(*mean) - needed).abs() < 1e-4 * (1.0 + needed.abs()), "{first:?} {needed:?}");
    }
    succeed(root, &format!("train {settings} --quiet --epochs 2 --resume {file}"));
    assert_eq!((adapted(), first.len()), (first, needed.len()));
}

/// Price of each row of a table, and whether it is a house.
fn prices_and_kinds(name: &str) -> Vec<(f64, bool)> {
    let mut reader = csv::Reader::from_path(Path::new(ROOT).join(DATA).join(name)).unwrap();
    let header = reader.headers().unwrap().clone();
    let [price, kind] = ["price", "kind"].map(|name| header.iter().position(|it| it == name).unwrap());
    let row = |row: csv::StringRecord| (row[price].parse().unwrap(), &row[kind] == "house");
    reader.records().map(|record| row(record.unwrap())).collect()
}

#[test]
fn two_inputs_and_two_outputs() {
    let (folder, values) = trained("two_inputs_two_outputs", &format!("--data {DATA}/houses_test.csv"));
    assert!(number(&values, "price_loss") < 0.2 && number(&values, "kind_accuracy") > 0.85, "{values}");
    // The mean price and the parts of the kinds in training, on the test rows; the second loss counts by half.
    let [train, test] = ["houses_train.csv", "houses_test.csv"].map(prices_and_kinds);
    let all = |rows: &[(f64, bool)], f: &dyn Fn(&(f64, bool)) -> f64| {
        rows.iter().map(f).sum::<f64>() / f64::from(u32::try_from(rows.len()).unwrap())
    };
    let (mean, houses) = (all(&train, &|it| it.0), all(&train, &|it| f64::from(u8::from(it.1))));
    let price = all(&test, &|it| (it.0 - mean).powi(2));
    let kind = all(&test, &|it| if it.1 { -houses.ln() } else { -(1.0 - houses).ln() });
    for (name, needed) in [("price_loss", price), ("kind_loss", kind), ("loss", price + kind / 2.0)] {
        let got = number(&values["baseline"], name);
        assert!((got - needed).abs() < 1e-5 * (1.0 + needed), "{name}: {got}, needs {needed}");
    }
    let rows = predicted(&folder, "houses_test.csv");
    assert_eq!(rows[0], ["row", "price_value_price", "kind_class", "kind_probability_flat", "kind_probability_house"]);
    assert!(rows[1..].iter().all(|row| row[2] == "flat" || row[2] == "house"));
}

#[test]
fn every_example_is_tested() {
    let names = fs::read_dir(Path::new(ROOT).join("examples/settings")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".toml")).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "frozen.toml",
            "images.toml",
            "regression.toml",
            "sentences.toml",
            "table.toml",
            "text.toml",
            "two_inputs_two_outputs.toml"
        ]
    );
}
