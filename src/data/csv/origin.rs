//! Finds rows of a table in its file again, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ::csv::{Position, ReaderBuilder, StringRecord, Trim};

use crate::data::Origin;
use crate::data::origin::FindsOrigins;

/// A table on the disk, read again when its rows are asked for.
#[derive(Debug)]
pub(super) struct TableFile {
    pub path: PathBuf,
    pub state: FileState,
    pub delimiter: u8,
    pub has_head: bool,
    /// Input columns, and their names.
    pub columns: Vec<(usize, String)>,
    /// Columns without whose fields a row was left out, and the fields that count as missing.
    pub targets: Vec<usize>,
    pub missing: BTreeSet<String>,
    /// Rows that were read.
    pub rows: usize,
}

/// State of a file: another one has other rows.
#[derive(Debug, PartialEq)]
pub(super) struct FileState {
    bytes: u64,
    changed: Option<SystemTime>,
}

impl FileState {
    /// `None` of a pipe, which gives its rows only once.
    fn of(path: &Path) -> Option<Self> {
        let is_file = |metadata: &Metadata| metadata.is_file();
        let metadata = std::fs::metadata(path).ok().filter(is_file)?;
        Some(Self { bytes: metadata.len(), changed: metadata.modified().ok() })
    }
}

/// A row as it stands in the file: its first byte, and its input fields.
type FoundRow = (u64, Vec<(String, String)>);

impl TableFile {
    /// A table without columns; `None` if it can't be read twice.
    pub fn of(path: &Path) -> Option<Self> {
        Some(Self {
            path: path.to_path_buf(),
            state: FileState::of(path)?,
            delimiter: b',',
            has_head: false,
            columns: Vec::new(),
            targets: Vec::new(),
            missing: BTreeSet::new(),
            rows: 0,
        })
    }

    pub fn shared(self) -> Arc<dyn FindsOrigins> {
        Arc::new(self)
    }

    fn is_left_out(&self, record: &StringRecord) -> bool {
        self.targets.iter().any(|column| record.get(*column).is_some_and(|field| self.missing.contains(field)))
    }

    /// The records of some rows; `None` if the file does not have as many as were read.
    fn found(&self, rows: &BTreeSet<usize>) -> ::csv::Result<Option<BTreeMap<usize, FoundRow>>> {
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).delimiter(self.delimiter).trim(Trim::All).flexible(true);
        let mut reader = builder.from_path(&self.path)?;
        let (mut found, mut row, mut is_head) = (BTreeMap::new(), 0, self.has_head);
        let mut record = StringRecord::new();
        while reader.read_record(&mut record)? {
            if std::mem::take(&mut is_head) || self.is_left_out(&record) {
                continue;
            }
            if rows.contains(&row) {
                let field = |(column, name): &(usize, String)| Some((name.clone(), record.get(*column)?.to_owned()));
                let fields = self.columns.iter().filter_map(field).collect();
                found.insert(row, (record.position().map_or(0, Position::byte), fields));
            }
            row += 1;
        }
        Ok((row == self.rows).then_some(found))
    }

    fn read(&self, rows: &[usize]) -> ::csv::Result<Option<Vec<Origin>>> {
        if FileState::of(&self.path).as_ref() != Some(&self.state) {
            return Ok(None);
        }
        let Some(found) = self.found(&rows.iter().copied().collect())? else { return Ok(None) };
        let lines = lines_at(&self.path, found.values().map(|(byte, _)| *byte).collect())?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let origin = |row: &usize| {
            let (byte, fields) = found.get(row)?;
            Some(Origin { file: name.clone(), line: lines.get(byte).copied(), fields: fields.clone() })
        };
        Ok(rows.iter().map(origin).collect())
    }
}

impl FindsOrigins for TableFile {
    fn origins(&self, rows: &[usize]) -> Vec<Origin> {
        let read = self.read(rows).unwrap_or_else(|error| {
            log::debug!("rows are not found again: {error}");
            None
        });
        read.unwrap_or_default()
    }
}

/// The lines, from 1, of records that begin at these bytes, or behind blank lines there.
fn lines_at(path: &Path, starts: BTreeSet<u64>) -> io::Result<BTreeMap<u64, u64>> {
    let (mut lines, mut line, mut before) = (BTreeMap::new(), 1, 0);
    let mut starts = starts.into_iter().peekable();
    for (at, byte) in (0..).zip(BufReader::new(File::open(path)?).bytes()) {
        let byte = byte?;
        // A line ends with LF, CRLF or CR.
        line += u64::from(before == b'\n' || (before == b'\r' && byte != b'\n'));
        before = byte;
        if !b"\r\n".contains(&byte) {
            while let Some(start) = starts.next_if(|start| *start <= at) {
                lines.insert(start, line);
            }
        }
        if starts.peek().is_none() {
            break;
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn rows_are_found_with_the_lines_of_an_editor() {
        // Blank lines, a field of two lines, a row without a target, CRLF and LF.
        let text = "x,y,name\r\n1.50,a,\"two\nlines\"\r\n\r\n\n-2,b,\n3,NA,c\n004, a ,d";
        let (_folder, path) = file(text);
        let table = TableFile {
            has_head: true,
            columns: vec![(2, "name".into()), (0, "x".into())],
            targets: vec![1],
            missing: ["NA".to_owned()].into(),
            rows: 3,
            ..TableFile::of(&path).unwrap()
        };
        let found = table.origins(&[2, 0, 1]);
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["line 8 of `a.csv`", "line 2 of `a.csv`", "line 6 of `a.csv`"]);
        let fields = |name: &str, x: &str| vec![("name".to_owned(), name.to_owned()), ("x".to_owned(), x.to_owned())];
        assert_eq!(found[0].fields, fields("d", "004"));
        assert_eq!(found[1].fields, fields("two\nlines", "1.50"));
        assert_eq!(found[2].fields, fields("", "-2"));
    }

    #[test]
    fn a_file_that_has_changed_tells_nothing() {
        let (folder, path) = file("1,2\n3,4\n");
        let table = || TableFile { columns: vec![(0, "x".into())], rows: 2, ..TableFile::of(&path).unwrap() };
        let before = table();
        assert_eq!(before.origins(&[1]).len(), 1);
        assert_eq!(TableFile { rows: 3, ..table() }.origins(&[1]), []);
        std::fs::write(&path, "1,2\n3,4\n5,6\n").unwrap();
        assert_eq!(before.origins(&[1]), []);
        assert!(TableFile::of(folder.path()).is_none());
    }
}
