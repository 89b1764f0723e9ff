//! Are the documents for contributors short, whole, and true of the files that they name?

use std::collections::BTreeSet;

use crate::Tree;
use crate::direction::PACKAGES;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const DESIGN: &str = "docs/design/";
const INDEX: &str = "docs/design/README.md";

const MAX_ARCHITECTURE_BYTES: usize = 12_000;
const MAX_PAGE_BYTES: usize = 6_000;
const MAX_LINE: usize = 300;

/// The parts of a page about a decision.
const PARTS: [&str; 4] = ["Context", "Decision", "Consequences", "What would change it"];

/// What stands in backticks.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The part of a package that a file belongs to: `engine/src/kernels/`, or a file of `engine/src/` itself.
fn part(package: &str, path: &str) -> String {
    match path.strip_prefix(package).and_then(|inner| inner.split_once('/')) {
        Some((folder, _)) => format!("{package}{folder}/"),
        None => path.to_owned(),
    }
}

fn is_there(tree: &Tree, path: &str) -> bool {
    tree.0.keys().any(|key| key == path || path.ends_with('/') && key.starts_with(path))
}

pub fn the_map_names_every_part(tree: &Tree) -> Vec<String> {
    let map: BTreeSet<&str> = named(tree.text(ARCHITECTURE)).collect();
    let parts = ["src/", "engine/src/"].into_iter();
    let parts = parts.flat_map(|package| tree.files(package, ".rs").map(move |(path, _)| part(package, path)));
    let parts: BTreeSet<String> = parts.filter(|part| part != "engine/src/lib.rs").collect();
    let lost = parts.iter().filter(|part| !map.contains(part.as_str()));
    lost.map(|part| format!("{ARCHITECTURE}: its map does not name `{part}`: say there what it is for")).collect()
}

/// Folders whose files are all read into the tree, so that a name that it lacks is wrong.
const READ: [&str; 9] =
    ["src/", "engine/", "bench/src/", "cli/src/", "compilers/", "tests/", "python/src/", "web-demo/src/", "xtask/"];

pub fn the_map_names_what_is_there(tree: &Tree) -> Vec<String> {
    let paths = named(tree.text(ARCHITECTURE)).filter(|name| READ.iter().any(|folder| name.starts_with(folder)));
    let paths = paths.filter(|name| !["STEM", " "].iter().any(|part| name.contains(part)));
    let lost = paths.filter(|path| !is_there(tree, path));
    lost.map(|path| format!("{ARCHITECTURE} names `{path}`, which is not there")).collect()
}

/// The folder of a front: of `src/kernels/mod.rs` and of `src/plan.rs` that of their parts.
fn folder_of(path: &str) -> String {
    let folder = path.strip_suffix("mod.rs").or_else(|| path.strip_suffix("lib.rs"));
    folder.map_or_else(|| path.replace(".rs", "/"), ToOwned::to_owned)
}

/// The comment that a file begins with.
fn head(text: &str) -> String {
    let lines = text.lines().take_while(|line| line.starts_with("//") || line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

pub fn fronts_name_what_is_there(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in PACKAGES.iter().flat_map(|package| tree.files(package, ".rs")) {
        let folder = folder_of(path);
        let head = head(text);
        let list = head.split_once("iles: ").or_else(|| head.split_once("Files, ")).map_or("", |(_, list)| list);
        let is_path = |name: &&str| [".rs", ".wgsl", "/"].iter().any(|end| name.ends_with(end));
        for name in named(list).filter(is_path).filter(|name| !is_there(tree, &format!("{folder}{name}"))) {
            complaints.push(format!("{path}: its list of files names `{name}`, which {folder} lacks"));
        }
    }
    complaints
}

pub fn every_file_says_what_it_is(tree: &Tree) -> Vec<String> {
    let silent = tree.files("", ".rs").filter(|(_, text)| !text.starts_with("//! "));
    silent.map(|(path, _)| format!("{path}: let its first line say what it is, as `//! …`")).collect()
}

/// The files whose tests are a question each: `tests/memory.rs`, and those in a folder of `tests/` itself.
pub fn every_test_asks_a_question(tree: &Tree) -> Vec<String> {
    let files = tree.files("tests/", ".rs").filter(|(path, _)| path.matches('/').count() <= 2);
    let tests = files.filter(|(_, text)| text.lines().any(|line| line.trim() == "#[test]"));
    let asks = |text: &str| text.lines().take_while(|line| line.starts_with("//!")).any(|line| line.contains('?'));
    let silent = tests.filter(|(_, text)| !asks(text));
    silent.map(|(path, _)| format!("{path}: ask in its first lines what it tests, with a question mark")).collect()
}

pub fn documents_are_short(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let pages = tree.files(DESIGN, ".md").map(|(path, text)| (path, text, MAX_PAGE_BYTES));
    for (path, text, most) in pages.chain([(ARCHITECTURE, tree.text(ARCHITECTURE), MAX_ARCHITECTURE_BYTES)]) {
        if text.len() > most {
            complaints.push(format!("{path} has {} bytes: {most} is the most; leave out, or begin a page", text.len()));
        }
        if let Some(at) = text.lines().position(|line| line.chars().count() > MAX_LINE) {
            complaints.push(format!("{path}:{} is longer than {MAX_LINE} signs: make it two", at + 1));
        }
    }
    complaints
}

pub fn pages_of_decisions_have_four_parts(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in tree.files(DESIGN, ".md").filter(|(path, _)| *path != INDEX) {
        let parts: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        if parts != PARTS {
            complaints.push(format!("{path} has the parts {parts:?}: let it have {PARTS:?}, in this order"));
        }
        let name = path.trim_start_matches(DESIGN);
        if !tree.text(INDEX).contains(&format!("]({name})")) {
            complaints.push(format!("{INDEX} does not list {name}: give it a line there"));
        }
    }
    complaints
}
