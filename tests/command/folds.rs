//! Does `train --folds` hold each row out once, score each model on rows that it has not seen, and repeat itself?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{refused, succeed};
use crate::flowers;

const TRAINING: &str = "[optimizer]\ntype = \"Adam\"\nlearning_rate = 0.1\n[training]\nepochs = 8\nvalidation = 0.25\nearly_stopping = { monitor = \"val_loss\", patience = 3 }\n";

/// Settings and a table of 120 rows.
fn home() -> TempDir {
    let table = flowers::hard_table("x,y,kind", ["a", "b", "c"]);
    flowers::folder(&table, &(flowers::SETTINGS.to_owned() + TRAINING))
}

fn fold_of(home: &TempDir, folder: &str) -> Value {
    let text = fs::read_to_string(home.path().join(folder).join("results.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["end"]["fold"].clone()
}

#[test]
fn each_model_is_scored_on_rows_that_it_has_not_seen() {
    let home = home();
    let shown = succeed(&home, "train run.toml --folds 5 --run a");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 7, "{shown}");
    let folds: Vec<Value> = (1..=5).map(|number| fold_of(&home, &format!("a/fold-{number}"))).collect();
    for (at, (line, fold)) in lines.iter().zip(&folds).enumerate() {
        assert!(line.starts_with(&format!("fold {} of 5: 24 rows: loss ", at + 1)), "{line}");
        assert_eq!(fold["rows"], 24);
    }
    // Mean and standard deviation of a sample.
    let losses: Vec<f64> = folds.iter().map(|fold| fold["values"]["loss"].as_f64().unwrap()).collect();
    let mean = losses.iter().sum::<f64>() / 5.0;
    let deviation = (losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / 4.0).sqrt();
    let told = lines[5].strip_prefix("mean of 5 folds ± standard deviation: loss ").unwrap();
    let told: Vec<f64> = told.split(", ").next().unwrap().split(" ± ").map(|text| text.parse().unwrap()).collect();
    assert!((told[0] - mean).abs() < 1e-3 * mean && (told[1] - deviation).abs() < 1e-3, "{shown} {mean} {deviation}");

    // The rows are found again: those of the fold, and those that validation held out of the others.
    let evaluated = |part: &str| {
        let line = format!("evaluate a/fold-2 --config a/fold-2/run.toml --json {part}");
        serde_json::from_str::<Value>(&succeed(&home, &line)).unwrap()["loss"].as_f64().unwrap()
    };
    assert!((evaluated("") - losses[1]).abs() < 1e-6);
    let results = fs::read_to_string(home.path().join("a/fold-2/results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["end"]["rows"], 24, "a quarter of the 96 others");
    assert!((evaluated("--part validation") - results["end"]["best"]["val_loss"].as_f64().unwrap()).abs() < 1e-6);
    let trained = succeed(&home, "evaluate a/fold-2 --config a/fold-2/run.toml --part train");
    assert!(trained.starts_with("72 rows: "), "{trained}");
    let page = fs::read_to_string(home.path().join("a/fold-2/report.html")).unwrap();
    assert!(page.contains("on the 24 rows of the fold that was held out: loss "), "{page}");

    // The same seed gives the same folds and scores, another one others.
    let again = succeed(&home, "train run.toml --folds 5 --run b");
    assert_eq!(lines[..6], again.lines().collect::<Vec<_>>()[..6]);
    let other = succeed(&home, "train run.toml --folds 5 --run c --seed 1");
    assert_ne!(lines[5], other.lines().nth(5).unwrap());

    // A report of the whole is that of its folds.
    let compared = succeed(&home, "report a");
    assert!(compared.contains("fold-5") && compared.contains(lines[5]), "{compared}");
    assert!(compared.contains("held-out loss") && compared.contains("held-out accuracy"), "{compared}");
    let page = fs::read_to_string(home.path().join("comparison.html")).unwrap();
    assert!(page.contains("On the folds that were held out, mean of 5 folds"), "{page}");
    // One fold alone repeats itself.
    succeed(&home, "train a/fold-3/run.toml --quiet --run d");
    assert_eq!(fold_of(&home, "d"), folds[2]);
}

/// Without other rows to validate by, the fold itself is the validation data; without any, the whole run counts.
#[test]
fn a_fold_takes_the_place_of_the_test_data() {
    let home = home();
    let settings = fs::read_to_string(home.path().join("run.toml")).unwrap();
    for (validation, has_best) in [("\"test\"", true), ("\"none\"", false)] {
        let text = settings.split("[training]").next().unwrap().to_owned();
        let text = text + &format!("[training]\nepochs = 2\nvalidation = {validation}\n");
        fs::write(home.path().join("run.toml"), text).unwrap();
        let folder = validation.trim_matches('"');
        let shown = succeed(&home, &format!("train run.toml --folds 3 --run {folder}"));
        assert_eq!(shown.contains("each fold also chose the best epoch of its model"), has_best, "{shown}");
        let results = fs::read_to_string(home.path().join(folder).join("fold-1/results.json")).unwrap();
        let results: Value = serde_json::from_str(&results).unwrap();
        assert_eq!((&results["end"]["fold"]["rows"], results["end"]["best"].is_object()), (&40.into(), has_best));
        if has_best {
            assert_eq!(results["end"]["best"]["val_loss"], results["end"]["fold"]["values"]["loss"]);
        }
    }
}

#[test]
fn folds_that_can_not_be_are_refused() {
    let home = home();
    let settings = fs::read_to_string(home.path().join("run.toml")).unwrap();
    fs::write(home.path().join("run.toml"), settings.replace("epochs = 8\n", "")).unwrap();
    for (line, needed) in [
        ("train run.toml --folds 1", "`--folds` needs at least 2, but is 1"),
        ("train run.toml --folds 121", "fold 1 of 121 needs from 2 folds to as many as there are rows, which are 120"),
        ("train run.toml --folds 3 --resume", "`--resume` with `--folds` needs the folder of the earlier folds"),
    ] {
        let error = refused(&home, line);
        assert!(error.contains(needed), "{line}: {error}");
    }
    assert!(succeed(&home, "train run.toml --folds 3 --dry-run").contains("dry run: 3 folds would be trained"));
    assert!(!home.path().join("runs").exists());
    let settings = fs::read_to_string(home.path().join("run.toml")).unwrap();
    for fold in ["6/5", "0/5", "1/1", "two"] {
        fs::write(home.path().join("fold.toml"), format!("{settings}fold = \"{fold}\"\n")).unwrap();
        let error = refused(&home, "train fold.toml --quiet");
        assert!(
            error.contains(&format!("needs a fold such as `2/5`, the second of five, but got `{fold}`")),
            "{error}"
        );
    }

    let whole = succeed(&home, "train run.toml --folds 3");
    assert!(whole.contains("the folds are in `runs/1`; compare them with `manyhands report runs/1`"), "{whole}");
    let error = refused(&home, "train run.toml --folds 3 --run runs/1");
    assert!(error.contains("the run folder `runs/1` needs to be a new one, but holds folds"), "{error}");
    let error = refused(&home, "train run.toml --folds 3 --run runs/1 --resume --seed 5");
    assert!(error.contains("needs folds of the same settings, but those of fold 1 differ"), "{error}");
    // What was lost is trained again, what is done stays.
    fs::remove_dir_all(home.path().join("runs/1/fold-2")).unwrap();
    let first = fs::metadata(home.path().join("runs/1/fold-1/last.safetensors")).unwrap().modified().unwrap();
    let resumed = succeed(&home, "train run.toml --folds 3 --run runs/1 --resume");
    assert_eq!(resumed, whole);
    let quiet = succeed(&home, "train run.toml --folds 3 --run runs/1 --resume --quiet --memory cpu=4GB");
    assert_eq!(quiet.trim_end(), whole.lines().nth(3).unwrap());
    assert_eq!(fs::metadata(home.path().join("runs/1/fold-1/last.safetensors")).unwrap().modified().unwrap(), first);
}
