//! Quotes of a table that are not closed: they take the fields and lines behind them for their own.

use std::io::Read;

use ::csv::Position;

use super::source::TableSource;
use crate::{Error, Result};

/// Most bytes of a row: a longer one has an unclosed quote, or the file is no table.
pub const MAX_ROW_BYTES: u64 = 16 << 20;

pub(super) const QUOTE_HELP: &str = "close the quote; a quote within a quoted field is written twice: `\"\"`";

/// Refuses a table whose last row, from this byte on, holds a quote that is never closed: it contains all later lines.
pub(super) fn check_last_quote(source: &TableSource, delimiter: u8, last_row: u64) -> Result<()> {
    let mut text = Vec::new();
    // What follows a longer rest than a row may have is no part of an open quote.
    let rest = source.read_from(last_row)?.take(2 * MAX_ROW_BYTES).read_to_end(&mut text);
    rest.map_err(|error| source.unreadable(error))?;
    if text.len() as u64 == 2 * MAX_ROW_BYTES || !ends_in_quotes(&text, delimiter) {
        return Ok(());
    }
    let mut position = Position::new();
    position.set_byte(last_row);
    Err(Error::data(source.line_of(Some(&position)), "needs a closing quote, but the file ends first", QUOTE_HELP))
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
