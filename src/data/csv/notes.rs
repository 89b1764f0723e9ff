//! Notes of a table's reader: unused columns, rows that look torn, inputs that should be scaled.

use std::collections::BTreeSet;

use super::classes::{ClassLabels, number};
use super::encode::Lost;
use super::survey::NoInput;
use super::{InputFields, ReadTable, TargetValues};
use crate::data::labels::lookalikes;
use crate::schema::{Code, Seen, Text, few};
use crate::shown::counted;
use crate::thousands;

/// Root mean square above which a column is large: layers start with weights for values around 1.
const LARGE: f64 = 20.0;
/// Largest over smallest column above which their sizes are very different.
const VERY_DIFFERENT: f64 = 100.0;

/// `rows` are those to train on.
pub(super) fn notes(table: &ReadTable<'_>, rows: &[usize]) -> Vec<String> {
    let left_out = left_out(table);
    let [marked, unmarked] = missing(table, rows);
    let others =
        [suspects(table), unused(table), marked, unmarked, without_target(table), torn(table), unscaled(table)];
    let others = others.into_iter().chain([numbered(table), codes(table), spellings(table)]);
    left_out.into_iter().chain(others.flatten()).collect()
}

/// Columns that are no input by themselves, by the reason.
fn left_out(table: &ReadTable<'_>) -> Vec<String> {
    let note = |reason: NoInput| {
        let of_reason = table.layout.left_out.iter().filter(|(other, _)| *other == reason);
        let names: Vec<String> = of_reason.map(|(_, column)| table.layout.column(*column).to_string()).collect();
        let (columns, are) = if names.len() == 1 { ("column", "is") } else { ("columns", "are") };
        let what = match reason {
            NoInput::FreeText => format!("{columns} of free text"),
            NoInput::RowNumbers => format!("{columns} of row numbers"),
            NoInput::OneValue => format!("{columns} of one value"),
            NoInput::NoValue => format!("{columns} without a value"),
            NoInput::UnclearDate => format!("{columns} of dates whose days and months can be confused"),
            NoInput::Codes => format!("{columns} of codes that hardly repeat"),
        };
        let count = thousands(names.len());
        (!names.is_empty()).then(|| format!("{count} {what} {are} left out: {}", few(&names)))
    };
    use NoInput::{Codes, FreeText, NoValue, OneValue, RowNumbers, UnclearDate};
    [FreeText, RowNumbers, OneValue, NoValue, UnclearDate, Codes].into_iter().filter_map(note).collect()
}

/// Inputs that seem to name rows.
fn suspects(table: &ReadTable<'_>) -> Option<String> {
    let column = |column: &usize| table.layout.column(*column).to_string();
    let names: Vec<String> = table.layout.suspects.iter().map(column).collect();
    let (seem, them, they_are) = match names.len() {
        0 => return None,
        1 => ("1 input column seems".to_owned(), "it", "it is"),
        count => (format!("{} input columns seem", thousands(count)), "them", "they are"),
    };
    Some(format!(
        "{seem} to name rows, which a model learns by heart: {}; name {them} in `ignore`, or in `kinds` if {they_are} meant",
        few(&names)
    ))
}

/// Columns that share a name with others.
fn numbered(table: &ReadTable<'_>) -> Option<String> {
    let indices = table.dialect.renamed.keys();
    let names: Vec<String> = indices.map(|index| table.layout.column(*index).to_string()).collect();
    (!names.is_empty()).then(|| {
        let count = thousands(names.len());
        format!("{count} columns share their name with others and are numbered in their order: {}", few(&names))
    })
}

/// Inputs of digits that count as categories.
fn codes(table: &ReadTable<'_>) -> Option<String> {
    let names: Vec<String> = table.layout.codes.iter().map(|column| table.layout.column(*column).to_string()).collect();
    let (hold, count, them) = match names.len() {
        0 => return None,
        1 => ("column holds", "counts", "it"),
        _ => ("columns hold", "count", "them"),
    };
    Some(format!(
        "{} {hold} digits with leading zeros, as ZIP codes, and {count} as categories: {}; \"number\" in `kinds` makes {them} numbers",
        thousands(names.len()),
        few(&names)
    ))
}

/// Texts of which not all tokens are read.
pub(super) fn cut(input: Option<&str>, cut: usize, rows: usize, text: &Text) -> Option<String> {
    let are = if cut == 1 { "is" } else { "are" };
    (cut > 0).then(|| {
        format!(
            "{} of {} texts of `{}` {are} cut after {} tokens: `output_sequence_length` says how many count",
            thousands(cut),
            thousands(rows),
            crate::shown(input.unwrap_or_default()),
            thousands(text.output_sequence_length)
        )
    })
}

/// Categories and classes that look like several spellings of one. They are kept apart, as pandas does.
fn spellings(table: &ReadTable<'_>) -> Option<String> {
    let mut found = Vec::new();
    let mut look_at = |column: usize, groups: Vec<Vec<&str>>| {
        // Numbers such as `1e5` and `1E+05` are one class.
        let are_names = |names: &&Vec<&str>| names.iter().any(|name| number(name).is_none());
        let groups: Vec<String> = groups.iter().filter(are_names).map(|names| names.join(" / ")).collect();
        if !groups.is_empty() {
            found.push(format!("{} ({})", table.layout.column(column), few(&groups)));
        }
    };
    for (part, input) in table.layout.inputs.iter().zip(&table.inputs) {
        let InputFields::Columns(columns) = input else { continue };
        for ((fields, reading), column) in columns.iter().zip(&part.readings).zip(&part.columns) {
            if reading.known.is_none() {
                look_at(*column, lookalikes(fields.names()));
            }
        }
    }
    for (part, target) in table.layout.targets.iter().zip(&table.targets) {
        if let (TargetValues::Classes(ClassLabels { met, known: None, .. }), [column]) = (target, &part.columns[..]) {
            look_at(*column, lookalikes(met.keys()));
        }
    }
    (!found.is_empty()).then(|| {
        format!(
            "values that differ only in case or blanks count as different ones; if they are one, write them alike: {}",
            few(&found)
        )
    })
}

/// Columns with missing fields, and how many: those that are marked, and those that are not, since no training row has one.
fn missing(table: &ReadTable<'_>, rows: &[usize]) -> [Option<String>; 2] {
    let (mut marked, mut unmarked) = (Vec::new(), Vec::new());
    for (part, input) in table.layout.inputs.iter().zip(&table.inputs) {
        let InputFields::Columns(columns) = input else { continue };
        for ((fields, encoding), column) in columns.iter().zip(&part.encodings).zip(&part.columns) {
            let count = fields.missing(0..table.rows);
            let set_aside = set_aside(count, fields.missing(rows.iter().copied()));
            let named = format!("{} ({}{set_aside})", table.layout.column(*column), thousands(count));
            let is_marked = encoding.indicator || matches!(encoding.code, Code::Index { .. });
            match (count, is_marked) {
                (0, _) => {}
                (_, true) => marked.push(named),
                (_, false) => unmarked.push(named),
            }
        }
    }
    let note = |names: &[String], are: &str| {
        (!names.is_empty())
            .then(|| format!("missing fields count as mean or most frequent value, {are}: {}", few(names)))
    };
    [note(&marked, "and are marked"), note(&unmarked, "unmarked, since no training row has any")]
}

/// The fields of a count that are not in the rows to train on, in words.
fn set_aside(count: usize, in_training: usize) -> String {
    match count.saturating_sub(in_training) {
        0 => String::new(),
        _ if in_training == 0 => ", all in rows set aside".into(),
        others => format!(", {} in rows set aside", thousands(others)),
    }
}

fn without_target(table: &ReadTable<'_>) -> Option<String> {
    let rows = if table.without_target == 1 { "row has no target and is" } else { "rows have no target and are" };
    (table.without_target > 0).then(|| format!("{} {rows} left out", thousands(table.without_target)))
}

/// Categories that are too rare to have an element; `seen` has those of the training rows.
pub(super) fn rare(column: &str, lost: &Lost, seen: Option<&Seen>) -> Option<String> {
    let are = if lost.others == 1 { "is" } else { "are" };
    let set_aside = set_aside(lost.others, seen.map_or(lost.others, |seen| seen.others));
    (lost.others > 0).then(|| {
        format!(
            "{} of `{}`{set_aside}{} {are} of no frequent category of the training rows: {}",
            counted(thousands(lost.others), "field"),
            crate::shown(column),
            if set_aside.is_empty() { "" } else { "," },
            few(&lost.names)
        )
    })
}

fn unused(table: &ReadTable<'_>) -> Option<String> {
    let layout = &table.layout;
    let parts = layout.inputs.iter().chain(&layout.targets).flat_map(|part| &part.columns);
    let told = layout.left_out.iter().map(|(_, column)| column);
    let used: BTreeSet<usize> = parts.chain(&layout.weight).chain(told).copied().collect();
    let names: Vec<String> =
        (0..layout.width).filter(|index| !used.contains(index)).map(|index| layout.column(index).to_string()).collect();
    let columns = if names.len() == 1 { "column is" } else { "columns are" };
    (!names.is_empty()).then(|| format!("{} {columns} not used: {}", thousands(names.len()), few(&names)))
}

fn torn(table: &ReadTable<'_>) -> Option<String> {
    let first = table.source.line_of(Some(table.first_broken.as_ref()?));
    let rows = if table.broken_rows == 1 { "row has" } else { "rows have" };
    Some(format!(
        "{} {rows} fields of several lines, first {first}: is a quote not closed?",
        thousands(table.broken_rows)
    ))
}

/// Names columns whose values are large, or much smaller than others.
fn unscaled(table: &ReadTable<'_>) -> Option<String> {
    let mut sizes = Vec::new();
    for (part, input) in table.layout.inputs.iter().zip(&table.inputs) {
        let InputFields::Columns(columns) = input else { continue };
        for ((fields, encoding), &column) in columns.iter().zip(&part.encodings).zip(&part.columns) {
            let (Code::Number { offset: 0.0, scale: 1.0 }, Some(size)) = (&encoding.code, fields.size()) else {
                continue;
            };
            sizes.push((size, table.layout.column(column).to_string()));
        }
    }
    let largest = sizes.iter().map(|(size, _)| *size).fold(0.0, f64::max);
    let large: Vec<&String> = sizes.iter().filter(|(size, _)| *size > LARGE).map(|(_, name)| name).collect();
    let is_small = |size: f64| size > 0.0 && size < largest / VERY_DIFFERENT;
    let small: Vec<&String> = sizes.iter().filter(|(size, _)| is_small(*size)).map(|(_, name)| name).collect();
    let advice = "inputs learn best at about -1 to 1: scale";
    match (&large[..], &small[..]) {
        ([], []) => None,
        ([], _) => Some(format!("{advice} what is much smaller than the rest, {}", few(&small))),
        _ => Some(format!("{advice} what is larger, {}", few(&large))),
    }
}
