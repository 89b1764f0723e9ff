//! Does a model file alone say what its inputs and outputs mean, and how it is judged?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use manyhands::data::{BatchMut, Dataset, Format, InMemory, Schema, digits};
use manyhands::layers::{Dense, Flatten};
use manyhands::{Checkpoint, Compile, Fit, Loss, Model, Optimizer, Sequential, Shape, Trainer};
use ndarray::{Array1, array};
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{outputs, refused, succeed};

fn write(folder: &TempDir, name: &str, text: impl AsRef<[u8]>) {
    fs::write(folder.path().join(name), text).unwrap();
}

/// Two classes of rows that a line tells apart, under these names.
fn table(names: [&str; 2]) -> String {
    let row = |at: usize| format!("{},{},{}\n", at % 2 * 8, at % 3, names[at % 2]);
    format!("x,y,kind\n{}", (0..60).map(row).collect::<String>())
}

fn settings(target_kind: &str, units: usize, loss: &str, more: &str) -> String {
    format!(
        "[data]\ntype = \"csv\"\ntrain = \"train.csv\"\ntarget = \"kind\"\ntarget_kind = \"{target_kind}\"\n\
         [model]\ninput = [2]\nlayers = [{{ type = \"Dense\", units = {units} }}]\n[loss]\ntype = \"{loss}\"\n\
         [optimizer]\ntype = \"Adam\"\nlearning_rate = 0.1\n[training]\nepochs = 40\nvalidation = \"none\"\n{more}"
    )
}

/// Trains in one folder, and sends the file alone to another.
fn trained(table: &str, settings: &str) -> (TempDir, String) {
    let (home, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(&home, "train.csv", table);
    write(&home, "run.toml", settings);
    let (_, warnings) = outputs(&home, "train run.toml --quiet --save model.safetensors");
    fs::copy(home.path().join("model.safetensors"), away.path().join("model.safetensors")).unwrap();
    (away, warnings)
}

fn evaluated(folder: &TempDir, line: &str) -> Value {
    serde_json::from_str(&succeed(folder, &format!("evaluate model.safetensors --json {line}"))).unwrap()
}

/// The column of a table.
fn column(table: &str, name: &str) -> Vec<String> {
    let at = table.lines().next().unwrap().split(',').position(|it| it == name).unwrap();
    table.lines().skip(1).map(|line| line.split(',').nth(at).unwrap().to_owned()).collect()
}

#[test]
fn a_file_alone_names_the_classes_of_more_units_than_classes() {
    let rows = |at: usize| format!("{},{},{}\n", at % 3 * 8, at % 3 % 2 * 9, [0, 1, 3][at % 3]);
    let table = format!("x,y,kind\n{}", (0..60).map(rows).collect::<String>());
    let (folder, warnings) = trained(&table, &settings("classes", 4, "SparseCategoricalCrossentropy", ""));
    assert!(warnings.contains("output `dense` has 4 units for 3 classes: 1 of them can never be right"), "{warnings}");
    write(&folder, "new.csv", "y,id,x\n0,a,0\n9,b,8\n0,c,16\n");
    let predicted = succeed(&folder, "predict model.safetensors --input new.csv");
    let header = "row,class,probability_0,probability_1,probability_3,probability_unit 3";
    assert_eq!(predicted.lines().next(), Some(header));
    assert_eq!(column(&predicted, "class"), ["0", "1", "3"]);

    write(&folder, "test.csv", "kind,y,x\n3,0,16\n3,0,16\n1,9,8\n");
    assert_eq!(evaluated(&folder, "--data test.csv")["accuracy"], 1.0);
    write(&folder, "test.csv", "kind,y,x\n2,0,16\n");
    let error = refused(&folder, "evaluate model.safetensors --data test.csv");
    assert!(error.contains("needs one of the training table's classes (0, 1, 3), but holds `2`"), "{error}");
}

#[test]
fn a_file_alone_names_the_classes_of_one_binary_unit() {
    for names in [["no", "yes"], ["1", "2"]] {
        let (folder, _) = trained(&table(names), &settings("classes", 1, "BinaryCrossentropy", ""));
        write(&folder, "new.csv", "0,0\n8,1\n");
        let predicted = succeed(&folder, "predict model.safetensors --input new.csv");
        assert_eq!(predicted.lines().next(), Some(format!("row,class,probability_{}", names[1]).as_str()));
        assert_eq!(column(&predicted, "class"), names);
        write(&folder, "test.csv", format!("kind,x,y\n{},8,1\n{},0,2\n", names[1], names[0]));
        assert_eq!(evaluated(&folder, "--data test.csv")["accuracy"], 1.0);
    }
    let three = "x,y,kind\n1,1,a\n2,2,b\n3,3,c\n";
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "train.csv", three);
    write(&folder, "run.toml", settings("classes", 1, "BinaryCrossentropy", ""));
    let error = refused(&folder, "train run.toml");
    assert!(
        error.contains(
            "output `dense` needs at most 2 classes for its one unit, but the data have 3\n  help: for several"
        ),
        "{error}"
    );
}

#[test]
fn a_file_alone_names_the_values_of_a_regression() {
    let rows: String = (0..30).map(|at| format!("{at},{},{}\n", at % 4, f64::from(at) / 10.0)).collect();
    let (folder, _) = trained(&format!("x,y,kind\n{rows}"), &settings("values", 1, "MeanSquaredError", ""));
    write(&folder, "new.csv", "y,x\n1,2\n");
    let predicted = succeed(&folder, "predict model.safetensors --input new.csv");
    assert_eq!(predicted.lines().next(), Some("row,value_kind"));
    write(&folder, "test.csv", "kind,y,x\n1,3,10\n");
    let values = evaluated(&folder, "--data test.csv");
    assert!(values["loss"].as_f64().is_some() && values["mean_absolute_error"].as_f64().is_some(), "{values}");
}

#[test]
fn settings_that_differ_from_the_file_are_read_by_its_names() {
    let (folder, _) = trained(&table(["b", "a"]), &settings("classes", 2, "SparseCategoricalCrossentropy", ""));
    // Other columns, another order, one class alone: its label is still that of the file.
    write(&folder, "train.csv", "id,kind,y,x\n7,b,0,0\n8,b,1,0\n");
    write(&folder, "run.toml", settings("classes", 2, "SparseCategoricalCrossentropy", ""));
    assert_eq!(evaluated(&folder, "--config run.toml --part train")["accuracy"], 1.0);
    write(&folder, "train.csv", "x,y,kind\n0,0,c\n");
    let error = refused(&folder, "evaluate model.safetensors --config run.toml --part train");
    assert!(error.contains("needs one of the training table's classes (a, b), but holds `c`"), "{error}");
    // A run that goes on keeps the labels, too.
    write(&folder, "train.csv", "y,x,kind\n0,0,b\n1,0,b\n");
    succeed(&folder, "train run.toml --quiet --epochs 41 --resume model.safetensors");
    assert_eq!(Model::load(folder.path().join("model.safetensors")).unwrap().schema().classes(0), ["a", "b"]);
}

#[test]
fn rows_that_validation_held_out_are_evaluated_later() {
    let home = tempfile::tempdir().unwrap();
    write(&home, "train.csv", table(["no", "yes"]));
    let more = settings("classes", 2, "SparseCategoricalCrossentropy", "").replace("\"none\"", "0.2");
    write(&home, "run.toml", more.replace("epochs = 40", "epochs = 2\nseed = 5"));
    succeed(&home, "train run.toml --quiet --save model.safetensors --json log.jsonl");
    let log = fs::read_to_string(home.path().join("log.jsonl")).unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let held_out = evaluated(&home, "--data train.csv --rows validation");
    let near = |a: &Value, b: &Value| (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-6;
    assert!(near(&held_out["loss"], &last["val_loss"]), "{held_out} {last}");
    assert!(near(&evaluated(&home, "--config run.toml --part validation")["loss"], &last["val_loss"]));
    let all = evaluated(&home, "--data train.csv");
    assert!(!near(&all["loss"], &last["val_loss"]));
    // `train` is the rest: both parts together make the whole.
    let rest = evaluated(&home, "--config run.toml --part train");
    let loss = |values: &Value| values["loss"].as_f64().unwrap();
    assert!((48.0 * loss(&rest) + 12.0 * loss(&held_out) - 60.0 * loss(&all)).abs() < 1e-4, "{rest} {held_out} {all}");
    let shown = succeed(&home, "evaluate model.safetensors --config run.toml --part train");
    assert!(shown.starts_with("48 rows: "), "{shown}");
    write(&home, "less.csv", "x,y,kind\n0,0,no\n");
    let error = refused(&home, "evaluate model.safetensors --data less.csv --part validation");
    assert!(error.contains("need the 60 rows that they were drawn from, but the data have 1"), "{error}");
}

#[test]
fn weights_and_outputs_that_are_no_numbers_are_refused() {
    let (folder, _) = trained(&table(["no", "yes"]), &settings("classes", 2, "SparseCategoricalCrossentropy", ""));
    let file = folder.path().join("model.safetensors");
    let mut model = Model::load(&file).unwrap();
    write(&folder, "new.csv", "x,y\n1,1\n3e37,3e37\n");
    write(&folder, "test.csv", "x,y,kind\n1,1,no\n3e37,3e37,no\n");
    model.tensor_mut("dense/kernel").unwrap().fill(20.0);
    model.save(&file).unwrap();
    let expected = "error: output `dense` of row 1 needs finite numbers, but holds inf";
    for line in ["predict model.safetensors --input new.csv", "evaluate model.safetensors --data test.csv"] {
        let error = refused(&folder, line);
        assert!(error.contains(expected) && error.contains("  help: check the row's values"), "{error}");
    }
    model.tensor_mut("dense/kernel").unwrap()[3] = f32::NAN;
    model.save(&file).unwrap();
    let expected = "tensor `dense/kernel` of the model, needs finite numbers, but element 3 is NaN";
    for line in ["predict model.safetensors --input new.csv", "evaluate model.safetensors --data test.csv"] {
        let error = refused(&folder, line);
        assert!(error.contains(expected) && error.contains("  help: its training has diverged"), "{error}");
    }
}

fn named(classes: [&str; 2]) -> InMemory {
    let inputs = array![[0.0, 1.0], [4.0, 1.0], [0.0, 2.0], [4.0, 0.0]];
    let data = InMemory::new(inputs, array![0.0, 1.0, 0.0, 1.0]).unwrap();
    data.with_schema(Schema::with_classes(Format::Other, classes))
}

fn trainer(model: Model) -> Trainer {
    let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    Trainer::new(model, compile).unwrap().adapters("cpu").unwrap()
}

#[test]
fn the_library_writes_names_as_the_command_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.safetensors");
    let model = || Sequential::new([2]).add(Dense::new(2)).build(0).unwrap();
    let mut run = trainer(model());
    run.fit(named(["cat", "dog"]), &Fit::new(1).save(&file)).unwrap();
    for read in [Model::load(&file).unwrap(), Checkpoint::load(&file).unwrap().model] {
        assert_eq!(read.schema().classes(0), ["cat", "dog"]);
        let evaluation = read.evaluation().unwrap();
        assert_eq!(evaluation.losses[0].name(), "SparseCategoricalCrossentropy");
        let again = Trainer::new(read.clone(), Compile::for_evaluation(evaluation)).unwrap().adapters("cpu").unwrap();
        let values = { again }.evaluate(named(["cat", "dog"]), 4).unwrap();
        assert_eq!(values.get("loss"), run.evaluate(named(["cat", "dog"]), 4).unwrap().get("loss"));
    }
    // Other classes, or the same as other labels, are refused by name; a new run may learn them.
    let error = run.evaluate(named(["dog", "cat"]), 4).unwrap_err().to_string();
    assert!(
        error.starts_with("output `dense` needs class `dog` as label 1, but the data have it as label 0"),
        "{error}"
    );
    let error = run.evaluate(named(["cat", "cow"]), 4).unwrap_err().to_string();
    assert!(error.starts_with("output `dense` needs the classes of its training (cat, dog), but the data have `cow`"));
    let mut other = trainer(Model::load(&file).unwrap());
    other.fit(named(["cow", "pig"]), &Fit::new(1)).unwrap();
    assert_eq!(other.model().schema().classes(0), ["cow", "pig"]);
}

#[test]
fn a_file_without_names_is_read_as_before() {
    let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0).unwrap();
    let old = Model::from_bytes(&model.to_bytes().unwrap(), "old", &[]).unwrap();
    assert_eq!((old.schema(), old.evaluation()), (&Schema::default(), None));
    let folder = tempfile::tempdir().unwrap();
    old.save(folder.path().join("old.safetensors")).unwrap();
    let predicted = succeed(&folder, "predict old.safetensors");
    assert!(predicted.starts_with("row,class,probability_0,"), "{predicted}");
    assert!(succeed(&folder, "evaluate old.safetensors").starts_with("360 rows: loss "));
    let mut named = old;
    named.set_schema(digits::test().unwrap().schema());
    let named = Model::from_bytes(&named.to_bytes().unwrap(), "named", &[]).unwrap();
    assert_eq!(named.schema().classes(0).len(), 10);
}

#[test]
fn a_loss_that_is_not_known_hinders_no_prediction() {
    let mut run = trainer(Sequential::new([2]).add(Dense::new(2)).build(0).unwrap());
    run.fit(named(["cat", "dog"]), &Fit::new(1)).unwrap();
    let bytes = run.model().to_bytes().unwrap();
    let (name, other) = (b"SparseCategoricalCrossentropy", b"A loss of a program of its own");
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    let foreign = [&bytes[..at], &other[..name.len()], &bytes[at + name.len()..]].concat();
    let model = Model::from_bytes(&foreign, "foreign", &[]).unwrap();
    assert_eq!((model.evaluation(), model.schema().classes(0).len()), (None, 2));
    let damaged = String::from_utf8_lossy(&bytes[8..]).find("manyhands.evaluation").unwrap() + 8;
    let mut broken = bytes.clone();
    let brace = broken[damaged..].iter().position(|byte| *byte == b'{').unwrap() + damaged;
    broken[brace] = b'[';
    let error = Model::from_bytes(&broken, "broken", &[]).unwrap_err().to_string();
    assert!(error.starts_with("`broken` has metadata `manyhands.evaluation` that can't be read: "), "{error}");
}

/// Counts the batches that were read in threads of a loader.
struct Watched(Arc<AtomicUsize>);

impl Dataset for Watched {
    fn len(&self) -> usize {
        8
    }

    fn input_shapes(&self) -> Vec<Shape> {
        vec![Shape::new([2])]
    }

    fn target_shapes(&self) -> Vec<Shape> {
        vec![Shape::new([])]
    }

    fn fetch(&self, _rows: &[usize], batch: &mut BatchMut<'_>) -> manyhands::Result<()> {
        let is_loader = std::thread::current().name().is_some_and(|name| name.starts_with("loader"));
        self.0.fetch_add(usize::from(is_loader), Ordering::Relaxed);
        batch.input(0).fill(1.0);
        Ok(())
    }
}

#[test]
fn validation_and_prediction_keep_to_the_workers() {
    let read = Arc::new(AtomicUsize::new(0));
    let model = || Sequential::new([2]).add(Dense::new(2)).build(0).unwrap();
    let targets = || InMemory::new(array![[1.0, 2.0], [3.0, 4.0]], Array1::zeros(2)).unwrap();
    let fit = Fit::new(1).workers(0).validation(Watched(read.clone()));
    let mut run = trainer(model());
    run.fit(targets(), &fit).unwrap();
    run.predict(Watched(read.clone()), 4).unwrap();
    assert_eq!(read.load(Ordering::Relaxed), 0, "no thread is asked for");
    let mut run = trainer(model()).workers(0);
    run.evaluate(Watched(read.clone()), 4).unwrap();
    assert_eq!(read.load(Ordering::Relaxed), 0);
    let mut run = trainer(model()).workers(2);
    run.evaluate(Watched(read.clone()), 4).unwrap();
    assert!(read.load(Ordering::Relaxed) > 0);
    assert_eq!(Fit::default().workers, manyhands::data::LoaderSettings::default().workers);
}
