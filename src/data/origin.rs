//! Origins of rows, for people: a file, a line, and its fields as they are there.

use std::fmt;

use crate::{shown, thousands};

/// Origin of a row: what a person needs to find it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its file: `table.csv`, `cats/7.png`.
    pub file: String,
    /// Line of the file on which it begins, from 1, in a table.
    pub line: Option<u64>,
    /// Names of the input columns, and the fields as they stand in the file.
    pub fields: Vec<(String, String)>,
}

/// ``line 17 of `table.csv` ``, or the file alone.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {} of `{}`", thousands(line), shown(&self.file)),
            None => write!(f, "`{}`", shown(&self.file)),
        }
    }
}

/// Finds the origins of rows that are in memory.
pub(super) trait FindsOrigins: fmt::Debug + Send + Sync {
    /// The origins of these rows, in their order; none if one is not found.
    fn origins(&self, rows: &[usize]) -> Vec<Origin>;
}
