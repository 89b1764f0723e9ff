//! Tables and text that fit a terminal: the one place that knows how they look.

use std::fmt::{self, Display, Formatter};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::shown;

/// Columns between two columns of a table.
const GAP: usize = 2;
/// Columns that a column of words keeps, however narrow the terminal is.
const FEWEST: usize = 12;
/// No terminal is taken to be narrower.
const NARROWEST: usize = 20;

/// A table with a line under its header; words stand on the left of their columns, numbers on the right.
///
/// Names in cells are `shown`. By its precision it fits a width: columns of words wrap, numbers stay whole, and where
/// even that is too wide, each row is a list of its own.
///
/// ```
/// use manyhands_engine::table::Table;
/// let mut table = Table::new(["adapter", "rows"]).numbers([1]);
/// table.row(["0 Radeon".into(), "48".into()]);
/// assert_eq!(table.to_string(), "adapter   rows\n──────────────\n0 Radeon    48");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Table {
    header: Vec<String>,
    numbers: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table. Its header may hold line breaks.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Sets the columns that hold numbers.
    #[must_use]
    pub fn numbers(mut self, columns: impl IntoIterator<Item = usize>) -> Self {
        self.numbers = columns.into_iter().collect();
        self
    }

    /// Adds a row, of as many cells as the header has.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| shown(&cell).to_string()).collect());
    }

    /// The widths of the columns: their own, or those with which the table fits; `None` if it can't.
    fn widths(&self, most: Option<usize>) -> Option<Vec<usize>> {
        let columns = 0..self.header.len();
        let mut widths: Vec<usize> = columns.clone().map(|column| self.least(column)).collect();
        let natural: Vec<usize> = columns.map(|column| self.natural(column)).collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        let mut left = most.unwrap_or(usize::MAX).checked_sub(gaps + widths.iter().sum::<usize>())?;
        loop {
            // The column that lacks most is the next to grow.
            let lacks = |column: &usize| natural[*column].saturating_sub(widths[*column]);
            let Some(column) = (0..widths.len()).rev().max_by_key(lacks).filter(|column| lacks(column) > 0) else {
                return Some(widths);
            };
            if left == 0 {
                return Some(widths);
            }
            widths[column] += 1;
            left -= 1;
        }
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(move |row| row.get(column)).map(String::as_str)
    }

    fn natural(&self, column: usize) -> usize {
        let lines = self.header[column].lines().chain(self.cells(column));
        lines.map(UnicodeWidthStr::width).max().unwrap_or(0)
    }

    /// The width at which a column can still be read.
    fn least(&self, column: usize) -> usize {
        let header = self.header[column].split_whitespace().map(UnicodeWidthStr::width).max().unwrap_or(0);
        let cells = self.cells(column).map(UnicodeWidthStr::width).max().unwrap_or(0);
        if self.numbers.contains(&column) { header.max(cells) } else { header.max(cells.min(FEWEST)) }
    }

    fn columns(&self, widths: &[usize]) -> String {
        let line = "─".repeat(widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1));
        let mut lines = self.row_lines(&self.header, widths);
        lines.push(line);
        lines.extend(self.rows.iter().flat_map(|row| self.row_lines(row, widths)));
        lines.join("\n")
    }

    fn row_lines(&self, cells: &[String], widths: &[usize]) -> Vec<String> {
        let wrapped: Vec<Vec<String>> = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| cell.lines().flat_map(|line| wrap_words(line, *width)).collect())
            .collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let lines = (0..height).map(|idx| {
            let cells = wrapped.iter().zip(widths).enumerate().map(|(column, (lines, width))| {
                let text = lines.get(idx).map_or("", String::as_str);
                let space = " ".repeat(width.saturating_sub(text.width()));
                if self.numbers.contains(&column) { format!("{space}{text}") } else { format!("{text}{space}") }
            });
            cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned()
        });
        lines.collect()
    }

    /// Each row as a list of what its cells are.
    fn lists(&self, most: usize) -> String {
        let names: Vec<String> = self.header.iter().map(|name| name.replace('\n', " ")).collect();
        let name_width = names.iter().map(|name| name.width()).max().unwrap_or(0).min(most / 2);
        let rest = most.saturating_sub(name_width + GAP).max(1);
        let list = |row: &Vec<String>| {
            let cells = names.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
            let lines = cells.flat_map(|(name, cell)| {
                let (name, cell) = (wrap_words(name, name_width), wrap_words(cell, rest));
                (0..name.len().max(cell.len())).map(move |idx| {
                    let of = |lines: &[String]| lines.get(idx).cloned().unwrap_or_default();
                    let name = of(&name);
                    let space = " ".repeat(name_width + GAP - name.width());
                    format!("{name}{space}{}", of(&cell)).trim_end().to_owned()
                })
            });
            lines.collect::<Vec<_>>().join("\n")
        };
        self.rows.iter().map(list).collect::<Vec<_>>().join("\n\n")
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let most = f.precision().map(|most| most.max(NARROWEST));
        match (self.widths(most), most) {
            (Some(widths), _) => f.write_str(&self.columns(&widths)),
            (None, most) => f.write_str(&self.lists(most.unwrap_or(usize::MAX))),
        }
    }
}

/// Text whose lines are at most so many columns wide: longer ones break between words, or within one that is too long.
///
/// Of a line that breaks, what follows stands two columns further in than its beginning.
///
/// ```
/// use manyhands_engine::table::wrap;
/// assert_eq!(wrap("one two three four five six", 20), "one two three four\n  five six");
/// ```
pub fn wrap(text: &str, columns: usize) -> String {
    let columns = columns.max(NARROWEST);
    let lines = text.split('\n').flat_map(|line| {
        if line.width() <= columns {
            return vec![line.to_owned()];
        }
        let indent = (line.len() - line.trim_start_matches(' ').len()).min(columns / 4);
        let wrapped = wrap_words(line.trim_start_matches(' '), columns - indent - 2);
        let indented = wrapped.iter().enumerate().map(|(idx, line)| {
            let indent = if idx == 0 { indent } else { indent + 2 };
            format!("{}{line}", " ".repeat(indent))
        });
        indented.collect()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Positions where a line may break: after each word; in a list of values separated by several spaces, after each.
fn pieces(text: &str) -> Vec<&str> {
    if !text.trim_end().contains("  ") {
        return text.split_inclusive(' ').collect();
    }
    let ends = text.char_indices().filter(|(at, _)| {
        let (before, rest) = text.split_at(*at);
        (before.ends_with("  ") || before.ends_with(", ")) && !rest.starts_with(' ')
    });
    let bounds: Vec<usize> = std::iter::once(0).chain(ends.map(|(at, _)| at)).chain([text.len()]).collect();
    bounds.windows(2).map(|bounds| &text[bounds[0]..bounds[1]]).collect()
}

/// The lines of one line of text; at least one.
fn wrap_words(text: &str, columns: usize) -> Vec<String> {
    let mut pieces = pieces(text);
    if pieces.iter().any(|piece| piece.trim_end().width() > columns) {
        pieces = text.split_inclusive(' ').collect();
    }
    let mut lines = vec![String::new()];
    let mut width = 0;
    for word in pieces {
        let bare = word.trim_end_matches(' ').width();
        if width > 0 && width + bare > columns {
            lines.push(String::new());
            width = 0;
        }
        for character in word.chars() {
            let wide = character.width().unwrap_or(0);
            if width + wide > columns && character == ' ' {
                continue;
            }
            let Some(line) = lines.last_mut() else { continue };
            if width > 0 && width + wide > columns {
                // Names break behind their parts.
                let rest = line.rfind(['_', '/', '-', '.']).filter(|_| bare > columns);
                let rest = rest.map(|at| line.split_off(at + 1)).unwrap_or_default();
                width = rest.width();
                lines.push(rest);
            }
            if let Some(line) = lines.last_mut() {
                line.push(character);
            }
            width += wide;
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// A part as percents: `40 %`.
pub fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["adapter", "kind", "rows/s\nwhen busy", "share"]).numbers([2, 3]);
        table.row(["0 NVIDIA GeForce RTX 3060 Laptop GPU", "discrete GPU", "12345", "90 %"].map(String::from));
        table.row(["1 CPU\u{1b}[2J", "CPU", "7", "10 %"].map(String::from));
        table
    }

    fn widest(text: &str) -> usize {
        text.lines().map(UnicodeWidthStr::width).max().unwrap_or(0)
    }

    #[test]
    fn a_table_fits_any_width() {
        assert_eq!(widest(&table().to_string()), 36 + 2 + 12 + 2 + 9 + 2 + 5);
        for columns in [200, 80, 60, 40, 20] {
            let text = format!("{:.columns$}", table());
            assert!(widest(&text) <= columns, "{columns}:\n{text}");
            assert!(text.contains("12345") && text.contains("90 %"), "numbers stay whole at {columns}:\n{text}");
        }
    }

    #[test]
    fn names_wrap_between_words_and_numbers_stand_on_the_right() {
        let expected = "
adapter               kind          rows/s  share
                                      when
                                      busy
─────────────────────────────────────────────────
0 NVIDIA GeForce RTX  discrete GPU   12345   90 %
3060 Laptop GPU
1 CPU\\u{1b}[2J        CPU                7   10 %";
        assert_eq!(format!("\n{:.49}", table()), expected);
    }

    #[test]
    fn what_is_too_narrow_for_columns_is_a_list_for_each_row() {
        let text = format!("{:.40}", table());
        let expected = "adapter           0 NVIDIA GeForce RTX\n                  3060 Laptop GPU\nkind              discrete GPU\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("\n\nadapter           1 CPU\\u{1b}[2J\n"), "{text}");
    }

    #[test]
    fn text_breaks_between_words() {
        assert_eq!(wrap("short", 40), "short");
        assert_eq!(wrap("  help: name one of these, or none", 24), "  help: name one of\n    these, or none");
        assert_eq!(wrap("aaaaaaaaaaaaaaaaaaaaaaaaa", 20), "aaaaaaaaaaaaaaaaaa\n  aaaaaaa");
        assert_eq!(
            wrap("epoch 1/2  loss 0.1234, accuracy 0.5  1 s", 26),
            "epoch 1/2  loss 0.1234,\n  accuracy 0.5  1 s"
        );
        assert_eq!(
            wrap("saved to runs/of_today/batch_normalization_1.safetensors", 30),
            "saved to\n  runs/of_today/batch_\n  normalization_1.safetensors"
        );
        assert_eq!(widest(&wrap(&"漢字".repeat(30), 21)), 20);
    }
}
