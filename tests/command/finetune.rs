//! Does `manyhands finetune` teach language models of others, in runs as `train` has them?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use safetensors::SafeTensors;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::{command, outputs, pause, refused, succeed, text};
use crate::text_models::fetched;

/// A small random model of `scripts/text_golden.py`.
fn model(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/tests/golden").join(name);
    path.canonicalize().unwrap().display().to_string()
}

/// A folder with conversations in which each answer is the question again.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let line = |number: usize| {
        let word = ["red", "green", "blue", "white"][number % 4];
        json!({"messages": [{"role": "user", "content": word}, {"role": "assistant", "content": word}]}).to_string()
    };
    let lines: Vec<String> = (0..24).map(line).collect();
    fs::write(folder.path().join("chat.jsonl"), lines.join("\n")).unwrap();
    folder
}

fn losses(run: &Path, name: &str) -> Vec<f64> {
    let log = fs::read_to_string(run.join("log.jsonl")).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["kind"] == "epoch").filter_map(|line| line[name].as_f64()).collect()
}

/// Names and values of an adapter's matrices.
fn adapter(run: &Path) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let bytes = fs::read(run.join("adapter/adapter_model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut all: Vec<_> =
        tensors.iter().map(|(name, view)| (name.to_owned(), view.shape().to_vec(), view.data().to_vec())).collect();
    all.sort();
    all
}

#[test]
fn a_run_gives_an_adapter_and_goes_on() {
    let folder = folder();
    let (run, other) = (folder.path().join("run"), folder.path().join("other"));
    let line =
        format!("finetune {} chat.jsonl --batch-size 4 --learning-rate 0.01 --rank 2 --alpha 4", model("smollm"));
    let (shown, warned) = outputs(&folder, &format!("{line} --run run --epochs 4 --sample red"));
    assert!(shown.contains("texts: 24 in all; 22 rows of ") && shown.contains("2 rows held out"), "{shown}");
    assert!(shown.contains("assistant⏎«") && shown.contains("<|im_end|>»"), "{shown}");
    assert!(shown.contains("on rows that were held out: perplexity "), "{shown}");
    assert!(shown.contains("bits a byte") && shown.ends_with("adapter in `run/adapter`\n"), "{shown}");
    assert!(!warned.contains("warning"), "{warned}");
    let before = losses(&run, "loss");
    assert!(before.len() == 4 && before[3] < 0.9 * before[0], "{before:?}");
    let config: Value = serde_json::from_slice(&fs::read(run.join("adapter/adapter_config.json")).unwrap()).unwrap();
    assert_eq!((&config["r"], &config["lora_alpha"], &config["bias"]), (&json!(2), &json!(4.0), &json!("none")));
    // Seven products in each of two blocks, two matrices each.
    assert_eq!(adapter(&run).len(), 28);
    // The model answers after each epoch.
    let samples = |run: &Path| -> Vec<String> {
        let results: Value = serde_json::from_slice(&fs::read(run.join("results.json")).unwrap()).unwrap();
        let samples = results["samples"].as_array().cloned().unwrap_or_default();
        samples.iter().map(|sample| sample["text"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(samples(&run).len(), 4);
    assert!((1..=4).all(|epoch| shown.contains(&format!("sample after epoch {epoch}: "))), "{shown}");
    assert!(fs::read_to_string(run.join("report.html")).unwrap().contains("<h2>Samples</h2>"));

    // Half of the epochs, then the rest: the same bits.
    succeed(&folder, &format!("{line} --run other --epochs 4 --sample red"));
    assert_eq!(adapter(&run), adapter(&other));
    let page = succeed(&folder, "finetune --resume --run other --epochs 6");
    assert!(samples(&other).len() == 6 && samples(&other)[..4] == samples(&run), "{:?}", samples(&other));
    assert!(page.contains("adapter in `other/adapter`"), "{page}");
    assert_eq!(losses(&other, "loss").len(), 6);
    // The rate of transformers, whose schedule then has the steps of six epochs: 6 each, of which 2 in all are warm-up.
    let rate = 0.005 * (1.0 + (std::f64::consts::PI * 28.0 / 34.0).cos());
    let rates = losses(&other, "learning_rate");
    assert!(rates[3].abs() < 1e-9 && (rates[4] - rate).abs() < 1e-9 && rates[5].abs() < 1e-9, "{rates:?}");
    let settings = fs::read_to_string(other.join("run.toml")).unwrap();
    assert!(
        settings.contains("decay_steps = 34\nwarmup_steps = 2\n") && settings.contains("epochs = 6\n"),
        "{settings}"
    );
    assert_eq!(losses(&other, "loss")[..4], before);
    assert!(refused(&folder, &format!("{line} --run run")).contains("holds `run.toml` of an earlier run"));
    assert!(refused(&folder, "finetune --resume --run none").contains("`none/run.toml`"));
}

#[test]
fn a_run_and_its_adapter_write_with_the_model_that_they_name() {
    let folder = folder();
    fs::create_dir(folder.path().join("base")).unwrap();
    for entry in fs::read_dir(model("smollm")).unwrap() {
        let file = entry.unwrap();
        fs::copy(file.path(), folder.path().join("base").join(file.file_name())).unwrap();
    }
    succeed(
        &folder,
        "finetune base chat.jsonl --batch-size 4 --learning-rate 0.01 --rank 2 --run runs/chat --epochs 1",
    );
    let written =
        |line: &str| succeed(&folder, &format!("generate {line} Hello --max-tokens 4 --temperature 0 --quiet"));
    let wanted = written("base --adapter runs/chat/adapter");
    for model in ["runs/chat", "runs/chat/adapter", "runs/chat/last.safetensors"] {
        assert_eq!(written(model), wanted, "{model}");
    }
    // An adapter beside a model, or within its folder, is none that was asked for.
    let plain = written("base");
    assert_ne!(plain, wanted);
    fs::create_dir(folder.path().join("base/adapter")).unwrap();
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        fs::copy(folder.path().join("runs/chat/adapter").join(name), folder.path().join("base/adapter").join(name))
            .unwrap();
    }
    assert_eq!(written("base"), plain);
    fs::rename(folder.path().join("base"), folder.path().join("moved")).unwrap();
    let refusal = refused(&folder, "generate runs/chat Hello");
    assert!(refusal.contains("needs the model that it was trained for, `base`, but it is not here"), "{refusal}");
    assert!(refusal.contains("--adapter runs/chat/adapter"), "{refusal}");
}

#[test]
fn texts_share_rows_if_that_is_asked_for() {
    let folder = folder();
    let word = |number: usize| ["red ", "green ", "blue ", "white "][number % 4];
    let lines: Vec<String> = (0..24).map(|number| json!({"text": word(number).repeat(4)}).to_string()).collect();
    fs::write(folder.path().join("short.jsonl"), lines.join("\n")).unwrap();
    let texts = "short.jsonl --batch-size 2 --learning-rate 0.01 --length 64 --join-texts";
    let shown = succeed(&folder, &format!("finetune {} {texts} --run run --epochs 2", model("smollm")));
    assert!(shown.contains("texts: 24 in all; 9 rows of 64 tokens to train on, "), "{shown}");
    let page = succeed(&folder, "finetune --resume --run run --epochs 3");
    assert!(page.contains("adapter in `run/adapter`"), "{page}");
    let losses = losses(&folder.path().join("run"), "loss");
    assert!(losses.len() == 3 && losses[2] < losses[0], "{losses:?}");
    let refusal = refused(&folder, &format!("finetune {} {texts} --run other", model("gpt2")));
    assert!(refusal.contains("can't tell several texts of a row apart"), "{refusal}");
    assert!(!folder.path().join("other").exists());
}

/// The template leaves out thoughts of earlier answers, as that of Qwen 3.
#[test]
fn each_answer_has_a_row_where_the_template_rewrites_earlier_ones() {
    let folder = folder();
    let (from, to) = (PathBuf::from(model("smollm")), folder.path().join("thinking"));
    fs::create_dir(&to).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let golden: Value = serde_json::from_slice(&fs::read(from.with_file_name("chats.json")).unwrap()).unwrap();
    fs::write(to.join("chat_template.jinja"), golden["answers"][0]["template"].as_str().unwrap()).unwrap();
    let said = |role: &str, content: &str| json!({"role": role, "content": content});
    let turns = |turns: &[&str]| -> Vec<Value> {
        turns.iter().flat_map(|word| [said("user", word), said("assistant", word)]).collect()
    };
    let lines: Vec<String> = [&["red", "green", "blue"][..], &["white", "red"], &["green"], &["blue"]]
        .map(|words| json!({"messages": turns(words)}).to_string())
        .to_vec();
    fs::write(folder.path().join("turns.jsonl"), lines.join("\n")).unwrap();
    let line = "finetune thinking turns.jsonl --run run --validation 0 --batch-size 2 --epochs 1";
    let shown = succeed(&folder, line);
    assert!(shown.contains("texts: 4 in all; 7 rows of ") && shown.contains("; 0 rows held out"), "{shown}");
    assert!(shown.contains("\n2 conversations got a row for each answer: "), "{shown}");
    assert!(shown.contains("assistant⏎«<think>⏎⏎</think>⏎⏎red<|im_end|>»"), "{shown}");
    fs::write(folder.path().join("one.jsonl"), &lines[0]).unwrap();
    let shown = succeed(&folder, "finetune thinking one.jsonl --validation 0 --dry-run");
    assert!(shown.contains("\n1 conversation got a row for each answer: "), "{shown}");
    let resumed = succeed(&folder, "finetune --resume --run run --epochs 2");
    assert!(resumed.contains("adapter in `run/adapter`") && losses(&folder.path().join("run"), "loss").len() == 2);
}

#[test]
fn a_killed_run_gives_the_adapter_of_one_that_nobody_killed() {
    let folder = folder();
    let line =
        format!("finetune {} chat.jsonl --batch-size 4 --epochs 8 --dropout 0.2 --adapters cpu", model("smollm"));
    succeed(&folder, &format!("{line} --run whole"));
    let run = folder.path().join("killed");
    let epochs = || if run.join("log.jsonl").exists() { losses(&run, "loss").len() } else { 0 };
    let begin = |line: &str| command(&folder, line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut child = begin(&format!("{line} --run killed"));
    // The first time before a checkpoint.
    for seen in [0, 1, 3, 6] {
        while seen == 0 && !run.join("run.toml").exists() {
            pause(2);
        }
        while epochs() < seen && child.try_wait().unwrap().is_none() {
            pause(5);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        child = begin("finetune --resume --run killed");
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(adapter(&run), adapter(&folder.path().join("whole")));
    assert_eq!(losses(&run, "loss"), losses(&folder.path().join("whole"), "loss"));
}

/// A table of texts, each of which holds one of two words, and its class.
fn table(folder: &TempDir, name: &str) {
    let row = |number: usize| {
        format!("\"the {} was number {number}, again.\",{}", ["cat", "mat"][number % 2], ["purrs", "lies"][number % 2])
    };
    let rows: Vec<String> = (0..48).map(row).collect();
    fs::write(folder.path().join(name), format!("said,about\n{}\n", rows.join("\n"))).unwrap();
}

#[test]
fn classes_of_texts_are_learned_and_told() {
    let folder = folder();
    table(&folder, "texts.csv");
    let line =
        format!("finetune {} texts.csv --batch-size 4 --learning-rate 0.01 --rank 2 --adapters cpu", model("bert"));
    let shown = succeed(&folder, &format!("{line} --run run --epochs 8"));
    assert!(shown.contains("texts: 48, of ") && shown.contains("classes: lies, purrs"), "{shown}");
    assert!(shown.contains("predict with `manyhands predict run/best.safetensors DATA`"), "{shown}");
    let evaluated: Value = serde_json::from_str(&succeed(&folder, "evaluate run texts.csv --json")).unwrap();
    assert_eq!(evaluated["accuracy"], json!(1.0));
    // Raw texts, without classes: the model file divides them.
    fs::write(
        folder.path().join("new.csv"),
        "said\n\"The MÁT was number 2, again.\"\n\"the  cat was number 9, again.\"\n",
    )
    .unwrap();
    let told = succeed(&folder, "predict run new.csv");
    let classes: Vec<&str> = told.lines().skip(1).filter_map(|line| line.split(',').nth(1)).collect();
    assert_eq!(classes, ["lies", "purrs"], "{told}");

    succeed(&folder, "finetune --resume --run run --epochs 9");
    assert_eq!(losses(&folder.path().join("run"), "loss").len(), 9);
    assert!(!folder.path().join("run/adapter").exists());

    for (rest, problem) in [
        (format!("{} texts.csv --sample the", model("bert")), "needs a model that writes"),
        (format!("{} texts.csv --text none", model("bert")), "`--text`"),
        (format!("{} texts.csv --length 65", model("bert")), "`--length` needs to be at most 64"),
        (format!("{} texts.csv", model("llama")), "a table, needs a model that tells classes"),
        (format!("{} chat.jsonl --target about", model("llama")), "`--target` needs a model that tells classes"),
    ] {
        let refusal = refused(&folder, &format!("finetune {rest}"));
        assert!(refusal.contains(problem) && refusal.contains("help: "), "{refusal}");
    }
}

/// transformers lowers letters by `tokenizer_config.json`, if the class is `BertTokenizer`.
#[test]
fn letters_that_transformers_takes_otherwise_are_refused() {
    let folder = folder();
    table(&folder, "texts.csv");
    let (from, to) = (PathBuf::from(model("bert")), folder.path().join("cased"));
    fs::create_dir(&to).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let line = "finetune cased texts.csv --dry-run --adapters cpu";
    let write = |config: Value| fs::write(to.join("tokenizer_config.json"), config.to_string()).unwrap();
    let same = [json!({"tokenizer_class": "BertTokenizer"}), json!({"strip_accents": true}), json!({})];
    for config in same {
        write(config);
        assert!(succeed(&folder, line).contains("texts: 48, of "));
    }
    for config in [json!({"tokenizer_class": "BertTokenizer", "do_lower_case": false}), json!({"strip_accents": false})]
    {
        write(config);
        let refusal = refused(&folder, line);
        let problem = "treats capital letters or accents otherwise than `tokenizer_config.json`";
        assert!(refusal.contains(problem), "{refusal}");
    }
    write(json!({"tokenizer_class": "TokenizersBackend", "do_lower_case": false}));
    assert!(succeed(&folder, line).contains("texts: 48, of "));
}

/// Sentences that differ in one noun alone. The nouns of both tables are others, so whoever only counts words is right in half of the rows.
#[test]
#[ignore = "fetches 175 MB"]
fn minilm_knows_words_that_no_row_had() {
    let minilm = fetched().join("minilm");
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, animals: &str, vehicles: &str| {
        let mut rows = "said,about\n".to_owned();
        for (class, nouns) in [("animal", animals), ("vehicle", vehicles)] {
            for noun in nouns.split(' ') {
                for (before, after) in
                    [("We saw a", "near the station"), ("The", "was old"), ("There is a", "behind the house")]
                {
                    rows += &format!("{before} {noun} {after}.,{class}\n");
                }
            }
        }
        fs::write(folder.path().join(name), rows).unwrap();
    };
    write("train.csv", "dog cat cow rabbit sparrow lion", "car bus train bicycle truck ship");
    write("new.csv", "horse pig eagle goat tiger mouse", "taxi tram motorcycle van ferry airplane");
    let line = "train.csv --run run --epochs 6 --batch-size 8 --adapters cpu --quiet";
    succeed(&folder, &format!("finetune {} {line}", minilm.display()));
    let evaluated: Value = serde_json::from_str(&succeed(&folder, "evaluate run new.csv --json")).unwrap();
    assert!(evaluated["accuracy"].as_f64().unwrap() > 0.9, "{evaluated}");
}

#[test]
fn splits_and_gguf_files_change_nothing() {
    let folder = folder();
    let texts = "chat.jsonl --batch-size 5 --epochs 2 --learning-rate 0.01 --validation 0 --quiet";
    let train = |model: &str, run: &str, adapters: &str| -> (PathBuf, Vec<f64>) {
        let (_, told) = outputs(&folder, &format!("finetune {model} {texts} --run {run} --adapters {adapters}"));
        assert!(!told.contains("is small for"), "rows of many tokens keep adapters busy: {told}");
        let run = folder.path().join(run);
        let losses = losses(&run, "loss");
        (run, losses)
    };
    for name in ["llama", "qwen3"] {
        let (_, one) = train(&model(name), &format!("{name}-1"), "cpu");
        for (model, run, adapters) in [(model(name), "2", "cpu,cpu,cpu"), (model(&format!("{name}.gguf")), "3", "cpu")]
        {
            let (_, other) = train(&model, &format!("{name}-{run}"), adapters);
            assert!(
                one.len() == 2 && other.iter().zip(&one).all(|(a, b)| (a / b - 1.0).abs() < 1e-5),
                "{one:?} {other:?}"
            );
        }
    }
}

/// Blocks of a file that stay packed train to the bits of their floats; a resumed run keeps them.
#[test]
fn weights_stay_packed() {
    let folder = folder();
    let texts = "chat.jsonl --batch-size 4 --learning-rate 0.01 --rank 2 --adapters cpu";
    let train = |flags: &str| succeed(&folder, &format!("finetune {} {texts} {flags}", model("packed.gguf")));
    let [floats, packed] = ["floats", "packed"].map(|run| folder.path().join(run));
    let shown = train("--run floats --epochs 3");
    assert!(
        shown.contains("90,752 bytes of this memory are the model's weights; `--packed 8` keeps them in "),
        "{shown}"
    );
    let shown = train("--run packed --epochs 3 --packed as-file");
    assert!(
        shown.contains(" of this memory are the model's weights, packed; as floats they would be 90,752 bytes"),
        "{shown}"
    );
    assert!(fs::read_to_string(packed.join("run.toml")).unwrap().contains("packed = \"as-file\""));
    let bytes = |run: &Path| fs::metadata(run.join("last.safetensors")).unwrap().len();
    assert!(bytes(&floats) > bytes(&packed) + 60_000, "{} {}", bytes(&floats), bytes(&packed));
    let same = || (losses(&packed, "loss"), adapter(&packed)) == (losses(&floats, "loss"), adapter(&floats));
    assert!(same());
    for run in ["floats", "packed"] {
        succeed(&folder, &format!("finetune --resume --run {run} --epochs 4"));
    }
    assert!(same() && losses(&packed, "loss").len() == 4);

    let none = refused(&folder, &format!("finetune {} {texts} --packed as-file", model("smollm")));
    assert!(none.contains("needs weights in Q8_0, Q4_0 or Q4_1 to keep them as they are, but has none"), "{none}");
    // Floats do not fit; the help says what does.
    let limited = format!("finetune {} {texts} --memory cpu=80kB --run limited", model("packed.gguf"));
    let short = refused(&folder, &limited);
    assert!(short.contains("`--packed 8`") && !folder.path().join("limited").exists(), "{short}");
    assert!(short.contains("`--recompute`") && short.contains("`--stages`"), "{short}");
}

/// What is computed again, and layers in stages, give the adapter of a plain run: to its bits, and up to rounding.
#[test]
fn options_that_save_memory_change_nothing() {
    let folder = folder();
    let train = |run: &str, flags: &str| {
        let line = "chat.jsonl --batch-size 4 --epochs 2 --learning-rate 0.01 --rank 2";
        let (_, told) = outputs(&folder, &format!("finetune {} {line} --run {run} {flags}", model("llama")));
        assert!(!told.contains("is small for"), "{told}");
        folder.path().join(run)
    };
    let plain = train("plain", "--adapters cpu");
    let again = train("again", "--adapters cpu --recompute");
    assert_eq!((losses(&plain, "loss"), adapter(&plain)), (losses(&again, "loss"), adapter(&again)));
    let staged = train("staged", "--adapters cpu,cpu --recompute --stages");
    let settings = fs::read_to_string(staged.join("run.toml")).unwrap();
    assert!(settings.contains("recompute = true") && settings.contains("placement = \"auto\""), "{settings}");
    let pairs = losses(&plain, "loss").into_iter().zip(losses(&staged, "loss"));
    pairs.for_each(|(one, other)| assert!((one / other - 1.0).abs() < 1e-5, "{one} {other}"));
}

/// Factors of products are rounded to 11 bits: the losses are close, and not the same.
#[test]
fn products_may_round_their_factors() {
    let folder = folder();
    let train = |run: &str, flags: &str| {
        let line = "chat.jsonl --batch-size 4 --epochs 2 --learning-rate 0.01 --rank 2 --adapters cpu";
        succeed(&folder, &format!("finetune {} {line} --run {run} {flags}", model("llama")));
        losses(&folder.path().join(run), "loss")
    };
    let (plain, mixed) = (train("plain", ""), train("mixed", "--mixed-float16"));
    let settings = fs::read_to_string(folder.path().join("mixed/run.toml")).unwrap();
    assert!(settings.contains("precision = \"mixed_float16\""), "{settings}");
    assert_ne!(plain, mixed);
    let pairs = plain.iter().zip(&mixed);
    pairs.for_each(|(one, other)| assert!((one / other - 1.0).abs() < 1e-2, "{plain:?} {mixed:?}"));
}

#[test]
fn plain_texts_are_cut_into_rows() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("texts")).unwrap();
    for name in ["a.txt", "b.txt", "notes.md"] {
        fs::write(folder.path().join("texts").join(name), "to be or not to be ".repeat(20)).unwrap();
    }
    assert!(refused(&folder, "finetune missing texts --length 32 --dry-run").contains("missing"));
    let shown = succeed(&folder, &format!("finetune {} texts --length 16 --dry-run --validation 0.25", model("qwen2")));
    assert!(shown.contains("rows of 16 tokens to train on") && shown.contains("dry run: 3 epochs"), "{shown}");
    assert!(!folder.path().join("runs").exists());
}

#[test]
fn what_is_wrong_is_named_and_leaves_nothing_behind() {
    let folder = folder();
    let smollm = model("smollm");
    let refused_with = |texts: &str, flags: &str| {
        fs::write(folder.path().join("bad.jsonl"), texts).unwrap();
        let refused = refused(&folder, &format!("finetune {smollm} bad.jsonl {flags}"));
        assert!(!folder.path().join("runs").exists() && !folder.path().join("run").exists(), "{refused}");
        refused
    };
    assert!(refused_with("", "").contains("needs at least one row, but has none"));
    let broken = "{\"text\": \"red\"}\n{\"text\": \"gre";
    assert!(refused_with(broken, "--run run").contains("line 2 of `bad.jsonl` needs to be JSON"));
    let long = format!("{{\"text\": \"{}\"}}", "red ".repeat(400));
    let said = refused_with(&long, "--length 32");
    assert!(said.contains("needs a text of at most 32 tokens, but all have more, the longest "), "{said}");
    let said = refused_with("{\"text\": \"red red\"}", "");
    assert!(said.contains("needs two texts, one to train on and one to hold out, but has 1\n"), "{said}");
    assert!(said.contains("`--validation 0`"), "{said}");
    let said = refused_with("{\"text\": \"\"}\n{\"text\": \"\"}", "");
    assert!(said.contains("needs a token to learn, but its texts have none"), "{said}");
    let said = refused_with("{\"text\": \"red\"}", "--length 5002");
    assert!(said.contains("`--length` needs to be at most 128, the tokens that the model reads at once"), "{said}");
    let layers = refused_with("{\"text\": \"red red\"}\n{\"text\": \"green\"}", "--layers attention.query,gate");
    assert!(layers.contains("names `gate`, which can't have factors in this model"), "{layers}");
    assert!(refused_with("{\"text\": \"red\"}", "--validation 1").contains("needs a part from 0 to below 1"));
    let said = refused_with("{\"text\": \"red\"}\n{\"text\": \"green\"}", "--learning-rate=-1");
    assert!(said.contains("`--learning-rate` needs to be a number of at least 0, but is -1"), "{said}");
    assert!(said.contains("leave it out to take 2e-4"), "{said}");

    // One text of several is too long: the others are trained, and it is told.
    let texts = format!("{long}\n{}", ["{\"text\": \"red red red\"}"; 8].join("\n"));
    fs::write(folder.path().join("mixed.jsonl"), texts).unwrap();
    let (_, warned) = outputs(&folder, &format!("finetune {smollm} mixed.jsonl --length 32 --dry-run --quiet"));
    assert!(warned.contains("1 text is left out, longer than 32 tokens: the first is line 1"), "{warned}");
    assert!(warned.contains("help: `--length 128`, the most that the model reads, takes more of them"), "{warned}");
    let (_, warned) = outputs(&folder, &format!("finetune {smollm} mixed.jsonl --dry-run"));
    assert!(warned.contains("longer than 128 tokens") && warned.contains("reads at most 128 tokens"), "{warned}");
    let texts = ["{\"text\": \"red red\"}"; 8].join("\n")
        + "\n{\"text\": \"red red red red red red red red\"}\n{\"text\": \"\"}";
    fs::write(folder.path().join("mixed.jsonl"), texts).unwrap();
    let (_, warned) = outputs(&folder, &format!("finetune {smollm} mixed.jsonl --length 10 --dry-run"));
    assert!(warned.contains("longer than 10 tokens") && warned.contains("` takes them all"), "{warned}");
    assert!(warned.contains("1 text is left out, with nothing to learn: the first is line 10"), "{warned}");

    let vectors = refused(&folder, &format!("finetune {} chat.jsonl", model("bert")));
    assert!(vectors.contains("`chat.jsonl` needs to be a table of texts and their classes"), "{vectors}");
    fs::write(folder.path().join("plain.jsonl"), ["{\"text\": \"red red\"}"; 8].join("\n")).unwrap();
    let joined = refused(&folder, &format!("finetune {} plain.jsonl --layers attention.query", model("gpt2")));
    assert!(
        joined.contains("names `attention.query`, which GPT-2 joins") && joined.contains("in `c_attn`"),
        "{joined}"
    );
    let none = command(&folder, "finetune").output().unwrap();
    assert!(none.status.code() == Some(2) && text(&none.stderr).contains("<MODEL>"), "{}", text(&none.stderr));
}
