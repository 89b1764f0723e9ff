//! Does a sweep name the best of its trials, on any number of adapters, whatever ends it; and is nothing of it lost?

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests fail loudly; a measurement is printed")]
#![allow(clippy::disallowed_methods, reason = "a test stands outside the engine: it has a clock")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::{Instant, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, outputs, pause, refused, run, succeed, text, wait, wait_for};
use crate::flowers;

/// Nine trials: 9 for an epoch, 3 for three, 1 for nine.
const SWEEP: &str = "sweep run.toml --vary learning_rate=1e-4..1.0,log --vary batch_size=8|16|32 --trials 9";

fn folder() -> TempDir {
    let more = "[optimizer]\ntype = \"Adam\"\n[training]\nepochs = 9\nvalidation = 0.25\nseed = 3\n";
    flowers::folder(&flowers::hard_table("x,y,kind", ["a", "b", "c"]), &(flowers::SETTINGS.to_owned() + more))
}

fn read(folder: &TempDir, name: &str) -> String {
    fs::read_to_string(folder.path().join(name)).unwrap()
}

fn json(folder: &TempDir, name: &str) -> Value {
    serde_json::from_str(&read(folder, name)).unwrap()
}

/// The trials by the file of a sweep, without times and folders.
fn trials(folder: &TempDir, sweep: &str) -> Vec<Value> {
    let mut trials: Vec<Value> = json(folder, &format!("{sweep}/sweep.json"))["trials"].as_array().unwrap().clone();
    for trial in &mut trials {
        for key in ["seconds", "folder", "adapters"] {
            trial.as_object_mut().unwrap().remove(key).unwrap();
        }
    }
    trials
}

#[test]
fn a_sweep_ends_bad_trials_early_and_names_the_best() {
    let folder = folder();
    let (shown, warned) = outputs(&folder, &format!("{SWEEP} --adapters cpu,cpu"));
    assert_eq!(warned, "");
    for round in ["round 1 of 3: 9 trials up to epoch 1\n", "round 3 of 3: 1 trial up to epoch 9\n"] {
        assert!(shown.contains(round), "{shown}");
    }
    let found = trials(&folder, "sweeps/run");
    let states: Vec<(&str, u64)> =
        found.iter().map(|it| (it["state"].as_str().unwrap(), it["epochs"].as_u64().unwrap())).collect();
    let expected = [vec![("finished", 9)], [("stopped", 3)].repeat(2), [("stopped", 1)].repeat(6)].concat();
    assert_eq!(states, expected, "best first; those that went on were better");
    let values: Vec<f64> = found.iter().map(|it| it["value"].as_f64().unwrap()).collect();
    assert!(values.is_sorted(), "{values:?}");

    // The table for other programs says the same.
    let table = read(&folder, "sweeps/run/sweep.csv");
    let best = json(&folder, "sweeps/run/sweep.json")["trials"][0].clone();
    let (rate, rows) = (&best["settings"]["optimizer.learning_rate"], &best["settings"]["training.batch_size"]);
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with(&format!("{},finished,9,{},", best["trial"], values[0])), "{row}");
    assert!(row.ends_with(&format!(",{rate},{rows},")), "{row}");

    // The best trial is the run that its settings give without a sweep, to the same bits.
    let line = format!("train run.toml --run alone --learning-rate {rate} --batch-size {rows} --quiet");
    succeed(&folder, &line);
    let of_best = best["folder"].as_str().unwrap();
    let model = |run: &str| fs::read(folder.path().join(run).join("best.safetensors")).unwrap();
    assert!(model(of_best) == model("alone"), "interruptions between rounds change nothing");
    succeed(&folder, &format!("train {of_best}/run.toml --run again --quiet"));
    assert!(model(of_best) == model("again"), "its folder holds its settings");

    // The line that it ends with predicts; its folders are those of runs.
    let line = shown.lines().find(|line| line.starts_with("best: ")).unwrap();
    let command = line.split('`').find_map(|part| part.strip_prefix("manyhands ")?.strip_suffix(" DATA")).unwrap();
    assert_eq!(succeed(&folder, &format!("{command} table.csv")).lines().count(), 121);
    succeed(&folder, "report sweeps/run/trial-001 sweeps/run/trial-002 sweeps/run/trial-003");

    // The number of adapters changes no result.
    succeed(&folder, &format!("{SWEEP} --folder alone-1 --quiet"));
    assert_eq!(trials(&folder, "alone-1"), found);
    // More trials leave the first ones as they were; another seed draws others.
    let more = SWEEP.replace("--trials 9", "--trials 12");
    let shown = succeed(&folder, &format!("{more} --folder alone-1"));
    assert!(shown.contains("round 1 of 3: 12 trials up to epoch 1, 3 left to train"), "{shown}");
    let all = trials(&folder, "alone-1");
    let settings = |trials: &[Value]| -> BTreeMap<u64, Value> {
        trials.iter().map(|it| (it["trial"].as_u64().unwrap(), it["settings"].clone())).collect()
    };
    let (few, all) = (settings(&found), settings(&all));
    assert!(all.len() == 12 && few.iter().all(|(trial, values)| all[trial] == *values));
    succeed(&folder, &format!("{SWEEP} --seed 1 --folder other --quiet"));
    assert!(settings(&trials(&folder, "other")) != few);
}

/// Times at which runs that have ended were written, by folder.
fn ended(folder: &TempDir, sweep: &str) -> BTreeMap<String, SystemTime> {
    let Ok(entries) = fs::read_dir(folder.path().join(sweep)) else { return BTreeMap::new() };
    let runs = entries.flatten().filter_map(|entry| {
        let results: Value = serde_json::from_str(&fs::read_to_string(entry.path().join("results.json")).ok()?).ok()?;
        let written = fs::metadata(entry.path().join("last.safetensors")).ok()?.modified().ok()?;
        let name = entry.file_name().into_string().ok()?;
        (results["end"]["how"] == "finished").then_some((format!("{name} {}", results["epochs"]), written))
    });
    runs.collect()
}

#[test]
fn a_killed_sweep_goes_on_where_it_was() {
    let folder = folder();
    let begin = Instant::now();
    succeed(&folder, &format!("{SWEEP} --folder whole --quiet"));
    let whole_ms = u64::try_from(begin.elapsed().as_millis()).unwrap();
    let line = format!("{SWEEP} --folder killed --quiet --adapters cpu,cpu");
    let (mut random, mut before) = (98_765_u64, BTreeMap::new());
    for _ in 0..4 {
        let mut child = command(&folder, &line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        pause(30 + (random >> 33) % (whole_ms / 3));
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "");
        before.extend(ended(&folder, "killed"));
    }
    let shown = succeed(&folder, &line);
    assert!(shown.contains("best: trial"), "{shown}");
    assert_eq!(trials(&folder, "killed"), trials(&folder, "whole"));
    let after = ended(&folder, "killed");
    for (run, written) in &after {
        assert!(before.get(run).is_none_or(|before| before == written), "{run} was trained again");
    }
    let again = succeed(&folder, &line.replace(" --quiet", ""));
    assert_eq!(again.matches(" left to train").count(), 3, "{again}");
    assert_eq!(again.matches(", 0 left to train").count(), 3, "{again}");
    assert_eq!(ended(&folder, "killed"), after);
}

#[cfg(unix)]
#[test]
fn ctrl_c_saves_the_trials_at_hand() {
    let folder = folder();
    let line = format!("{SWEEP} --epochs 400 --first-epochs 200 --adapters cpu,cpu");
    let mut child = command(&folder, &line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_under_way = |trial: &str| {
        let log = folder.path().join("sweeps/run").join(trial).join("log.jsonl");
        fs::read_to_string(log).is_ok_and(|log| log.contains("\"kind\":\"epoch\""))
    };
    wait_for("two trials at once", || is_under_way("trial-001") && is_under_way("trial-002"));
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(wait(&mut child).code(), Some(130));
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stdout).ends_with("interrupted; the same command goes on\n"), "{}", text(&output.stdout));
    let unfinished = trials(&folder, "sweeps/run").iter().filter(|it| it["state"] == "unfinished").count();
    assert_eq!(unfinished, 2);
    for trial in ["trial-001", "trial-002"] {
        manyhands::Checkpoint::load(&folder.path().join("sweeps/run").join(trial).join("last.safetensors")).unwrap();
    }
    // Another sweep may not write there meanwhile, nor one that asks for something else.
    let error = refused(&folder, &format!("{SWEEP} --epochs 300"));
    assert!(error.contains("holds a sweep that differs in `--epochs`, `--first-epochs`"), "{error}");
}

#[test]
fn a_trial_that_fails_does_not_end_the_sweep() {
    let folder = folder();
    // Squares of errors explode at a rate that the bounded gradients of a cross-entropy may survive.
    let rows: String = (0..80).map(|at| format!("{},{}\n", at % 8, 2 * (at % 8) + 1)).collect();
    fs::write(folder.path().join("table.csv"), format!("x,kind\n{rows}")).unwrap();
    let settings = read(&folder, "run.toml").replace("Adam", "SGD").replace("epochs = 9", "epochs = 3");
    let settings = settings.replace("classes", "values").replace("units = 3", "units = 1").replace("[2]", "[1]");
    let settings = settings.replace("SparseCategoricalCrossentropy", "MeanSquaredError");
    fs::write(folder.path().join("run.toml"), &settings).unwrap();
    let line = "sweep run.toml --vary learning_rate=0.001|3e30|0.01 --reduction-factor 1 --trials 5";
    let shown = succeed(&folder, line);
    assert!(shown.contains("there are only 3 combinations of these values"), "{shown}");
    let found = trials(&folder, "sweeps/run");
    assert_eq!(found[2]["state"], "failed", "{found:?}");
    let cause = found[2]["cause"].as_str().unwrap();
    assert!(cause.contains("finite") && cause.contains("help: "), "{cause}");
    assert!(found[..2].iter().all(|it| it["state"] == "finished" && it["cause"].is_null()), "{found:?}");
    assert!(read(&folder, "sweeps/run/sweep.csv").contains(",failed,"));
    // Its own folder and page tell the cause, too.
    let trial = format!("sweeps/run/trial-{:03}", found[2]["trial"].as_u64().unwrap());
    assert_eq!(json(&folder, &format!("{trial}/results.json"))["failure"]["text"], cause);
    succeed(&folder, &format!("report {trial}"));
    let page = read(&folder, &format!("{trial}/report.html"));
    assert!(page.contains("<p class=\"tag\">failed</p>") && page.contains("It ended with an error"), "{page}");
    // It is not tried again.
    let again = succeed(&folder, line);
    assert!(again.contains("3 trials up to epoch 3, 0 left to train"), "{again}");
    assert_eq!(trials(&folder, "sweeps/run"), found);

    let line = "sweep run.toml --vary learning_rate=2e30|3e30 --folder bad --trials 2 --quiet";
    let output = run(&folder, line);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("needs one trial without an error, but all 2 failed; the first: "), "{error}");
}

#[test]
fn mistakes_are_told_before_any_trial() {
    let folder = folder();
    for (line, expected) in [
        ("--vary batchsize=8|16", "did you mean `batch_size`?"),
        ("--vary optimizer.learning_rat=8|16", "did you mean `learning_rate`?"),
        ("--vary batch_size=8|x", "needs a whole number from 0 up, but got \"x\""),
        ("--vary epochs=1|2", "the sweep itself sets `training.epochs`"),
        ("--vary batch_size=8|16 --vary training.batch_size=1|2", "`training.batch_size` is varied twice"),
        ("--vary batch_size=8|16 --objective val_los", "an epoch reports only loss, accuracy, val_loss, val_accuracy"),
        ("--vary data.train=a.csv|b.csv --data-folder nowhere", "can't be read"),
        ("--vary batch_size=8|16 --adapters cpu --throttle 1=2", "needs an adapter in use, from 0 to 0, but got 1"),
    ] {
        let error = refused(&folder, &format!("sweep run.toml {line}"));
        assert!(error.contains(expected), "{line}: {error}");
        assert!(!folder.path().join("sweeps").exists(), "{line}");
    }
    for line in ["--vary batch_size", "--vary batch_size=5..1", "--trials 0 --vary batch_size=1|2", ""] {
        assert_eq!(run(&folder, &format!("sweep run.toml {line}")).status.code(), Some(2), "{line}");
    }
    let shown = succeed(&folder, &format!("{SWEEP} --dry-run --objective val_accuracy"));
    assert!(shown.contains("9 up to epoch 1, 3 up to epoch 3, 1 up to epoch 9; 1 at a time"), "{shown}");
    assert!(shown.contains("compared by `val_accuracy`; nothing was written"), "{shown}");
    fs::create_dir_all(folder.path().join("sweeps/run/trial-001")).unwrap();
    assert!(refused(&folder, SWEEP).contains("needs to be new, or that of this sweep, but holds something else"));
    fs::write(folder.path().join("file"), "mine").unwrap();
    assert!(refused(&folder, &format!("{SWEEP} --folder file")).contains("needs to be a folder, but is a file"));
}

#[test]
fn the_objective_chooses_trials_and_their_models() {
    let folder = folder();
    succeed(&folder, &format!("{SWEEP} --objective val_accuracy --quiet"));
    let sweep = json(&folder, "sweeps/run/sweep.json");
    assert_eq!(sweep["asked"]["mode"], "max");
    let values: Vec<f64> = sweep["trials"].as_array().unwrap().iter().map(|it| it["value"].as_f64().unwrap()).collect();
    assert!(values.iter().rev().is_sorted() && values[0] > values[8], "{values:?}");
    let results = json(&folder, &format!("{}/results.json", sweep["trials"][0]["folder"].as_str().unwrap()));
    assert_eq!(results["monitor"], "val_accuracy");
    // All adapters for one trial after the other.
    let shown = succeed(&folder, &format!("{} --folder all --one-by-one --adapters cpu,cpu", two()));
    assert!(shown.contains(" + "), "{shown}");
    let adapters = &json(&folder, "all/sweep.json")["trials"][0]["adapters"];
    assert_eq!(adapters.as_array().unwrap().len(), 2);
}

#[test]
fn a_sweep_by_f1_names_the_trial_with_the_largest() {
    let folder = folder();
    let settings = read(&folder, "run.toml") + "metrics = [\"f1_score\", \"auc\"]\n";
    fs::write(folder.path().join("run.toml"), settings).unwrap();
    for (more, mode) in [("", "max"), (" --mode min", "min")] {
        let line = format!("{} --objective val_f1_score --folder {mode} --quiet{more}", two());
        succeed(&folder, &line);
        let sweep = json(&folder, &format!("{mode}/sweep.json"));
        assert_eq!(sweep["asked"]["mode"], mode);
        let trials = sweep["trials"].as_array().unwrap();
        let values: Vec<f64> = trials.iter().map(|it| it["value"].as_f64().unwrap()).collect();
        assert!(values.len() == 2 && values[0] != values[1], "{values:?}");
        assert_eq!(values[0] > values[1], mode == "max", "{values:?}");
        let log = read(&folder, &format!("{}/log.jsonl", trials[0]["folder"].as_str().unwrap()));
        let epochs = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of_best: Vec<f64> = epochs.filter_map(|line| line["val_f1_score"].as_f64()).collect();
        let best = of_best.iter().copied().reduce(if mode == "max" { f64::max } else { f64::min });
        assert_eq!(Some(values[0]), best, "{of_best:?}");
    }
    let error = refused(&folder, &format!("{} --objective val_f1_score --folder max --mode min", two()));
    assert!(error.contains("differs in the objective"), "{error}");
}

/// The sweep with two trials.
fn two() -> String {
    SWEEP.replace("--trials 9", "--trials 2")
}

/// Two equal adapters that leave the machine's cores to each other, as two cards do: they wait for nearly all of the time.
#[test]
#[ignore = "a measurement: takes minutes"]
fn two_adapters_take_little_more_than_half_the_time_of_one() {
    let folder = folder();
    let mut times: Vec<[f64; 2]> = Vec::new();
    for round in 0..3 {
        let time = |adapters: &str, name: &str| {
            let sweep = "sweep run.toml --vary learning_rate=1e-4..1e-2,log --trials 12 --quiet";
            let begin = Instant::now();
            succeed(&folder, &format!("{sweep} {adapters} --folder {name}-{round}"));
            begin.elapsed().as_secs_f64()
        };
        let one = time("--adapters cpu --throttle 0=300", "one");
        times.push([one, time("--adapters cpu,cpu --throttle 0=300 --throttle 1=300", "two")]);
        assert_eq!(trials(&folder, &format!("one-{round}")), trials(&folder, &format!("two-{round}")));
        println!("one adapter {:.1} s, two {:.1} s", times[round][0], times[round][1]);
    }
    let mut ratios: Vec<f64> = times.iter().map(|[one, two]| two / one).collect();
    ratios.sort_by(f64::total_cmp);
    println!("two adapters take {:.2} of the time of one", ratios[1]);
    assert!(ratios[1] < 0.6, "{times:?}");
}
