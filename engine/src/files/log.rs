//! Logs, which grow line by line in place.

use std::fs::{File, TryLockError};
use std::path::Path;

use super::{FileKind, each_line};
use crate::error::{Error, Result};
use crate::shown;

/// Starts a log anew.
///
/// # Errors
/// If the file holds something else, another run writes it, or it can't be written.
pub fn create_log(path: &Path, kind: FileKind) -> Result<File> {
    kind.check(path)?;
    let file = File::options().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(|error| Error::writing(path, error))?;
    lock(&file, path)?;
    // A pipe has no length.
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        file.set_len(0).map_err(|error| Error::writing(path, error))?;
    }
    Ok(file)
}

/// Opens a log to continue it after the lines to keep; the first other line, and all after it, are cut off.
///
/// # Errors
/// As [`create_log`].
pub fn resume_log(path: &Path, kind: FileKind, is_kept: impl Fn(&str) -> bool) -> Result<File> {
    kind.check(path)?;
    let file = File::options().append(true).create(true).open(path).map_err(|error| Error::writing(path, error))?;
    lock(&file, path)?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(file);
    }
    let (mut kept, mut is_over) = (0, false);
    each_line(path, |line| {
        // A line without its end was cut off in the middle.
        is_over = is_over || !line.ends_with(b"\n") || !is_kept(String::from_utf8_lossy(line).trim_end());
        kept += if is_over { 0 } else { line.len() as u64 };
        Ok(())
    })?;
    file.set_len(kept).map_err(|error| Error::writing(path, error))?;
    Ok(file)
}

/// Refuses a log that another run writes. Windows would lock readers out, too.
fn lock(file: &File, path: &Path) -> Result<()> {
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if cfg!(windows) || !is_file || !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Ok(());
    }
    Err(Error::setting(
        format!("the log `{}`", shown(path)),
        "needs to be written by one run at a time, but another writes it now",
        "wait for its end, or name another file; nothing was written",
    ))
}
