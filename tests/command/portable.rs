//! Does the command take what other systems write and allow: names outside ASCII, long paths, line ends of Windows,
//! files that another program has open? These tests run on each system; what only Windows does is tested there.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::command::{command, outputs_of, refused_of};
use crate::flowers;
use manyhands::layers::Dense;
use manyhands::{Model, Sequential};

/// Runs a command that must succeed, with arguments that may have spaces; gives stdout and stderr.
fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let (stdout, stderr) = outputs_of(command(folder, "").args(arguments));
    stdout + &stderr
}

/// Runs a command that must fail; gives its stderr.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    refused_of(command(folder, "").args(arguments))
}

/// Settings with names outside ASCII.
fn settings() -> String {
    flowers::SETTINGS.replace("table.csv", "Größen.csv").replace("\"kind\"", "\"種類\"")
}

fn table() -> String {
    flowers::table("Länge,Breite,種類", ["grün", "赤", "синий"])
}

/// A folder with settings and table; its path has spaces and letters of three alphabets.
fn folder_with(settings: &str, table: &str) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("Übung 学習 данные");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("Lauf № 1.toml"), settings).unwrap();
    fs::write(folder.join("Größen.csv"), table).unwrap();
    (root, folder)
}

const TRAIN: [&str; 6] = ["train", "Lauf № 1.toml", "--epochs", "2", "--save", "läufe/模型.safetensors"];

#[test]
fn names_outside_ascii() {
    let (_root, folder) = folder_with(&settings(), &table());
    let said = succeed(&folder, &TRAIN);
    assert!(said.contains("saved to `läufe/模型.safetensors`"), "{said}");
    let model = "läufe/模型.safetensors";
    succeed(&folder, &["predict", model, "--config", "Lauf № 1.toml", "--part", "train", "--output", "прогноз.csv"]);
    let predicted = fs::read_to_string(folder.join("прогноз.csv")).unwrap();
    assert!(predicted.starts_with("row,class,probability_grün,probability_синий,probability_赤\n"), "{predicted}");
    let said = succeed(&folder, &["train", "Lauf № 1.toml", "--epochs", "3", "--resume", model]);
    assert!(said.contains("with 2 of 3 epochs done"), "{said}");
    // From elsewhere, by the whole path.
    let whole = folder.join(model);
    succeed(Path::new("."), &["summary", whole.to_str().unwrap()]);
    let said = refused(&folder, &["summary", "läufe/нет.safetensors"]);
    assert!(said.starts_with("error: `läufe/нет.safetensors` can't be read: "), "{said}");
}

#[test]
fn line_ends_and_marks_of_windows_change_nothing() {
    let trained = |settings: String, table: String| {
        let (_root, folder) = folder_with(&settings, &table);
        succeed(&folder, &TRAIN);
        Model::load(folder.join("läufe/模型.safetensors")).unwrap().weights
    };
    let plain = trained(settings(), table());
    let crlf = |text: &str| text.replace('\n', "\r\n");
    assert!(trained(crlf(&settings()), crlf(&table())) == plain, "CRLF");
    // Editors and spreadsheets of Windows begin a text with a byte order mark.
    let marked = |text: &str| format!("\u{feff}{}", crlf(text));
    assert!(trained(marked(&settings()), marked(&table())) == plain, "byte order mark");
}

#[test]
fn a_mistake_in_a_file_with_crlf_is_found_in_its_line() {
    let settings = settings().replace("units = 3", "unit = 3").replace("[loss]", "[training]\nbatchsize = 8\n[loss]");
    let (_root, folder) = folder_with(&settings.replace('\n', "\r\n"), &table().replace('\n', "\r\n"));
    let said = refused(&folder, &["train", "Lauf № 1.toml"]);
    assert!(said.contains("`Lauf № 1.toml`, line 10, key `batchsize`, is not known here"), "{said}");
}

#[test]
fn paths_longer_than_windows_once_allowed() {
    let (_root, folder) = folder_with(&settings(), &table());
    let long = (0..6).map(|idx| format!("{idx}-{}", "long".repeat(15))).collect::<Vec<_>>().join("/");
    let file = format!("{long}/model.safetensors");
    assert!(file.len() > 300);
    succeed(&folder, &["train", "Lauf № 1.toml", "--epochs", "1", "--save", &file]);
    let said = succeed(&folder, &["train", "Lauf № 1.toml", "--epochs", "2", "--save", &file, "--resume"]);
    assert!(said.contains("with 1 of 2 epochs done"), "{said}");
    succeed(&folder, &["summary", &file]);
    assert!(!folder.join(format!("{file}.partial")).exists());
}

fn model(seed: u64) -> Model {
    Sequential::new([4]).add(Dense::new(3)).build(seed).unwrap()
}

#[test]
fn a_file_is_replaced_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.safetensors");
    model(1).save(&file).unwrap();
    let old = fs::read(&file).unwrap();
    let mut reader = File::open(&file).unwrap();
    let mut read = vec![0; 10];
    reader.read_exact(&mut read).unwrap();
    model(2).save(&file).unwrap();
    reader.read_to_end(&mut read).unwrap();
    assert!(read == old, "who reads the old file reads it to its end");
    assert!(fs::read(&file).unwrap() == model(2).to_bytes().unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[cfg(windows)]
mod windows {
    use std::fs::OpenOptions;
    use std::os::windows::fs::OpenOptionsExt;
    use std::time::Duration;

    use super::*;

    /// Opens a file and lets nobody else replace or remove it, as programs do that ask for nothing.
    fn hold(file: &Path) -> File {
        const FILE_SHARE_READ: u32 = 1;
        OpenOptions::new().read(true).share_mode(FILE_SHARE_READ).open(file).unwrap()
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test plays another program")]
    fn a_file_that_is_held_for_a_moment_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("m.safetensors");
        model(1).save(&file).unwrap();
        let held = hold(&file);
        assert!(fs::rename(&file, folder.path().join("elsewhere")).is_err(), "it is held");
        let scanner = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            drop(held);
        });
        model(2).save(&file).unwrap();
        scanner.join().unwrap();
        assert!(fs::read(&file).unwrap() == model(2).to_bytes().unwrap());
    }

    #[test]
    fn a_file_that_is_held_for_long_stays_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("m.safetensors");
        model(1).save(&file).unwrap();
        let held = hold(&file);
        let error = model(2).save(&file).unwrap_err().to_string();
        assert!(
            error.contains("can't be written") && error.contains("that no other program has the file open"),
            "{error}"
        );
        drop(held);
        assert!(fs::read(&file).unwrap() == model(1).to_bytes().unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
