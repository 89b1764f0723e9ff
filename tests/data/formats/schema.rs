//! Names of columns and classes, several inputs and outputs, and what is read from where.

use std::path::PathBuf;
use std::sync::Arc;

use manyhands::data::{Format, HeldOut, Schema, split};

use super::*;

const HOUSES: &str = "area,north,price,rooms,kind,east\n100,1,7,3,hut,-1\n50,2,5,1,flat,-2\n70,3,6,2,hut,-3\n";

fn houses(folder: &TempDir, more: &str) -> DataConfig {
    let path = write(folder, "houses.csv", HOUSES);
    config(&format!(
        "type = 'csv'\ntrain = '{}'\nnumbers = 'unchanged'\n\
         inputs = [{{ name = 'place', columns = ['north', 'east'] }}, {{ name = 'house', columns = ['area', 3] }}]\n\
         outputs = [{{ name = 'price', target = 'price', target_kind = 'values' }}, \
         {{ name = 'kind', target = 'kind', target_kind = 'classes' }}]\n{more}",
        path.display()
    ))
}

#[test]
fn a_table_feeds_several_inputs_and_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let data = houses(&folder, "").open().unwrap().train;
    let batch = all(&data);
    assert_eq!(batch.inputs[0][..], [1.0, -1.0, 2.0, -2.0, 3.0, -3.0]);
    assert_eq!(batch.inputs[1][..], [100.0, 3.0, 50.0, 1.0, 70.0, 2.0]);
    assert_eq!(batch.targets[0][..], [7.0, 5.0, 6.0]);
    assert_eq!(batch.targets[1][..], [1.0, 0.0, 1.0]);
    assert_eq!(data.target_shapes(), [Shape::new([1]), Shape::new([])]);
    let schema = data.schema();
    assert_eq!(schema.inputs[1].column_names(), ["area", "rooms"]);
    assert_eq!(
        (schema.targets[0].name.as_deref(), schema.classes(1)),
        (Some("price"), &["flat", "hut"].map(String::from)[..])
    );
}

#[test]
fn several_inputs_take_the_model_s_order_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = houses(&folder, "").in_order(&["house", "place"], &["kind", "price"]).unwrap().open().unwrap().train;
    let batch = all(&data);
    assert_eq!(batch.inputs[0][..2], [100.0, 3.0]);
    assert_eq!(batch.targets[0][..], [1.0, 0.0, 1.0]);
    assert_eq!(
        message(houses(&folder, "").in_order(&["a", "b"], &["kind", "price"])),
        "`[data]`, input `place`, needs to be an input of the model, but the model has a, b\n  \
         help: name each input as the model does"
    );
    assert!(
        message(houses(&folder, "").in_order(&["house", "place"], &["kind"]))
            .starts_with("`[data]`, output `price`, needs to be an output of the model, but the model has kind")
    );
}

#[test]
fn tables_with_parts_that_clash_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let both = houses(&folder, "target = 'price'\ntarget_kind = 'values'");
    assert!(message(both.open()).starts_with("`[data]` needs either `target` and `target_kind`, or `outputs`"));
    let neither = config("type = 'csv'\ntrain = 'none.csv'\ntarget = 'price'");
    assert!(message(neither.open()).starts_with("`[data]` needs either `target` and `target_kind`, or `outputs`"));
    let path = write(&folder, "t.csv", "a,b,y\n1,2,3\n");
    let settings = CsvSettings {
        inputs: vec![InputColumns::new("x", [Column::Index(0), Column::Index(2)])],
        ..by_name("y", TargetKind::Values)
    };
    assert_eq!(
        message_in(&folder, csv::open(&path, &settings)),
        "`t.csv`, input `x`, needs columns that are no target and no weight, but has column 2\n  \
         help: a column is an input or a target, not both"
    );
}

/// What a model was trained on is read again from its schema alone, also after its way through a file.
#[test]
fn a_schema_reads_new_data_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let schema = houses(&folder, "").open().unwrap().train.schema();
    let text = serde_json::to_string(&schema).unwrap();
    let schema: Schema = serde_json::from_str(&text).unwrap();

    let moved = "kind,east,rooms,area,north,price,id\nflat,-9,8,7,6,5,x\n";
    let path = write(&folder, "moved.csv", moved);
    let data = DataConfig::of_schema(&schema, &path).unwrap();
    let batch = all(&data.open_like(&schema).unwrap().train);
    assert_eq!((&batch.inputs[0][..], &batch.inputs[1][..]), (&[6.0, -9.0][..], &[7.0, 8.0][..]));
    assert_eq!((batch.targets[0][0], batch.targets[1][0]), (5.0, 0.0), "the label is that of the training data");

    let path = write(&folder, "new.csv", "north,area,rooms,east\n6,7,8,-9\n");
    let inputs = DataConfig::of_schema(&schema, &path).unwrap().open_inputs(&path, Some(&schema)).unwrap();
    assert_eq!(all(&inputs.dataset).inputs, batch.inputs);
    let bare = write(&folder, "bare.csv", "7,6,8,-9\n");
    let inputs = DataConfig::of_schema(&schema, &bare).unwrap().open_inputs(&bare, Some(&schema)).unwrap();
    assert_eq!(all(&inputs.dataset).inputs, batch.inputs, "without names, by the place in the training table");

    let other = write(&folder, "other.csv", "kind,east,rooms,area,north,price\nboat,-9,8,7,6,5\n");
    let error = message_in(&folder, DataConfig::of_schema(&schema, &other).unwrap().open_like(&schema).map(|_| ()));
    assert!(error.contains("needs one of the training table's classes (flat, hut), but holds `boat`"), "{error}");
}

#[test]
fn of_many_known_classes_a_handful_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..10_000).map(|row| format!("{row},c{row}\n")).collect();
    let settings = by_name("y", TargetKind::Classes);
    let train = csv::open(write(&folder, "train.csv", format!("x,y\n{rows}")), &settings).unwrap();
    let test = write(&folder, "test.csv", "x,y\n1,nowhere\n");
    let error = message(csv::open_like(&test, &settings, &train.dataset.schema()));
    assert!(error.contains("c0, c1, c10, c100, c1000, c1001, c1002, c1003 … and 9,992 others"), "{error}");
    assert!(error.len() < 500, "{error}");
    for class in (0..30).map(|class| format!("train/c{class}/1.png")).chain(["test/other/1.png".into()]) {
        save(&folder, &class, image::RgbImage::new(1, 1));
    }
    let train = ImageFolder::open(&folder.path().join("train"), super::images::TINY).unwrap();
    let error =
        message(ImageFolder::open_with_classes(&folder.path().join("test"), super::images::TINY, train.classes()));
    assert!(error.contains("… and 22 others"), "{error}");
}

#[test]
fn every_format_knows_its_names_and_its_files() {
    let digits = digits::train().unwrap().schema();
    assert_eq!((&digits.format, digits.classes(0).len()), (&Format::Digits, 10));
    let unknown: Schema = serde_json::from_str(r#"{"format":{"type":"of_tomorrow"}}"#).unwrap();
    assert_eq!(unknown.format, Format::Other);
    assert!(message(DataConfig::of_schema(&unknown, "x.csv".as_ref())).starts_with("`x.csv` needs data of a kind"));

    let files = |text: &str| config(text).rooted_at("/data".as_ref()).files();
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(files("type = 'digits'"), paths(&[]));
    assert_eq!(files("type = 'idx'\nfolder = 'm'"), paths(&["/data/m"]));
    assert_eq!(files("type = 'cifar10'\nfolder = '/m'"), paths(&["/m"]));
    let lone = "type = 'idx_files'\ntrain_images = 'a'\ntrain_labels = 'b'\ntest_images = 'c'\ntest_labels = 'd'";
    assert_eq!(files(lone), paths(&["/data/a", "/data/b", "/data/c", "/data/d"]));
    let table = "type = 'csv'\ntrain = 'a'\ntest = 'b'\ntarget = 'y'\ntarget_kind = 'values'";
    assert_eq!(files(table), paths(&["/data/a", "/data/b"]));
    let images = "type = 'image_folder'\ntrain = 'a'\ntest = 'b'\nheight = 1\nwidth = 1";
    assert_eq!(files(images), paths(&["/data/a", "/data/b"]));
}

#[test]
fn rows_set_aside_are_known_to_those_that_are_left() {
    let (train, validation) = split(Arc::new(digits::train().unwrap()), 0.2, 7).unwrap();
    assert_eq!(
        train.schema().held_out,
        Some(HeldOut { fraction: 0.2, seed: 7, rows: 1437, stratified: true, fold: None })
    );
    assert_eq!(validation.schema(), digits::train().unwrap().schema());
}
