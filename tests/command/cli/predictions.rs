//! Predictions of tables, images and IDX files, with their targets and without.

use super::*;

#[test]
fn class_names_are_written() {
    let folder = tempfile::tempdir().unwrap();
    write_table(&folder, 2, 3, "[training]\nearly_stopping = { monitor = \"loss\", patience = 2 }\n");
    succeed(&folder, "train table.toml --epochs 2 --save a.safetensors");
    let table = succeed(&folder, "predict a.safetensors --config table.toml --part train");
    assert!(table.starts_with("row,class,probability_a,probability_b,probability_c\n"), "{table}");
    assert!(table.lines().skip(1).all(|line| ["a", "b", "c"].contains(&line.split(',').nth(1).unwrap())), "{table}");
}

/// The lines of a table, without one of its columns.
fn without(table: &str, column: usize) -> Vec<String> {
    let rest = |line: &str| {
        let fields = line.split(',').enumerate().filter(|(at, _)| *at != column);
        fields.map(|(_, field)| field).collect::<Vec<_>>().join(",")
    };
    table.lines().map(rest).collect()
}

#[test]
fn a_table_without_targets_predicts_as_the_one_with_them() {
    let folder = tempfile::tempdir().unwrap();
    write_table(&folder, 2, 3, "");
    succeed(&folder, "train table.toml --epochs 2 --save a.safetensors");
    let wanted = succeed(&folder, "predict a.safetensors --config table.toml --part train");
    let rows = |row: fn(usize) -> String| (0..40).map(row).collect::<String>();
    write(&folder, "new.csv", format!("id,y,x\n{}", rows(|row| format!("n{row},{},{}\n", row % 5, row % 3))));
    write(&folder, "bare.csv", rows(|row| format!("{},{}\n", row % 3, row % 5)));
    for input in ["new.csv", "bare.csv", "table.csv"] {
        let line = format!("predict a.safetensors --config table.toml --input {input}");
        assert_eq!(succeed(&folder, &line), wanted, "{input}");
    }
    assert_eq!(wanted.lines().count(), 41);
}

/// Settings for gray images of 2 × 2 in two classes.
fn write_run(folder: &TempDir, data: &str) {
    let settings = DENSE_DIGITS.replace("type = \"digits\"", data);
    write(folder, "run.toml", settings.replace("[8, 8, 1]", "[2, 2, 1]").replace("units = 10", "units = 2"));
}

#[test]
fn images_without_classes_predict_as_those_with_them() {
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in [("cat/deep/1.png", 10), ("cat/2.png", 90), ("dog/1.png", 200), ("dog/3.png", 250)] {
        let path = folder.path().join("images").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let pixels = (value..value + 4).collect();
        image::GrayImage::from_raw(2, 2, pixels).unwrap().save(path).unwrap();
    }
    let data = "type = \"image_folder\"\ntrain = \"images\"\nheight = 2\nwidth = 2\nchannels = 1";
    write_run(&folder, data);
    succeed(&folder, "train run.toml --epochs 2 --save a.safetensors");
    let wanted = succeed(&folder, "predict a.safetensors --config run.toml --part train");
    let got = succeed(&folder, "predict a.safetensors --config run.toml --input images");
    assert!(got.starts_with("row,file,class,probability_cat,probability_dog\n"), "{got}");
    assert_eq!(without(&got, 1), wanted.lines().collect::<Vec<_>>());
    let files: Vec<&str> = got.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    assert_eq!(files, ["cat/2.png", "cat/deep/1.png", "dog/1.png", "dog/3.png"]);
    let one = succeed(&folder, "predict a.safetensors --config run.toml --input images/cat/2.png");
    assert!(one.lines().nth(1).unwrap().starts_with("0,2.png,"), "{one}");
    assert_eq!(without(&one, 1), wanted.lines().take(2).collect::<Vec<_>>());
}

#[test]
fn idx_images_without_labels_predict_as_those_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let images = |width: u8| {
        let header = [0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, width];
        header.into_iter().chain((0..3 * 2 * width).map(|value| value * 20)).collect::<Vec<u8>>()
    };
    write(&folder, "square", images(2));
    write(&folder, "narrow", images(1));
    write(&folder, "labels", [0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 1]);
    let data = "type = \"idx_files\"\ntrain_images = \"square\"\ntrain_labels = \"labels\"";
    write_run(&folder, data);
    succeed(&folder, "train run.toml --epochs 2 --save a.safetensors");
    let wanted = succeed(&folder, "predict a.safetensors --config run.toml --part train");
    // The training data is not read for it.
    fs::remove_file(folder.path().join("labels")).unwrap();
    assert_eq!(succeed(&folder, "predict a.safetensors --config run.toml --input square"), wanted);
    let error = refused(&folder, "predict a.safetensors --config run.toml --input narrow");
    assert!(
        error.contains("input `input` needs shape [batch, 2, 2, 1], but the dataset gives [batch, 2, 1, 1]"),
        "{error}"
    );
}
