//! Is each mistake told by its place in the file?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::succeed;
use crate::flowers;

fn write(folder: &TempDir, name: &str, text: impl AsRef<[u8]>) {
    fs::write(folder.path().join(name), text).unwrap();
}

fn json(folder: &TempDir, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.path().join(name)).unwrap()).unwrap()
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
                    [training]\nepochs = 60\nbatch_size = 20\n";
    write(&folder, "run.toml", settings);
    succeed(&folder, "train run.toml --run a --quiet");
    let results = json(&folder, "a/results.json");
    let mistakes = results["end"]["judgements"][0]["of"]["classes"]["mistakes"].as_array().unwrap();
    let mut sources: Vec<&str> = mistakes.iter().map(|it| it["source"].as_str().unwrap()).collect();
    sources.sort_unstable();
    assert_eq!(sources, ["`cat/3.png`", "`dog/deep/4.png`"]);
    let page = fs::read_to_string(folder.path().join("a/report.html")).unwrap();
    assert!(page.contains("row 3, `cat/3.png`"), "{sources:?}");
}
