//! What is said of data before anything runs.

use manyhands::data::ColumnKind;

use super::*;

fn described(folder: &TempDir, text: &str, settings: &CsvSettings) -> String {
    let table = csv::open(write(folder, "t.csv", text), settings).unwrap();
    let text = Description::of("training data", &table.dataset).unwrap().to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text.replace(&format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR), "")
}

#[test]
fn tables_are_described_by_columns_and_classes() {
    let folder = tempfile::tempdir().unwrap();
    let text = "id,a,b,kind\n1,0.5,1,cat\n2,1,1,dog\n3,1,-1,cat\n";
    let settings = CsvSettings { ignore: vec![Column::Name("id".into())], ..by_name("kind", TargetKind::Classes) };
    assert_eq!(
        described(&folder, text, &settings),
        "training data: 3 rows of 2 input columns: a, b\n  2 classes of `kind`: cat (2), dog (1)\n  1 column is not used: id"
    );
    let values = by_name("b", TargetKind::Values);
    assert_eq!(described(&folder, "a,b\n1,2\n", &values), "training data: 1 row of 1 input column: a\n  to predict: b");
    let rows: String = (0..30).map(|class| format!("{},c{class}\n", class % 2).repeat(class + 1)).collect();
    assert_eq!(
        described(&folder, &format!("a,kind\n{rows}"), &by_name("kind", TargetKind::Classes)),
        "training data: 465 rows of 1 input column: a\n  30 classes of `kind`: most rows in c29 (30), fewest in c0 (1)"
    );
}

#[test]
fn inputs_that_want_scaling_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let kind = by_name("kind", TargetKind::Classes);
    let note = |text: &str| described(&folder, text, &kind).replace("\n    ", " ");
    let wine = note("hue,proline,kind\n1.04,1065,a\n1.05,1050,b\n");
    assert!(wine.ends_with("\n  inputs learn best at about -1 to 1: scale what is larger, proline"), "{wine}");
    let small = note("a,b,kind\n0.001,1,a\n0.002,3,b\n");
    assert!(small.ends_with("scale what is much smaller than the rest, a"), "{small}");
    // Iris as it comes.
    let iris = note("a,b,c,d,kind\n5.1,3.5,1.4,0.2,a\n7.9,3.8,6.4,2.0,b\n");
    assert!(!iris.contains("scale"), "{iris}");
}

#[test]
fn quotes_that_are_not_closed_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let open = |text: &str, target: &str| {
        let settings =
            CsvSettings { ignore: vec![Column::Name("name".into())], ..by_name(target, TargetKind::Classes) };
        csv::open(write(&folder, "t.csv", text), &settings)
    };
    for text in ["a,kind,name\n1,x,p\n2,y,\"q\n3,x,r\n4,x,s\n", "a,kind,name\n1,x,p\n\n2,y,\"q"] {
        let line = if text.contains("\n\n") { 4 } else { 3 };
        assert_eq!(
            message_in(&folder, open(text, "kind")),
            format!(
                "`t.csv` line {line} needs a closing quote, but the file ends first\n  \
                 help: close the quote; a quote within a quoted field is written twice: `\"\"`"
            )
        );
    }
    let text = message_in(&folder, open("a,name,kind\n1,p,\"x\n2,q,y\n3,r,x\"\n", "kind"));
    assert!(
        text.starts_with("`t.csv` line 2, column 2 (`kind`) needs a class on one line (is a quote not closed?)"),
        "{text}"
    );
    let table = open("a,kind,name\n1,x,\"p\n2,y,q\"\n3,y,r\n", "kind").unwrap();
    let note = table.dataset.notes().remove(1);
    assert!(note.starts_with("1 row has fields of several lines, first `"), "{note}");
    assert!(note.ends_with("t.csv` line 2: is a quote not closed?"), "{note}");
    // A row without end is given up before memory is.
    let endless = format!("a,kind,name\n1,x,\"{}", "y".repeat(17 << 20));
    let text = message(open(&endless, "kind"));
    assert!(text.contains("` line 2 begins a row of more than 16777216 bytes: is a quote not closed?"), "{text}");
    assert!(text.contains("help: close the quote"), "{text}");
    // Where fields are missing since a quote took them, the help names the quote, not the delimiter.
    for text in ["a,kind,name\n1,\"x,p\n2,y,q\n3,x,r\n", "a,kind,name\n1,\"x,p"] {
        let error = message_in(&folder, open(text, "kind"));
        assert!(error.starts_with("`t.csv` line 2 needs a closing quote, but the file ends first\n"), "{error}");
    }
    let error = message_in(&folder, open("a,kind,name\n1,\"x,p\n2,y\",q,r\n", "kind"));
    assert!(error.starts_with("`t.csv` line 2 needs 3 fields as the first line has, but has "), "{error}");
    assert!(error.contains("help: in column 1 of this line a quote opens that a later line closes"), "{error}");
    let error = message_in(&folder, open("a,kind,name\n1,\"x,z\"\n2,y,q\n", "kind"));
    assert!(error.contains("line 2 needs 3 fields") && error.contains("`delimiter` is the character"), "{error}");
    std::fs::write(folder.path().join("latin.csv"), b"a,kind,name\n1,x,caf\xe9\n").unwrap();
    let settings = by_name("kind", TargetKind::Classes);
    let error = message_in(&folder, csv::open(folder.path().join("latin.csv"), &settings));
    assert!(error.starts_with("`latin.csv` line 2 needs UTF-8 text, but has other bytes\n  help: save"), "{error}");
}

/// A number has no leading zeros, so a column of ZIP codes is no quantity.
#[test]
fn numbers_with_leading_zeros_are_categories() {
    let folder = tempfile::tempdir().unwrap();
    let open = |codes: &[&str], settings: &CsvSettings| {
        let rows: String =
            (0..60).map(|row| format!("{},{},{}\n", row % 7, codes[row % codes.len()], row % 2)).collect();
        csv::open(write(&folder, "t.csv", format!("a,zip,kind\n{rows}")), settings).unwrap().dataset
    };
    let kind = by_name("kind", TargetKind::Classes);
    let width = |data: &InMemory| data.input_shapes()[0].len();
    let told = |data: &InMemory| data.notes().iter().any(|note| note.contains("digits with leading zeros"));
    let zips = ["01067", "80331", "50667"];
    let data = open(&zips, &kind);
    assert!(width(&data) == 4 && told(&data), "{:?}", data.notes());
    for plain in [&["1067", "80331", "50667"][..], &["0930", "1115", "2359"], &["010", "700"], &["0106.5", "8033.1"]] {
        let data = open(plain, &kind);
        assert!(width(&data) == 2 && !told(&data), "{plain:?} {:?}", data.notes());
    }
    // A spreadsheet may have dropped the zeros since.
    let later =
        csv::open_inputs(&write(&folder, "new.csv", "a,zip\n0,01067\n0,1067\n"), &kind, &open(&zips, &kind).schema());
    let later = all(&later.unwrap()).inputs[0].to_vec();
    assert_eq!(later[..4], later[4..], "{later:?}");
    // The settings decide, and so does an `Embedding`.
    let kinds = [("zip".to_owned(), ColumnKind::Number)].into();
    for settings in [CsvSettings { kinds, ..kind.clone() }, CsvSettings { embedded: vec![0], ..kind.clone() }] {
        let data = open(&zips, &settings);
        assert!(width(&data) == 2 && !told(&data), "{:?}", data.notes());
    }
    let own: Vec<String> = (0..60).map(|row| format!("{:05}", 7919 * row % 99991)).collect();
    let data = open(&own.iter().map(String::as_str).collect::<Vec<_>>(), &kind);
    assert_eq!(data.notes()[0], "1 column of codes that hardly repeat is left out: zip");
}

#[test]
fn numbers_that_are_equal_are_one_class() {
    let folder = tempfile::tempdir().unwrap();
    let kind = by_name("kind", TargetKind::Classes);
    let open = |text: &str| csv::open(write(&folder, "t.csv", text), &kind).unwrap().dataset;
    let data = open("a,kind\n2,10\n0,1.0\n0,01\n0,1\n0,-0\n0,0\n0,1e1\n");
    assert_eq!(data.schema().classes(0), ["0", "1", "10"]);
    assert_eq!(all(&data).targets[0][..], [2.0, 1.0, 1.0, 1.0, 0.0, 0.0, 2.0]);
    let test = write(&folder, "test.csv", "a,kind\n0,1.00\n0,10\n");
    let test = csv::open_like(&test, &kind, &data.schema()).unwrap().dataset;
    assert_eq!(all(&test).targets[0][..], [1.0, 2.0]);
    // Names stay names.
    let data = open("a,kind\n0,1\n0,01\n2,b\n");
    assert_eq!(data.schema().classes(0), ["01", "1", "b"]);
}

#[test]
fn other_data_are_described_by_shape_and_labels() {
    let text = Description::of("training data", &Synthetic::new([4, 5], 3, 0..30, 8).unwrap()).unwrap().to_string();
    assert!(text.starts_with("training data: 30 rows of [4, 5]\n  3 classes: 0 ("), "{text}");
    let prices = InMemory::new(Array2::zeros((2, 2)), array![0.5, 2.0]).unwrap();
    assert_eq!(Description::of("x", &prices).unwrap().to_string(), "x: 2 rows of [2]");
}
