//! Is anything lost? What runs write, and what they never write over.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]
#![allow(clippy::disallowed_methods, reason = "a test reads a file in a thread of its own, while a command writes it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use manyhands::callbacks::{Callback, EarlyStopping, Monitor};
use manyhands::data::{Subset, digits};
use manyhands::layers::{Dense, Flatten};
use manyhands::logs::StepLog;
use manyhands::{
    Checkpoint, Compile, ErrorKind, Existing, Fit, Loss, Model, NonFinite, Optimizer, Result, SaveSettings, Schedule,
    Sequential, Trainer,
};
use tempfile::TempDir;

use crate::command::{command, outputs, program, refused, refused_of, run, succeed, text, wait_for};
use crate::flowers::{self, SETTINGS};

fn path(folder: &TempDir, name: &str) -> PathBuf {
    folder.path().join(name)
}

fn folder() -> TempDir {
    flowers::folder(&flowers::table("x,y,kind", ["a", "b", "c"]), SETTINGS)
}

/// Names and contents of all files, hidden ones too.
fn contents(folder: &TempDir) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.path().is_file());
    let mut files: Vec<_> =
        files.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn an_older_run_is_replaced_only_on_request() {
    let folder = folder();
    succeed(&folder, "train run.toml --epochs 1 --json log --save manyhands.safetensors");
    let before = contents(&folder);
    for line in
        ["train run.toml --save manyhands.safetensors", "train run.toml --epochs 1 --save ./manyhands.safetensors"]
    {
        let error = refused(&folder, line);
        let expected = "needs to be a new file, or that of the resumed run, but holds an earlier run or model\n  help: continue \
                        that run (`--resume`), replace it (`--overwrite`), or save to another file (`--save`)";
        assert!(error.contains(expected), "{error}");
    }
    succeed(&folder, "train run.toml --epochs 1 --save other.safetensors");
    let error = refused(&folder, "train run.toml --epochs 2 --resume manyhands.safetensors --save other.safetensors");
    assert!(error.contains("`other.safetensors` needs to be a new file"), "{error}");
    fs::remove_file(path(&folder, "other.safetensors")).unwrap();
    assert!(contents(&folder) == before, "a run that is refused changes nothing");
    let epochs = |folder| Checkpoint::load(&path(folder, "manyhands.safetensors")).unwrap().progress.epoch;
    succeed(&folder, "train run.toml --epochs 3 --resume manyhands.safetensors");
    assert_eq!(epochs(&folder), 3);
    succeed(&folder, "train run.toml --epochs 2 --overwrite --save manyhands.safetensors");
    assert_eq!(epochs(&folder), 2);
}

fn refused_as_input(folder: &TempDir, line: &str) {
    assert!(refused(folder, line).contains("is an input of this run, and can't be written"), "{line}");
}

#[test]
fn inputs_and_foreign_files_are_never_written_over() {
    let folder = folder();
    succeed(&folder, "train run.toml --epochs 1 --save a.safetensors --json log --csv log.csv --trace trace");
    succeed(&folder, "predict a.safetensors --config run.toml --part train -o predicted.csv");
    fs::write(
        path(&folder, "start.toml"),
        SETTINGS
            .replace("[data]", "model = \"a.safetensors\"\n[data]")
            .replace("[model]\ninput = [2]\nlayers = [{ type = \"Dense\", units = 3 }]\n", ""),
    )
    .unwrap();
    fs::write(path(&folder, "notes"), "mine\n").unwrap();
    fs::write(path(&folder, "foreign.safetensors"), [0; 100]).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("table.csv", path(&folder, "link")).unwrap();
    #[cfg(unix)]
    fs::hard_link(path(&folder, "table.csv"), path(&folder, "hard")).unwrap();
    let before = contents(&folder);
    let train = "train run.toml --epochs 1 --overwrite";
    let mut read = vec!["table.csv", "./table.csv", "run.toml"];
    if cfg!(unix) {
        read.extend(["link", "hard"]);
    }
    for file in read {
        for flag in ["--save", "--json", "--csv", "--trace"] {
            refused_as_input(&folder, &format!("{train} {flag} {file}"));
        }
        refused_as_input(&folder, &format!("predict a.safetensors --config run.toml --part train -o {file}"));
    }
    refused_as_input(&folder, "train start.toml --overwrite --save a.safetensors");
    refused_as_input(&folder, "train run.toml --split-from log --json log");
    refused_as_input(&folder, "predict a.safetensors --config run.toml --part train -o a.safetensors");
    for (flag, file) in [
        ("--save", "notes"),
        ("--save", "foreign.safetensors"),
        ("--save", "log"),
        ("--json", "notes"),
        ("--json", "log.csv"),
        ("--csv", "log"),
        ("--trace", "notes"),
        ("--trace", "predicted.csv"),
    ] {
        let error = refused(&folder, &format!("{train} {flag} {file}"));
        assert!(error.contains("or a new file, but holds something else"), "{flag} {file}: {error}");
    }
    let error = refused(&folder, "predict a.safetensors --config run.toml --part train -o notes");
    assert!(error.contains("needs to be predictions of manyhands or a new file"), "{error}");
    let after: Vec<_> = contents(&folder).into_iter().collect();
    assert!(after == before, "nothing was written");
    // What is of its own kind is written anew.
    succeed(&folder, &format!("{train} --save a.safetensors --json log --csv log.csv --trace trace"));
    succeed(&folder, "predict a.safetensors --config run.toml --part train -o predicted.csv");
}

#[cfg(unix)]
#[test]
fn links_stay_and_devices_are_not_replaced() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let folder = folder();
    fs::create_dir(path(&folder, "models")).unwrap();
    std::os::unix::fs::symlink("models/a.safetensors", path(&folder, "link")).unwrap();
    succeed(&folder, "train run.toml --epochs 1 --save link");
    let target = path(&folder, "models/a.safetensors");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    succeed(&folder, "train run.toml --epochs 2 --resume link");
    assert!(path(&folder, "link").is_symlink());
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(Checkpoint::load(&target).unwrap().progress.epoch, 2);
    succeed(&folder, "train run.toml --epochs 1 --save /dev/null --json /dev/null --csv /dev/null --trace /dev/null");
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(Command::new("mkfifo").arg(path(&folder, "pipe")).status().unwrap().success());
    assert!(refused(&folder, "train run.toml --save pipe").contains("but is a pipe"));
    assert!(fs::metadata(path(&folder, "pipe")).unwrap().file_type().is_fifo());
}

fn start(folder: &TempDir, line: &str) -> Child {
    command(folder, line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn two_runs_do_not_save_to_one_file_and_killed_ones_leave_nothing() {
    let folder = folder();
    let line = "train run.toml --epochs 100000 --batch-size 1 --save-every 1 --quiet --save manyhands.safetensors";
    for round in 0..3 {
        let mut child = start(&folder, &format!("{line} --overwrite"));
        let file = path(&folder, "manyhands.safetensors");
        let lock = path(&folder, ".manyhands.safetensors.lock");
        wait_for("the lock", || fs::read_to_string(&lock).is_ok_and(|process| process == child.id().to_string()));
        wait_for("the first checkpoint", || file.exists());
        let error = refused(&folder, &format!("{line} --overwrite"));
        let expected = format!("but another (process {}) writes it now", child.id());
        assert!(error.contains("needs to be written by one run at a time") && error.contains(&expected), "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
        Checkpoint::load(&file).unwrap();
        // The lock's file, and at most the half of a checkpoint.
        assert!(contents(&folder).len() <= 3 + 2, "round {round}: {:?}", fs::read_dir(folder.path()).unwrap().count());
    }
    succeed(&folder, "train run.toml --epochs 1 --overwrite --save manyhands.safetensors");
    let names: Vec<String> = contents(&folder).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["manyhands.safetensors", "run.toml", "table.csv"]);
}

#[test]
fn readers_see_whole_files_while_a_run_saves() {
    let folder = folder();
    let file = path(&folder, "manyhands.safetensors");
    let is_over = Arc::new(AtomicBool::new(false));
    let read = Arc::new(AtomicUsize::new(0));
    let reader = {
        let (file, is_over, read) = (file.clone(), is_over.clone(), read.clone());
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                if file.exists() {
                    Checkpoint::load(&file).unwrap();
                    read.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    };
    succeed(&folder, "train run.toml --epochs 60 --batch-size 8 --save-every 1 --quiet --save manyhands.safetensors");
    is_over.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    assert!(read.load(Ordering::Relaxed) > 0);
}

/// Runs the command over and over until the time is up: each run saves, or is told that another does. Gives how many
/// did either.
fn write_until(folder: &TempDir, end: Instant) -> [usize; 2] {
    let mut runs = [0; 2];
    while Instant::now() < end {
        let line =
            "train run.toml --epochs 3 --batch-size 8 --save-every 1 --quiet --overwrite --save manyhands.safetensors";
        let output = run(folder, line);
        let error = text(&output.stderr);
        match output.status.code() {
            Some(0) => runs[0] += 1,
            Some(1) if error.contains("needs to be written by one run at a time") => runs[1] += 1,
            code => panic!("{code:?}: {error}"),
        }
    }
    runs
}

#[test]
#[ignore = "takes a minute"]
fn two_writers_for_a_minute_tear_nothing() {
    let folder = folder();
    let file = path(&folder, "manyhands.safetensors");
    let end = Instant::now() + Duration::from_secs(60);
    let mut read = 0;
    std::thread::scope(|scope| {
        let writers = [0; 2].map(|_| scope.spawn(|| write_until(&folder, end)));
        while Instant::now() < end {
            if file.exists() {
                Checkpoint::load(&file).unwrap();
                read += 1;
            }
        }
        let runs = writers.map(|writer| writer.join().unwrap());
        assert!(runs.iter().all(|[saved, _]| *saved > 0), "each saves sometimes: {runs:?}");
        assert!(runs.iter().any(|[_, refused]| *refused > 0), "they meet: {runs:?}");
    });
    assert!(read > 0);
    let left: Vec<String> = contents(&folder).into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, ["manyhands.safetensors", "run.toml", "table.csv"]);
}

#[test]
fn equal_runs_give_equal_files() {
    let folder = folder();
    for name in ["a", "b", "c", "d", "e", "f"] {
        succeed(&folder, &format!("train run.toml --epochs 2 --quiet --save {name}"));
        assert!(fs::read(path(&folder, name)).unwrap() == fs::read(path(&folder, "a")).unwrap(), "{name}");
    }
}

fn model() -> Model {
    Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(16)).add(Dense::new(10)).build(3).unwrap()
}

fn trainer(compile: Compile) -> Trainer {
    Trainer::new(model(), compile).unwrap().adapters("cpu").unwrap()
}

fn sgd(rate: f32) -> Compile {
    Compile::new(Optimizer::sgd(rate, 0.0), Loss::SPARSE_CATEGORICAL_CROSSENTROPY)
}

/// What happens to a run that is good for 23 steps, an epoch, and then takes steps at another rate.
fn explode(rate: f64, compile: Compile, epochs: u64, every_steps: u64, adapters: &str) -> (Result<()>, Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "a.safetensors");
    #[allow(clippy::cast_possible_truncation, reason = "few digits")]
    let schedule = Schedule::PiecewiseConstantDecay { boundaries: vec![22], values: vec![0.1, rate as f32] };
    let mut trainer = trainer(compile.schedule(schedule)).adapters(adapters).unwrap();
    let save = SaveSettings::new(&file).every_steps(every_steps);
    let fit = Fit::new(epochs).save_with(save).validation(digits::test().unwrap());
    let result = trainer.fit(digits::train().unwrap(), &fit.batch_size(64)).map(|_| ());
    drop(trainer);
    let checkpoint = Checkpoint::load(&file).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    (result, checkpoint)
}

/// The checkpoint is good: finite, and training goes on from it.
fn check_good(checkpoint: Checkpoint, step: u64) {
    assert_eq!(checkpoint.progress.step, step);
    let mut trainer = trainer(sgd(0.1));
    trainer.resume(checkpoint).unwrap();
    trainer.fit(digits::train().unwrap(), &Fit::new(3).batch_size(64)).unwrap();
    let accuracy = trainer.evaluate(digits::test().unwrap(), 64).unwrap().get("accuracy").unwrap();
    assert!(accuracy > 0.8, "{accuracy}");
}

#[test]
fn weights_that_explode_are_not_saved_over_good_ones() {
    for adapters in ["cpu", "cpu,cpu"] {
        for every_steps in [0, 1] {
            // The first step at that rate gives weights that are finite, or not; what follows is not.
            for rate in [1e30, 3e38] {
                let (result, checkpoint) = explode(rate, sgd(1.0), 3, every_steps, adapters);
                let error = result.unwrap_err();
                assert!(error.kind() == ErrorKind::NonFinite, "{error}");
                check_good(checkpoint, 23);
            }
        }
        // Neither at the end of the run, where no step comes after the last.
        let skipping = sgd(1.0).non_finite(NonFinite::Skip);
        let (_, checkpoint) = explode(1e30, skipping, 2, 0, adapters);
        check_good(checkpoint, 23);
    }
}

/// Moves the folder of the run away after some steps: from then on nothing can be written.
struct Mover<'a> {
    from: &'a Path,
    to: &'a Path,
    after_step: u64,
}

impl Callback for Mover<'_> {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        if log.step == self.after_step {
            // The checkpoint before is written by then.
            wait_for("a checkpoint", || self.from.join("a.safetensors").exists());
            fs::rename(self.from, self.to).unwrap();
        }
        Ok(())
    }
}

#[cfg(unix)]
#[test]
fn a_save_that_fails_while_training_continues_is_an_error_and_the_last_good_one_stays() {
    for adapters in ["cpu", "cpu,cpu"] {
        // 23 steps an epoch: the error comes at a later save of the epoch, or at the end of the run.
        for (after_step, every_steps) in [(4, 2), (22, 7)] {
            let folder = tempfile::tempdir().unwrap();
            let (from, to) = (path(&folder, "from"), path(&folder, "to"));
            fs::create_dir(&from).unwrap();
            let save = SaveSettings::new(from.join("a.safetensors")).every_steps(every_steps);
            let mut trainer = trainer(sgd(0.1)).adapters(adapters).unwrap();
            let fit = Fit::new(1).batch_size(64).save_with(save);
            let mut mover = Mover { from: &from, to: &to, after_step };
            let error = trainer.fit_with(digits::train().unwrap(), &fit, &mut [&mut mover]).unwrap_err().to_string();
            assert!(error.contains("a.safetensors` can't be written"), "{error}");
            let checkpoint = Checkpoint::load(&to.join("a.safetensors")).unwrap();
            let step = checkpoint.progress.step;
            assert!((1..=after_step).contains(&step), "{step}");
            check_good(checkpoint, step);
        }
    }
}

#[cfg(unix)]
#[test]
fn a_disk_that_is_full_in_mid_write_keeps_the_last_checkpoint() {
    let folder = folder();
    succeed(&folder, "train run.toml --epochs 1 --quiet --save manyhands.safetensors");
    let before = contents(&folder);
    let file = path(&folder, "manyhands.safetensors");
    assert!(fs::metadata(&file).unwrap().len() > 1024, "more than the limit below");
    // A file may have 1024 bytes at most, or 512 in some shells: the writer is stopped within the checkpoint.
    let mut shell = program(&folder, "/bin/sh");
    let line = "train run.toml --epochs 3 --resume manyhands.safetensors --quiet";
    shell.args(["-c", &format!("trap '' XFSZ; ulimit -f 1; exec {} {line}", env!("CARGO_BIN_EXE_manyhands"))]);
    let output = shell.output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("\nerror: `manyhands.safetensors` can't be written: "), "{error}");
    assert!(contents(&folder) == before, "the last checkpoint stays, and nothing is left beside it");
    succeed(&folder, "train run.toml --epochs 3 --resume manyhands.safetensors --quiet");
    assert_eq!(Checkpoint::load(&file).unwrap().progress.epoch, 3);
}

/// Validation losses that rise: a rate so high that the digits are learned no further.
fn restless() -> Compile {
    Compile::new(Optimizer::adam(0.3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY)
}

#[test]
fn the_best_weights_are_kept_also_when_the_epochs_are_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "a.safetensors");
    let fit = |epochs| Fit::new(epochs).batch_size(64).validation(digits::test().unwrap());
    let run = |fit: &Fit, resumed: Option<&Path>| {
        let mut trainer = trainer(restless());
        if let Some(file) = resumed {
            trainer.resume(Checkpoint::load(file).unwrap()).unwrap();
        }
        let mut stopping = EarlyStopping::new(Monitor::new("val_loss"), 1000);
        let history = trainer.fit_with(digits::train().unwrap(), fit, &mut [&mut stopping]).unwrap();
        (trainer, stopping.best_value().unwrap(), history.of("val_loss"))
    };
    let (mut whole, best, losses) = run(&fit(5), None);
    assert!(losses.last() != Some(&best), "the last epoch is not the best: {losses:?}");
    let loss = |trainer: &mut Trainer| trainer.evaluate(digits::test().unwrap(), 64).unwrap().get("loss").unwrap();
    assert_eq!(loss(&mut whole), best);

    let (_, best_of_three, first) = run(&fit(3).save(&file), None);
    let mut saved = Trainer::new(Model::load(&file).unwrap(), restless()).unwrap().adapters("cpu").unwrap();
    assert_eq!(loss(&mut saved), best_of_three, "the file is the best model");
    // And goes on from the last weights, as if it had never ended.
    let (mut resumed, again, second) = run(&fit(5).save(&file), Some(&file));
    assert_eq!(([first, second].concat(), again), (losses, best));
    assert_eq!((loss(&mut resumed), resumed.model().weights == whole.model().weights), (best, true));
}

#[test]
fn resuming_with_other_settings_is_told() {
    let folder = folder();
    succeed(&folder, "train run.toml --epochs 1 --seed 5 --save a");
    let log = |line: &str| {
        fs::copy(path(&folder, "a"), path(&folder, "b")).unwrap();
        outputs(&folder, line).1
    };
    assert_eq!(log("train run.toml --epochs 2 --resume b"), "");
    let table = fs::read_to_string(path(&folder, "table.csv")).unwrap();
    // The same rows in another order, and in another form.
    let (head, rows) = table.split_once('\n').unwrap();
    let reversed: Vec<&str> = rows.lines().rev().collect();
    let reversed = format!("{head}\n{}\n", reversed.join("\n"));
    fs::write(path(&folder, "table.csv"), &reversed).unwrap();
    let warned = log("train run.toml --epochs 2 --resume b");
    let expected =
        "warning: the run that is resumed had other training data: their rows, or the order of these, have changed";
    assert!(warned.contains(expected), "{warned}");
    fs::write(path(&folder, "table.csv"), table.replace(',', ";").replace('\n', "\r\n")).unwrap();
    assert_eq!(log("train run.toml --epochs 2 --resume b"), "");
    fs::write(path(&folder, "table.csv"), format!("{table}1,2,a\n")).unwrap();
    fs::write(path(&folder, "order.toml"), format!("{SETTINGS}[training]\nshuffle = false\n")).unwrap();
    let warned = log("train order.toml --epochs 2 --seed 6 --batch-size 8 --resume b");
    for expected in [
        "warning: the run that is resumed had another seed: 5 before, 6 from now on\n  help: resume with 5",
        "another batch size: 32 before, 8 from now on",
        "another number of training rows: 40 before, 41 from now on",
        "another shuffling: on before, off from now on",
    ] {
        assert!(warned.contains(expected), "{expected}: {warned}");
    }
    fs::write(path(&folder, "part.toml"), format!("{SETTINGS}[training]\nvalidation = 0.25\n")).unwrap();
    succeed(&folder, "train part.toml --epochs 1 --seed 5 --save c");
    let error = refused(&folder, "train part.toml --epochs 2 --seed 6 --resume c");
    assert!(error.contains("needs seed 5 and 31 training rows as before, but got seed 6 and 31"), "{error}");
    fs::write(path(&folder, "table.csv"), format!("{reversed}1,2,a\n")).unwrap();
    let error = refused(&folder, "train part.toml --epochs 2 --resume c");
    assert!(
        error.contains("needs the data of before, but their rows, or the order of these, have changed: "),
        "{error}"
    );
}

#[test]
fn an_epoch_is_not_continued_with_other_rows() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "a.safetensors");
    let fit = Fit::new(1).batch_size(64).save(&file);
    trainer(sgd(0.1)).fit(digits::train().unwrap(), &fit).unwrap();
    let mut checkpoint = Checkpoint::load(&file).unwrap();
    checkpoint.progress.batch = 1;
    let rows = (0..checkpoint.progress.rows).rev().collect();
    let reversed = Subset::new(Arc::new(digits::train().unwrap()), rows).unwrap();
    let mut resumed = trainer(sgd(0.1));
    resumed.resume(checkpoint).unwrap();
    let error = resumed.fit(reversed, &fit.clone().epochs(2)).unwrap_err().to_string();
    assert!(
        error.starts_with("resuming within an epoch needs the same training data, but their rows, or the order"),
        "{error}"
    );
}

#[test]
fn the_same_trainer_saves_to_its_file_again_and_another_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let fit = Fit::new(1).batch_size(64).save(path(&folder, "a.safetensors"));
    let mut one = trainer(sgd(0.1));
    one.fit(digits::train().unwrap(), &fit).unwrap();
    one.fit(digits::train().unwrap(), &fit.clone().epochs(2)).unwrap();
    let mut other = trainer(sgd(0.1));
    let error = other.fit(digits::train().unwrap(), &fit).unwrap_err().to_string();
    assert!(error.contains("but holds an earlier run or model"), "{error}");
    let save = SaveSettings::new(path(&folder, "a.safetensors")).existing(Existing::Overwrite);
    other.fit(digits::train().unwrap(), &fit.save_with(save)).unwrap();
    assert_eq!(Checkpoint::load(&path(&folder, "a.safetensors")).unwrap().progress.epoch, 1);
}

/// All files below a folder, by their paths.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            files.extend(tree(&entry));
        } else {
            files.insert(entry.clone(), fs::read(&entry).unwrap());
        }
    }
    files
}

/// A folder with a run, a sweep, and what both need.
fn folder_of_runs() -> TempDir {
    let folder = folder();
    succeed(&folder, "train run.toml --epochs 2 --run a --quiet");
    succeed(&folder, &format!("{SWEEP} --trials 2"));
    folder
}

const SWEEP: &str = "sweep run.toml --vary learning_rate=1e-3..1e-1,log --epochs 2 --reduction-factor 1 --quiet";

/// Commands that write, each in its own way; none may change a file that is there.
fn writing() -> [String; 6] {
    [
        "report a".into(),
        "init table.csv -o new.toml".into(),
        format!("{SWEEP} --trials 4"),
        "export a/best.safetensors".into(),
        "predict a/best.safetensors table.csv -o a/predicted.csv".into(),
        "train run.toml --epochs 3 --run a --resume --tensorboard events --quiet".into(),
    ]
}

/// Runs commands that can't write, and compares the files from before.
fn try_to_write(folder: &TempDir, make: impl Fn(&str) -> Command) {
    let before = tree(folder.path());
    for line in writing() {
        let error = refused_of(&mut make(&line));
        assert!(error.contains("can't be written"), "{line}: {error}");
        let after = tree(folder.path());
        assert!(before.iter().all(|(path, old)| after.get(path) == Some(old)), "{line} changed a file");
        let is_new = |path: &&PathBuf| !before.contains_key(*path) && !path.starts_with(folder.path().join("sweeps"));
        assert_eq!(after.keys().find(is_new), None, "{line} left something behind");
    }
}

#[cfg(unix)]
#[test]
fn a_full_disk_loses_nothing() {
    let folder = folder_of_runs();
    // No file may grow, as on a full disk; the signal for that is ignored.
    try_to_write(&folder, |line| {
        let mut shell = program(&folder, "/bin/sh");
        let line = line.replace(',', "\\,");
        shell.args(["-c", &format!("trap '' XFSZ; ulimit -f 0; exec {} {line}", env!("CARGO_BIN_EXE_manyhands"))]);
        shell
    });
    // With room again, all of it works, and the sweep goes on.
    writing().iter().for_each(|line| drop(succeed(&folder, line)));
    assert!(path(&folder, "new.toml").is_file());
}

#[cfg(unix)]
#[test]
fn a_read_only_folder_loses_nothing() {
    let folder = folder_of_runs();
    let folders = [path(&folder, "."), path(&folder, "a"), path(&folder, "sweeps/run")];
    let Some(_lock) = ReadOnly::all(&folders) else { return };
    try_to_write(&folder, |line| command(&folder, line));
}

/// Folders in which nothing can be made, until this is dropped.
#[cfg(unix)]
struct ReadOnly<'a>(&'a [PathBuf]);

#[cfg(unix)]
impl<'a> ReadOnly<'a> {
    /// Root may write anywhere, except where a file system forbids all changes.
    fn all(folders: &'a [PathBuf]) -> Option<Self> {
        let all = Self(folders);
        all.set(0o555, "+i");
        let may_write = fs::write(folders[0].join("probe"), "").is_ok();
        if may_write {
            crate::needed::missing("a folder can't be made read-only for root here: run this test as another user");
        }
        (!may_write).then_some(all)
    }

    fn set(&self, mode: u32, attribute: &str) {
        use std::os::unix::fs::PermissionsExt;
        let is_locked = attribute == "+i";
        for folder in self.0 {
            let set_mode = || fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
            if is_locked {
                set_mode();
            }
            let mut chattr = Command::new("chattr");
            drop(chattr.arg(attribute).arg(folder).stderr(Stdio::null()).status());
            if !is_locked {
                set_mode();
            }
        }
    }
}

#[cfg(unix)]
impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        self.set(0o755, "-i");
    }
}

#[test]
fn a_report_and_settings_are_whole_whenever_the_command_is_killed() {
    let folder = folder_of_runs();
    let page = fs::read_to_string(path(&folder, "a/report.html")).unwrap();
    for ms in 0..12 {
        for line in ["report a".to_owned(), format!("init table.csv -o {ms}.toml")] {
            let mut child = start(&folder, &line);
            std::thread::sleep(Duration::from_millis(3 * ms));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(fs::read_to_string(path(&folder, "a/report.html")).unwrap() == page);
        if let Ok(settings) = fs::read_to_string(path(&folder, &format!("{ms}.toml"))) {
            assert!(settings.contains("[training]"), "{settings}");
            succeed(&folder, &format!("train {ms}.toml --dry-run --quiet"));
        }
    }
    succeed(&folder, "report a");
    assert_eq!(fs::read_dir(path(&folder, "a")).unwrap().count(), 6, "nothing of killed ones is left");
}
