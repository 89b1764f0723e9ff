//! Places in a table, for messages.

use std::path::Path;

use ::csv::Position;

use crate::shown;

pub(super) fn named(path: &Path) -> String {
    format!("`{}`", shown(path))
}

/// The file and the line where a record starts, counted from 1.
///
/// The reader's own line is that of the end of the record before, which blank lines keep apart, so
/// the file is read again up to there.
pub(super) fn line_of(path: &Path, position: Option<&Position>) -> String {
    let Some(position) = position else { return named(path) };
    let text = std::fs::read(path).unwrap_or_default();
    let before = usize::try_from(position.byte()).unwrap_or(usize::MAX).min(text.len());
    let blank = text[before..].iter().take_while(|byte| b"\r\n".contains(byte)).count();
    let ends_line = |(at, byte): &(usize, &u8)| match byte {
        b'\n' => true,
        b'\r' => text.get(at + 1) != Some(&b'\n'),
        _ => false,
    };
    let line = 1 + text[..before + blank].iter().enumerate().filter(ends_line).count();
    format!("{} line {line}", named(path))
}
