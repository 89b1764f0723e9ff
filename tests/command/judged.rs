//! Is a score told beside that of a model that does not look at its inputs, and each mistake by its place in the file?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::{outputs, succeed};
use crate::flowers;

/// Training rows of each class, and those of the test table.
const ROWS: [(&str, usize, usize); 3] = [("Always", 3, 1), ("Never", 52, 26), ("Sometimes", 5, 3)];

fn write(folder: &TempDir, name: &str, text: impl AsRef<[u8]>) {
    fs::write(folder.path().join(name), text).unwrap();
}

fn json(folder: &TempDir, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.path().join(name)).unwrap()).unwrap()
}

fn evaluated(folder: &TempDir, line: &str) -> Value {
    serde_json::from_str(&succeed(folder, &format!("evaluate {line} --json"))).unwrap()
}

fn is_near(got: &Value, needed: f64) {
    let got = got.as_f64().unwrap();
    assert!((got - needed).abs() < 1e-5 * (1.0 + needed.abs()), "{got}, needs {needed}");
}

#[allow(clippy::cast_precision_loss, reason = "few rows")]
fn real(number: usize) -> f64 {
    number as f64
}

/// A table whose numbers say nothing of the class.
fn table(counts: [usize; 3]) -> String {
    let rows = ROWS
        .iter()
        .zip(counts)
        .flat_map(|((class, ..), rows)| (0..rows).map(move |row| format!("{},{},{class}\n", 1 + row % 2, 3 + row % 3)));
    "x,y,kind\n".to_owned() + &rows.collect::<String>()
}

/// Tables, and settings of a run.
fn imbalanced(more: &str) -> TempDir {
    let data = flowers::SETTINGS.replace("target =", "test = \"test.csv\"\ntarget =");
    let folder = flowers::folder(&table(ROWS.map(|it| it.1)), &(data + more));
    write(&folder, "test.csv", table(ROWS.map(|it| it.2)));
    folder
}

#[test]
fn a_score_stands_beside_that_of_the_most_frequent_class() {
    let folder = imbalanced("[optimizer]\ntype = \"Adam\"\nlearning_rate = 0.1\n[training]\nepochs = 30\n");
    let (shown, _) = outputs(&folder, "train run.toml --run a");
    let of = |at: usize| ROWS.iter().map(|it| [it.1, it.2][at]).sum::<usize>();
    // The closed form: the mean of -ln of each class's part in training.
    let losses = ROWS.iter().map(|(_, train, test)| -real(*test) * (real(*train) / real(of(0))).ln());
    let (loss, accuracy) = (losses.sum::<f64>() / real(of(1)), 26.0 / 30.0);
    let what = "(always `Never`, the most frequent class in training)";
    assert!(shown.contains(&format!("\nbaseline: val_loss {loss:.4}, val_accuracy {accuracy:.4} {what}\n")), "{shown}");
    let imbalance = "imbalanced: a model that always says `Never` is right in 86.7 % of the rows";
    for shown in [&shown, &succeed(&folder, "init table.csv --target kind --output new.toml")] {
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert!(words.join(" ").contains(imbalance), "{shown}");
    }

    let values = evaluated(&folder, "a/best.safetensors test.csv");
    is_near(&values["baseline"]["loss"], loss);
    is_near(&values["baseline"]["accuracy"], accuracy);
    is_near(&values["accuracy"], accuracy);
    let never: Vec<&Value> = values["never_predicted"].as_object().unwrap().values().collect();
    assert_eq!(never, [&json!(["Always", "Sometimes"])]);
    let told = succeed(&folder, "evaluate a/best.safetensors test.csv");
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("30 rows: loss ") && !lines[0].contains("seen"), "{told}");
    assert_eq!(lines[1], format!("baseline: loss {loss:.4}, accuracy {accuracy:.4} {what}"));
    assert_eq!(lines[2], "never predicted: `Always` (1 row), `Sometimes` (3 rows)");

    let page = fs::read_to_string(folder.path().join("a/report.html")).unwrap();
    assert!(page.contains(&format!("does not look at its inputs: val_loss {loss:.4}, val_accuracy")), "{page}");
    assert!(page.contains("<p>Never predicted: `Always` (1 row), `Sometimes` (3 rows).</p>"));
}

#[test]
fn two_classes_by_one_unit_have_a_baseline_too() {
    let folder = imbalanced("[optimizer]\ntype = \"Adam\"\nlearning_rate = 0.1\n[training]\nepochs = 20\n");
    for name in ["table.csv", "test.csv"] {
        let text = fs::read_to_string(folder.path().join(name)).unwrap();
        write(&folder, name, text.replace("Sometimes", "Always"));
    }
    let settings = fs::read_to_string(folder.path().join("run.toml")).unwrap();
    write(&folder, "run.toml", settings.replace("units = 3", "units = 1").replace("SparseCategorical", "Binary"));
    succeed(&folder, "train run.toml --quiet --save m.safetensors");
    let values = evaluated(&folder, "m.safetensors test.csv");
    let part = 52.0_f64 / 60.0;
    is_near(&values["baseline"]["loss"], -(26.0 * part.ln() + 4.0 * (1.0 - part).ln()) / 30.0);
    is_near(&values["baseline"]["accuracy"], 26.0 / 30.0);
    let never: Vec<&Value> = values["never_predicted"].as_object().unwrap().values().collect();
    assert_eq!(never, [&json!(["Always"])]);
}

#[test]
fn an_error_stands_beside_that_of_the_mean() {
    let target = |row: usize| real(row * 7 % 11) + 0.5;
    let table = |rows: std::ops::Range<usize>| {
        let lines = rows.map(|row| format!("{},{},{}\n", row % 4, row % 5, target(row)));
        "x,y,price\n".to_owned() + &lines.collect::<String>()
    };
    let settings = "[data]\ntype = \"csv\"\ntrain = \"table.csv\"\ntest = \"test.csv\"\ntarget = \"price\"\ntarget_kind = \"values\"\n\
                    [model]\ninput = [2]\nlayers = [{ type = \"Dense\", units = 1 }]\n[loss]\ntype = \"MeanSquaredError\"\n\
                    [training]\nepochs = 1\nmetrics = [\"mean_absolute_error\", \"r2_score\"]\n";
    let folder = flowers::folder(&table(0..40), settings);
    write(&folder, "test.csv", table(40..60));
    let (shown, _) = outputs(&folder, "train run.toml --save m.safetensors");
    let values = evaluated(&folder, "m.safetensors test.csv");

    let mean = (0..40).map(target).sum::<f64>() / 40.0;
    let own_mean = (40..60).map(target).sum::<f64>() / 20.0;
    let of_test = |f: &dyn Fn(f64) -> f64| (40..60).map(|row| f(target(row))).sum::<f64>();
    let squares = of_test(&|t| (t - mean) * (t - mean));
    is_near(&values["baseline"]["loss"], squares / 20.0);
    is_near(&values["baseline"]["mean_absolute_error"], of_test(&|t| (t - mean).abs()) / 20.0);
    is_near(&values["baseline"]["r2_score"], 1.0 - squares / of_test(&|t| (t - own_mean) * (t - own_mean)));
    let needed = format!("baseline: val_loss {:.4}, ", squares / 20.0);
    assert!(shown.contains(&needed) && shown.contains(", the mean in training)"), "{needed}: {shown}");
}

/// Rows that can't be learned, between blank lines, with categories, texts in quotes, and rows without a target.
fn puzzling() -> String {
    let mut text = "size,\"colour, \"\"outer\"\"\",note,kind\n".to_owned();
    for row in 0..80 {
        let (blank, kind) =
            (if row % 7 == 0 { "\n" } else { "" }, ["a", "b", ""][if row % 9 == 4 { 2 } else { row / 3 % 2 }]);
        text += &format!(
            "{blank}{}.50,{},\"no. {row}\",{kind}\n",
            1000 + row,
            ["red", "dark, blue"][row % 2].replace("dark, blue", "\"dark, blue\"")
        );
    }
    text
}

#[test]
fn a_mistake_in_a_table_is_shown_as_it_stands_in_the_file() {
    let text = puzzling();
    let settings = flowers::SETTINGS.replace("input = [2]", "input = [3]").replace("units = 3", "units = 2");
    let settings = settings.replace("target =", "ignore = [\"note\"]\ntarget =");
    let folder = flowers::folder(&text, &(settings + "[training]\nepochs = 2\nvalidation = 0.5\n"));
    succeed(&folder, "train run.toml --run a --quiet");
    let results = json(&folder, "a/results.json");
    let mistakes = results["end"]["judgements"][0]["of"]["classes"]["mistakes"].as_array().unwrap();
    assert!(mistakes.len() > 4, "{results}");
    let lines: Vec<&str> = text.split('\n').collect();
    let page = fs::read_to_string(folder.path().join("a/report.html")).unwrap();
    for mistake in mistakes {
        let source = mistake["source"].as_str().unwrap();
        let line: usize =
            source.strip_prefix("line ").unwrap().strip_suffix(" of `table.csv`").unwrap().parse().unwrap();
        // Read by another reader: the line alone.
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(lines[line - 1].as_bytes());
        let record = reader.records().next().unwrap().unwrap();
        let truth = ["a", "b"][usize::try_from(mistake["truth"].as_u64().unwrap()).unwrap()];
        assert_eq!(&record[3], truth, "{source}");
        let fields = json!([[["size", record[0]], ["colour, \"outer\"", record[1]]], 0]);
        assert_eq!(mistake["sample"]["values"], fields, "{source}");
        assert!(page.contains(&format!("row {}, line {line} of `table.csv`", mistake["row"])), "{source}");
    }
    assert!(page.contains("<dt>size</dt><dd>10") && page.contains("<dt>colour, &quot;outer&quot;</dt><dd>"));
}

#[test]
fn the_largest_errors_of_a_regression_name_their_lines() {
    let lines = (0..20).map(|row| format!("{},{},{}\n", row % 4, 3 * row, if row == 12 { 900 } else { row }));
    let text = "x,y,price\n".to_owned() + &lines.collect::<String>();
    let settings = "[data]\ntype = \"csv\"\ntrain = \"table.csv\"\ntest = \"table.csv\"\ntarget = \"price\"\ntarget_kind = \"values\"\n\
                    [model]\ninput = [2]\nlayers = [{ type = \"Dense\", units = 1 }]\n[loss]\ntype = \"MeanSquaredError\"\n\
                    [training]\nepochs = 1\n";
    let folder = flowers::folder(&text, settings);
    succeed(&folder, "train run.toml --run a --quiet");
    let results = json(&folder, "a/results.json");
    let worst = &results["end"]["judgements"][0]["of"]["values"][0][1]["worst"][0];
    assert_eq!(worst["source"], "line 14 of `table.csv`");
    assert_eq!(worst["sample"]["values"], json!([[["x", "0"], ["y", "36"]], 0]));
}

fn picture(folder: &Path, name: &str, value: u8) {
    let file = folder.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    image::GrayImage::from_pixel(8, 8, image::Luma([value])).save(file).unwrap();
}

#[test]
fn a_mistaken_picture_is_named_by_its_file() {
    let folder = tempfile::tempdir().unwrap();
    for at in 0..10_u8 {
        // One of each class looks like the other class.
        picture(folder.path(), &format!("images/cat/{at}.png"), if at == 3 { 250 } else { 10 + at });
        picture(folder.path(), &format!("images/dog/deep/{at}.png"), if at == 4 { 12 } else { 230 + at });
    }
    let settings = "[data]\ntype = \"image_folder\"\ntrain = \"images\"\ntest = \"images\"\nheight = 8\nwidth = 8\n\
                    channels = 1\n[model]\ninput = [8, 8, 1]\nlayers = [{ type = \"Flatten\" }, { type = \"Dense\", units = 2 }]\n\
                    [loss]\ntype = \"SparseCategoricalCrossentropy\"\n[optimizer]\ntype = \"Adam\"\nlearning_rate = 0.01\n\
                    [training]\nepochs = 60\nbatch_size = 20\naugment = [{ type = \"RandomBrightness\", factor = 0.01 }]\n";
    write(&folder, "run.toml", settings);
    succeed(&folder, "train run.toml --run a --quiet");
    let results = json(&folder, "a/results.json");
    let mistakes = results["end"]["judgements"][0]["of"]["classes"]["mistakes"].as_array().unwrap();
    let mut sources: Vec<&str> = mistakes.iter().map(|it| it["source"].as_str().unwrap()).collect();
    sources.sort_unstable();
    assert_eq!(sources, ["`cat/3.png`", "`dog/deep/4.png`"]);
    let page = fs::read_to_string(folder.path().join("a/report.html")).unwrap();
    assert!(page.contains("row 3, `cat/3.png`"), "{sources:?}");
    // Of two classes, thresholds are shown; of changes at random, what they make of the first images.
    let changed = page.split("<h2>Changed images</h2>").nth(1).unwrap().split("<h2>").next().unwrap();
    assert_eq!((changed.matches("<img").count(), page.matches("<h3>Threshold</h3>").count()), (12, 1));
    assert!(page.contains("best epoch") && page.contains("ROC, area 0."), "{page}");
}

/// A table in which every other row has a label that does not count.
#[test]
fn rows_of_an_ignored_class_are_neither_judged_nor_mistakes() {
    let rows = (0..40).map(|row| format!("{},{},{}\n", row % 3, row % 5, ["0", "-100", "1", "-100"][row % 4]));
    let table = "x,y,kind\n".to_owned() + &rows.collect::<String>();
    let settings = flowers::SETTINGS
        .replace("target_kind = \"classes\"", "target_kind = \"values\"\ntest = \"table.csv\"")
        .replace("\"SparseCategoricalCrossentropy\"", "\"SparseCategoricalCrossentropy\"\nignore_class = -100");
    let folder = flowers::folder(&table, &(settings + "[training]\nvalidation = \"test\"\nepochs = 2\n"));
    succeed(&folder, "train run.toml --run a --quiet");
    let page = fs::read_to_string(folder.path().join("a/report.html")).unwrap();
    assert!(page.contains(" of 20 rows are right"), "{page}");
}

/// The baseline of a run without validation is that of its weighted rows, as its loss is. The weights of `balanced` are those of
/// scikit-learn's definition: `rows / (classes * rows of the class)`.
#[test]
fn a_baseline_has_the_weights_of_classes() {
    let all = real(ROWS.iter().map(|it| it.1).sum());
    let balanced = ROWS.map(|it| all / (3.0 * real(it.1)));
    for (setting, weights) in [("{ Never = 9.0 }", [1.0, 9.0, 1.0]), ("\"balanced\"", balanced)] {
        let more = format!("[training]\nvalidation = \"none\"\nepochs = 1\nclass_weight = {setting}\n");
        let folder = flowers::folder(&table(ROWS.map(|it| it.1)), &(flowers::SETTINGS.to_owned() + &more));
        succeed(&folder, "train run.toml --run a --quiet");
        let rows = ROWS.iter().zip(weights);
        let weighted = rows.map(|(it, weight)| -weight * real(it.1) * (real(it.1) / all).ln());
        let baseline = &json(&folder, "a/results.json")["end"]["baseline"]["values"]["loss"];
        is_near(baseline, weighted.sum::<f64>() / all);
    }
}
