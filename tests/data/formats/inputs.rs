//! Data without targets, to predict from.

use manyhands::schema::Schema;

use super::images::TINY;
use super::*;

#[test]
fn tables_to_predict_from_need_the_inputs_alone() {
    let folder = tempfile::tempdir().unwrap();
    let open = |train: &str, settings: &CsvSettings, text: &str| {
        let train = csv::open(write(&folder, "train.csv", train), settings).unwrap();
        csv::open_inputs(&write(&folder, "new.csv", text), settings, &train.dataset.schema())
    };
    let names = by_name("species", TargetKind::Classes);
    let places = plain(CsvSettings::new(Column::Index(1), TargetKind::Values));
    let named = ("length,species,width\n1,a,2\n3,b,4\n", &names);
    let bare = ("1,0,2\n3,0,4\n", &places);
    let twice = ("a,y,a\n1,0,2\n3,0,4\n", &places);
    let good = [
        (named, "length,species,width\n10,b,20\n"),
        (named, "width,length\n20,10\n"),
        (named, "id,width,species,length\nx,20,none of them,10\n"),
        (named, "10,20\n"),
        (named, "10,?,20\n"),
        (bare, "10,20\n"),
        (bare, "10,,20\n"),
        (bare, "x,y\n10,20\n"),
        (twice, "a,y,a\n10,,20\n"),
        (twice, "y,a,a\n0,10,20\n"),
        (twice, "a,a\n10,20\n"),
    ];
    for ((train, settings), text) in good {
        let data = open(train, settings, text).unwrap();
        assert_eq!((data.len(), data.target_shapes(), data.has_sample_weights()), (1, vec![], false));
        assert_eq!(all(&data).inputs[0][..], [10.0, 20.0], "{text:?}");
    }
    let bad = [
        (named, "length,height\n1,2\n", "needs a column `width`, but has none\n  help: its columns are length, height"),
        (
            named,
            "width,length\n1,2\n3,\n",
            "line 3, column 1 (`length`) needs a finite number, but is empty\n  help: mend the field, or leave the line out",
        ),
        (named, "1,inf\n", "line 1, column 1 needs a finite number, but holds `inf`"),
        (named, "width,length\n1\n", "line 2 needs 2 fields as the first line has, but has 1"),
        (
            named,
            "1,2,3,4\n",
            "needs 2 columns, or 3 as the training table, but has 4\n  \
             help: without names in both tables columns count by place; the inputs are length, width",
        ),
        (named, "width,length\n", "needs at least one row, but has none"),
        (bare, "x,y,z,w\n1,2,3,4\n", "needs 2 columns, or 3 as the training table, but has 4"),
        (twice, "a,y\n1,0\n", "needs a column `a (1)`, but has none"),
        (twice, "a (1),y,b\n1,0,2\n", "needs a column `a (2)`, but has none"),
    ];
    for ((train, settings), text, expected) in bad {
        let got = message_in(&folder, open(train, settings, text));
        assert!(got.starts_with(&format!("`new.csv` {expected}")), "{text:?}: {got}");
    }
}

/// Columns that share a name are never taken for each other: neither by settings, nor in a later table.
#[test]
fn columns_of_one_name_are_numbered() {
    let folder = tempfile::tempdir().unwrap();
    let open = |text: &str, settings: &CsvSettings| csv::open(write(&folder, "t.csv", text), settings);
    let text = "a,y,a\n1,0,2\n3,1,4\n";
    let data = open(text, &plain(by_name("y", TargetKind::Values))).unwrap().dataset;
    let mut schema = data.schema();
    assert_eq!(schema.inputs[0].column_names(), ["a (1)", "a (2)"]);
    let told = data.notes();
    let note = "2 columns share their name with others and are numbered in their order: a (1), a (2)";
    assert!(told.iter().any(|it| it == note), "{told:?}");
    let second = plain(by_name("a (2)", TargetKind::Values));
    let data = open(text, &second).unwrap().dataset;
    assert_eq!((&all(&data).inputs[0][..], &all(&data).targets[0][..]), (&[1.0, 0.0, 3.0, 1.0][..], &[2.0, 4.0][..]));
    let error = message_in(&folder, open(text, &by_name("a", TargetKind::Values)));
    assert!(error.starts_with("`t.csv` needs a column `a`, but has 2\n  help: ") && error.contains("a (2)"), "{error}");
    let later = |text: &str, settings: &CsvSettings, schema: &Schema| {
        csv::open_like(&write(&folder, "new.csv", text), settings, schema)
            .map(|table| all(&table.dataset).targets[0].to_vec())
    };
    assert_eq!(later("a,a,y\n5,6,1\n", &second, &data.schema()).unwrap(), [6.0]);
    // Model files of earlier versions have the written name twice.
    for column in &mut schema.inputs[0].columns {
        column.name = Some("a".into());
    }
    let predict = |text: &str| csv::open_inputs(&write(&folder, "new.csv", text), &second, &schema);
    assert_eq!(all(&predict("a,y,a\n10,,20\n").unwrap()).inputs[0][..], [10.0, 20.0]);
    for text in ["a,y\n10,0\n", "y,a\n0,10\n", "y,a,b\n0,10,5\n"] {
        let error = message_in(&folder, predict(text));
        assert!(
            error.starts_with("`new.csv` needs several columns `a`, as the training table had, but has one\n"),
            "{error}"
        );
    }
    let error = message_in(&folder, predict("y,a,a\n0,10,5\n"));
    assert!(error.starts_with("`new.csv` needs a column `a`, but has 2"), "{error}");
}

#[test]
fn images_to_predict_from_need_no_classes() {
    let folder = tempfile::tempdir().unwrap();
    for (name, red) in [("new/deep/er/x.png", 51), ("new/b.png", 102), ("new/a/z.png", 204), ("train/cat/c.png", 0)] {
        save(&folder, name, image::RgbImage::from_pixel(3, 2, image::Rgb([red, 0, 255])));
    }
    write(&folder, "new/notes.txt", "no image");
    let train = folder.path().join("train");
    let inputs = DataConfig::ImageFolder(FolderConfig {
        train,
        test: None,
        height: 2,
        width: 3,
        channels: Channels::Rgb,
        label_mode: LabelMode::Int,
        unreadable: Unreadable::Error,
    })
    .open_inputs(&folder.path().join("new"), None)
    .unwrap();
    assert_eq!(inputs.names.unwrap(), ["a/z.png", "b.png", "deep/er/x.png"]);
    assert_eq!(inputs.trained.classes(0), ["cat"]);
    assert_eq!((inputs.dataset.input_shapes(), inputs.dataset.target_shapes()), (vec![Shape::new([2, 3, 3])], vec![]));
    let reds: Vec<f32> = all(&inputs.dataset).inputs[0].iter().step_by(18).copied().collect();
    assert_eq!(reds, [0.8, 0.4, 0.2]);

    let open = |name: &str| ImageFiles::open(&folder.path().join(name), TINY);
    assert_eq!(open("new/deep/er/x.png").unwrap().names(), ["x.png"]);
    assert!(
        message_in(&folder, open("new/notes.txt")).starts_with("`new/notes.txt` needs to be PNG, JPEG or BMP, but is")
    );
    fs::create_dir(folder.path().join("empty")).unwrap();
    assert!(message_in(&folder, open("empty")).starts_with("the folder `empty` needs images, but has none"));
    assert!(message_in(&folder, open("nowhere.png")).starts_with("`nowhere.png` can't be read: "));
}

#[test]
fn idx_images_need_no_labels() {
    let folder = tempfile::tempdir().unwrap();
    let images = write(&folder, "images.gz", gzip(&idx_file(&[2, 1, 2], &[0, 51, 102, 255])));
    let labels = write(&folder, "labels", idx_file(&[2], &[1, 2]));
    let (data, labelled) = (idx::open_images(&images).unwrap(), idx::open_pair(&images, &labels).unwrap());
    assert_eq!((data.len(), data.labels(), data.target_shapes()), (2, &[][..], vec![]));
    assert_eq!(data.input_shapes(), labelled.input_shapes());
    assert_eq!(all(&data).inputs, all(&labelled).inputs);
    assert!(
        message_in(&folder, idx::open_images(&labels)).starts_with("`labels` needs images, [rows, height, width] or")
    );
    let none = write(&folder, "none", idx_file(&[0, 1, 2], &[]));
    assert!(message(idx::open_images(&none)).starts_with("images of shape [batch, 1, 2, 1] do not fit 0 bytes"));
}
