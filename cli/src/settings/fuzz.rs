//! Whole settings files with errors in them are read or refused: a target beside those of `tests/fuzz/`.

#[path = "../../../tests/common/fuzz.rs"]
#[allow(clippy::duplicate_mod, reason = "each target is a module of its own part, and both run in one program")]
#[allow(clippy::disallowed_methods, reason = "tests wait for other processes, by the clock of the system")]
mod watched;

use std::fs;
use std::path::Path;

use watched::Target;

use super::{DIGITS, SettingsFile};

const TARGETS: &[Target] = &[Target { name: "settings_file", seeds, run }];

/// The digits' settings, and those of `examples/settings`.
fn seeds() -> Vec<Vec<u8>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("examples/settings");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.sort();
    let examples = paths.iter().map(|path| fs::read(path).unwrap());
    [DIGITS.into()].into_iter().chain(examples).collect()
}

/// Continues as `train` does, up to the data.
fn run(input: &[u8], _: &Path) {
    let settings = match SettingsFile::parse(&String::from_utf8_lossy(input), "run.toml") {
        Ok(settings) => settings,
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("`run.toml`") && error.contains("\n  help: "), "{error}");
            return;
        }
    };
    drop(settings.files());
    drop(settings.training.early_stopping(true));
    let Ok(model) = settings.build_model(0) else { return };
    drop(settings.data_of(&model));
    drop(settings.compile(&model, 0));
}

#[test]
fn mutated_settings_are_read_or_refused() {
    watched::watch_all(TARGETS, module_path!(), watched::QUICK);
}

#[test]
#[ignore = "a hundred thousand inputs take minutes"]
fn a_hundred_thousand_mutated_settings_are_read_or_refused() {
    watched::watch_all(TARGETS, module_path!(), watched::FULL);
}

/// The process that is watched.
#[test]
fn child() {
    watched::child(TARGETS);
}
