//! Tables as people have them: kinds of columns, gaps, signs, and what is kept for later tables.

use manyhands::data::{Aside, Code, ColumnKind, Fold, Format, Schema, fold, split};

use super::*;

fn of(target: &str, kind: TargetKind) -> CsvSettings {
    CsvSettings::new(Column::Name(target.into()), kind)
}

fn near(got: &[f32], needed: &[f64]) {
    assert_eq!(got.len(), needed.len(), "{got:?} {needed:?}");
    for (got, needed) in got.iter().zip(needed) {
        assert!((f64::from(*got) - needed).abs() < 1e-6, "{got} {needed}");
    }
}

const PETS: &str = "name;weight;kind;young;born;price\n\
    Ada;4,5;cat;yes;2020-02-03;1\n\
    Bo;12;dog;no;2021-02-03;2\n\
    ;NA;cat;no;NA;3\n\
    Cleo;1.004,5;;yes;2022-08-01;4\n";

/// The means are worked out by hand: of 4.5, 12 and 1004.5, with the standard deviation of the rows, not of a sample.
#[test]
fn each_kind_of_column_becomes_its_elements() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "pets.csv", PETS);
    let settings = CsvSettings { ignore: vec![Column::Name("name".into())], ..of("price", TargetKind::Values) };
    let data = csv::open(&path, &settings).unwrap().dataset;
    // weight and whether it is missing; cat, dog and missing; young; the date in years, two circles, and missing.
    assert_eq!(data.input_shapes(), [Shape::new([2 + 3 + 1 + 6])]);
    let values = all(&data).inputs[0].to_vec();
    let row = |row: usize| &values[row * 12..][..12];
    let mean: f64 = (4.5 + 12.0 + 1004.5) / 3.0;
    let deviation = ([4.5, 12.0, 1004.5].map(|x: f64| (x - mean).powi(2)).iter().sum::<f64>() / 3.0).sqrt();
    near(&row(0)[..6], &[(4.5 - mean) / deviation, 0.0, 1.0, 0.0, 0.0, 1.0]);
    near(&row(2)[..6], &[0.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    near(&row(3)[..6], &[(1004.5 - mean) / deviation, 0.0, 1.0, 0.0, 1.0, 1.0]);
    let angle = std::f64::consts::TAU * 33.0 / 366.0;
    near(&row(0)[7..9], &[angle.sin(), angle.cos()]);
    // 3 February 2020 was a Monday, the start of the circle.
    near(&row(0)[9..], &[0.0, 1.0, 0.0]);
    assert_eq!(row(2)[11], 1.0);
    let schema = data.schema();
    assert_eq!(schema.inputs[0].column_names(), ["weight", "kind", "young", "born"]);
    assert!(matches!(schema.format, Format::Csv { delimiter: ';', decimal: ',', .. }));
    let text = Description::of("training data", &data).unwrap().to_string();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.starts_with("training data: 4 rows of 4 input columns as 12 numbers: weight, kind, young, born"));
    assert!(text.contains("mean or most frequent value, and are marked: weight (1), kind (1), born (1)"), "{text}");
}

/// Another table, with other signs and another order, gets the same numbers by the schema alone.
#[test]
fn later_tables_are_read_by_the_encodings_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "pets.csv", PETS);
    let settings = CsvSettings { ignore: vec![Column::Name("name".into())], ..of("price", TargetKind::Values) };
    let first = csv::open(&path, &settings).unwrap().dataset;
    let schema: Schema = serde_json::from_str(&serde_json::to_string(&first.schema()).unwrap()).unwrap();
    assert_eq!(schema, first.schema());
    let values = all(&first).inputs[0].to_vec();
    let new = "born,young,kind,weight\n2020-02-03,Y,cat,4.5\n,n,cat,\n2021-02-03,no,bird,12\n,no,,\n";
    let path = write(&folder, "new.csv", new);
    let inputs = DataConfig::of_schema(&schema, &path).unwrap().open_inputs(&path, Some(&schema)).unwrap();
    let got = all(&inputs.dataset).inputs[0].to_vec();
    assert_eq!((&got[..12], &got[12..24]), (&values[..12], &values[24..36]));
    // A bird is neither cat nor dog; a missing kind counts as the most frequent, cat, and is marked.
    assert_eq!((&got[24 + 2..24 + 5], &got[36 + 2..36 + 5]), (&[0.0, 0.0, 0.0][..], &[1.0, 0.0, 1.0][..]));
    for (text, needed) in [
        ("born,young,kind,weight\n2020-02-03,maybe,cat,4.5\n", "column 1 (`young`) needs true or false, or yes or no"),
        ("born,young,kind,weight\n3.2.2020,no,cat,4.5\n", "column 0 (`born`) needs a date of the form `%Y-%m-%d`"),
        ("born,young,kind,weight\n2020-02-03,no,cat,heavy\n", "column 3 (`weight`) needs a finite number, but holds"),
    ] {
        let path = write(&folder, "bad.csv", text);
        let error = message_in(&folder, csv::open_inputs(&path, &settings, &schema));
        assert!(error.starts_with(&format!("`bad.csv` line 2, {needed}")), "{error}");
    }
}

/// Rows that validation sets aside change no mean and no category.
#[test]
fn encodings_are_fitted_to_the_training_rows_alone() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<(f64, String)> = (0..40).map(|row| (f64::from(row * row), format!("c{}", row % 3))).collect();
    let config = |rows: &[(f64, String)]| {
        let text: String = rows.iter().map(|(x, name)| format!("{x},{name},0\n")).collect();
        let path = write(&folder, "t.csv", format!("x,name,y\n{text}"));
        config(&format!("type = 'csv'\ntrain = '{}'\ntarget = 'y'\ntarget_kind = 'values'", path.display()))
    };
    let aside = Aside { fraction: Some(0.25), seed: 3, ..Aside::default() };
    let of_fold = Aside { fold: Some(Fold { number: 3, of: 5, seed: 1 }), ..aside };
    let schema_aside = |aside| config(&rows).open_aside(Some(aside)).unwrap().train.schema();
    let whole = config(&rows).open().unwrap().train;
    let (rest, _) = fold(whole, of_fold.fold.unwrap()).unwrap();
    let left = split(std::sync::Arc::new(rest), 0.25, 3).unwrap().0;
    let mean = all(&left).inputs[0].chunks(4).map(|row| f64::from(row[0])).sum::<f64>() / 24.0;
    let offset_of = |schema: Schema| match schema.inputs[0].columns[0].encoding.clone().unwrap().code {
        Code::Number { offset, scale } => (offset, scale),
        other => panic!("{other:?}"),
    };
    // The rows that are left, standardized by all rows, have the mean of the encoding that is fitted to them.
    let (whole, left) = (offset_of(config(&rows).open().unwrap().train.schema()), offset_of(schema_aside(of_fold)));
    assert!((whole.0 + mean * whole.1 - left.0).abs() < 1e-3, "{whole:?} {left:?}");
    let schema = |config: &DataConfig| config.open_aside(Some(aside)).unwrap().train.schema();
    let (train, held_out) = split(config(&rows).open().unwrap().train, 0.25, aside.seed).unwrap();
    let is_held_out: Vec<bool> = {
        let (left, apart) = (all(&train).inputs[0].to_vec(), all(&held_out).inputs[0].to_vec());
        let whole = all(&config(&rows).open().unwrap().train).inputs[0].to_vec();
        assert_eq!(left.len() + apart.len(), whole.len());
        whole.chunks(4).map(|row| apart.chunks(4).any(|other| other == row)).collect()
    };
    assert_eq!(is_held_out.iter().filter(|it| **it).count(), 10);
    let mut changed = rows.clone();
    for (row, _) in changed.iter_mut().zip(&is_held_out).filter(|(_, is_held_out)| **is_held_out) {
        *row = (1e6, "other".into());
    }
    assert_eq!(schema(&config(&rows)), schema(&config(&changed)));
    assert_ne!(config(&rows).open().unwrap().train.schema(), config(&changed).open().unwrap().train.schema());
    let Some(Code::Number { offset, .. }) =
        schema(&config(&rows)).inputs[0].columns[0].encoding.clone().map(|it| it.code)
    else {
        panic!("a number");
    };
    let left = rows.iter().zip(&is_held_out).filter(|(_, is_held_out)| !**is_held_out).map(|((x, _), _)| x);
    assert!((offset - left.sum::<f64>() / 30.0).abs() < 1e-9);
}

#[test]
fn columns_that_are_no_inputs_are_left_out_with_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let header = ",person,code,region,empty,day,x,y\n";
    let rows: String = (0..30)
        .map(|row| {
            let (person, code) = (format!("\"Smith, {row}\""), format!("A{row}"));
            format!("{row},{person},{code},north,,0{}/0{}/2020,{},{}\n", row % 9 + 1, row % 7 + 1, row % 4, row % 2)
        })
        .collect();
    let path = write(&folder, "t.csv", format!("{header}{rows}"));
    let data = csv::open(&path, &of("y", TargetKind::Classes)).unwrap().dataset;
    assert_eq!(data.schema().inputs[0].column_names(), ["x"]);
    assert_eq!(
        data.notes(),
        [
            "2 columns of free text are left out: person, code",
            "1 column of row numbers is left out: column 0",
            "1 column of one value is left out: region",
            "1 column without a value is left out: empty",
            "1 column of dates whose days and months can be confused is left out: day"
        ]
    );
    // Settings say otherwise.
    let kinds = [
        ("code".to_owned(), ColumnKind::Index),
        ("x".into(), ColumnKind::Category),
        ("day".into(), ColumnKind::Date(Some("%d/%m/%Y".into()))),
    ];
    let settings = CsvSettings { kinds: kinds.into(), max_categories: 3, ..of("y", TargetKind::Classes) };
    let data = csv::open(&path, &settings).unwrap().dataset;
    assert_eq!(data.schema().inputs[0].column_names(), ["code", "day", "x"]);
    let row = all(&data).inputs[0].to_vec();
    assert_eq!((data.input_shapes(), row[0]), (vec![Shape::new([1 + 5 + 3])], 1.0));
    assert!(data.notes().contains(&"7 fields of `x` are of no frequent category of the training rows: 3".to_owned()));
    let ask = |kinds: &[(&str, ColumnKind)], inputs: &[&str]| {
        let kinds = kinds.iter().map(|(name, kind)| ((*name).to_owned(), kind.clone())).collect();
        let inputs = inputs.iter().map(|name| InputColumns::new(*name, [Column::Name((*name).into())])).collect();
        message_in(&folder, csv::open(&path, &CsvSettings { kinds, inputs, ..of("y", TargetKind::Classes) }))
    };
    assert!(
        ask(&[("z", ColumnKind::Number)], &[]).starts_with("`t.csv`, key `kinds`, needs a column `z`, but has none")
    );
    assert!(
        ask(&[], &["person"])
            .starts_with("`t.csv`, column 1 (`person`) needs numbers, dates or categories, but holds free text")
    );
    let error = ask(&[("day", ColumnKind::Date(None))], &[]);
    assert!(
        error.starts_with("`t.csv`, column 5 (`day`) needs dates of one form, but days and months can be"),
        "{error}"
    );
    assert!(error.contains("`kinds = { day = \"%d/%m/%Y\" }`"), "{error}");
    assert!(
        ask(&[("code", ColumnKind::Number)], &[]).contains("column 2 (`code`) needs a finite number, but holds `A0`")
    );
}

#[test]
fn a_mistake_among_numbers_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String =
        (0..30).map(|row| format!("{},{}\n", if row == 7 { "?!".into() } else { row.to_string() }, row % 2)).collect();
    let path = write(&folder, "t.csv", format!("x,y\n{rows}"));
    let error = message_in(&folder, csv::open(&path, &of("y", TargetKind::Classes)));
    assert!(
        error.starts_with("`t.csv` line 9, column 0 (`x`) needs a finite number, but holds `?!`\n  help: "),
        "{error}"
    );
    assert!(
        error.contains("name it in `missing_values`") && error.contains("`kinds = { x = \"category\" }`"),
        "{error}"
    );
    let missing_values = Some(vec!["?!".to_owned()]);
    let data = csv::open(&path, &CsvSettings { missing_values, ..of("y", TargetKind::Classes) }).unwrap().dataset;
    assert_eq!(data.input_shapes(), [Shape::new([2])]);
}

#[test]
fn a_number_may_stand_for_a_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "t.csv", "x,y\n1,a\n-999,b\n3,a\n2,b\n");
    let missing_values = Some(vec!["-999".to_owned()]);
    let settings = CsvSettings { missing_values: missing_values.clone(), ..of("y", TargetKind::Classes) };
    let data = csv::open(&path, &settings).unwrap().dataset;
    let column = &data.schema().inputs[0].columns[0];
    let encoding = column.encoding.as_ref().unwrap();
    assert_eq!((encoding.fill, encoding.indicator), (Some(2.0), true));
    let settings = CsvSettings { missing: Missing::Error, ..settings };
    let error = message_in(&folder, csv::open(&path, &settings));
    assert!(error.starts_with("`t.csv` line 3, column 0 (`x`) needs a finite number, but holds `-999`"), "{error}");
}

/// Excel reads and hides the line, pandas takes it for the header.
#[test]
fn a_line_that_names_the_delimiter_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for first in ["sep=;", "\u{feff}SEP=;", "\"sep=;\""] {
        let path = write(&folder, "t.csv", format!("{first}\r\nx;y\r\n1;a\r\n2;b\r\n"));
        let error = message_in(&folder, csv::open(path, &of("y", TargetKind::Classes)));
        assert!(error.starts_with("`t.csv` needs names or values in its first line, but has `sep=`"), "{error}");
    }
    let path = write(&folder, "t.csv", "sep=x;y\n1;a\n2;b\n");
    assert_eq!(csv::open(path, &of("y", TargetKind::Classes)).unwrap().dataset.len(), 2);
}

/// pandas adds `na_values` to its own list, in which the empty field is.
#[test]
fn the_empty_field_is_missing_whatever_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "t.csv", "x,kind,y\n1,NA,a\n-999,,b\n,cat,a\n2,cat,\n3,NA,b\n");
    let settings = CsvSettings { missing_values: Some(vec!["-999".to_owned()]), ..of("y", TargetKind::Classes) };
    let data = csv::open(&path, &settings).unwrap().dataset;
    // The mean of 1 and 3; `cat` and `NA` are two categories, of which `NA` is there twice.
    let encodings: Vec<_> =
        data.schema().inputs[0].columns.iter().map(|column| column.encoding.clone().unwrap()).collect();
    assert_eq!((data.len(), encodings[0].fill, encodings[0].indicator), (4, Some(2.0), true));
    assert_eq!(encodings[1].code, Code::Category { categories: vec!["NA".into(), "cat".into()] });
    assert_eq!((encodings[1].fill, encodings[1].indicator), (Some(0.0), true));
}

#[test]
fn rows_without_a_target_are_left_out_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "t.csv", "x,y\n1,a\n2,\n3,b\n4,NA\n");
    let data = csv::open(&path, &of("y", TargetKind::Classes)).unwrap().dataset;
    assert_eq!((data.len(), data.notes().remove(0)), (2, "2 rows have no target and are left out".into()));
    let again = DataConfig::of_schema(&data.schema(), &path).unwrap().open_like(&data.schema()).unwrap();
    assert_eq!(again.train.len(), 2);
    let settings = CsvSettings { missing: Missing::Error, ..of("y", TargetKind::Classes) };
    assert!(
        message_in(&folder, csv::open(&path, &settings)).starts_with("`t.csv` line 3, column 1 (`y`) needs a class")
    );
    let settings = CsvSettings { missing: Missing::Error, ..of("y", TargetKind::Values) };
    let path = write(&folder, "t.csv", "x,y\n1,1\n,2\n");
    let error = message_in(&folder, csv::open(&path, &settings));
    assert!(error.starts_with("`t.csv` line 3, column 0 (`x`) needs a finite number, but is empty"), "{error}");
}

/// The form of `wine_data.csv`, `breast_cancer.csv` and `iris.csv` in scikit-learn's package.
#[test]
fn the_tables_of_scikit_learn_name_their_classes() {
    let folder = tempfile::tempdir().unwrap();
    for text in ["4,2,plum,pear\n1,2,1\n3,4,0\n5,6,0\n7,8,1\n", "4,3,plum,pear\n1,2,9,1\n3,4,9,0\n5,6,9,0\n7,8,8,1\n"] {
        let path = write(&folder, "t.csv", text);
        let last = text.lines().nth(1).unwrap().split(',').count() - 1;
        let data = csv::open(&path, &CsvSettings::new(Column::Index(last), TargetKind::Classes)).unwrap().dataset;
        assert_eq!((data.len(), data.schema().classes(0)), (4, &["plum".to_owned(), "pear".into()][..]));
        assert_eq!(all(&data).targets[0][..], [1.0, 0.0, 0.0, 1.0]);
        let again = csv::open_like(&path, &CsvSettings::of_schema(&data.schema()).unwrap(), &data.schema()).unwrap();
        assert_eq!(all(&again.dataset), all(&data));
    }
}

/// Counts are those of pandas' `isna().sum()`; no mean is taken of the rows set aside.
#[test]
fn gaps_are_counted_in_the_table_and_in_the_rows_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let data = |is_gap: &dyn Fn(usize) -> bool| {
        let row = |row: usize| format!("{},{row},{}\n", if is_gap(row) { "" } else { "7.5" }, row % 2);
        let path = write(&folder, "t.csv", format!("x,z,y\n{}", (0..20).map(row).collect::<String>()));
        let path = path.display();
        config(&format!("type = 'csv'\ntrain = '{path}'\ntarget = 'y'\ntarget_kind = 'values'\nnumbers = 'unchanged'"))
    };
    let apart: Vec<usize> = {
        let rows = split(data(&|_| false).open().unwrap().train, 0.25, 3).unwrap().1;
        all(&rows).inputs[0].iter().map(|z| *z as usize).collect()
    };
    assert_eq!(apart.len(), 5, "{apart:?}");
    let stay: Vec<usize> = (0..20).filter(|row| !apart.contains(row)).collect();
    let aside = Aside { fraction: Some(0.25), seed: 3, ..Aside::default() };
    let notes = |gaps: &[usize], aside| {
        let notes = data(&|row| gaps.contains(&row)).open_aside(aside).unwrap().train.notes();
        notes.into_iter().find(|note| note.starts_with("missing"))
    };
    let start = "missing fields count as mean or most frequent value, ";
    let gaps = [stay[0], stay[1], stay[2], apart[0]];
    assert_eq!(notes(&gaps, None), Some(format!("{start}and are marked: x (4)")));
    assert_eq!(notes(&gaps, Some(aside)), Some(format!("{start}and are marked: x (4, 1 in rows set aside)")));
    assert_eq!(
        notes(&apart[..2], Some(aside)),
        Some(format!("{start}unmarked, since no training row has any: x (2, all in rows set aside)"))
    );
}

/// As French, Scandinavian and Swiss spreadsheets write them; all signs but one are U+00A0, U+202F, U+2019 and the like.
#[test]
fn thousands_with_blanks_and_apostrophes_are_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let write_with = |divider: &str| {
        let row = |row: usize| format!("1{divider}{:03},5;{};{}\n", row * 37 % 1000, row % 7, row % 2);
        write(&folder, "t.csv", format!("x;z;y\n{}", (0..40).map(row).collect::<String>()))
    };
    let read = |divider: &str| all(&csv::open(write_with(divider), &of("y", TargetKind::Classes)).unwrap().dataset);
    let needed = read("");
    for divider in [" ", "\u{a0}", "\u{202f}", "\u{2009}", "'", "\u{2019}", "."] {
        assert_eq!(read(divider), needed, "{divider:?}");
    }
    // A firm's number is one, but seems to name rows.
    let row = |row: usize| format!("{} {:03} {:03},{}\n", 100 + row * 37 % 800, row * 7, row * 3, row % 2);
    let path = write(&folder, "t.csv", format!("siren,y\n{}", (0..40).map(row).collect::<String>()));
    let notes = csv::open(path, &of("y", TargetKind::Classes)).unwrap().dataset.notes();
    assert!(notes[0].starts_with("1 input column seems to name rows") && notes[0].contains("siren"), "{notes:?}");
    // A phone number is none.
    let path = write(&folder, "t.csv", "x,y\n044 123 456,1\n044 123 457,0\n");
    let schema = csv::open(path, &of("y", TargetKind::Classes)).unwrap().dataset.schema();
    assert!(matches!(schema.inputs[0].columns[0].encoding.as_ref().unwrap().code, Code::Category { .. }), "{schema:?}");
}

#[test]
fn spellings_of_one_value_are_kept_apart_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let text = "where,done\nNew York,Yes\nnew  york,yes\nOslo,no\nnew york,YES\nOslo,no\n";
    let data = csv::open(write(&folder, "t.csv", text), &of("done", TargetKind::Classes)).unwrap().dataset;
    assert_eq!(data.schema().classes(0), ["YES", "Yes", "no", "yes"]);
    assert_eq!(
        data.notes(),
        [
            "values that differ only in case or blanks count as different ones; if they are one, write them alike: where (New York / new  \
          york / new york), done (YES / Yes / yes)"
        ]
    );
    let text = "where,done\nNew York,1e5\nOslo,1E+05\nOslo,2\n";
    let data = csv::open(write(&folder, "t.csv", text), &of("done", TargetKind::Classes)).unwrap().dataset;
    assert_eq!((data.schema().classes(0).len(), data.notes()), (2, vec![]));
}

/// The start of a table, at which the signs are looked for, has 256 KiB.
#[test]
fn a_decimal_sign_far_behind_the_start_counts() {
    let folder = tempfile::tempdir().unwrap();
    for delimiter in [';', ','] {
        let row = |row: usize| {
            let x = if row < 30_000 { (row % 10).to_string() } else { format!("\"{},5\"", row % 10) };
            format!("{x}{delimiter}a long enough field{delimiter}{}\n", row % 2)
        };
        let text: String = (0..30_400).map(row).collect();
        let path = write(&folder, "t.csv", format!("x{delimiter}name{delimiter}y\n{text}"));
        let schema = csv::open(path, &of("y", TargetKind::Values)).unwrap().dataset.schema();
        let column = &schema.inputs[0].columns[0];
        assert_eq!(column.seen.as_ref().unwrap().range, Some([0.0, 9.5]), "{delimiter}");
        assert!(matches!(schema.format, Format::Csv { decimal: ',', .. }));
    }
}
