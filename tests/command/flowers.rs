//! A table of three classes, and settings for it: the small run of many tests of the command.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;

use tempfile::TempDir;

/// Settings for `table.csv` with the columns `x`, `y` and `kind`.
pub const SETTINGS: &str = r#"[data]
type = "csv"
train = "table.csv"
target = "kind"
target_kind = "classes"
[model]
input = [2]
layers = [{ type = "Dense", units = 3 }]
[loss]
type = "SparseCategoricalCrossentropy"
"#;

/// A table of 40 rows: its head, and the names of its classes.
pub fn table(head: &str, classes: [&str; 3]) -> String {
    let row = |row: usize| format!("{},{},{}\n", row % 3, row % 5, classes[row % 3]);
    std::iter::once(format!("{head}\n")).chain((0..40).map(row)).collect()
}

/// A table whose third class can't be told from the second, and which needs a good learning rate.
pub fn hard_table(head: &str, classes: [&str; 3]) -> String {
    let row = |at: usize| format!("{},{},{}\n", at % 3 / 2 * 9 + at % 2, at % 5, classes[at % 3]);
    std::iter::once(format!("{head}\n")).chain((0..120).map(row)).collect()
}

/// A folder with a table, `table.csv`, and settings, `run.toml`.
pub fn folder(table: &str, settings: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("table.csv"), table).unwrap();
    fs::write(folder.path().join("run.toml"), settings).unwrap();
    folder
}
