//! Notes of a table's reader: unused columns, rows that look torn, inputs that should be scaled.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::{Input, Position, Table, line_of};
use crate::schema::few;
use crate::{Error, Result, thousands};

/// Root mean square above which a column is large: layers start with weights for values around 1.
const LARGE: f64 = 20.0;
/// Largest over smallest column above which their sizes are very different.
const VERY_DIFFERENT: f64 = 100.0;

pub(super) fn notes(table: &Table) -> Vec<String> {
    [unused(table), torn(table), unscaled(table)].into_iter().flatten().collect()
}

fn unused(table: &Table) -> Option<String> {
    let layout = &table.layout;
    let parts = layout.inputs.iter().chain(&layout.targets).flat_map(|part| &part.columns);
    let used: BTreeSet<usize> = parts.chain(&layout.weight).copied().collect();
    let names: Vec<String> =
        (0..layout.width).filter(|index| !used.contains(index)).map(|index| layout.column(index).to_string()).collect();
    let columns = if names.len() == 1 { "column is" } else { "columns are" };
    (!names.is_empty()).then(|| format!("{} {columns} not used: {}", thousands(names.len()), few(&names)))
}

fn torn(table: &Table) -> Option<String> {
    let first = line_of(&table.path, Some(table.first_broken.as_ref()?));
    let rows = if table.broken_rows == 1 { "row has" } else { "rows have" };
    Some(format!(
        "{} {rows} fields of several lines, first {first}: is a quote not closed?",
        thousands(table.broken_rows)
    ))
}

/// Names columns whose values are large, or much smaller than others.
fn unscaled(table: &Table) -> Option<String> {
    let mut sizes = Vec::new();
    for (part, values) in table.layout.inputs.iter().zip(&table.inputs) {
        let Input::Numbers(values) = values else { continue };
        let width = part.columns.len();
        for (place, &column) in part.columns.iter().enumerate() {
            let squares: f64 = values.iter().skip(place).step_by(width).map(|x| f64::from(*x).powi(2)).sum();
            #[allow(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^52")]
            sizes.push(((squares / table.rows as f64).sqrt(), table.layout.column(column).to_string()));
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

/// Refuses a table whose last row holds a quote that is never closed: it contains all later lines.
pub(super) fn check_last_quote(path: &Path, delimiter: u8, last_row: u64) -> Result<()> {
    let read = || {
        let mut file = std::fs::File::open(path)?;
        file.seek(SeekFrom::Start(last_row))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|source| Error::reading(path, source))?;
    if !ends_in_quotes(&text, delimiter) {
        return Ok(());
    }
    let mut position = Position::new();
    position.set_byte(last_row);
    Err(Error::data(
        line_of(path, Some(&position)),
        "needs a closing quote, but the file ends first",
        "close the quote; a quote within a quoted field is written twice: `\"\"`",
    ))
}

/// Whether a text ends in the middle of a quoted field. Quotes count at the start of a field, and within it.
fn ends_in_quotes(text: &[u8], delimiter: u8) -> bool {
    let (mut is_quoted, mut is_start) = (false, true);
    for &byte in text {
        match byte {
            b'"' if is_quoted || is_start => is_quoted = !is_quoted,
            _ => {}
        }
        // A quote after a closing one opens again: two quotes are one quote in the field.
        is_start = !is_quoted && (byte == b'"' || byte == delimiter || byte == b'\n' || byte == b'\r');
    }
    is_quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_followed() {
        for (text, expected) in [
            ("1,\"a", true),
            ("1,\"a\"", false),
            ("1,\"a\"\"", true),
            ("1,\"a\"\"\"\n", false),
            ("1,a\"b\n", false),
            ("\"a,b\n2\",\"c", true),
            ("\"\",\"\"\n", false),
        ] {
            assert_eq!(ends_in_quotes(text.as_bytes(), b','), expected, "{text}");
        }
    }
}
