//! Names as messages show them: what a terminal would obey is escaped.

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter, Write};

/// A name from outside, such as a file's, as a message may show it on any terminal.
///
/// Control characters, and those that turn the direction of text, are written as in Rust: `\u{1b}`; bytes that are no
/// UTF-8 as `\xe9`. All else stays as it is, so two names that differ are never shown alike where neither has a backslash.
///
/// ```
/// use std::path::Path;
/// use manyhands_engine::shown;
/// assert_eq!(shown(Path::new("photos/Ägypten 1.jpg")).to_string(), "photos/Ägypten 1.jpg");
/// assert_eq!(shown("\u{1b}[31mred\n").to_string(), r"\u{1b}[31mred\n");
/// ```
pub fn shown<T: AsRef<OsStr> + ?Sized>(name: &T) -> Shown<'_> {
    Shown(name.as_ref())
}

/// Result of [`shown`].
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(&'a OsStr);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for chunk in self.0.as_encoded_bytes().utf8_chunks() {
            for character in chunk.valid().chars() {
                if is_obeyed(character) {
                    write!(f, "{}", character.escape_default())?
                } else {
                    f.write_char(character)?
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

/// Whether a terminal, or a program that lays out its text, acts on this character instead of showing it.
pub fn is_obeyed(character: char) -> bool {
    // Marks, embeddings, overrides and isolates of direction; separators of lines and paragraphs; the byte-order mark.
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A whole number with its digits in groups of three: `9,990`.
///
/// ```
/// assert_eq!(manyhands_engine::thousands(1_234_567), "1,234,567");
/// assert_eq!(manyhands_engine::thousands(format_args!("{:.0}", 999.7)), "1,000");
/// ```
pub fn thousands(number: impl Display) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// A number of things in words: `1 epoch`, `2 epochs`.
///
/// ```
/// use manyhands_engine::shown::counted;
/// assert_eq!([counted(1, "row"), counted(0, "row")], ["1 row", "0 rows"]);
/// ```
pub fn counted(count: impl Display, what: &str) -> String {
    let count = count.to_string();
    let end = if count == "1" { "" } else { "s" };
    format!("{count} {what}{end}")
}

/// An amount of memory.
///
/// ```
/// use manyhands_engine::shown::bytes;
/// assert_eq!([999_999, 12_345_678, 6_000_000_000].map(bytes), ["999,999 bytes", "12.3 MB", "6.00 GB"]);
/// ```
#[allow(clippy::cast_precision_loss, reason = "shown with few digits")]
pub fn bytes(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".into(),
        0..1_000_000 => format!("{} bytes", thousands(bytes)),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_terminals_obey_is_escaped() {
        for (name, expected) in [
            ("a b–ü漢", "a b–ü漢"),
            ("\u{1b}]0;title\u{7}", r"\u{1b}]0;title\u{7}"),
            ("\u{9b}31m\u{7f}", r"\u{9b}31m\u{7f}"),
            ("exe.\u{202e}gpj", r"exe.\u{202e}gpj"),
            ("two\r\nlines", r"two\r\nlines"),
        ] {
            assert_eq!(shown(name).to_string(), expected);
        }
    }

    #[cfg(unix)]
    #[test]
    fn bytes_that_are_no_text_are_shown() {
        use std::os::unix::ffi::OsStrExt;
        assert_eq!(shown(OsStr::from_bytes(b"caf\xe9/\xffx")).to_string(), r"caf\xe9/\xffx");
    }
}
