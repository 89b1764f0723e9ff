//! Does the command train the same network in several processes that `mpirun` starts, and how do they end? Needs Open MPI, and the
//! command with MPI, in `command/`: `cargo test --package manyhands-mpi-tests`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(clippy::disallowed_methods, reason = "tests wait for other processes, by the clock of the system")]

#[path = "../common/command.rs"]
mod command;
#[path = "../common/needed.rs"]
mod needed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use command::{program, text};
use serde_json::Value;

/// A network with statistics over all processes, for the digits.
const SETTINGS: &str = r#"
[data]
type = "digits"

[model]
input = [8, 8, 1]
layers = [
  { type = "Conv2D", filters = 6, kernel_size = [3, 3], padding = "same", use_bias = false },
  { type = "BatchNormalization", synchronized = true },
  { type = "ReLU" },
  { type = "MaxPooling2D" },
  { type = "Flatten" },
  { type = "Dense", units = 10 },
]

[loss]
type = "SparseCategoricalCrossentropy"

[training]
epochs = 1
batch_size = 80
seed = 3
"#;

/// A perceptron, for the same data.
const PERCEPTRON: &str = r#"
[data]
type = "digits"

[model]
input = [8, 8, 1]
layers = [{ type = "Flatten" }, { type = "Dense", units = 32, activation = "tanh" }, { type = "Dense", units = 10 }]

[loss]
type = "SparseCategoricalCrossentropy"

[training]
epochs = 3
batch_size = 70
seed = 3
"#;

/// The command with MPI; `None` if the machine cannot start it.
fn with_mpi() -> Option<PathBuf> {
    if Command::new("mpirun").arg("--version").output().is_err() {
        needed::missing("there is no `mpirun`: `apt-get install openmpi-bin`");
        return None;
    }
    Some(PathBuf::from(env!("CARGO_BIN_EXE_manyhands-mpi")))
}

/// Options of `mpirun` for messages over TCP, as between machines, in place of shared memory.
const TCP: &str = "--mca btl tcp,self --mca btl_tcp_if_include lo";

/// Processes in a folder: the lines of arguments of one after the other.
fn mpirun(folder: &Path, lines: &[&str]) -> Option<Command> {
    mpirun_with(folder, "", lines)
}

/// Processes as [`mpirun`], with options of its own.
fn mpirun_with(folder: &Path, options: &str, lines: &[&str]) -> Option<Command> {
    let path = with_mpi()?;
    let mut command = program(folder, "mpirun");
    // Without the second variable of each, Open MPI refuses to run as root, or more processes than cores.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").arg("--oversubscribe");
    command.args(options.split_whitespace());
    for (rank, line) in lines.iter().enumerate() {
        let between: &[&str] = if rank == 0 { &["-n", "1"] } else { &[":", "-n", "1"] };
        command.args(between).arg(&path).args(line.split_whitespace());
    }
    Some(command)
}

/// Losses of the steps in a log.
fn losses(log: &Path) -> Vec<f64> {
    let text = fs::read_to_string(log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["kind"] == "step").map(|line| line["loss"].as_f64().unwrap()).collect()
}

fn written(folder: &Path, settings: &str) {
    fs::write(folder.join("run.toml"), settings).unwrap();
}

/// Trains in so many processes, all with the same arguments; gives the losses and the first process' output.
fn train(folder: &Path, size: usize, more: &str) -> Option<(Vec<f64>, Output)> {
    let line = format!("train run.toml --overwrite --save manyhands.safetensors --json log.json {more}");
    let output = mpirun(folder, &vec![line.as_str(); size])?.output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    Some((losses(&folder.join("log.json")), output))
}

/// Losses as those of one process: at the first step, and up to step 50.
fn assert_as_one(got: &[f64], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len());
    for (step, (got, wanted)) in got.iter().zip(wanted).take(50).enumerate() {
        let tolerance = if step == 0 { 1e-5 } else { 1e-3 };
        assert!((got - wanted).abs() < tolerance * wanted.max(1.0), "step {step}: {got} is not {wanted}");
    }
}

#[test]
fn two_processes_train_as_one_and_the_first_writes() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), SETTINGS);
    let Some((one, _)) = train(folder.path(), 1, "") else { return };
    let Some((two, output)) = train(folder.path(), 2, "") else { return };
    assert_as_one(&two, &one);
    let shown = text(&output.stdout);
    assert!(
        shown.contains("process 1: CPU") && shown.contains("first step: process 0 40 rows, process 1 40 rows"),
        "{shown}"
    );
    assert_eq!(shown.matches("saved to `manyhands.safetensors`").count(), 1, "{shown}");
    let log = fs::read_to_string(folder.path().join("log.json")).unwrap();
    let last = log.lines().rfind(|line| line.contains("\"step\"")).unwrap();
    assert!(log.lines().count() == one.len() + 1 && last.contains("val_loss"), "{last}");
}

#[test]
fn one_message_ends_all() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), SETTINGS);
    fs::write(folder.path().join("other.toml"), SETTINGS.replace("seed = 3", "seed = 4")).unwrap();
    let Some(mut unlike) = mpirun(folder.path(), &["train run.toml -q", "train other.toml -q"]) else { return };
    let output = unlike.output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success());
    let wanted = "error: process 1 of 2 needs the same seed as process 0, `3`, but has `4`\n  \
                  help: start all processes with the same version, settings and data\n";
    assert!(told.contains(wanted) && told.matches("error:").count() == 1, "{told}");
    assert!(!folder.path().join("runs").exists());
}

#[test]
#[ignore = "starts thirty processes"]
fn up_to_four_processes_train_as_one() {
    let folder = tempfile::tempdir().unwrap();
    for settings in [SETTINGS.replace("epochs = 1", "epochs = 3"), PERCEPTRON.to_owned()] {
        written(folder.path(), &settings);
        let Some((one, _)) = train(folder.path(), 1, "") else { return };
        for size in 2..=4 {
            let (losses, _) = train(folder.path(), size, "").unwrap();
            assert_as_one(&losses, &one);
        }
    }
    // Two rows over four processes.
    written(
        folder.path(),
        &PERCEPTRON.replace("batch_size = 70", "batch_size = 2").replace("epochs = 3", "epochs = 1"),
    );
    let (one, _) = train(folder.path(), 1, "").unwrap();
    assert_as_one(&train(folder.path(), 4, "").unwrap().0, &one);
}

#[test]
#[ignore = "takes half a minute on software adapters"]
fn unlike_adapters_in_two_processes_train_as_one() {
    let adapters = needed::gpu_indices();
    let [first, .., last] = &adapters[..] else { return needed::missing("two adapters for wgpu are needed") };
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), SETTINGS);
    let Some((one, _)) = train(folder.path(), 1, "") else { return };
    let line = |adapter: &str| {
        format!("train run.toml --overwrite --save manyhands.safetensors --json log.json --adapters {adapter}")
    };
    let output = mpirun(folder.path(), &[&line(first), &line(last)]).unwrap().output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_as_one(&losses(&folder.path().join("log.json")), &one);
}

#[test]
#[ignore = "starts six processes"]
fn messages_over_tcp_give_the_bits_of_shared_memory() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &PERCEPTRON.replace("epochs = 3", "epochs = 1\nsplit = \"even\""));
    let line = "train run.toml --overwrite -q --save manyhands.safetensors --json log.json";
    let run = |options: &str| {
        let output = mpirun_with(folder.path(), options, &[line; 2])?.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        Some((losses(&folder.path().join("log.json")), fs::read(folder.path().join("manyhands.safetensors")).unwrap()))
    };
    let Some((one, _)) = train(folder.path(), 1, "") else { return };
    let (shared, tcp) = (run("").unwrap(), run(TCP).unwrap());
    assert_as_one(&tcp.0, &one);
    assert!(shared.0 == tcp.0 && weights(&shared.1) == weights(&tcp.1));
}

/// The tensors of a model file, behind its header, which names the time.
fn weights(file: &[u8]) -> &[u8] {
    let header = u64::from_le_bytes(file[..8].try_into().unwrap());
    &file[8 + usize::try_from(header).unwrap()..]
}

/// Bytes that a loopback device of a network of its own has sent.
fn sent(shown: &str) -> f64 {
    let line = shown.lines().find_map(|line| line.trim().strip_prefix("lo:")).unwrap();
    line.split_whitespace().nth(8).unwrap().parse().unwrap()
}

#[test]
#[ignore = "starts five processes"]
fn gradients_of_16_bits_halve_the_bytes_on_the_wire() {
    if !Command::new("unshare")
        .args(["-n", "ip", "link", "set", "lo", "up"])
        .output()
        .is_ok_and(|it| it.status.success())
    {
        return needed::missing("a network of one's own is needed: `unshare -n` and `ip`, as root");
    }
    let folder = tempfile::tempdir().unwrap();
    let settings =
        PERCEPTRON.replace("epochs = 3", "epochs = 1\nsplit = \"even\"").replace("units = 32", "units = 2048");
    let run = |compression: &str| {
        written(
            folder.path(),
            &settings.replace("seed = 3", &format!("seed = 3\ngradient_compression = \"{compression}\"")),
        );
        let inner = mpirun_with(
            folder.path(),
            TCP,
            &["train run.toml --overwrite -q --save manyhands.safetensors --json log.json"; 2],
        )?;
        let mut command = program(folder.path(), "unshare");
        command
            .args(["-n", "sh", "-c", "ip link set lo up && \"$@\" && cat /proc/net/dev", "-"])
            .arg(inner.get_program());
        command.args(inner.get_args());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        Some((losses(&folder.path().join("log.json")), sent(&text(&output.stdout))))
    };
    let Some((whole, whole_bytes)) = run("none") else { return };
    let (halves, halves_bytes) = run("fp16").unwrap();
    // Both processes send half of 21 steps' gradients of 153,610 parameters to the other, and half of the sums.
    let gradients = 2.0 * 21.0 * 153_610.0 * 4.0;
    assert!(whole_bytes > gradients && whole_bytes < 1.3 * gradients, "{whole_bytes} of {gradients}");
    assert!(halves_bytes > 0.5 * gradients && halves_bytes < 0.75 * gradients, "{halves_bytes} of {gradients}");
    for (step, (got, want)) in halves.iter().zip(&whole).enumerate() {
        assert!((got - want).abs() < 5e-3 * want.max(1.0), "step {step}: {got} is not {want}");
    }
}

/// Ends with one message, and leaves nothing.
fn assert_one_message(run: &mut Command, wanted: &str) {
    let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let ids = ranks(&run, 3);
    let (_, told) = ended(run, &ids);
    assert!(told.contains(wanted) && told.matches("error:").count() == 1, "{told}");
}

#[test]
#[ignore = "starts three processes"]
fn an_adapter_that_is_lost_with_no_other_ends_all_with_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut run) = mpirun(folder.path(), &["lose-adapter"; 3]) else { return };
    assert_one_message(&mut run, "error: process 1: ");
}

/// A folder of data of two classes, with images of one color each.
fn images(folder: &Path) {
    for row in 0..24_u8 {
        let path = folder.join(format!("train/{}/{row:02}.png", if row < 12 { "a" } else { "b" }));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        image::RgbImage::from_pixel(8, 8, image::Rgb([row, 9, 200])).save(path).unwrap();
    }
}

#[test]
#[ignore = "starts three processes"]
fn a_row_that_one_process_can_not_read_ends_all_with_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[data]\ntype = \"image_folder\"\ntrain = \"train\"\nheight = 8\nwidth = 8\n\n[model]\ninput = [8, 8, 3]\n\
                    layers = [{ type = \"Flatten\" }, { type = \"Dense\", units = 2 }]\n\
                    [loss]\ntype = \"SparseCategoricalCrossentropy\"\n\
                    [training]\nepochs = 200\nbatch_size = 6\nvalidation = \"none\"\n";
    for place in ["first", "second"] {
        images(&folder.path().join(place));
        fs::write(folder.path().join(place).join("run.toml"), settings).unwrap();
    }
    // Cut short, so that only decoding tells.
    let spoilt = folder.path().join("second/train/a/07.png");
    let bytes = fs::read(&spoilt).unwrap();
    fs::write(&spoilt, &bytes[..bytes.len() - 30]).unwrap();
    let Some(path) = with_mpi() else { return };
    let Some(mut run) = mpirun(&folder.path().join("first"), &["train run.toml -q"; 2]) else { return };
    run.args([":", "-n", "1", "-wdir"]).arg(folder.path().join("second")).arg(path).args(["train", "run.toml", "-q"]);
    assert_one_message(&mut run, "error: process 2: `");
}

/// A run that goes on until it is ended.
fn endless(folder: &Path, size: usize) -> Option<Child> {
    written(folder, &PERCEPTRON.replace("epochs = 3", "epochs = 100000\nprocess_timeout = 2"));
    let line = "train run.toml --overwrite -q --save manyhands.safetensors --save-every 20";
    let mut command = mpirun(folder, &vec![line; size])?;
    Some(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
}

/// The processes of the command that a process has started.
fn started_by(parent: u32) -> Vec<u32> {
    let of = |entry: fs::DirEntry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let (state, parent_of) = (fields.next()?, fields.next()?.parse::<u32>().ok()?);
        (parent_of == parent && state != "Z" && stat.contains("manyhands-mpi")).then_some(id)
    };
    let mut ids: Vec<u32> = fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect();
    ids.sort_unstable();
    ids
}

/// Waits until something is there, on a busy machine, too.
fn await_that(what: &str, is_there: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_there() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The processes of a run, once all are there.
fn ranks(run: &Child, size: usize) -> Vec<u32> {
    await_that("a process", || started_by(run.id()).len() == size);
    started_by(run.id())
}

fn signal(name: &str, id: u32) {
    assert!(Command::new("kill").arg(name).arg(id.to_string()).status().unwrap().success());
}

/// Waits for the end of a run; gives its time in seconds, and what it said.
fn ended(mut run: Child, ids: &[u32]) -> (f64, String) {
    let begin = Instant::now();
    while run.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(30) {
            run.kill().unwrap();
            panic!("the run goes on");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let seconds = begin.elapsed().as_secs_f64();
    let told = text(&run.wait_with_output().unwrap().stderr);
    let is_there = |id: &&u32| fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z"));
    // The system may still clear away what was killed.
    while let Some(id) = ids.iter().find(is_there) {
        assert!(begin.elapsed().as_secs_f64() < seconds + 3.0, "process {id} is left: {told}");
        std::thread::sleep(Duration::from_millis(10));
    }
    (seconds, told)
}

#[test]
#[ignore = "waits for time limits"]
fn a_process_that_hangs_is_found_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let Some(run) = endless(folder.path(), 3) else { return };
    let ids = ranks(&run, 3);
    std::thread::sleep(Duration::from_millis(1500));
    signal("-STOP", ids[1]);
    let (seconds, told) = ended(run, &ids);
    // Within the exchange of gradients MPI does not tell who is missing.
    let is_told = told.contains("needs to answer within 2 s, but has not: it hangs, or its connection is gone");
    assert!(is_told && told.matches("error:").count() == 1, "{told}");
    assert!(seconds < 8.0, "{seconds} s");
}

#[test]
#[ignore = "ends twenty runs"]
fn a_killed_process_ends_the_job_and_the_checkpoint_resumes_with_fewer() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &PERCEPTRON.replace("epochs = 3", "epochs = 400"));
    let Some((undisturbed, _)) = train(folder.path(), 1, "") else { return };
    let (mut longest, mut n_resumed) = (0.0_f64, 0);
    for trial in 0..20_u64 {
        let size = 2 + usize::try_from(trial % 2).unwrap();
        let [checkpoint, log] = ["manyhands.safetensors", "log.json"].map(|file| folder.path().join(file));
        drop([fs::remove_file(&checkpoint), fs::remove_file(&log)]);
        let run = endless(folder.path(), size).unwrap();
        let ids = ranks(&run, size);
        // Half of the runs end around their start, half after a checkpoint; the numbers have no common divisor with each other.
        if trial % 4 >= 2 {
            await_that("a checkpoint", || checkpoint.exists());
        }
        std::thread::sleep(Duration::from_millis(150 + trial * 97 % 1400));
        signal("-KILL", ids[usize::try_from(trial).unwrap() % size]);
        longest = longest.max(ended(run, &ids).0);
        if !checkpoint.exists() {
            continue;
        }
        n_resumed += 1;
        written(folder.path(), &PERCEPTRON.replace("epochs = 3", "epochs = 400"));
        let line = "train run.toml --resume manyhands.safetensors -q --json log.json";
        let Some(mut resumed) = mpirun(folder.path(), &vec![line; size - 1]) else { return };
        let resumed = resumed.stderr(Stdio::piped()).spawn().unwrap();
        await_that("a step", || fs::read_to_string(&log).is_ok_and(|text| text.contains("\"step\"")));
        std::thread::sleep(Duration::from_millis(300));
        let ids = started_by(resumed.id());
        ids.iter().for_each(|id| signal("-TERM", *id));
        let _ = ended(resumed, &ids);
        compare(&log, &undisturbed);
    }
    assert!(longest < 6.0 && n_resumed >= 10, "{longest} s, {n_resumed} resumed");
}

/// Compares the first losses after a resumption with those of the run that nothing disturbed.
fn compare(log: &Path, undisturbed: &[f64]) {
    let text = fs::read_to_string(log).unwrap();
    let mut n_compared = 0;
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).take(20) {
        let (Some(step), Some(loss)) = (line["step"].as_u64(), line["loss"].as_f64()) else { continue };
        let Some(wanted) = undisturbed.get(usize::try_from(step).unwrap() - 1).filter(|_| line["kind"] == "step")
        else {
            continue;
        };
        assert!((loss - wanted).abs() < 1e-4 * wanted.max(1.0), "step {step}: {loss} is not {wanted}");
        n_compared += 1;
    }
    assert!(n_compared > 0, "{text}");
}
