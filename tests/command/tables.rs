//! Do tables of all kinds train and predict from the command line: what `init` writes, what is read, what predictions say?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]
#![allow(
    clippy::disallowed_methods,
    reason = "a test writes to a pipe in a thread of its own, while a command reads it"
)]

use std::fs;

use tempfile::TempDir;

use crate::command::{command, outputs, outputs_of, refused, refused_of, succeed};

/// The keys of `[data]` that `init` writes for these bytes.
fn keys_of(bytes: impl AsRef<[u8]>) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("t.csv"), bytes).unwrap();
    succeed(&home, "init t.csv");
    let text = fs::read_to_string(home.path().join("run.toml")).unwrap();
    let settings: toml::Table = toml::from_str(&text).unwrap();
    let tables: Vec<&String> = settings.keys().collect();
    assert_eq!(tables, ["data", "loss", "model", "optimizer", "training"], "{text}");
    settings["data"].as_table().unwrap().keys().cloned().collect()
}

/// Whatever the columns are called, the names stay in their values and comments.
#[test]
fn names_of_columns_write_no_settings() {
    let rows: String = (0..24).map(|row| format!("{},{},{}\n", row % 7, row % 5, ["a", "b"][row % 2])).collect();
    for name in [
        "amount\n(EUR)",
        "amount\r(EUR)",
        "x\n[training]\nepochs = 0\n#",
        "x\nignore = [\"kind\"]",
        "x\u{2028}y\u{7f}\u{1b}[31m",
        "\\ \"\"\"\n'''",
        "a\ttab",
    ] {
        let head = format!("\"{0}\",\"second\nline\",\"kind\n{0}\"", name.replace('"', "\"\""));
        assert_eq!(keys_of(format!("{head}\n{rows}")), ["target", "target_kind", "train", "type"], "{name:?}");
    }
}

/// Thousands with points, as German spreadsheets write them, look like decimals.
#[test]
fn numbers_that_can_be_thousands_are_told() {
    let home = tempfile::tempdir().unwrap();
    let table = |ratio: &str| -> String {
        let row =
            |row: usize| format!("{};4.{:03};{}{ratio};{}\n", row % 5, row * 37 % 1000, row % 3, ["a", "b"][row % 2]);
        format!("n;price;ratio;kind\n{}", (0..30).map(row).collect::<String>())
    };
    let expected = "warning: `t.csv`, column price: numbers such as `4.000` are read as 4.000, but can be 4000: the other numbers do not \
                    tell which sign is the decimal one\n  help: set `decimal = \",\"` in `[data]` for 4000, or `decimal = \".\"` for 4.000\n";
    fs::write(home.path().join("t.csv"), table("")).unwrap();
    assert_eq!(outputs(&home, "init t.csv").1, expected);
    assert_eq!(outputs(&home, "train run.toml --quiet --epochs 1 --save a").1, expected);
    let settings = fs::read_to_string(home.path().join("run.toml")).unwrap();
    fs::write(home.path().join("said.toml"), settings.replace("[data]\n", "[data]\ndecimal = \",\"\n")).unwrap();
    assert_eq!(outputs(&home, "train said.toml --quiet --epochs 1 --save b").1, "");
    // Other numbers tell.
    for ratio in [",5", ".5"] {
        fs::write(home.path().join("t.csv"), table(ratio)).unwrap();
        assert_eq!(outputs(&home, "train run.toml --quiet --epochs 1 --overwrite --save a").1, "", "{ratio}");
    }
}

/// Columns that pandas leaves as text, too; but there `dtypes` shows it.
#[test]
fn names_that_are_nearly_numbers_are_told() {
    let home = tempfile::tempdir().unwrap();
    let table = |first: &str, last: &str, other: &str| {
        let row =
            |row: usize| format!("{first}{}{last};{}{other};{}\n", row % 9 + 1, row * 7 % 40, ["a", "b"][row % 2]);
        fs::write(home.path().join("t.csv"), format!("x;z;kind\n{}", (0..40).map(row).collect::<String>())).unwrap();
    };
    let warning = || {
        drop(fs::remove_file(home.path().join("run.toml")));
        outputs(&home, "init t.csv").1
    };
    for (first, last) in [("$ ", ""), ("", " %"), ("", "kg"), ("(", ")"), ("-", ",00 €")] {
        table(first, last, "");
        let needed = format!(
            "warning: `t.csv`, column x: values such as `{first}1{last}` have a unit or brackets around a number, so the column \
             does not count as numbers\n  help: write the number alone; if they are names, say so: `kinds = {{ x = \"category\" }}`\n"
        );
        assert_eq!(warning(), needed);
    }
    table("", ",5", ".5");
    let needed = "warning: `t.csv`, column x: values such as `1,5` would be numbers with the decimal sign `,`, but that of the table is \
                  `.`, so the column does not count as numbers\n";
    assert!(warning().starts_with(needed), "{}", warning());
    let row = |row: usize| {
        format!("{};{}\n", if row % 5 == 2 { "k.A.".into() } else { row.to_string() }, ["a", "b"][row % 2])
    };
    fs::write(home.path().join("t.csv"), format!("x;kind\n{}", (0..40).map(row).collect::<String>())).unwrap();
    let needed = "warning: `t.csv`, column x: values such as `k.A.` stand among numbers, so the column does not count as numbers\n";
    assert!(warning().starts_with(needed), "{}", warning());
    for (first, last) in [("A", ""), ("", "-b9-c"), ("x ", " or longer than a unit")] {
        table(first, last, "");
        assert_eq!(warning(), "", "{first} {last}");
    }
}

/// A spreadsheet may end each line with delimiters of empty columns.
#[test]
fn a_column_without_a_name_is_named_by_its_place() {
    let home = tempfile::tempdir().unwrap();
    let rows: String = (0..40).map(|row| format!("{},,{},\n", row % 7, ["a", "b"][row % 2])).collect();
    fs::write(home.path().join("t.csv"), format!("x,,,\n{rows}")).unwrap();
    assert!(succeed(&home, "init t.csv").contains("the model predicts the class in `column 2`"));
    succeed(&home, "train run.toml --quiet --epochs 1 --save a.safetensors");
}

#[test]
fn a_last_column_that_is_not_the_target_is_told() {
    let home = tempfile::tempdir().unwrap();
    let row = |row: usize| format!("{},{},remark number {row}\n", row % 7, ["a", "b"][row % 2]);
    fs::write(home.path().join("t.csv"), format!("x,sort,notes\n{}", (0..30).map(row).collect::<String>())).unwrap();
    let seen = succeed(&home, "init t.csv");
    assert!(seen.contains("`notes`, the last column, is not the target: it holds free text"), "{seen}");
    assert!(!succeed(&home, "init t.csv --target sort -o again.toml").contains("the last column"));
}

/// A table of `x`, `id` and `kind`, a model that was trained on it, and the settings' text.
fn trained(home: &TempDir) -> String {
    let row = |row: u32| {
        let (x, kind) = (row * 37 % 100, ["a", "b"][row as usize / 3 % 2]);
        format!("{},{}.{x:02},{}\n", 1 + row * 7 % 60, row % 5, kind)
    };
    let text: String = (0..60).map(row).collect();
    fs::write(home.path().join("t.csv"), format!("Unnamed: 0,x,kind\n{text}")).unwrap();
    let seen = succeed(home, "init t.csv");
    assert!(
        seen.split_whitespace().collect::<Vec<_>>().join(" ").contains("Unnamed: 0 ids 1 to 60 left out"),
        "{seen}"
    );
    succeed(home, "train run.toml --quiet --epochs 1 --save model.safetensors");
    fs::read_to_string(home.path().join("run.toml")).unwrap()
}

#[test]
fn init_leaves_out_what_names_rows() {
    let home = tempfile::tempdir().unwrap();
    let settings = trained(&home);
    assert!(settings.contains("\nignore = [\"Unnamed: 0\"]"), "{settings}");
    let data = |line: &str| {
        succeed(&home, &format!("init t.csv -o {line}"));
        let text = fs::read_to_string(home.path().join(line.split(' ').next().unwrap())).unwrap();
        toml::from_str::<toml::Table>(&text).unwrap()["data"].as_table().unwrap().clone()
    };
    let kept = data("kept.toml --keep 0");
    assert_eq!((kept.get("ignore"), kept["kinds"]["Unnamed: 0"].as_str()), (None, Some("number")));
    let ignored = data("ignored.toml --ignore x --keep 0 --target kind");
    assert_eq!(ignored["ignore"].as_array().unwrap()[0].as_str(), Some("x"));
    for (line, needed) in [
        ("--ignore y", "`t.csv`, `--ignore` needs a column of the table, but is `y`"),
        ("--ignore kind", "`t.csv`, `--ignore` names `kind`, which is the target or to be kept"),
    ] {
        let error = refused(&home, &format!("init t.csv -o other.toml {line}"));
        assert!(error.contains(needed), "{error}");
    }
}

#[test]
fn numbers_of_another_unit_are_told() {
    let home = tempfile::tempdir().unwrap();
    trained(&home);
    fs::write(home.path().join("grams.csv"), "x\n1500\n2500\n1\n").unwrap();
    let (_, warnings) = outputs(&home, "predict model.safetensors grams.csv");
    let needed = "`grams.csv`, column `x`: 2 of 3 values are far from those of the training rows (0 to 4.";
    assert!(warnings.contains(needed), "{warnings}");
    assert!(warnings.contains(" standard deviations; is the decimal sign or the unit another?"), "{warnings}");
    fs::write(home.path().join("below.csv"), "x\n-1\n-0.5\n-2\n").unwrap();
    let (_, warnings) = outputs(&home, "predict model.safetensors below.csv");
    assert!(warnings.contains("column `x`: all 3 values are outside of those of the training rows"), "{warnings}");
    let (_, warnings) = outputs(&home, "predict model.safetensors t.csv");
    assert!(!warnings.contains("training rows"), "{warnings}");
}

/// Whole numbers that an `Embedding` reads stay whole.
#[test]
fn an_embedding_gets_whole_numbers() {
    let home = tempfile::tempdir().unwrap();
    let text: String = (0..40).map(|row| format!("{},{},{}\n", row % 7, row * 3 % 5, ["a", "b"][row % 2])).collect();
    fs::write(home.path().join("t.csv"), format!("shop,item,kind\n{text}")).unwrap();
    let settings = |data: &str, layers: &str| {
        format!(
            "[data]\ntype = \"csv\"\ntrain = \"t.csv\"\n{data}\n[model]\nlayers = [{layers}]\n\
             [loss]\ntype = \"SparseCategoricalCrossentropy\"\n[training]\nepochs = 1\nvalidation = \"none\"\n"
        )
    };
    let layers = "{ type = \"Embedding\", input_dim = 7, output_dim = 3 }, { type = \"Flatten\" }, { type = \"Dense\", units = 2 }";
    let target = "target = \"kind\"\ntarget_kind = \"classes\"";
    fs::write(home.path().join("run.toml"), settings(target, layers)).unwrap();
    succeed(&home, "train run.toml --quiet --save model.safetensors");
    assert_eq!(succeed(&home, "predict model.safetensors t.csv").lines().count(), 41);
    // A fraction is none of its rows.
    fs::write(home.path().join("t.csv"), format!("shop,item,kind\n{text}").replace("\n3,", "\n3.5,")).unwrap();
    let error = refused(&home, "train run.toml --quiet --save other.safetensors");
    assert!(error.contains("numbers of a table stay as they are by `numbers = \"unchanged\"`"), "{error}");
}

/// Prices get a loss that their few highest values don't lead; other targets, also those that can be below 0, the usual one.
#[test]
fn a_skewed_target_above_zero_gets_a_calmer_loss() {
    // Quantiles of the exponential distribution, whose skewness is 2, and those of the uniform one, whose skewness is 0.
    let part = |row: u32| (f64::from(row * 37 % 100) + 0.5) / 100.0;
    let price = |row: u32| -1000.0 * (1.0 - part(row)).ln();
    let cases: [(&dyn Fn(u32) -> f64, bool); 3] =
        [(&price, true), (&|row| price(row) - 500.0, false), (&|row| 1000.0 * part(row), false)];
    for (at, (target, is_calm)) in cases.into_iter().enumerate() {
        let home = tempfile::tempdir().unwrap();
        let rows = (0..100).map(|row| format!("{},{:.3}\n", row % 7, target(row))).collect::<String>();
        fs::write(home.path().join("t.csv"), format!("x,price\n{rows}")).unwrap();
        succeed(&home, "init t.csv");
        let text = fs::read_to_string(home.path().join("run.toml")).unwrap();
        let settings: toml::Table = text.parse().unwrap();
        let loss = settings["loss"].as_table().unwrap();
        let kind = if is_calm { "Huber" } else { "MeanSquaredError" };
        assert_eq!((loss["type"].as_str(), loss.len()), (Some(kind), 1 + usize::from(is_calm)), "case {at}: {text}");
        assert_eq!(text.contains("as with prices"), is_calm);
        if is_calm {
            let scale = settings["model"]["layers"].as_array().unwrap().last().unwrap()["scale"].as_float().unwrap();
            assert!((loss["delta"].as_float().unwrap() - scale / 2.0).abs() < 1e-9, "{text}");
            succeed(&home, "train run.toml --quiet --epochs 1 --save model.safetensors");
        }
    }
}

/// What a spreadsheet would compute is written as text; numbers stay.
#[test]
fn predictions_are_no_formulas() {
    let home = tempfile::tempdir().unwrap();
    let text: String = (0..40).map(|row| format!("{},{}\n", row % 7, ["=1+1", "-1"][row % 2])).collect();
    fs::write(home.path().join("t.csv"), format!("x,kind\n{text}")).unwrap();
    succeed(&home, "init t.csv");
    succeed(&home, "train run.toml --quiet --epochs 1 --save model.safetensors");
    let (table, warnings) = outputs(&home, "predict model.safetensors t.csv");
    assert!(warnings.contains("a `'` is written before names that a spreadsheet would compute: =1+1"), "{warnings}");
    let classes = table.lines().skip(1).map(|line| line.split(',').nth(1).unwrap());
    assert!(classes.into_iter().all(|class| ["'=1+1", "-1"].contains(&class)), "{table}");
}

/// An `.npz` file of two arrays of 64-bit integers.
fn npz(arrays: [(&str, &str, Vec<i64>); 2]) -> Vec<u8> {
    let (mut file, mut directory): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
    let count = u16::try_from(arrays.len()).unwrap();
    for (name, shape, values) in arrays {
        let head = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut array = b"\x93NUMPY\x01\0".to_vec();
        array.extend(u16::try_from(head.len()).unwrap().to_le_bytes());
        array.extend(head.bytes().chain(values.iter().flat_map(|value| value.to_le_bytes())));
        let mut crc = flate2::Crc::new();
        crc.update(&array);
        let (name, len) = (format!("{name}.npy"), u32::try_from(array.len()).unwrap().to_le_bytes());
        let place = u32::try_from(file.len()).unwrap().to_le_bytes();
        let common: Vec<u8> = [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &crc.sum().to_le_bytes(), &len, &len]
            .concat()
            .into_iter()
            .chain(u16::try_from(name.len()).unwrap().to_le_bytes())
            .chain([0, 0])
            .collect();
        file.extend(b"PK\x03\x04".iter().chain(&common).chain(name.as_bytes()).chain(&array));
        directory
            .extend(b"PK\x01\x02\x14\0".iter().chain(&common).chain(&[0; 10]).chain(&place).chain(name.as_bytes()));
    }
    let (size, place) = (u32::try_from(directory.len()).unwrap(), u32::try_from(file.len()).unwrap());
    file.extend(directory);
    file.extend(b"PK\x05\x06\0\0\0\0".iter().chain(&count.to_le_bytes()).chain(&count.to_le_bytes()));
    file.extend(size.to_le_bytes().iter().chain(&place.to_le_bytes()).chain(&[0, 0]));
    file
}

#[test]
fn labels_below_zero_are_named() {
    let home = tempfile::tempdir().unwrap();
    let labels = (0..30).map(|row| [-1, 1][row % 2]).collect();
    fs::write(home.path().join("t.npz"), npz([("x", "(30, 2)", (0..60).collect()), ("y", "(30,)", labels)])).unwrap();
    let error = refused(&home, "init t.npz");
    assert!(error.contains("but row 0 has label -1\n  help: classes are whole numbers from 0 on"), "{error}");
}

/// Pipes can be read once, so what reads several times refuses them, without waiting for a writer.
#[cfg(unix)]
#[test]
fn pipes_are_read_once_or_refused() {
    use std::process::{Command, Stdio};

    let home = tempfile::tempdir().unwrap();
    trained(&home);
    let needed = succeed(&home, "predict model.safetensors t.csv");
    let path = |name: &str| home.path().join(name);
    assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    let writer = std::thread::spawn({
        let (from, to) = (path("t.csv"), path("pipe"));
        move || fs::copy(from, to).map(|_| ())
    });
    assert_eq!(succeed(&home, "predict model.safetensors pipe"), needed);
    writer.join().unwrap().unwrap();
    let piped = |line: &str| {
        let mut command = command(&home, line);
        command.stdin(Stdio::from(
            Command::new("cat").arg(path("t.csv")).stdout(Stdio::piped()).spawn().unwrap().stdout.unwrap(),
        ));
        command
    };
    assert_eq!(outputs_of(&mut piped("predict model.safetensors /dev/stdin")).0, needed);
    assert!(outputs_of(&mut piped("evaluate model.safetensors /dev/stdin")).0.starts_with("60 rows: "));
    let refusal = "needs to be a file, since it is read several times, but is a pipe or a device";
    assert!(refused_of(&mut piped("init /dev/stdin -o other.toml")).contains(refusal));
    fs::create_dir_all(path("texts")).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(path("texts/a.txt"))
            .arg(path("a.npz"))
            .arg(path("a.npy"))
            .status()
            .unwrap()
            .success()
    );
    let settings = fs::read_to_string(path("run.toml")).unwrap().replace("\"t.csv\"", "\"pipe\"");
    fs::write(path("piped.toml"), settings).unwrap();
    for line in [
        "init pipe -o other.toml",
        "init texts -o other.toml",
        "init a.npz -o other.toml",
        "train piped.toml -q --save o.safetensors",
    ] {
        assert!(refused(&home, line).contains(refusal), "{line}");
    }
    let error = refused(&home, "predict model.safetensors /dev/zero");
    assert!(
        error.contains("`/dev/zero` needs at most 268435456 bytes from a pipe or a device, but has more"),
        "{error}"
    );
}
