//! Files that are read whole or line by line. They may come from strangers: a pipe or a device is not opened, since that may wait
//! for ever, and no memory is taken before the size is known.

use std::fs::File;
use std::io::Read;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use super::utf16::from_utf16;
use crate::error::{Error, ErrorKind, Result};
use crate::shown::{bytes as amount, shown};

/// Most bytes of a text: settings, rigs, results, records. Ours have up to a few MB.
pub const MOST_TEXT_BYTES: u64 = 64 << 20;
/// Most bytes of a line of a log. A step on a hundred adapters has some 10 kB.
const MOST_LINE_BYTES: u64 = 1 << 20;

/// Opens a file, but no pipe and no device.
///
/// # Errors
/// If it is one, or can't be read.
pub fn open(path: &Path) -> Result<File> {
    let reading = |error| Error::reading(path, error);
    // Opening a pipe waits for its writer, so its kind is asked for before.
    let metadata = path.metadata().map_err(reading)?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(Error::setting(
            format!("the file `{}`", shown(path)),
            "needs to be a file that can be read again, but is a pipe or a device",
            "write its contents to a file first",
        ));
    }
    File::open(path).map_err(reading)
}

/// All bytes of a file.
///
/// # Errors
/// If it is longer than `most` bytes or than memory allows, is a pipe or a device, or can't be read.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let reading = |error| Error::reading(path, error);
    let len = file.metadata().map_err(reading)?.len();
    let refuse = |limit: String| {
        let problem = format!("needs to have at most {limit}, but has {}", amount(len));
        Error::setting(format!("the file `{}`", shown(path)), problem, "it is damaged, or another program's")
    };
    if len > most {
        return Err(refuse(amount(most)));
    }
    let mut bytes = Vec::new();
    let reserved = usize::try_from(len).is_ok_and(|len| bytes.try_reserve_exact(len).is_ok());
    if !reserved {
        return Err(refuse("the memory that is free".into()));
    }
    // It may have grown since.
    file.take(most).read_to_end(&mut bytes).map_err(reading)?;
    Ok(bytes)
}

/// A whole text of up to 64 MiB, in UTF-8, or in UTF-16 that says so by its mark.
///
/// # Errors
/// As [`read`] and [`text_of`].
pub fn read_text(path: &Path) -> Result<String> {
    text_of(path, read(path, MOST_TEXT_BYTES)?)
}

/// The text of a file's bytes: UTF-8, or UTF-16 that says so by its mark.
///
/// # Errors
/// If it is in another encoding.
pub fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String> {
    let refuse = |problem: &str, help: &str| Error::new(ErrorKind::File, format!("`{}`", shown(path)), problem, help);
    let bytes = from_utf16(bytes)
        .ok_or_else(|| refuse("starts as UTF-16, but has bytes that are none", "save it again, as UTF-8"))?;
    if bytes.iter().take(4).any(|byte| *byte == 0) {
        let problem = "needs UTF-8 text, but starts with zero bytes, as UTF-16 without its mark does";
        return Err(refuse(problem, "save it as UTF-8, or convert it: `iconv -f utf-16le -t utf-8`"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        let problem = format!("needs UTF-8 text, but has other bytes at byte {at}, in line {line}");
        refuse(&problem, "save it as UTF-8, or convert it: `iconv -f latin1 -t utf-8` if it is Latin-1")
    })
}

/// Calls a function with each line of a file, its end included.
///
/// # Errors
/// If a line is longer than any of ours, the file is a pipe or a device, or can't be read; the function's own.
pub fn each_line(path: &Path, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut lines = BufReader::new(open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.by_ref().take(MOST_LINE_BYTES + 1).read_until(b'\n', &mut line);
        if read.map_err(|error| Error::reading(path, error))? == 0 {
            return Ok(());
        }
        if line.len() as u64 > MOST_LINE_BYTES {
            let problem = format!("needs lines of at most {}, but has a longer one", amount(MOST_LINE_BYTES));
            let who = format!("the file `{}`", shown(path));
            return Err(Error::setting(who, problem, "it is damaged, or another program's"));
        }
        each(&line)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_and_lines_are_refused_before_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        // A file with a hole takes no room on the disk.
        File::create(&path).unwrap().set_len(1 << 43).unwrap();
        let problem = |result: Result<String>| result.unwrap_err().to_string();
        assert!(problem(read_text(&path)).contains("needs to have at most "));
        let endless = problem(read(&path, u64::MAX).map(|_| String::new()));
        assert!(endless.contains("needs to have at most the memory that is free, but has "), "{endless}");
        let line = each_line(&path, |_| Ok(())).map(|()| String::new());
        assert!(problem(line).contains("but has a longer one"));
        std::fs::write(&path, "one\r\ntwo\n\nlast").unwrap();
        let mut lines = Vec::new();
        each_line(&path, |line| {
            lines.push(String::from_utf8_lossy(line).into_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(lines, ["one\r\n", "two\n", "\n", "last"]);
        assert_eq!(read_text(&path).unwrap(), "one\r\ntwo\n\nlast");
        assert!(read(&path, 3).unwrap_err().to_string().contains("needs to have at most 3 bytes"));
    }

    #[test]
    fn encodings_are_read_or_named() {
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let text = |bytes: Vec<u8>| text_of(Path::new("a.txt"), bytes).map_err(|error| error.to_string());
        assert_eq!(text("caf\u{e9}".into()).unwrap(), "caf\u{e9}");
        assert_eq!(text(wide("\u{feff}caf\u{e9}")).unwrap(), "caf\u{e9}");
        for (bytes, problem) in [
            (b"one\ncaf\xe9".to_vec(), "`a.txt` needs UTF-8 text, but has other bytes at byte 7, in line 2\n"),
            (wide("one"), "needs UTF-8 text, but starts with zero bytes, as UTF-16 without its mark does"),
            (vec![0xff, 0xfe, b'o'], "starts as UTF-16, but has bytes that are none"),
        ] {
            let error = text(bytes).unwrap_err();
            assert!(error.contains(problem) && error.contains("UTF-8"), "{error}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pipes_and_devices_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&pipe, Path::new("/dev/zero")] {
            let error = read_text(path).unwrap_err().to_string();
            assert!(error.contains("but is a pipe or a device"), "{error}");
        }
        assert!(read_text(folder.path()).is_err(), "a folder");
    }
}
