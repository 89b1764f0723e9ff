//! Does a run's folder hold all that is needed to judge, repeat and continue it? Are its page and its numbers right?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::path::Path;

use manyhands::{Checkpoint, Model};
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, outputs, refused, run, succeed, text, wait, wait_for};
use crate::flowers;

/// Settings with markup in a comment.
fn settings() -> String {
    let more = "[optimizer]\ntype = \"Adam\"\nlearning_rate = 0.05 # fast\n[training]\nepochs = 8\nvalidation = 0.25\n";
    format!("# Flowers, or <b>something</b> else.\n{}{more}", flowers::SETTINGS)
}

/// A table with markup in its names, and settings for it.
fn folder() -> TempDir {
    flowers::folder(&flowers::hard_table("x,\"<i>y</i>\",kind", ["<a>", "b & c", "b"]), &settings())
}

fn read(folder: &TempDir, name: &str) -> String {
    fs::read_to_string(folder.path().join(name)).unwrap()
}

fn json(folder: &TempDir, name: &str) -> Value {
    serde_json::from_str(&read(folder, name)).unwrap()
}

/// Loss and metrics of a model on the validation rows.
fn evaluated(folder: &TempDir, model: &str) -> Value {
    let line = format!("evaluate {model} --data table.csv --part validation --json");
    serde_json::from_str(&succeed(folder, &line)).unwrap()
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// No part of a page asks for anything from elsewhere, and every tag that is opened is closed.
fn is_whole(page: &str) {
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{}", &page[..200]);
    for outside in ["http:", "https:", "//", "<script", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    for tag in ["table", "tr", "td", "th", "figure", "svg", "g", "dl", "ul", "li", "details", "pre", "div", "span", "p"]
    {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn a_run_folder_holds_all_of_a_run() {
    let folder = folder();
    let (shown, _) = outputs(&folder, "train run.toml --run runs/first --epochs 9 --adapters cpu,cpu --split 2:1");
    assert!(shown.contains("report in `runs/first/report.html`"), "{shown}");
    let run = folder.path().join("runs/first");
    let files = ["best.safetensors", "last.safetensors", "log.jsonl", "report.html", "results.json", "run.toml"];
    assert_eq!(names(&run), files);

    let settings = read(&folder, "runs/first/run.toml");
    for part in
        ["# Flowers, or", "epochs = 9\n", "seed = 0\n", "split = \"2:1\"\n", "adapters = \"cpu,cpu\"\n", "0.05 # fast"]
    {
        assert!(settings.contains(part), "{part}: {settings}");
    }
    let results = json(&folder, "runs/first/results.json");
    let log = read(&folder, "runs/first/log.jsonl");
    let epochs: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["kind"] == "epoch")
        .collect();
    assert_eq!((epochs.len(), &results["end"]["how"]), (9, &Value::from("finished")));
    let best = epochs
        .iter()
        .min_by(|a, b| a["val_loss"].as_f64().unwrap().total_cmp(&b["val_loss"].as_f64().unwrap()))
        .unwrap();
    let judged = results["end"]["best"]["val_loss"].as_f64().unwrap();
    assert!((judged - best["val_loss"].as_f64().unwrap()).abs() < 1e-6, "{judged} {best}");

    // The matrix says what `evaluate` and `predict` say.
    let classes = &results["end"]["judgements"][0]["of"]["classes"];
    let counts: Vec<(u64, u64, u64)> = serde_json::from_value(classes["counts"].clone()).unwrap();
    let (all, right) =
        counts.iter().fold((0, 0), |(all, right), it| (all + it.2, right + if it.0 == it.1 { it.2 } else { 0 }));
    assert_eq!(all, 30);
    let evaluated = evaluated(&folder, "runs/first/best.safetensors");
    #[allow(clippy::cast_precision_loss, reason = "few rows")]
    let accuracy = right as f64 / all as f64;
    assert!((evaluated["accuracy"].as_f64().unwrap() - accuracy).abs() < 1e-6, "{evaluated} {accuracy}");

    let page = read(&folder, "runs/first/report.html");
    is_whole(&page);
    for part in [
        "&lt;a&gt;",
        "&lt;i&gt;y&lt;/i&gt;",
        "b &amp; c",
        "Confusion matrix",
        "Rows by adapter",
        "--split 2:1",
        "&lt;b&gt;something",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<a>") && !page.contains("<i>") && !page.contains("<b>something"));
    // It can be written again from the folder alone, wherever that lies.
    fs::rename(&run, folder.path().join("moved")).unwrap();
    fs::remove_file(folder.path().join("moved/report.html")).unwrap();
    succeed(&folder, "report moved");
    is_whole(&read(&folder, "moved/report.html"));
}

/// Settings of a run that is judged by F1, whose epochs get better for a while.
fn by_f1(more: &str) -> String {
    settings().replace("epochs = 8", "epochs = 8\nmetrics = [\"f1_score\"]").replace("0.05", "0.02") + more
}

/// The F1 of each epoch by a run's log.
fn f1_of(folder: &TempDir, run: &str) -> Vec<f64> {
    let log = read(folder, &format!("{run}/log.jsonl"));
    let epochs = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    epochs.filter_map(|line| line["val_f1_score"].as_f64()).collect()
}

#[test]
fn the_best_model_is_that_of_the_largest_f1() {
    let folder = folder();
    let stopping = "early_stopping = { monitor = \"val_f1_score\", patience = 100 }\n";
    fs::write(folder.path().join("run.toml"), by_f1(stopping)).unwrap();
    succeed(&folder, "train run.toml --run a --quiet");
    let values = f1_of(&folder, "a");
    let best = values.iter().copied().fold(0.0, f64::max);
    assert!(best > values[0] + 0.1, "{values:?}");
    for file in ["a/best.safetensors", "a/last.safetensors"] {
        let evaluated = evaluated(&folder, file);
        // The checkpoint goes on with the last weights; the model in it is the best.
        assert!((evaluated["f1_score"].as_f64().unwrap() - best).abs() < 1e-6, "{file}: {evaluated} {values:?}");
    }
    let page = read(&folder, "a/report.html");
    let epoch = 1 + values.iter().position(|value| *value == best).unwrap();
    assert!(page.contains(&format!("best validation f1 score, epoch {epoch}</dt>")), "{epoch} {values:?}");
}

#[test]
fn a_mode_in_the_settings_comes_first() {
    let folder = folder();
    let stopping = "early_stopping = { monitor = \"val_f1_score\", mode = \"min\", patience = 2 }\n";
    fs::write(folder.path().join("run.toml"), by_f1(stopping)).unwrap();
    succeed(&folder, "train run.toml --run a --quiet");
    let values = f1_of(&folder, "a");
    assert!(values.len() < 8, "it rises, so it stops: {values:?}");
    assert_eq!(json(&folder, "a/results.json")["mode"], "min");
    let wrong = "early_stopping = { monitor = \"val_f1_score\", mode = \"up\", patience = 2 }\n";
    fs::write(folder.path().join("run.toml"), by_f1(wrong)).unwrap();
    let error = refused(&folder, "train run.toml --run b");
    assert!(error.contains("`up`") && error.contains("`auto`, `min`, `max`"), "{error}");
}

#[test]
fn a_run_that_goes_on_in_the_other_direction_chooses_its_best_anew() {
    let folder = folder();
    let stopping = "early_stopping = { monitor = \"val_f1_score\", mode = \"min\", patience = 100 }\n";
    fs::write(folder.path().join("run.toml"), by_f1(stopping)).unwrap();
    succeed(&folder, "train run.toml --run a --quiet --epochs 4");
    fs::write(folder.path().join("run.toml"), by_f1(&stopping.replace("min", "max"))).unwrap();
    succeed(&folder, "train run.toml --run a --resume --quiet --epochs 6");
    let values = f1_of(&folder, "a");
    let best = if values[5] > values[4] { 5 } else { 4 };
    let evaluated = evaluated(&folder, "a/best.safetensors");
    assert!((evaluated["f1_score"].as_f64().unwrap() - values[best]).abs() < 1e-6, "{evaluated} {values:?}");
    let told = format!("best validation f1 score, epoch {}</dt>", best + 1);
    assert!(read(&folder, "a/report.html").contains(&told), "{values:?}");
}

/// Versions before this one took F1 for a number that falls, by its name.
#[test]
fn an_older_run_is_reported_by_the_direction_of_its_metric() {
    let folder = folder();
    let stopping = "early_stopping = { monitor = \"val_f1_score\", patience = 100 }\n";
    fs::write(folder.path().join("run.toml"), by_f1(stopping)).unwrap();
    succeed(&folder, "train run.toml --run a --quiet");
    let values = f1_of(&folder, "a");
    let mut results = json(&folder, "a/results.json");
    assert_eq!(results.as_object_mut().unwrap().remove("mode"), Some("max".into()));
    results["larger_is_better"] = false.into();
    fs::write(folder.path().join("a/results.json"), results.to_string()).unwrap();
    succeed(&folder, "report a");
    let page = read(&folder, "a/report.html");
    let best = values.iter().copied().fold(0.0, f64::max);
    let epoch = 1 + values.iter().position(|value| *value == best).unwrap();
    assert!(page.contains(&format!("best validation f1 score, epoch {epoch}</dt>")), "{epoch} {values:?}");
    assert!(page.contains("holds the worst epoch"));
    is_whole(&page);
    // Without a model, nothing tells the direction: no epoch is called the best.
    for file in ["a/best.safetensors", "a/last.safetensors"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    succeed(&folder, "report a");
    let page = read(&folder, "a/report.html");
    assert!(!page.contains("best validation f1 score") && !page.contains("holds the worst epoch"));
}

#[test]
fn a_run_is_repeated_from_its_folder() {
    let folder = folder();
    succeed(&folder, "train run.toml --run a --seed 5 --learning-rate 0.01 --adapters cpu,cpu --quiet");
    succeed(&folder, "train a/run.toml --run b --split-from a/log.jsonl --quiet");
    let model = |run: &str| fs::read(folder.path().join(run).join("best.safetensors")).unwrap();
    assert!(model("a") == model("b"), "the same bits");
    let settings = |run: &str| read(&folder, &format!("{run}/run.toml"));
    assert_eq!(settings("a"), settings("b"));
}

#[test]
fn an_older_run_is_replaced_or_continued_only_on_request() {
    let folder = folder();
    // The name of the folder may also be a setting.
    fs::write(folder.path().join("named.toml"), format!("{}run = \"a\"\n", settings())).unwrap();
    succeed(&folder, "train named.toml --quiet --epochs 3");
    let before: Vec<Vec<u8>> = names(&folder.path().join("a"))
        .iter()
        .map(|name| fs::read(folder.path().join("a").join(name)).unwrap())
        .collect();
    for line in ["train named.toml", "train run.toml --run a", "train run.toml --run ./a --epochs 9"] {
        let error = refused(&folder, line);
        assert!(
            error.contains("needs to be a new one, or that of the resumed run, but holds `run.toml` of an earlier run"),
            "{error}"
        );
    }
    assert!(refused(&folder, "train run.toml --run run.toml").contains("needs to be a folder, but is a file"));
    let after: Vec<Vec<u8>> = names(&folder.path().join("a"))
        .iter()
        .map(|name| fs::read(folder.path().join("a").join(name)).unwrap())
        .collect();
    assert!(before == after, "what is refused changes nothing");

    // Without a settings file a resumed run has its own.
    succeed(&folder, "train --run a --resume --epochs 5 --quiet");
    let epoch = || Checkpoint::load(&folder.path().join("a/last.safetensors")).unwrap().progress.epoch;
    assert_eq!((epoch(), json(&folder, "a/results.json")["end"]["step"].as_u64()), (5, Some(15)));
    assert_eq!(read(&folder, "a/log.jsonl").matches("\"kind\":\"epoch\"").count(), 5);
    assert_eq!(read(&folder, "a/run.toml").matches("# The settings of a run of manyhands").count(), 1);
    succeed(&folder, "train run.toml --run a --overwrite --epochs 2 --quiet");
    assert_eq!(epoch(), 2);
    fs::write(folder.path().join("a/report.html"), "mine").unwrap();
    let error = refused(&folder, "report a");
    assert!(
        error.contains("needs to be a page of `manyhands report` or a new file, but holds something else"),
        "{error}"
    );
}

#[test]
fn the_best_model_survives_worse_epochs_and_resumption() {
    let folder = folder();
    succeed(&folder, "train run.toml --run a --quiet --epochs 4");
    let best = || fs::read(folder.path().join("a/best.safetensors")).unwrap();
    let before = best();
    // A rate at which nothing gets better.
    succeed(&folder, "train run.toml --run a --quiet --epochs 6 --resume --learning-rate 90");
    assert!(before == best(), "a worse model took the place of the best");
    let results = json(&folder, "a/results.json");
    let model = Model::load(folder.path().join("a/best.safetensors")).unwrap();
    assert!(model.evaluation().is_some() && model.schema().classes(0).len() == 3);
    let judged = results["end"]["best"]["val_loss"].as_f64().unwrap();
    let evaluated = evaluated(&folder, "a/best.safetensors");
    assert!((evaluated["loss"].as_f64().unwrap() - judged).abs() < 1e-6, "{evaluated} {judged}");
}

#[test]
fn a_run_that_was_killed_has_a_report() {
    let folder = folder();
    let mut child = command(&folder, "train run.toml --run a --quiet --epochs 100000 --batch-size 2").spawn().unwrap();
    let log = folder.path().join("a/log.jsonl");
    wait_for("an epoch", || fs::read_to_string(&log).is_ok_and(|log| log.contains("\"kind\":\"epoch\"")));
    child.kill().unwrap();
    wait(&mut child);
    succeed(&folder, "report a");
    let page = read(&folder, "a/report.html");
    is_whole(&page);
    assert!(page.contains("not finished") && page.contains("--resume"));
}

#[test]
fn a_regression_is_judged_by_its_residuals() {
    let folder = folder();
    let rows: String = (0..80).map(|at| format!("{},{}\n", at % 8, 2 * (at % 8) + 1)).collect();
    fs::write(folder.path().join("table.csv"), format!("x,price\n{rows}")).unwrap();
    let settings =
        settings().replace("\"kind\"", "\"price\"").replace("classes", "values").replace("units = 3", "units = 1");
    let settings =
        settings.replace("SparseCategoricalCrossentropy", "MeanSquaredError").replace("input = [2]", "input = [1]");
    fs::write(folder.path().join("run.toml"), settings).unwrap();
    succeed(&folder, "train run.toml --run a --epochs 60 --quiet");
    let results = json(&folder, "a/results.json");
    let end = &results["end"];
    let (name, residuals) = (&end["judgements"][0]["of"]["values"][0][0], &end["judgements"][0]["of"]["values"][0][1]);
    assert_eq!((name.as_str(), residuals["rows"].as_u64()), (Some("price"), Some(20)));
    let number = |of: &Value| of.as_f64().unwrap();
    // The loss is the mean of the squares.
    let squared = number(&residuals["root_mean_squared_error"]).powi(2);
    assert!((squared - number(&end["best"]["val_loss"])).abs() < 1e-3 * squared, "{residuals} {}", end["best"]);
    assert!(number(&residuals["r2"]) > 0.5, "{residuals}");
    // Nine of ten new targets lie within the second largest error of twenty.
    let second = &residuals["worst"][1];
    let error = (number(&second["prediction"]) - number(&second["target"])).abs();
    assert!((number(&residuals["interval"]) - error).abs() < 1e-5, "{residuals}");
    assert_eq!(residuals["bars"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).sum::<u64>(), 20);
    let page = read(&folder, "a/report.html");
    is_whole(&page);
    assert!(page.contains("Predictions of price") && page.contains("Residuals") && page.contains("<dd>± "));
}

#[test]
fn several_runs_are_compared() {
    let folder = folder();
    for (run, rate) in [("runs/a", "0.05"), ("runs/b", "0.001")] {
        succeed(&folder, &format!("train run.toml --run {run} --quiet --learning-rate {rate}"));
    }
    let shown = succeed(&folder, "report runs/a runs/b");
    assert!(shown.contains("validation loss") && shown.contains("report in `comparison.html`"), "{shown}");
    let page = read(&folder, "comparison.html");
    is_whole(&page);
    for part in ["optimizer.learning_rate", "0.001", "<tr class=\"best\"><th scope=\"row\">a</th>"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("training.epochs"), "only settings that differ");
    succeed(&folder, "report runs/a runs/b -o pages/two.html");
    is_whole(&read(&folder, "pages/two.html"));
    // Of runs with other data, none is called the best.
    let other = read(&folder, "run.toml").replace("table.csv", "other.csv");
    fs::copy(folder.path().join("table.csv"), folder.path().join("other.csv")).unwrap();
    fs::write(folder.path().join("other.toml"), other).unwrap();
    succeed(&folder, "train other.toml --run runs/other --quiet");
    succeed(&folder, "report runs/a runs/other -o other.html");
    let page = read(&folder, "other.html");
    assert!(!page.contains("<tr class=\"best\">") && page.contains("none is called the best, since data, loss"));
    assert!(refused(&folder, "report nowhere").contains("needs to be that of a run, but has no `results.json`"));
}

#[test]
fn a_dry_run_writes_nothing() {
    let folder = folder();
    let before = names(folder.path());
    let shown = succeed(&folder, "train run.toml --dry-run --run runs/a --csv logs/a.csv --tensorboard events");
    assert!(shown.contains("dry run: 8 epochs of 3 steps would be trained, 24 in all; nothing was written"), "{shown}");
    assert!(shown.contains("training data: 90 rows"), "{shown}");
    assert_eq!(names(folder.path()), before);
    assert!(refused(&folder, "train run.toml --dry-run --adapters nonsense").contains("nonsense"));
}

#[test]
fn a_learning_rate_is_found() {
    let folder = folder();
    let before = names(folder.path());
    let shown = succeed(&folder, "train run.toml --find-learning-rate");
    let rate: f64 =
        shown.split("start with a learning rate of ").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
    assert!((1e-4..0.31).contains(&rate), "{shown}");
    let page = read(&folder, "learning-rate.html");
    is_whole(&page);
    assert!(page.contains(&format!("Start with <b>{rate:.1e}</b>")));
    assert_eq!(names(folder.path()).len(), before.len() + 1, "nothing else is written");
    // It learns in two epochs what a hundredth of it does not.
    let loss = |rate: f64| -> f64 {
        let line = format!("train run.toml --run at-{rate} --epochs 2 --quiet --learning-rate {rate}");
        succeed(&folder, &line);
        json(&folder, &format!("at-{rate}/results.json"))["end"]["best"]["val_loss"].as_f64().unwrap()
    };
    assert!(loss(rate) < loss(rate / 100.0), "{rate}");
    assert!(run(&folder, "train run.toml --find-learning-rate --run a").status.code() == Some(2));
}

#[test]
fn good_batches_are_found() {
    let folder = folder();
    let before = names(folder.path());
    let shown = succeed(&folder, "train run.toml --find-batch --adapters cpu,cpu");
    // A quarter of the 120 rows is set aside.
    assert_eq!(
        shown.matches("the largest that was run has 90: the training data have no more rows").count(),
        2,
        "{shown}"
    );
    assert!(shown.contains("nearly as fast as any") && shown.contains("together: a batch of "), "{shown}");
    // A batch takes 3,600 bytes, and 60 for each row.
    let shown = succeed(&folder, "train run.toml --find-batch --adapters cpu --memory cpu=6kB");
    assert!(shown.contains("the largest that was run has 40: more rows need more memory than there is"), "{shown}");
    let shown = succeed(&folder, "train run.toml --find-batch --adapters cpu --memory cpu=3kB");
    assert!(shown.contains("no row fits"), "{shown}");
    assert_eq!(names(folder.path()), before, "nothing is written");
    assert_eq!(run(&folder, "train run.toml --find-batch --run a").status.code(), Some(2));
}

#[test]
fn quiet_and_verbose_hold_for_all_commands() {
    let folder = folder();
    assert_eq!(succeed(&folder, "--quiet train run.toml --epochs 1 --save a.safetensors"), "");
    let (_, said) = outputs(&folder, "train run.toml --epochs 1 --overwrite --adapters cpu,cpu --verbose");
    assert!(said.lines().any(|line| line.starts_with("debug: ")), "{said}");
    let both = run(&folder, "train -q -v");
    assert_eq!(both.status.code(), Some(2), "{}", text(&both.stderr));
    assert!(succeed(&folder, "--help").contains("Exit status: 0 success; 1 an error"));
}
