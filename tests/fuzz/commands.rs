//! Does each command read a file from a stranger, or end with status 1? What it writes is what it would write without the errors in the
//! file.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use manyhands_cli as cli;

use super::fuzz::{self, Target, write};

pub const TARGETS: &[Target] = &[
    Target { name: "report_of_a_run", seeds: runs, run: report },
    Target { name: "resume", seeds: runs, run: resume },
    Target { name: "sweep_record", seeds: sweeps, run: sweep },
    Target { name: "simulate", seeds: rigs, run: simulate },
    Target { name: "init_of_a_table", seeds: heads, run: init },
    Target { name: "predict_from_a_table", seeds: flowers, run: predict },
];

#[test]
fn commands_read_or_refuse_mutated_files() {
    fuzz::watch_all(TARGETS, module_path!(), QUICK);
}

#[test]
#[ignore = "a hundred thousand inputs take many minutes"]
fn commands_read_or_refuse_many_mutated_files() {
    fuzz::watch_all(TARGETS, module_path!(), FULL);
}

/// The process that is watched.
#[test]
fn child() {
    fuzz::child(TARGETS);
}

/// What no file that is written may hold as it is: a tag of HTML that only an input names.
const TAG: &str = "<mh>";
/// Inputs of each target in the quick tier: a command takes far longer than a reader.
const QUICK: u64 = 200;
/// Inputs of each target in the full tier.
const FULL: u64 = 20_000;
/// Between the files of an input.
const NEXT_FILE: u8 = 0x1e;

const FLOWERS: &str = "width\tlength\tcolour\tday\tkind\n";

/// Settings for a table of flowers.
const SETTINGS: &str = r#"
[data]
type = "csv"
train = "flowers.csv"
target = "kind"
target_kind = "classes"
[model]
layers = [{ type = "Dense", units = 3 }]
[loss]
type = "SparseCategoricalCrossentropy"
[training]
epochs = 1
batch_size = 16
"#;

/// Runs a command, which succeeds or ends with an error of its own.
fn run(words: &[&str]) -> bool {
    let words = ["manyhands"].iter().chain(words).map(OsString::from);
    match cli::run(words) {
        0 => true,
        1 => false,
        status => panic!("the command ended with status {status}"),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Rows of flowers, as lines of cells between tabs.
fn rows(count: usize) -> String {
    let row = |row: usize| {
        let kind = ["iris", "rose", "tulip"][row % 3];
        let colour = ["blue", "red", "a yellow one, \"pale\""][row / 2 % 3];
        format!("{}.{}{}\t-{}.5\t{colour}\t2024-0{}-11\t{kind}\n", row % 9, row % 7, row % 5, row % 4, row % 8 + 1)
    };
    (0..count).map(row).collect()
}

/// A folder with a table, its settings, a run and a sweep of them, made once a process.
fn made() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = fuzz::own_folder().join("made");
        drop(fs::remove_dir_all(&folder));
        fs::create_dir(&folder).unwrap();
        let [data, settings, run_folder, sweep] =
            ["flowers.csv", "run.toml", "run", "sweep"].map(|name| folder.join(name));
        fs::write(&data, dialect(&format!("{FLOWERS}{}", rows(40)), &Dialect::default())).unwrap();
        fs::write(&settings, SETTINGS).unwrap();
        let [settings, run_folder, sweep, root] = [&settings, &run_folder, &sweep, &folder].map(|path| text(path));
        assert!(run(&["train", settings, "--data-folder", root, "--adapters", "cpu", "-q", "--run", run_folder]));
        assert!(run_sweep(settings, root, sweep));
        folder
    })
}

fn run_sweep(settings: &str, root: &str, folder: &str) -> bool {
    let vary = "optimizer.learning_rate=1e-3|1e-2";
    let head = ["sweep", settings, "--vary", vary, "--trials", "2", "--data-folder", root];
    run(&[&head[..], &["--adapters", "cpu", "-q", "--folder", folder]].concat())
}

/// Files of a folder as an input.
fn packed(folder: &Path, names: &[&str]) -> Vec<u8> {
    let files: Vec<Vec<u8>> = names.iter().map(|name| fs::read(folder.join(name)).unwrap()).collect();
    files.join(&NEXT_FILE)
}

/// Puts the files of an input where they belong; those that it lacks are removed.
fn unpack(input: &[u8], folder: &Path, names: &[&str]) {
    let mut files = input.split(|byte| *byte == NEXT_FILE);
    for name in names {
        match files.next() {
            Some(bytes) => write_text(&folder.join(name), bytes),
            None => drop(fs::remove_file(folder.join(name))),
        }
    }
}

/// Bytes that are no UTF-8 would end the reading of a text before its contents matter.
fn write_text(path: &Path, bytes: &[u8]) {
    write(path, String::from_utf8_lossy(bytes).as_bytes());
}

const RUN: &[&str] = &["results.json", "log.jsonl", "run.toml"];

fn runs() -> Vec<Vec<u8>> {
    let whole = packed(&made().join("run"), RUN);
    let tagged = String::from_utf8(whole.clone()).unwrap().replace("iris", TAG).replace("width", TAG).into_bytes();
    vec![whole, tagged]
}

/// The page of a run holds no tag of its files.
fn report(input: &[u8], folder: &Path) {
    unpack(input, folder, RUN);
    let page = folder.join("report.html");
    drop(fs::remove_file(&page));
    if run(&["report", text(folder)]) {
        let page = fs::read_to_string(page).unwrap();
        assert!(!page.contains(TAG), "the page holds a tag of the run's files");
    }
}

fn resume(input: &[u8], folder: &Path) {
    unpack(input, folder, RUN);
    fs::copy(made().join("run/last.safetensors"), folder.join("last.safetensors")).unwrap();
    run(&[
        "train",
        "--resume",
        "--run",
        text(folder),
        "--dry-run",
        "-q",
        "--adapters",
        "cpu",
        "--data-folder",
        text(made()),
    ]);
}

const SWEEP: &[&str] = &["sweep.json", "trial-001/results.json", "trial-002/log.jsonl"];

fn sweeps() -> Vec<Vec<u8>> {
    vec![packed(&made().join("sweep"), SWEEP)]
}

/// A sweep that goes on, if its record is still that of the sweep.
fn sweep(input: &[u8], folder: &Path) {
    let own = folder.join("sweep");
    for trial in ["trial-001", "trial-002"] {
        fs::create_dir_all(own.join(trial)).unwrap();
        for file in fs::read_dir(made().join("sweep").join(trial)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), own.join(trial).join(file.file_name())).unwrap();
        }
    }
    unpack(input, &own, SWEEP);
    run_sweep(text(&made().join("run.toml")), text(made()), text(&own));
    fs::remove_dir_all(&own).unwrap();
}

fn rigs() -> Vec<Vec<u8>> {
    let adapters = "[[adapters]]\nname = 'a'\nfixed_ms = 2.0\ngflops = 7200.0\nmemory_gb_s = 330.0\nupload_gb_s = 20.0\n\
                    download_gb_s = 16.0\nlatency_ms = 0.1\n\n[[adapters]]\nname = 'b'\nfixed_ms = 1\ngflops = 900.0\n";
    let one = format!("batch_size = 64\npreset = 'mlp'\n[host]\ncopy_gb_s = 20.0\n{adapters}");
    let machines =
        fs::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("examples/rigs/two_machines.toml")).ok();
    [one.into_bytes()].into_iter().chain(machines).collect()
}

fn simulate(input: &[u8], folder: &Path) {
    let path = folder.join("rig.toml");
    write_text(&path, input);
    run(&["simulate", text(&path)]);
}

fn heads() -> Vec<Vec<u8>> {
    let named = |head: &str| format!("{head}\n{}", rows(24)).replace('\t', ";").into_bytes();
    vec![
        named("width\tlength\tcolour\tday\tkind"),
        named("\"width\n(cm)\"\t\"a\n[training]\nepochs = 7\"\t\"\"\"=1\"\t[data]\tkind # x"),
        named("\u{feff}'a'\t\"\"\t\ta\ta"),
        format!("{FLOWERS}{}", rows(24)).into_bytes(),
    ]
}

/// Settings that `init` writes have the keys that it writes, whatever the names of columns are.
fn init(input: &[u8], folder: &Path) {
    let [table, settings] = ["table.csv", "run.toml"].map(|name| folder.join(name));
    write(&table, input);
    drop(fs::remove_file(&settings));
    if !run(&["init", text(&table), "-o", text(&settings), "-q"]) {
        return;
    }
    let settings: toml::Table = fs::read_to_string(settings).unwrap().parse().unwrap();
    let keys: Vec<&str> = settings.keys().map(String::as_str).collect();
    let expected = ["data", "loss", "model", "optimizer", "training"];
    assert!(keys.iter().all(|key| expected.contains(key)), "`init` wrote {keys:?}");
    assert_eq!(settings["training"]["epochs"].as_integer(), Some(200), "a head of a table changed the settings");
    assert_eq!(settings["data"]["train"].as_str(), Some(text(&table)), "a head of a table changed the settings");
}

/// How a table is written.
#[derive(Default)]
struct Dialect {
    /// Between cells; a comma, if none is named.
    delimiter: Option<char>,
    decimal: Option<char>,
    line_end: Option<&'static str>,
    begin: &'static str,
    is_reversed: bool,
    is_quoted: bool,
}

/// Lines of cells between tabs, written in a dialect.
fn dialect(table: &str, as_: &Dialect) -> String {
    let delimiter = as_.delimiter.unwrap_or(',');
    let cell = |cell: &str| {
        let is_decimal = cell.matches('.').count() == 1
            && cell.bytes().any(|byte| byte.is_ascii_digit())
            && cell.bytes().all(|byte| byte.is_ascii_digit() || b".+-eE".contains(&byte));
        let cell = match as_.decimal {
            Some(decimal) if is_decimal => cell.replace('.', &decimal.to_string()),
            _ => cell.to_owned(),
        };
        match as_.is_quoted || cell.contains([delimiter, '"', '\r', '\n']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell,
        }
    };
    let line = |line: &str| {
        let mut cells: Vec<String> = line.split('\t').map(cell).collect();
        if as_.is_reversed {
            cells.reverse();
        }
        cells.join(&delimiter.to_string())
    };
    let end = as_.line_end.unwrap_or("\n");
    let lines: String = table.lines().map(|text| line(text) + end).collect();
    as_.begin.to_owned() + &lines
}

fn dialects() -> [Dialect; 5] {
    [
        Dialect::default(),
        Dialect { delimiter: Some(';'), decimal: Some(','), line_end: Some("\r\n"), ..Dialect::default() },
        Dialect { delimiter: Some('\t'), is_reversed: true, ..Dialect::default() },
        Dialect { delimiter: Some('\t'), decimal: Some(','), begin: "\u{feff}", ..Dialect::default() },
        Dialect { delimiter: Some(';'), is_quoted: true, is_reversed: true, ..Dialect::default() },
    ]
}

fn flowers() -> Vec<Vec<u8>> {
    vec![
        format!("{FLOWERS}{}", rows(8)).into_bytes(),
        format!("{FLOWERS}2.079\t-1.234\tred\t2024-03-01\tiris\n1.001\t-3.999\tblue\t2024-04-02\trose\n").into_bytes(),
        format!("{FLOWERS}2.000\t-1\tred\t2024-03-01\tiris\n").into_bytes(),
    ]
}

/// Whether a comma stands between digits: how that reads depends on the decimal sign of the other numbers.
fn has_a_comma_in_a_number(table: &str) -> bool {
    table.as_bytes().windows(3).any(|three| matches!(three, [b'0'..=b'9', b',', b'0'..=b'9']))
}

/// A table predicts the same bits in whatever dialect it is written, or is refused. Where a comma in a number has a meaning of its own,
/// only dialects with the same decimal sign are compared.
fn predict(input: &[u8], folder: &Path) {
    let table = String::from_utf8_lossy(input);
    let [data, output] = ["table.csv", "predictions.csv"].map(|name| folder.join(name));
    let model = made().join("run/best.safetensors");
    let predicted = dialects().map(|as_| {
        write(&data, dialect(&table, &as_).as_bytes());
        drop(fs::remove_file(&output));
        let words = ["predict", text(&model), text(&data), "-o", text(&output), "-q", "--adapters", "cpu"];
        run(&words).then(|| fs::read_to_string(&output).unwrap())
    });
    let is_ambiguous = has_a_comma_in_a_number(&table);
    for sign in [None, Some(',')] {
        let alike = dialects().into_iter().zip(&predicted).filter(|(as_, _)| !is_ambiguous || as_.decimal == sign);
        let mut whole = alike.filter_map(|(_, predicted)| predicted.as_ref());
        if let Some(first) = whole.next() {
            assert!(
                whole.all(|other| other == first),
                "dialects of one table predict different numbers: {predicted:?}"
            );
        }
    }
}
