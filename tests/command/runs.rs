//! Does each run get a folder of its own where none is named, is nothing of an earlier run lost, and does a folder from a stranger
//! reach nothing beside it?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use manyhands::Checkpoint;
use tempfile::TempDir;

use crate::command::{command, outputs, refused, succeed, text};
use crate::flowers;

fn folder() -> TempDir {
    flowers::folder(&flowers::table("x,y,kind", ["a", "b", "c"]), flowers::SETTINGS)
}

fn epochs(folder: &TempDir, run: &str) -> u64 {
    Checkpoint::load(&folder.path().join(run).join("last.safetensors")).unwrap().progress.epoch
}

/// Paths and contents of all files, at any depth.
fn tree(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(tree(&path)) } else { files.push((path.clone(), fs::read(path).unwrap())) }
    }
    files.sort();
    files
}

#[test]
fn each_run_has_a_folder_with_a_number_and_its_last_line_predicts() {
    let folder = folder();
    for number in 1..=2 {
        let shown = succeed(&folder, "train run.toml --epochs 1");
        let best = format!("runs/{number}/best.safetensors");
        let told = format!("best model in `{best}`; predict with `manyhands predict {best} DATA`");
        assert_eq!(shown.lines().last(), Some(told.as_str()), "{shown}");
        for file in ["run.toml", "log.jsonl", "last.safetensors", "best.safetensors", "results.json", "report.html"] {
            assert!(folder.path().join(format!("runs/{number}/{file}")).is_file(), "{file}");
        }
        let predicted = succeed(&folder, &format!("predict {best} table.csv"));
        assert_eq!(predicted.lines().count(), 41, "{predicted}");
        assert_eq!(succeed(&folder, &format!("predict runs/{number} table.csv")), predicted);
    }
    assert!(!folder.path().join("manyhands.safetensors").exists());
    // A folder that was not named is told also in silence, and numbers go on behind the largest.
    fs::rename(folder.path().join("runs/2"), folder.path().join("runs/7")).unwrap();
    let (shown, _) = outputs(&folder, "train run.toml --epochs 1 --quiet --tensorboard events");
    assert!(shown.starts_with("best model in `runs/8/best.safetensors`") && shown.lines().count() == 1, "{shown}");
    assert!(folder.path().join("events/train").is_dir());
    // What is named needs no word.
    assert_eq!(succeed(&folder, "train run.toml --epochs 1 --quiet --save a.safetensors"), "");
    assert!(!folder.path().join("runs/9").exists());
    // A run without a best model stands for its last one.
    fs::remove_file(folder.path().join("runs/8/best.safetensors")).unwrap();
    assert!(succeed(&folder, "summary runs/8").contains("after 1 epoch, "));
}

#[test]
fn a_folder_without_a_model_is_refused_with_a_word_on_what_it_is() {
    let folder = folder();
    succeed(&folder, "train run.toml --quiet --epochs 1 --run all/one");
    for (path, problem, help) in [
        ("all", "`all` needs to be one run, but holds several", "name one of them, such as `all/one`"),
        ("all/one", "`all/one` needs a model, but the run has saved none", "`manyhands train all/one/run.toml`"),
        ("empty", "`empty` needs to be the folder of a run, but has no `best.safetensors`", "such as `runs/1`"),
        ("tuned", "`tuned` needs a model of its own, but holds the adapter", "`manyhands generate`"),
    ] {
        fs::create_dir_all(folder.path().join("empty")).unwrap();
        fs::create_dir_all(folder.path().join("tuned/adapter")).unwrap();
        for line in ["evaluate PATH table.csv", "predict PATH table.csv", "export PATH out.onnx", "summary PATH"] {
            let error = refused(&folder, &line.replace("PATH", path));
            assert!(error.contains(&format!("the folder {problem}")) && error.contains(help), "{line}: {error}");
        }
        for file in ["best", "last"].map(|name| folder.path().join(format!("all/one/{name}.safetensors"))) {
            drop(fs::remove_file(file));
        }
    }
    assert!(!folder.path().join("out.onnx").exists());
}

#[test]
fn runs_that_begin_at_once_do_not_share_a_folder() {
    let folder = folder();
    let start = |_| command(&folder, "train run.toml --epochs 1").stdout(Stdio::piped()).spawn().unwrap();
    let children: Vec<_> = (0..3).map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let told: Vec<u64> = (1..=3).map(|number| epochs(&folder, &format!("runs/{number}"))).collect();
    assert_eq!(told, [1, 1, 1]);
    assert!(!folder.path().join("runs/4").exists());
}

#[test]
fn the_latest_run_is_resumed() {
    let folder = folder();
    let error = refused(&folder, "train run.toml --resume");
    assert!(
        error.contains("`--resume` needs an earlier run with these data, model and losses, but `runs` holds none\n  help: name its folder"),
        "{error}"
    );
    succeed(&folder, "train run.toml --epochs 1 --quiet");
    succeed(&folder, "train run.toml --epochs 1 --quiet");
    // Its settings are in its folder.
    succeed(&folder, "train --resume --epochs 3 --quiet");
    succeed(&folder, "train run.toml --resume --epochs 4 --quiet");
    assert_eq!((epochs(&folder, "runs/1"), epochs(&folder, "runs/2")), (1, 4));
    let log = fs::read_to_string(folder.path().join("runs/2/log.jsonl")).unwrap();
    assert_eq!(log.matches("\"kind\":\"epoch\"").count(), 4);
    assert!(!folder.path().join("runs/3").exists());
    // A run of another model is not gone on with, nor one that was never saved.
    fs::create_dir(folder.path().join("runs/3")).unwrap();
    let settings = fs::read_to_string(folder.path().join("run.toml")).unwrap();
    fs::write(folder.path().join("calm.toml"), settings.clone() + "[training]\nshuffle = false\n").unwrap();
    let wide = settings.replace("layers = [", "layers = [{ type = \"Dense\", units = 9 }, ");
    fs::write(folder.path().join("wide.toml"), wide).unwrap();
    succeed(&folder, "train wide.toml --save wide.safetensors --epochs 1 --quiet");
    let error = refused(&folder, "train wide.toml --resume --epochs 5");
    assert!(error.contains("but `runs` holds none"), "{error}");
    succeed(&folder, "train calm.toml --resume --epochs 5 --quiet");
    assert_eq!(epochs(&folder, "runs/2"), 5);
}

#[test]
fn a_run_that_can_not_begin_leaves_no_folder() {
    let folder = folder();
    refused(&folder, "train run.toml --adapters nonsense");
    let error = refused(&folder, "train run.toml --adapters cpu --memory cpu=1kB");
    assert!(error.contains("has too little memory for one row"), "{error}");
    // Enough for a row, but not beside the gradients of others: the CPU is not taken in place of the CPU.
    let needed = error.split("1 row at once needs ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let bytes: f64 = needed.replace(',', "").parse().unwrap();
    let line = format!("train run.toml --adapters cpu --batch-size 16 --memory cpu={}kB", (bytes + 8.0) / 1e3);
    let error = refused(&folder, &line);
    assert!(
        error.contains("has too little memory for one row") && !error.contains("every adapter was lost"),
        "{error}"
    );
    assert!(!folder.path().join("runs").exists());
}

#[test]
fn a_dry_run_is_never_refused_for_files_of_an_earlier_run_and_writes_nothing() {
    let folder = folder();
    let line = "train run.toml --epochs 1 --save a.safetensors --json a.jsonl --csv a.csv --trace a.trace";
    succeed(&folder, line);
    succeed(&folder, "train run.toml --epochs 1 --run named");
    succeed(&folder, "train run.toml --epochs 1");
    let before = tree(folder.path());
    for line in [line, "train run.toml --run named", "train run.toml", "train run.toml --quiet"] {
        let (shown, told) = outputs(&folder, &format!("{line} --dry-run"));
        assert!(shown.contains("nothing was written"), "{line}: {shown}");
        assert_eq!(
            told.contains("warning: a run needs more: "),
            !line.ends_with("toml") && !line.ends_with("quiet"),
            "{told}"
        );
    }
    assert!(tree(folder.path()) == before);
}

#[test]
fn no_log_of_another_run_is_replaced_without_a_word() {
    let folder = folder();
    succeed(&folder, "train run.toml --epochs 1 --json a.jsonl --csv a.csv --trace a.trace");
    let before = tree(folder.path());
    for flag in ["--json a.jsonl", "--csv a.csv", "--trace a.trace"] {
        let error = refused(&folder, &format!("train run.toml --epochs 1 {flag}"));
        let expected =
            "needs to be a new file, but is there already\n  help: replace it (`--overwrite`), or name another one";
        assert!(error.contains(expected), "{error}");
    }
    assert!(tree(folder.path()) == before);
    succeed(&folder, "train run.toml --epochs 2 --json a.jsonl --csv a.csv --trace a.trace --overwrite");
    succeed(&folder, "train --resume --epochs 3 --json a.jsonl --csv a.csv");
    assert_eq!(fs::read_to_string(folder.path().join("a.csv")).unwrap().lines().count(), 4);
}

#[test]
fn several_processes_of_mpi_do_not_each_train_the_whole() {
    let folder = folder();
    let mut started = command(&folder, "train run.toml --epochs 1");
    let output = started.env("OMPI_COMM_WORLD_SIZE", "2").output().unwrap();
    let error = text(&output.stderr);
    assert!(error.contains("training in 2 processes of MPI needs a program with MPI"), "{error}");
    assert!(!folder.path().join("runs").exists());
}

/// The folder of a run that is done, and a file beside it that its owner shows to nobody.
fn with_a_secret() -> TempDir {
    let folder = folder();
    succeed(&folder, "train run.toml --epochs 1 --run a --quiet");
    fs::write(folder.path().join("secret"), "# my password\n").unwrap();
    folder
}

#[cfg(unix)]
#[test]
fn a_run_folder_reaches_nothing_beside_it() {
    for name in ["run.toml", "log.jsonl", "results.json", "report.html", "last.safetensors", "best.safetensors"] {
        let folder = with_a_secret();
        let file = folder.path().join("a").join(name);
        for pipe in [false, true] {
            fs::remove_file(&file).unwrap();
            if pipe {
                assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
            } else {
                std::os::unix::fs::symlink("../secret", &file).unwrap();
            }
            let expected = if pipe { "but is none" } else { "but is a link to somewhere else" };
            for line in ["report a", "train --run a --resume --epochs 2", "train run.toml --run a --overwrite"] {
                // Without settings, or results, the folder is none of a run, or goes on by those of the digits.
                let error = refused(&folder, line);
                assert!(error.contains(expected) || error.contains("has no `results.json`"), "{name} {line}: {error}");
                assert!(!error.contains("password"), "{error}");
            }
        }
        assert_eq!(fs::read_to_string(folder.path().join("secret")).unwrap(), "# my password\n");
    }
    // A link within the folder, and one to the folder, are the owner's own business.
    let folder = with_a_secret();
    fs::rename(folder.path().join("a/log.jsonl"), folder.path().join("a/log")).unwrap();
    std::os::unix::fs::symlink("log", folder.path().join("a/log.jsonl")).unwrap();
    std::os::unix::fs::symlink("a", folder.path().join("link")).unwrap();
    succeed(&folder, "report link");
}

#[test]
fn a_log_and_results_from_a_stranger_take_no_memory_and_put_no_markup_on_the_page() {
    let folder = with_a_secret();
    let step = |adapter: u64| {
        format!(
            "{{\"kind\":\"step\",\"step\":9,\"epoch\":1,\"batch\":1,\"batches\":1,\"loss\":1,\"is_applied\":true,\
             \"adapters\":[{{\"adapter\":{adapter},\"name\":\"x\",\"rows\":1,\"ms\":1}}]}}\n"
        )
    };
    for adapter in [1_000_000_000, u64::MAX] {
        fs::write(folder.path().join("a/log.jsonl"), step(adapter)).unwrap();
        succeed(&folder, "report a");
    }
    let path = folder.path().join("a/results.json");
    let results = fs::read_to_string(&path).unwrap();
    let mut results: serde_json::Value = serde_json::from_str(&results).unwrap();
    let picture = |png: &str| serde_json::json!({ "picture": { "png": png, "width": 1, "height": 1 } });
    let mistake = |sample| serde_json::json!({ "row": 0, "truth": 0, "predicted": 1, "probability": 1, "of_truth": 0, "sample": sample });
    let judged = |sample| {
        let names: Vec<String> = (0..30).map(|class| format!("<i>{class}</i>")).collect();
        let counts = [(0, 1, u64::MAX), (0, 0, u64::MAX), (usize::MAX, 1, 1)];
        let classes = serde_json::json!({ "names": names, "counts": counts, "mistakes": [mistake(sample)] });
        serde_json::json!([{ "output": "<i>", "of": { "classes": classes } }])
    };
    let mut report = |png: &str| {
        let time = results["end"]["time"].clone();
        results["end"] = serde_json::json!({
            "how": "finished", "step": 1, "time": time, "best": null, "rows": 1, "judgements": judged(picture(png))
        });
        // As the page of another browser: with names that are markup.
        results["version"] = "<i>".into();
        fs::write(&path, serde_json::to_string_pretty(&results).unwrap()).unwrap();
    };
    report("iVBORw0KGgo=");
    succeed(&folder, "report a");
    let page = fs::read_to_string(folder.path().join("a/report.html")).unwrap();
    assert!(page.contains("base64,iVBORw0KGgo=\"") && !page.contains("<i>"));
    report("\"><script>alert(1)</script>");
    let error = refused(&folder, "report a");
    assert!(
        error.contains("`a/results.json`, line ") && error.contains(", key `png`, needs a picture in base64"),
        "{error}"
    );
}
