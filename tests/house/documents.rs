//! Does ARCHITECTURE.md name what there is, and is there what it names?

use std::collections::BTreeSet;

use crate::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// The rows of the table under a heading: first cell, and all others.
fn rows<'a>(text: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let section = text.split("\n## ").find(|section| section.starts_with(heading)).unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    rows.filter(|(first, _)| !first.starts_with("---")).collect()
}

/// What stands in backticks.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Every folder above a file below `src/`, with a slash at its end, and every file that stands in `src/` itself.
fn places(path: &str) -> Vec<String> {
    let inner = path.strip_prefix("src/").unwrap_or_default();
    match inner.matches('/').count() {
        0 => vec![path.to_owned()],
        _ => inner.match_indices('/').map(|(end, _)| format!("src/{}/", &inner[..end])).collect(),
    }
}

/// The part of `src/` that a row is about: `src/kernels/`.
fn roots(first: &str) -> Vec<&str> {
    named(first).filter(|name| name.starts_with("src/")).collect()
}

/// Does a row tell of a place: in its first cell, or by the place's path below that cell's folder?
fn tells(row: &(&str, &str), place: &str) -> bool {
    let below = |root: &&str| named(row.1).any(|name| root.ends_with('/') && format!("{root}{name}") == place);
    let roots = roots(row.0);
    roots.contains(&place) || roots.iter().any(below)
}

pub fn the_map_names_every_folder(tree: &Tree) -> Vec<String> {
    let rows = rows(tree.text(ARCHITECTURE), "Map");
    let places: BTreeSet<String> = tree.files("src/", ".rs").flat_map(|(path, _)| places(path)).collect();
    let lost = places.iter().filter(|place| *place != "src/lib.rs" && !rows.iter().any(|row| tells(row, place)));
    lost.map(|place| format!("{ARCHITECTURE}: its map does not name `{place}`: say there what it is for")).collect()
}

/// Files and folders that a row of the map names below its own folder.
fn the_map_names_what_is_there_in(tree: &Tree, row: &(&str, &str)) -> Vec<String> {
    let roots = roots(row.0);
    let is_there = |path: &str| tree.0.keys().any(|key| key == path || path.ends_with('/') && key.starts_with(path));
    let is_path = |name: &&str| name.ends_with('/') || [".rs", ".wgsl"].iter().any(|end| name.ends_with(end));
    let of_roots = roots.iter().copied().filter(|root| !is_there(root));
    let folders: Vec<&str> = roots.iter().copied().filter(|root| root.ends_with('/')).collect();
    let is_below =
        |name: &str| name.contains("src/") || folders.iter().any(|folder| is_there(&format!("{folder}{name}")));
    let below = named(row.1).filter(|_| !folders.is_empty()).filter(is_path).filter(|name| !is_below(name));
    of_roots.chain(below).map(ToOwned::to_owned).collect()
}

pub fn the_map_names_what_is_there(tree: &Tree) -> Vec<String> {
    let rows = rows(tree.text(ARCHITECTURE), "Map");
    let lost =
        rows.iter().flat_map(|row| the_map_names_what_is_there_in(tree, row).into_iter().map(|name| (row.0, name)));
    lost.map(|(first, name)| format!("{ARCHITECTURE}: its map's row {first} names `{name}`, which is not there"))
        .collect()
}

fn has_tests(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "#[test]")
}

/// The table's name of a file with tests: `command/cli.rs` for that file and for `tests/command/cli/signals.rs`, and
/// `house/` for all files of a folder whose `main.rs` has tests.
fn test(tree: &Tree, path: &str) -> Option<String> {
    let inner = path.strip_prefix("tests/")?.strip_suffix(".rs")?;
    let Some((folder, file)) = inner.split_once('/') else { return Some(format!("{inner}.rs")) };
    if has_tests(tree.text(&format!("tests/{folder}/main.rs"))) {
        return Some(format!("{folder}/"));
    }
    Some(format!("{folder}/{}.rs", file.split('/').next()?))
}

fn tests(tree: &Tree) -> BTreeSet<String> {
    let with_tests = tree.files("tests/", ".rs").filter(|(_, text)| has_tests(text));
    with_tests.filter_map(|(path, _)| test(tree, path)).collect()
}

pub fn the_table_of_tests_is_whole(tree: &Tree) -> Vec<String> {
    let rows = rows(tree.text(ARCHITECTURE), "Tests, by level");
    let named = rows.iter().flat_map(|row| named(row.0)).filter(|name| !name.contains(".js"));
    let told: BTreeSet<String> = named.map(ToOwned::to_owned).collect();
    let (tests, mut complaints) = (tests(tree), Vec::new());
    for test in tests.difference(&told) {
        complaints.push(format!("{ARCHITECTURE}: its table of tests does not name `{test}`: say there what it asks"));
    }
    for test in told.difference(&tests) {
        complaints.push(format!("{ARCHITECTURE}: its table of tests names `{test}`, which is not there"));
    }
    complaints
}
