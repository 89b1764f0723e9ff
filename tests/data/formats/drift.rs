//! Later tables beside the one that was trained on: written otherwise they give the same numbers, and what can't be the same is
//! told.

use manyhands::data::{Schema, Seen};

use super::*;

/// A table's numbers, to be written in many ways.
struct Row {
    price: f64,
    area: u32,
    kind: &'static str,
    day: String,
    class: &'static str,
}

/// Prices with three decimals look like thousands, areas of four digits can be grouped.
fn rows() -> Vec<Row> {
    let row = |row: u32| Row {
        price: 1.001 + f64::from(row * 37 % 1999) / 1000.0,
        area: 1000 + row * 131 % 8000,
        kind: ["hut", "flat, small", "manor \"B\""][row as usize % 3],
        day: format!("20{:02}-0{}-1{}", 10 + row % 7, 1 + row % 9, row % 10),
        class: ["yes", "no"][row as usize % 2],
    };
    (0..40).map(row).collect()
}

#[derive(Clone, Copy, Debug)]
struct Writing {
    delimiter: char,
    decimal: char,
    has_groups: bool,
    order: [usize; 5],
    is_quoted: bool,
    end: &'static str,
    start: &'static str,
}

const PLAIN: Writing = Writing {
    delimiter: ',',
    decimal: '.',
    has_groups: false,
    order: [0, 1, 2, 3, 4],
    is_quoted: false,
    end: "\n",
    start: "",
};

impl Writing {
    fn text(self, rows: &[Row]) -> String {
        let groups = if self.decimal == '.' { "," } else { "." };
        let area = |area: u32| match (self.has_groups, area.to_string()) {
            (true, digits) => format!("{}{groups}{}", &digits[..digits.len() - 3], &digits[digits.len() - 3..]),
            (false, digits) => digits,
        };
        let fields = |row: &Row| {
            let price = format!("{:.3}", row.price).replace('.', &self.decimal.to_string());
            [price, area(row.area), row.kind.into(), row.day.clone(), row.class.into()]
        };
        let head = ["price", "area", "kind", "day", "class"].map(String::from);
        let line = |fields: [String; 5]| {
            let quoted = |field: &String| {
                let is_needed = self.is_quoted || field.contains(['"', self.delimiter]);
                if is_needed { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.clone() }
            };
            let fields: Vec<String> = self.order.iter().map(|at| quoted(&fields[*at])).collect();
            fields.join(&self.delimiter.to_string()) + self.end
        };
        self.start.to_owned() + &line(head) + &rows.iter().map(|row| line(fields(row))).collect::<String>()
    }
}

/// The schema of a table, as a model file keeps it.
fn trained(folder: &TempDir, text: impl AsRef<[u8]>, kind: TargetKind) -> Schema {
    let path = write(folder, "train.csv", text);
    let schema = csv::open(&path, &CsvSettings::new(Column::Name("class".into()), kind)).unwrap().dataset.schema();
    serde_json::from_str(&serde_json::to_string(&schema).unwrap()).unwrap()
}

fn read(folder: &TempDir, text: impl AsRef<[u8]>, schema: &Schema) -> Result<Vec<f32>, Error> {
    let path = write(folder, "new.csv", text);
    let settings = CsvSettings::of_schema(schema).unwrap();
    csv::open_inputs(&path, &settings, schema).map(|data| all(&data).inputs[0].to_vec())
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn writings() -> Vec<Writing> {
    let mut writings = Vec::new();
    for delimiter in [',', ';', '\t', '|'] {
        for decimal in ['.', ','] {
            for (has_groups, is_quoted, end) in
                [(false, false, "\n"), (true, false, "\r\n"), (false, true, "\r"), (true, true, "\n")]
            {
                let order = if has_groups { [4, 1, 3, 0, 2] } else { PLAIN.order };
                let start = if is_quoted { "\u{feff}" } else { "" };
                writings.push(Writing { delimiter, decimal, has_groups, order, is_quoted, end, start });
            }
        }
    }
    writings
}

#[test]
fn a_table_written_in_any_way_gives_the_same_numbers_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows();
    for train in [PLAIN, Writing { delimiter: ';', decimal: ',', ..PLAIN }, Writing { delimiter: ';', ..PLAIN }] {
        let schema = trained(&folder, train.text(&rows), TargetKind::Classes);
        let needed = read(&folder, train.text(&rows), &schema).unwrap();
        let width = needed.len() / rows.len();
        let mut refused = 0;
        for writing in writings() {
            // A table of one row has the least to tell its signs by.
            for (first, count) in [(0, rows.len()), (7, 1), (20, 1)] {
                let new = writing.text(&rows[first..first + count]);
                match read(&folder, &new, &schema) {
                    Ok(got) => {
                        let needed = &needed[first * width..][..count * width];
                        assert_eq!(bits(&got), bits(needed), "{train:?} {writing:?} {new}");
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        assert_eq!(refused, 0, "all of them can be told apart: {train:?}");
    }
}

/// Where training had numbers of both sizes, the table's own form decides; a form that differs from it is refused.
#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..30).map(|row| format!("{},{}\n", 0.51 * f64::from(row * row * row), row % 2)).collect();
    let schema = trained(&folder, format!("x,class\n{text}"), TargetKind::Classes);
    let plain = read(&folder, "x,z\n2.079,0\n", &schema).unwrap();
    assert_eq!(bits(&plain), bits(&read(&folder, "x,z\n2.0790,0\n", &schema).unwrap()));
    for text in ["x;z\n2,079;0\n", "x\tz\n2,079\t0\n"] {
        let error = message_in(&folder, read(&folder, text, &schema));
        assert!(
            error.starts_with(
                "`new.csv`, column `x` needs numbers that can be read in one way, but `2,079` can be 2079 and 2.079"
            ),
            "{error}"
        );
    }
    // Between commas a point is a decimal point, however far that is from the training rows.
    let large: String = (0..30).map(|row| format!("{},{}\n", 1000.0 + 250.5 * f64::from(row), row % 2)).collect();
    let large = trained(&folder, format!("x,class\n{large}"), TargetKind::Classes);
    let (grouped, clear) = ("x,z\n1.234,0\n8.765,0\n", "x,z\n1.2340,0\n8.7650,0\n");
    assert_eq!(bits(&read(&folder, grouped, &large).unwrap()), bits(&read(&folder, clear, &large).unwrap()));
    // One number that is clear settles all, and a lone decimal comma needs no range.
    let clear = read(&folder, "x;z\n2,079;0\n2,5;0\n", &schema).unwrap();
    assert_eq!(clear[0].to_bits(), plain[0].to_bits());
}

/// Files of older versions keep no range: mean and deviation stand for it.
#[test]
fn schemas_of_older_versions_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows();
    let schema = trained(&folder, PLAIN.text(&rows), TargetKind::Classes);
    let mut old: serde_json::Value = serde_json::to_value(&schema).unwrap();
    for column in old["inputs"][0]["columns"].as_array_mut().unwrap() {
        assert!(column.as_object_mut().unwrap().remove("seen").is_some());
    }
    let old: Schema = serde_json::from_value(old).unwrap();
    let needed = read(&folder, PLAIN.text(&rows), &schema).unwrap();
    let german = Writing { delimiter: ';', decimal: ',', ..PLAIN };
    assert_eq!(bits(&read(&folder, german.text(&rows), &old).unwrap()), bits(&needed));
}

#[test]
fn columns_that_are_certainly_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text: String =
        (0..40).map(|row| format!("{},{},{}\n", row % 7, ["hut", "flat"][row % 2], ["a", "b"][row / 3 % 2])).collect();
    let schema = trained(&folder, format!("x,kind,class\n{text}"), TargetKind::Classes);
    let error = message_in(&folder, read(&folder, format!("x,kind\n{}", "1,Hut\n2,Flat\n".repeat(10)), &schema));
    assert_eq!(
        error,
        "`new.csv`, column `kind` needs categories of the training rows, but none of its values is one (Flat, Hut)\n  \
         help: check that it is the right column, written as in training: flat, hut"
    );
    let error = message_in(&folder, read(&folder, format!("x,kind\n{}", "NA,hut\n,flat\n".repeat(10)), &schema));
    assert!(
        error.starts_with("`new.csv`, column `x` needs values, but all 20 are missing, and of 40 training rows 0 were"),
        "{error}"
    );
    // Few rows may be new, rows of one new kind, and some of many.
    assert!(read(&folder, "x,kind\n1,Hut\n2,Flat\n,Flat\n", &schema).is_ok());
    assert!(read(&folder, format!("x,kind\n{}", "1,mill\n".repeat(30)), &schema).is_ok());
    assert_eq!(read(&folder, "x,kind\n1,Hut\n", &schema).unwrap()[1..], [0.0, 0.0]);
    assert!(read(&folder, "x,kind\n1,Hut\n1,hut\n1,Hut\n1,Hut\n1,Hut\n", &schema).is_ok());
}

#[test]
fn the_schema_keeps_what_training_saw() {
    let folder = tempfile::tempdir().unwrap();
    let schema = trained(&folder, "x,kind,class\n1,a,1\n2,,3\n,b,4\n6,a,8\n", TargetKind::Values);
    let seen = |column: usize| schema.inputs[0].columns[column].seen.clone().unwrap();
    let range = Some([1.0, 6.0]);
    let deviation = (14.0_f64 / 3.0).sqrt();
    assert_eq!(seen(0), Seen { rows: 4, missing: 1, others: 0, range, mean: 3.0, deviation, is_whole: true });
    assert_eq!(seen(1), Seen { rows: 4, missing: 1, ..Seen::default() });
    let target = schema.targets[0].columns[0].seen.clone().unwrap();
    assert_eq!((target.range, target.mean), (Some([1.0, 8.0]), 4.0));
}

/// Categories that are numbers are found with either decimal sign.
#[test]
fn categories_of_numbers_are_equal_by_value() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..30).map(|row| format!("{};{}\n", ["0,5", "1,5", "2"][row % 3], row % 2)).collect();
    let path = write(&folder, "train.csv", format!("size;class\n{text}"));
    let kinds = [("size".to_owned(), manyhands::data::ColumnKind::Category)];
    let settings =
        CsvSettings { kinds: kinds.into(), ..CsvSettings::new(Column::Name("class".into()), TargetKind::Classes) };
    let schema = csv::open(&path, &settings).unwrap().dataset.schema();
    let needed = read(&folder, format!("size;class\n{text}"), &schema).unwrap();
    let points = text.replace(',', ".").replace(';', ",");
    assert_eq!(read(&folder, format!("size,class\n{points}"), &schema).unwrap(), needed);
}

/// Unix times differ in digits that an f32 does not have. The values follow from the formula.
#[test]
fn large_numbers_keep_their_digits() {
    let folder = tempfile::tempdir().unwrap();
    let text = |first: u32| {
        (0..100).map(|row| format!("{},{}\n", 1_700_000_000 + first + row * 3 % 100, row % 2)).collect::<String>()
    };
    let schema = trained(&folder, format!("time,class\n{}", text(0)), TargetKind::Classes);
    let deviation = ((100.0_f64 * 100.0 - 1.0) / 12.0).sqrt();
    for first in [0, 50] {
        let got = read(&folder, format!("time,class\n{}", text(first)), &schema).unwrap();
        for (row, got) in (0..100_u32).zip(got) {
            let needed = (f64::from(first + row * 3 % 100) - 49.5) / deviation;
            assert!((f64::from(got) - needed).abs() < 1e-6, "{row} {got} {needed}");
        }
    }
}

#[test]
fn a_long_first_line_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..3000).map(|column| format!("column {column:0>100}")).collect();
    let row = |row: usize| {
        let fields: Vec<String> = (0..3000).map(|column| (column * row % 7).to_string()).collect();
        format!("{},{}\n", fields.join(","), ["a", "b"][row % 2])
    };
    let head = format!("{},class\n", names.join(","));
    assert!(head.len() > 300 << 10);
    let text: String = (0..5).map(row).collect();
    let path = write(&folder, "t.csv", format!("{head}{text}"));
    let settings = CsvSettings::new(Column::Name("class".into()), TargetKind::Classes);
    let data = csv::open(&path, &settings).unwrap().dataset;
    let columns = &data.schema().inputs[0].columns;
    assert_eq!((data.len(), columns.last().unwrap().name.clone()), (5, Some(names[2999].clone())));
}

#[test]
fn tables_in_utf_16_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows();
    let text = Writing { delimiter: '\t', ..PLAIN }.text(&rows).replace("hut", "Hütte");
    let schema = trained(&folder, &text, TargetKind::Classes);
    let needed = read(&folder, &text, &schema).unwrap();
    let marked = format!("\u{feff}{text}");
    let wide = |bytes: fn(u16) -> [u8; 2]| marked.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    for bytes in [wide(u16::to_le_bytes), wide(u16::to_be_bytes)] {
        assert_eq!(bits(&read(&folder, &bytes, &schema).unwrap()), bits(&needed));
        let error = message_in(&folder, read(&folder, &bytes[..bytes.len() - 1], &schema));
        assert!(error.starts_with("`new.csv` starts as UTF-16, but has bytes that are none"), "{error}");
        let error = message_in(&folder, read(&folder, &bytes[2..], &schema));
        assert!(error.starts_with("`new.csv` needs to be text, but has zero bytes"), "{error}");
    }
}

/// Row numbers and ids teach nothing about new rows.
#[test]
fn columns_that_name_rows_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let row = |row: u32| {
        let (id, shuffled) = (90_000 + row * 7919 % 10_007, 1 + row * 37 % 100);
        let code = format!("{:032x}", u128::from(row % 40).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834));
        format!("{id},{shuffled},{},{code},{},5,{}\n", row % 9, row * 13 % 1000, row % 2)
    };
    let text: String = (0..100).map(row).collect();
    let path = write(&folder, "t.csv", format!("PassengerId,any,x,session,paid,constant,class\n{text}"));
    let settings = CsvSettings::new(Column::Name("class".into()), TargetKind::Classes);
    let notes = csv::open(&path, &settings).unwrap().dataset.notes();
    assert_eq!(
        notes[..2],
        [
            "1 column of one value is left out: constant",
            "3 input columns seem to name rows, which a model learns by heart: PassengerId, any, session; name them in \
             `ignore`, or in `kinds` if they are meant"
        ]
    );
    let only = write(&folder, "only.csv", "constant,class\n1,a\n1,b\n");
    let error = message_in(&folder, csv::open(&only, &settings));
    assert!(
        error.starts_with(
            "`only.csv` has 0 input columns and 1 target columns\n  help: left out are constant; an entry"
        ),
        "{error}"
    );
    let kinds = ["PassengerId", "any"].map(|name| (name.to_owned(), manyhands::data::ColumnKind::Number)).into();
    let ignore = vec![Column::Name("session".into())];
    let notes = csv::open(&path, &CsvSettings { kinds, ignore, ..settings }).unwrap().dataset.notes();
    assert!(notes.iter().all(|note| !note.contains("name rows")), "{notes:?}");
}
