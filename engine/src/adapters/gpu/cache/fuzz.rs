//! Tables of tiles with errors in them are read or refused: a target beside those of `tests/fuzz/`.

#[path = "../../../../../tests/common/fuzz.rs"]
#[allow(clippy::duplicate_mod, reason = "each target is a module of its own part, and both run in one program")]
#[allow(clippy::disallowed_methods, reason = "tests wait for other processes, by the clock of the system")]
mod watched;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use watched::Target;

use super::table::tests::open;
use crate::kernels::Tile;

const TARGETS: &[Target] = &[Target { name: "tile_table", seeds, run }];

/// The file of a table, as it is saved.
static FILE: LazyLock<(OsString, Vec<u8>)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let mut table = open("A", folder.path());
    table.insert("x", Tile::Workgroup64);
    table.insert("y", Tile::Workgroup32);
    table.save();
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap();
    (file.file_name(), fs::read(file.path()).unwrap())
});

fn seeds() -> Vec<Vec<u8>> {
    vec![FILE.1.clone()]
}

fn run(input: &[u8], folder: &Path) {
    watched::write(&folder.join(&FILE.0), input);
    drop(open("A", folder));
}

#[test]
fn mutated_tables_are_read_or_refused() {
    watched::watch_all(TARGETS, module_path!(), watched::QUICK);
}

#[test]
#[ignore = "a hundred thousand inputs take minutes"]
fn a_hundred_thousand_mutated_tables_are_read_or_refused() {
    watched::watch_all(TARGETS, module_path!(), watched::FULL);
}

/// The process that is watched.
#[test]
fn child() {
    watched::child(TARGETS);
}
