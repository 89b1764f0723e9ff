//! Does the report of a table say which columns matter, by how much worse the score gets with a column shuffled?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::succeed;
use crate::flowers;

const TRAINING: &str = "[optimizer]\ntype = \"Adam\"\nlearning_rate = 0.1\n[training]\nepochs = 60\nvalidation = 0.5\n";

/// A number from 0 to 1 of a row, other than that of another column.
fn drawn(row: u32, column: u32) -> f64 {
    let mixed = (row * 2 + 1).wrapping_mul(2_654_435_769).wrapping_add(column.wrapping_mul(1_013_904_223));
    f64::from((mixed ^ (mixed >> 15)).wrapping_mul(2_246_822_519) >> 8) / f64::from(1 << 24)
}

/// Trains on 800 rows of these columns, and gives the report's importances.
fn importances(head: &str, units: usize, row: &dyn Fn(u32) -> String) -> (TempDir, Value, BTreeMap<String, f64>) {
    let table = format!("{head}\n") + &(0..800).map(row).collect::<String>();
    let settings = flowers::SETTINGS.replace("input = [2]\n", "").replace("units = 3", &format!("units = {units}"));
    let home = flowers::folder(&table, &(settings + TRAINING));
    succeed(&home, "train run.toml --run a --quiet");
    let text = fs::read_to_string(home.path().join("a/results.json")).unwrap();
    let found = serde_json::from_str::<Value>(&text).unwrap()["end"]["importance"].clone();
    let columns = found["columns"].as_array().unwrap().iter();
    let by_name = columns.map(|it| (it["name"].as_str().unwrap().to_owned(), it["mean"].as_f64().unwrap())).collect();
    (home, found, by_name)
}

fn class(x: f64) -> &'static str {
    if x < 0.5 { "low" } else { "high" }
}

#[test]
fn the_only_column_that_decides_is_the_only_one_that_matters() {
    let (home, found, by_name) = importances("x,colour,noise,day,kind", 2, &|row| {
        let (x, draw) = (drawn(row, 0), drawn(row, 1));
        let colour = if draw < 0.3 { "red" } else { ["green", "blue"][usize::from(draw < 0.6)] };
        format!("{x:.4},{colour},{:.4},2024-0{}-1{},{}\n", drawn(row, 2), row % 9 + 1, row * 7 % 10, class(x))
    });
    assert_eq!((&found["metric"], &found["rows"], &found["repeats"]), (&"accuracy".into(), &400.into(), &5.into()));
    let score = found["score"].as_f64().unwrap();
    assert!(score > 0.95, "{found}");
    // A category and a date are one column each, however many elements they become.
    assert_eq!(by_name.keys().collect::<Vec<_>>(), ["colour", "day", "noise", "x"]);
    // The class of another row is right by chance, for half of the rows.
    assert!((by_name["x"] - (score - 0.5)).abs() < 0.06, "{found}");
    assert!(["colour", "day", "noise"].iter().all(|name| by_name[*name].abs() < 0.04), "{found}");
    assert_eq!(found["columns"][0]["name"], "x");
    let page = fs::read_to_string(home.path().join("a/report.html")).unwrap();
    assert!(page.contains("<h3>Columns that matter</h3>"), "{page}");
    assert!(page.contains("Each column's values are shuffled among 400 rows, 5 times"), "{page}");
    assert!(page.contains("accuracy gets worse by"), "{page}");
}

/// A shuffled column leaves its double, so that both seem to matter less than one alone.
#[test]
fn two_columns_that_say_the_same_share_their_importance() {
    let (_home, found, by_name) = importances("x,again,noise,kind", 2, &|row| {
        let x = drawn(row, 0);
        format!("{x:.4},{:.4},{:.4},{}\n", 10.0 * x, drawn(row, 2), class(x))
    });
    assert!(found["score"].as_f64().unwrap() > 0.95, "{found}");
    assert!(["x", "again"].iter().all(|name| (0.05..0.42).contains(&by_name[*name])), "{found}");
    assert!(by_name["noise"].abs() < 0.04, "{found}");
}

/// The score of a regression is its first metric, of which less is better.
#[test]
fn an_error_grows_with_a_column_shuffled() {
    let table: String =
        (0..400).map(|row| format!("{:.4},{:.4},{:.4}\n", drawn(row, 0), drawn(row, 1), 3.0 * drawn(row, 0))).collect();
    let settings = "[data]\ntype = \"csv\"\ntrain = \"table.csv\"\ntarget = \"price\"\ntarget_kind = \"values\"\n[model]\n\
                    layers = [{ type = \"Dense\", units = 1 }]\n[loss]\ntype = \"MeanSquaredError\"\n";
    let training = format!("{TRAINING}metrics = [\"mean_absolute_error\"]\n");
    let home = flowers::folder(&format!("x,y,price\n{table}"), &(settings.to_owned() + &training));
    succeed(&home, "train run.toml --run a --quiet");
    let text = fs::read_to_string(home.path().join("a/results.json")).unwrap();
    let found = &serde_json::from_str::<Value>(&text).unwrap()["end"]["importance"];
    assert_eq!((&found["metric"], &found["columns"][0]["name"]), (&"mean_absolute_error".into(), &"x".into()));
    // Two numbers drawn between 0 and 3 are 1 apart, in the mean.
    let (score, mean) = (found["score"].as_f64().unwrap(), found["columns"][0]["mean"].as_f64().unwrap());
    assert!((score + mean - 1.0).abs() < 0.12, "{found}");
    assert!(found["columns"][1]["mean"].as_f64().unwrap().abs() < 0.02, "{found}");
}
