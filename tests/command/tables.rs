//! Tables of all kinds from the command line: what `init` writes, what is read from where, and what predictions say.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;

use crate::command::succeed;

/// The keys of `[data]` that `init` writes for these bytes.
fn keys_of(bytes: impl AsRef<[u8]>) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("t.csv"), bytes).unwrap();
    succeed(&home, "init t.csv");
    let text = fs::read_to_string(home.path().join("run.toml")).unwrap();
    let settings: toml::Table = toml::from_str(&text).unwrap();
    let tables: Vec<&String> = settings.keys().collect();
    assert_eq!(tables, ["data", "loss", "model", "optimizer", "training"], "{text}");
    settings["data"].as_table().unwrap().keys().cloned().collect()
}

/// Whatever the columns are called, the names stay in their values and comments.
#[test]
fn names_of_columns_write_no_settings() {
    let rows: String = (0..24).map(|row| format!("{},{},{}\n", row % 7, row % 5, ["a", "b"][row % 2])).collect();
    for name in [
        "amount\n(EUR)",
        "amount\r(EUR)",
        "x\n[training]\nepochs = 0\n#",
        "x\nignore = [\"kind\"]",
        "x\u{2028}y\u{7f}\u{1b}[31m",
        "\\ \"\"\"\n'''",
        "a\ttab",
    ] {
        let head = format!("\"{0}\",\"second\nline\",\"kind\n{0}\"", name.replace('"', "\"\""));
        assert_eq!(keys_of(format!("{head}\n{rows}")), ["target", "target_kind", "train", "type"], "{name:?}");
    }
}

#[test]
fn a_last_column_that_is_not_the_target_is_told() {
    let home = tempfile::tempdir().unwrap();
    let row = |row: usize| format!("{},{},remark number {row}\n", row % 7, ["a", "b"][row % 2]);
    fs::write(home.path().join("t.csv"), format!("x,sort,notes\n{}", (0..30).map(row).collect::<String>())).unwrap();
    let seen = succeed(&home, "init t.csv");
    assert!(seen.contains("`notes`, the last column, is not the target: it holds free text"), "{seen}");
    assert!(!succeed(&home, "init t.csv --target sort -o again.toml").contains("the last column"));
}
