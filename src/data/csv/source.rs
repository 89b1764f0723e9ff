//! The bytes of a table: read from its file each time, or kept in memory where that is not possible.

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ::csv::Position;
use manyhands_engine::files::{from_utf16, is_utf16};

use crate::data::source;
use crate::{Error, Result, shown};

/// A table's file.
#[derive(Debug)]
pub(super) struct TableSource {
    path: PathBuf,
    /// The whole table, if its file can't be read twice or is not UTF-8.
    text: Option<Vec<u8>>,
}

impl TableSource {
    pub fn open(path: &Path) -> Result<Self> {
        let mut start = Vec::new();
        let is_regular = source::is_regular(path)?;
        if is_regular {
            let read = File::open(path).and_then(|file| file.take(2).read_to_end(&mut start));
            read.map_err(|error| Error::reading(path, error))?;
        }
        let text = if is_regular && !is_utf16(&start) { None } else { Some(utf8(path, source::read(path)?)?) };
        Ok(Self { path: path.into(), text })
    }

    /// The name, for messages.
    pub fn named(&self) -> String {
        format!("`{}`", shown(&self.path))
    }

    /// The path of a file that is read each time as it is.
    pub fn file(&self) -> Option<&Path> {
        self.text.is_none().then_some(&*self.path)
    }

    /// Reads from a byte on.
    pub fn read_from(&self, byte: u64) -> Result<Box<dyn Read + '_>> {
        let Some(text) = &self.text else {
            let open = || {
                let mut file = File::open(&self.path)?;
                file.seek(SeekFrom::Start(byte))?;
                Ok(file)
            };
            return Ok(Box::new(open().map_err(|error| self.unreadable(error))?));
        };
        let mut text = Cursor::new(&text[..]);
        text.set_position(byte);
        Ok(Box::new(text))
    }

    pub fn unreadable(&self, error: std::io::Error) -> Error {
        Error::reading(&self.path, error)
    }

    /// The file and the line where a record starts, counted from 1.
    ///
    /// The reader's own line is that of the end of the record before, which blank lines keep apart, so
    /// the file is read again up to there.
    pub fn line_of(&self, position: Option<&Position>) -> String {
        let Some(position) = position else { return self.named() };
        let Ok(text) = self.read_from(0) else { return self.named() };
        let (mut line, mut before) = (1, b' ');
        for (at, byte) in BufReader::new(text).bytes().map_while(Result::ok).enumerate() {
            if at as u64 >= position.byte() && !b"\r\n".contains(&byte) {
                break;
            }
            // A line ends with LF, CR or both.
            line += usize::from(byte == b'\r' || (byte == b'\n' && before != b'\r'));
            before = byte;
        }
        format!("{} line {line}", self.named())
    }
}

/// A table as UTF-8, from UTF-16 if it starts so.
fn utf8(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>> {
    from_utf16(bytes).ok_or_else(|| {
        Error::data(
            format!("`{}`", shown(path)),
            "starts as UTF-16, but has bytes that are none",
            "save the table as UTF-8: spreadsheets call it \"CSV UTF-8\"",
        )
    })
}
