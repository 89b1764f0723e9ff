//! Do data alone give settings that train, and a model file that needs nothing else?

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "helpers of tests fail loudly, and bytes are whole numbers"
)]

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{outputs, refused, run, succeed, text};
use crate::golden::Golden;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/settings/data");

/// A folder with four fifths of the penguins of the Palmer Archipelago, which have names and gaps, and one with the rest.
/// Source: Horst, Hill, Gorman 2020, the package `palmerpenguins`, CC0.
fn penguins() -> (TempDir, TempDir) {
    let table = fs::read_to_string(Path::new(DATA).join("penguins.csv")).unwrap();
    let (home, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (header, rows) = table.split_once('\n').unwrap();
    let part = |is_test: bool| {
        let rows = rows.lines().enumerate().filter(|(at, _)| (at % 5 == 0) == is_test);
        format!("{header}\n{}\n", rows.map(|(_, row)| row).collect::<Vec<_>>().join("\n"))
    };
    fs::write(home.path().join("penguins.csv"), part(false)).unwrap();
    fs::write(away.path().join("new.csv"), part(true)).unwrap();
    (home, away)
}

/// Trains by the settings that `init` writes, and sends the model file alone to another folder.
fn train(home: &TempDir, away: &TempDir, init: &str) -> String {
    let seen = succeed(home, init);
    succeed(home, "train run.toml --quiet --save model.safetensors");
    fs::rename(home.path().join("model.safetensors"), away.path().join("model.safetensors")).unwrap();
    seen
}

fn column(table: &str, name: &str) -> Vec<String> {
    let at = table.lines().next().unwrap().split(',').position(|it| it == name).unwrap();
    table.lines().skip(1).map(|line| line.split(',').nth(at).unwrap().to_owned()).collect()
}

fn evaluated(folder: &TempDir, data: &str) -> Value {
    serde_json::from_str(&succeed(folder, &format!("evaluate model.safetensors {data} --json"))).unwrap()
}

#[test]
fn classes_of_a_table_with_names_and_gaps() {
    let (home, away) = penguins();
    let seen = train(&home, &away, "init penguins.csv");
    for needed in ["sex", "category", "2 different", "3 classes of `species`: Adelie (12", "wrote `run.toml`"] {
        assert!(seen.contains(needed), "{needed}: {seen}");
    }
    let told = succeed(&home, "train run.toml --dry-run");
    assert_eq!(told.matches("missing fields count as").count(), 1, "both parts are of one table: {told}");
    let table = fs::read_to_string(away.path().join("new.csv")).unwrap();
    assert!(evaluated(&away, "new.csv")["accuracy"].as_f64().unwrap() > 0.95);
    // Without the column that is to be predicted, by names alone.
    let bare: Vec<&str> = table.lines().map(|line| line.split_once(',').unwrap().1).collect();
    fs::write(away.path().join("bare.csv"), bare.join("\n")).unwrap();
    let predicted = succeed(&away, "predict model.safetensors bare.csv");
    let header = "row,class,probability_Adelie,probability_Chinstrap,probability_Gentoo";
    assert_eq!(predicted.lines().next(), Some(header));
    let (got, needed) = (column(&predicted, "class"), column(&table, "species"));
    let right = got.iter().zip(&needed).filter(|(got, needed)| got == needed).count();
    assert!(right * 20 > needed.len() * 19, "{right} of {}", needed.len());
    // An island of which the model knows nothing is told, once.
    fs::write(away.path().join("bare.csv"), bare.join("\n").replace("Biscoe", "Hull")).unwrap();
    let (_, warnings) = outputs(&away, "predict model.safetensors bare.csv");
    assert_eq!(warnings.matches("are of no category of the training rows").count(), 1, "{warnings}");
    assert!(warnings.contains("column `island`:") && warnings.contains("(Hull)"), "{warnings}");
}

#[test]
fn numbers_come_back_in_their_own_unit() {
    let (home, away) = penguins();
    let seen = train(&home, &away, "init penguins.csv --target body_mass_g");
    assert!(seen.contains("2 rows have no target and are left out") || seen.contains("1 row has no target"), "{seen}");
    let values = evaluated(&away, "new.csv");
    // Grams: a penguin weighs 4200 ± 800.
    assert!(values["mean_absolute_error"].as_f64().unwrap() < 300.0, "{values}");
    assert!(values["r2_score"].as_f64().unwrap() > 0.8, "{values}");
    let predicted = succeed(&away, "predict model.safetensors new.csv");
    assert!(column(&predicted, "value_body_mass_g").iter().all(|it| (2000.0..7000.0).contains(&it.parse().unwrap())));
}

/// The settings behind their head.
fn data_of(settings: &str) -> &str {
    settings.split_once("[data]").unwrap().1
}

#[test]
fn images_and_a_single_one() {
    let home = tempfile::tempdir().unwrap();
    let folder = format!("{DATA}/bars");
    let seen = succeed(&home, &format!("init {folder}"));
    for needed in ["2 classes: across", "test data: ", "images of 8×8 pixels, gray"] {
        assert!(seen.contains(needed), "{needed}: {seen}");
    }
    // The folder beside the one that is named is found, too.
    succeed(&home, &format!("init {folder}/train --output beside.toml"));
    let settings = |name: &str| fs::read_to_string(home.path().join(name)).unwrap();
    assert_eq!(data_of(&settings("beside.toml")), data_of(&settings("run.toml")));
    succeed(&home, "train run.toml --quiet --epochs 20 --save model.safetensors");
    let image = fs::read_dir(format!("{folder}/test/across")).unwrap().next().unwrap().unwrap().path();
    let predicted = succeed(&home, &format!("predict model.safetensors {}", image.display()));
    assert_eq!(predicted.lines().next(), Some("row,file,class,probability_across,probability_upright"));
    assert_eq!(column(&predicted, "class"), ["across"]);
    assert!(evaluated(&home, &format!("{folder}/test"))["accuracy"].as_f64().unwrap() > 0.8);
}

/// A folder of pictures as people have them: dark above or dark below, of many sizes, modes and formats.
fn pictures(folder: &Path) {
    use image::{DynamicImage, ImageEncoder, codecs::jpeg::JpegEncoder};
    for class in ["above", "below", "empty"] {
        fs::create_dir_all(folder.join(class)).unwrap();
    }
    for number in 0..40_u32 {
        let (is_above, width, height) = (number.is_multiple_of(2), 20 + number % 7, 16 + number % 5);
        let class = folder.join(if is_above { "above" } else { "below" });
        let picture = image::RgbImage::from_fn(width, height, |x, y| {
            let light = if (y < height / 2) == is_above { 40 } else { 190 };
            image::Rgb(
                [light, light + 20, light + 30]
                    .map(|value| value + u8::try_from((x * 7 + y * 3 + number) % 25).unwrap()),
            )
        });
        let picture = DynamicImage::from(picture);
        let named = |end: &str| class.join(format!("{number}.{end}"));
        match number / 2 % 6 {
            0 => picture.save(named("JPG")),
            1 => picture.to_luma8().save(named("png")),
            2 => picture.to_rgba8().save(named("png")),
            3 => picture.to_rgb16().save(named("png")),
            4 => picture.save(named("bmp")),
            _ => {
                // Upside down, with an EXIF orientation that says so: 3.
                let exif =
                    [b"II*\0\x08\0\0\0\x01\0".as_slice(), b"\x12\x01\x03\0\x01\0\0\0\x03\0\0\0", &[0; 4]].concat();
                let mut encoder = JpegEncoder::new(fs::File::create(named("jpeg")).unwrap());
                encoder.set_exif_metadata(exif).unwrap();
                let turned = picture.rotate180().to_rgb8();
                encoder.write_image(&turned, width, height, image::ExtendedColorType::Rgb8)
            }
        }
        .unwrap();
    }
    let whole = fs::read(folder.join("above/0.JPG")).unwrap();
    fs::write(folder.join("above/cut.jpg"), &whole[..whole.len() / 2]).unwrap();
    fs::write(folder.join("below/text.png"), "no image").unwrap();
}

#[test]
fn a_folder_of_mixed_pictures() {
    let (home, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    pictures(&home.path().join("pictures"));
    let seen = train(&home, &away, "init pictures");
    let warned = text(&run(&home, "init pictures -o again.toml").stderr);
    assert_eq!(warned.matches("left out: ").count(), 2, "each file once: {warned}");
    for needed in [
        "40 rows of [24, 24, 3]",
        "2 classes: above (20), below (20)",
        "2 files are left out, unreadable: for example `above/cut.jpg`",
        "1 folder has no image and is no class: empty",
        "images of 16×20 to 20×26 pixels; each is brought to 24×24",
    ] {
        let seen = seen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(seen.contains(needed), "{needed}: {seen}");
    }
    let settings = fs::read_to_string(home.path().join("run.toml")).unwrap();
    for needed in [
        "unreadable = \"skip\"",
        "\naugment = [\n  { type = \"RandomFlip\", mode = \"horizontal\" },",
        "validation = 0.2",
    ] {
        assert!(settings.contains(needed), "{needed}: {settings}");
    }
    assert!(!settings.contains("vertical"));
    // The model file alone, on another folder of its kind.
    pictures(&away.path().join("new"));
    let predicted = run(&away, "predict model.safetensors new --output new.csv");
    assert!(
        String::from_utf8_lossy(&predicted.stderr).contains("2 of 42 rows need a file that can be read"),
        "{predicted:?}"
    );
    let table = fs::read_to_string(away.path().join("new.csv")).unwrap();
    let (files, classes) = (column(&table, "file"), column(&table, "class"));
    let right =
        files.iter().zip(&classes).filter(|(file, class)| file.starts_with(class.as_str()) && !class.is_empty());
    assert!(right.count() >= 38, "{table}");
    let single = succeed(&away, "predict model.safetensors new/below/11.jpeg");
    assert_eq!(column(&single, "class"), ["below"]);
    // Without the setting, a corrupt file is an error that names it, before anything is trained.
    fs::write(home.path().join("strict.toml"), settings.replace("unreadable = \"skip\"", "")).unwrap();
    let error = refused(&home, "train strict.toml --quiet --save strict.safetensors");
    assert!(error.contains("can't be read: above/cut.jpg, below/text.png; the first: "), "{error}");
    // Mixed images need a number for each class.
    let mixed = settings.replace("augment = [\n", "augment = [\n  { type = \"MixUp\" },\n");
    fs::write(home.path().join("mixed.toml"), &mixed).unwrap();
    // Beside the warnings of the corrupt files.
    let failed = run(&home, "train mixed.toml --quiet --epochs 1 --save mixed.safetensors");
    let error = String::from_utf8_lossy(&failed.stderr);
    assert!(error.contains("`MixUp` needs to be the last change, but others follow"), "{error}");
    let (before, list) = settings.split_once("augment = [\n").unwrap();
    let (_, after) = list.split_once("\n]\n").unwrap();
    let mixed = format!("{before}augment = [\"MixUp\"]\n{after}");
    let mixed = mixed
        .replace("height = 24", "label_mode = \"categorical\"\nheight = 24")
        .replace("SparseCategoricalCrossentropy", "CategoricalCrossentropy");
    fs::write(home.path().join("mixed.toml"), mixed).unwrap();
    succeed(&home, "train mixed.toml --quiet --epochs 2 --run mixed");
    let values = succeed(&home, "evaluate mixed/last.safetensors --config mixed.toml --part validation --json");
    assert!(serde_json::from_str::<Value>(&values).unwrap()["accuracy"].is_number(), "{values}");
}

#[test]
fn arrays_of_numpy() {
    let home = tempfile::tempdir().unwrap();
    let cases = Golden::open("arrays");
    for name in ["npz", "npz_table"] {
        let bytes: Vec<u8> = cases.case(name).values("file").iter().map(|byte| *byte as u8).collect();
        fs::write(home.path().join(format!("{name}.npz")), bytes).unwrap();
        let seen = succeed(&home, &format!("init {name}.npz -o {name}.toml"));
        assert!(seen.contains("24 rows of ") && seen.contains("2 classes: 0 (12), 1 (12)"), "{seen}");
        succeed(&home, &format!("train {name}.toml --quiet --epochs 20 --save {name}.safetensors"));
        let values = succeed(&home, &format!("evaluate {name}.safetensors {name}.npz --json"));
        assert!(serde_json::from_str::<Value>(&values).unwrap()["accuracy"].as_f64().unwrap() > 0.7, "{values}");
        let predicted = succeed(&home, &format!("predict {name}.safetensors {name}.npz"));
        let rows = if name == "npz" { 6 } else { 24 };
        assert_eq!(column(&predicted, "class").len(), rows, "{predicted}");
        // A graph takes images of bytes as they are.
        succeed(&home, &format!("export {name}.safetensors {name}.onnx"));
        let graph = fs::read(home.path().join(format!("{name}.onnx"))).unwrap();
        assert_eq!(String::from_utf8_lossy(&graph).contains("bytes of the pictures as they are"), name == "npz");
    }
    fs::write(home.path().join("one.npy"), "no array").unwrap();
    assert!(refused(&home, "init one.npy").contains("`one.npy` needs its targets, too, but is one array"));
    let error = refused(&home, "predict npz.safetensors one.npy");
    assert!(error.contains("`one.npy` needs to be an array of NumPy, but is none"), "{error}");
}

/// Keras, too, reads the last axis as that of the channels, but PyTorch writes the first.
#[test]
fn images_with_the_channels_first_are_told() {
    let home = tempfile::tempdir().unwrap();
    for (shape, is_told) in [("3,8,8", true), ("1,14,14", true), ("8,8,3", false), ("3,4,4", false)] {
        let len = 24 * 4 * shape.split(',').map(|axis| axis.parse::<usize>().unwrap()).product::<usize>();
        let header = format!(
            r#"{{"x":{{"dtype":"F32","shape":[24,{shape}],"data_offsets":[0,{len}]}},"y":{{"dtype":"I64","shape":[24],"data_offsets":[{len},{}]}}}}"#,
            len + 192
        );
        let labels = (0..24).flat_map(|row| i64::from(row % 2).to_le_bytes());
        let bytes: Vec<u8> = (header.len() as u64)
            .to_le_bytes()
            .into_iter()
            .chain(header.bytes())
            .chain(vec![0; len])
            .chain(labels)
            .collect();
        fs::write(home.path().join("t.safetensors"), bytes).unwrap();
        let (_, warnings) = outputs(&home, &format!("init t.safetensors -o {}.toml", shape.replace(',', "_")));
        assert_eq!(warnings.contains("channels first as in PyTorch"), is_told, "{shape}: {warnings}");
    }
}

/// The folders of Keras' `text_dataset_from_directory`.
#[test]
fn texts_in_folders_of_classes_are_to_be_a_table() {
    let home = tempfile::tempdir().unwrap();
    for class in ["pos", "neg"] {
        fs::create_dir_all(home.path().join("train").join(class)).unwrap();
        fs::write(home.path().join("train").join(class).join("1.txt"), "a film").unwrap();
    }
    let error = refused(&home, "init train");
    assert!(error.contains("the folder `train` needs images, but has none"), "{error}");
    assert!(error.contains("texts of classes are read from a table"), "{error}");
}

#[test]
fn tensors_of_pytorch() {
    let home = tempfile::tempdir().unwrap();
    let header = r#"{"x":{"dtype":"F32","shape":[24,2],"data_offsets":[0,192]},"y":{"dtype":"I64","shape":[24],"data_offsets":[192,384]}}"#;
    let labels = || (0..24_i8).map(|row| row % 2);
    let inputs = labels().flat_map(|label| [label, -label]).flat_map(|x| f32::from(x).to_le_bytes());
    let bytes = header.bytes().chain(inputs).chain(labels().flat_map(|label| i64::from(label).to_le_bytes()));
    let bytes: Vec<u8> = (header.len() as u64).to_le_bytes().into_iter().chain(bytes).collect();
    fs::write(home.path().join("t.safetensors"), bytes).unwrap();
    let seen = succeed(&home, "init t.safetensors -o t.toml");
    assert!(seen.contains("24 rows of ") && seen.contains("2 classes: 0 (12), 1 (12)"), "{seen}");
    succeed(&home, "train t.toml --quiet --epochs 20 --save model.safetensors");
    let values = succeed(&home, "evaluate model.safetensors t.safetensors --json");
    assert!(serde_json::from_str::<Value>(&values).unwrap()["accuracy"].is_number(), "{values}");
    assert_eq!(column(&succeed(&home, "predict model.safetensors t.safetensors"), "class").len(), 24);
}

/// Images of one gray each, with the number of their gray as label.
fn idx(folder: &Path) {
    let file = |axes: &[u32], values: Vec<u8>| {
        let head = [0, 0, 8, u8::try_from(axes.len()).unwrap()];
        head.into_iter().chain(axes.iter().flat_map(|axis| axis.to_be_bytes())).chain(values).collect::<Vec<u8>>()
    };
    let labels: Vec<u8> = (0..60).map(|row| row % 3).collect();
    let pixels = labels.iter().flat_map(|label| [label * 100; 64]).collect();
    fs::write(folder.join("train-images-idx3-ubyte"), file(&[60, 8, 8], pixels)).unwrap();
    fs::write(folder.join("train-labels-idx1-ubyte"), file(&[60], labels)).unwrap();
}

#[test]
fn idx_files_and_texts() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("numbers")).unwrap();
    idx(&home.path().join("numbers"));
    assert!(succeed(&home, "init numbers").contains("3 classes: 0 (20), 1 (20), 2 (20)"));
    succeed(&home, "train run.toml --quiet --epochs 30");
    let last = succeed(&home, "evaluate runs/1/last.safetensors numbers --part train --json");
    assert!(serde_json::from_str::<Value>(&last).unwrap()["accuracy"].as_f64().unwrap() > 0.95, "{last}");

    fs::write(home.path().join("song.txt"), "row, row, row your boat, gently down the stream\n".repeat(30)).unwrap();
    assert!(succeed(&home, "init song.txt -o song.toml").contains("the model predicts at each place the next of "));
    succeed(&home, "train song.toml --quiet --epochs 3 --save song.safetensors");
    let values = succeed(&home, "evaluate song.safetensors song.txt --json");
    assert!(serde_json::from_str::<Value>(&values).unwrap()["perplexity"].as_f64().unwrap() < 15.0, "{values}");
}

#[test]
fn a_table_of_texts_gives_a_model_that_reads_them() {
    let home = tempfile::tempdir().unwrap();
    let table = |name: &str| fs::read_to_string(Path::new(DATA).join(name)).unwrap();
    fs::write(home.path().join("t.csv"), table("sentences_train.csv")).unwrap();
    fs::write(home.path().join("new.csv"), table("sentences_test.csv")).unwrap();
    let seen = succeed(&home, "init t.csv");
    assert!(seen.contains("120 rows of text `sentence`: 9 tokens, 61 different ones"), "{seen}");
    succeed(&home, "train run.toml --quiet --run read");
    let values = succeed(&home, "evaluate read new.csv --json");
    assert!(serde_json::from_str::<Value>(&values).unwrap()["accuracy"].as_f64().unwrap() > 0.9, "{values}");
    assert!(succeed(&home, "predict read new.csv").starts_with("row,class,probability_food,probability_weather\n"));

    // Beside numbers it is left out, with the way to learn from it.
    let texts = table("sentences_train.csv");
    let rows = texts.lines().enumerate().map(|(at, line)| match at {
        0 => format!("x,{line}\n"),
        at => format!("{},{line}\n", at % 7),
    });
    fs::write(home.path().join("both.csv"), rows.collect::<String>()).unwrap();
    let seen = succeed(&home, "init both.csv -o both.toml");
    assert!(seen.contains("`sentence` holds free text: `--ignore` all other columns to learn from it"), "{seen}");
    assert!(succeed(&home, "init both.csv -o text.toml --ignore x").contains("of text `sentence`: 9 tokens"));
}

#[test]
fn rare_classes_get_weights() {
    let home = tempfile::tempdir().unwrap();
    let write = |rows: usize| {
        let row = |row: usize| format!("{},{}\n", row % 7, if row.is_multiple_of(rows) { "rare" } else { "usual" });
        fs::write(home.path().join("t.csv"), format!("x,kind\n{}", (0..rows * 6).map(row).collect::<String>()))
            .unwrap();
    };
    write(10);
    assert!(succeed(&home, "init t.csv").contains("2 classes of `kind`: rare (6), usual (54)"));
    let settings = fs::read_to_string(home.path().join("run.toml")).unwrap();
    assert!(settings.contains("\n# class_weight = \"balanced\"\n"), "{settings}");
    write(60);
    succeed(&home, "init t.csv -o rare.toml");
    let settings = fs::read_to_string(home.path().join("rare.toml")).unwrap();
    assert!(settings.contains("\nclass_weight = \"balanced\"\n"), "{settings}");
    succeed(&home, "train rare.toml --quiet --epochs 1 --save rare.safetensors");
    succeed(&home, "train run.toml --quiet --epochs 1");
}

#[test]
fn what_can_not_be_told_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    fs::write(path("t.csv"), "x,kind\n1,a\n2,b\n3,a\n4,b\n").unwrap();
    fs::write(path("names.csv"), "x,kind\n").unwrap();
    fs::create_dir(path("empty")).unwrap();
    fs::write(path("one.png"), "no image").unwrap();
    fs::write(path("bytes.bin"), [0, 1, 2, 3]).unwrap();
    fs::write(path("chat.jsonl"), "{\"prompt\": \"1 + 1 =\", \"completion\": \"2\"}\n").unwrap();
    fs::write(path("rows.json"), "{\"x\": 1, \"kind\": \"a\"}\n").unwrap();
    for (line, needed) in [
        ("init nowhere.csv", "`nowhere.csv` can't be read"),
        (
            "init t.csv --target y",
            "`--target` needs a column of the table, but is `y`\n  help: its columns are x, kind",
        ),
        (
            "init t.csv --target knd",
            "`--target` needs a column of the table, but is `knd`\n  help: did you mean `kind`? its columns are x, kind",
        ),
        ("init names.csv", "`names.csv` needs at least one row below the names of its columns, but has none"),
        ("init t.csv --target-kind values", "the target `kind` needs numbers to predict, but holds: category"),
        ("init empty", "the folder `empty` needs a sub-folder of images for each class, MNIST's or CIFAR-10's files"),
        ("init one.png", "`one.png` needs to be a table, a text or a folder, but is an image"),
        (
            "init chat.jsonl",
            "`chat.jsonl` needs to be a table, a text or a folder, but holds rows of JSON\n  help: fine-tune a language model on it by \
             `manyhands finetune MODEL chat.jsonl`",
        ),
        ("init rows.json", "but holds rows of JSON\n  help: write it as a table, by pandas"),
        ("init bytes.bin", "`bytes.bin` needs to be a table, a text or a folder, but is none of them"),
    ] {
        let error = refused(&home, line);
        assert!(error.contains(needed), "{line}: {error}");
        assert!(!path("run.toml").exists());
    }
    succeed(&home, "init t.csv");
    let before = fs::read_to_string(path("run.toml")).unwrap();
    let error = refused(&home, "init t.csv --target x");
    assert!(
        error.contains(
            "the file `run.toml` needs to be new, but is there already\n  help: name another one by `--output`"
        )
    );
    assert_eq!(fs::read_to_string(path("run.toml")).unwrap(), before);
    succeed(&home, "train run.toml --quiet --epochs 1");
}

/// No name stands for two columns, and a code is no quantity: in the settings, in training, and in what is predicted.
#[test]
fn columns_of_one_name_and_codes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let row = |row: usize| format!("{},{},{},{}\n", row % 5, ["01067", "80331", "20095"][row % 3], row % 7, row % 3);
    let write = |name: &str, head: &str| {
        fs::write(folder.path().join(name), format!("{head}\n{}", (0..60).map(row).collect::<String>())).unwrap();
    };
    write("t.csv", "a,zip,a,kind");
    let seen = succeed(&folder, "init t.csv --ignore 2");
    assert!(seen.contains("zip") && seen.contains("codes") && seen.contains("digits with leading zeros"), "{seen}");
    assert!(seen.contains("a (1)") && seen.contains("numbered in their order"), "{seen}");
    let settings = fs::read_to_string(folder.path().join("run.toml")).unwrap();
    assert!(settings.contains("ignore = [\"a (2)\"]"), "{settings}");
    succeed(&folder, "train run.toml --quiet --epochs 1 --adapters cpu --save model.safetensors");
    let first = succeed(&folder, "predict model.safetensors t.csv");
    assert_eq!(first.lines().count(), 61);
    // Neither column of another table is the first of two.
    write("other.csv", "a,zip,b,kind");
    let refusal = refused(&folder, "predict model.safetensors other.csv");
    assert!(refusal.contains("needs a column `a (1)`, but has none"), "{refusal}");
}
