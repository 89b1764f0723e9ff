//! Lets only one run at a time write a file.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::identity::{folder_of, target};
use crate::error::{Error, Result};
use crate::shown;

/// The right to replace a file, until this is dropped or the process ends: a lock on a hidden file beside it.
#[derive(Debug)]
pub struct Lock {
    /// The lock; `None` where a system has none.
    held: Option<(File, PathBuf)>,
}

/// Result of trying to lock.
enum LockAttempt {
    Held(File),
    /// The earlier owner has just removed the file.
    Gone,
    /// Another has it: its process.
    Taken(String),
    /// There are no locks here.
    None(std::io::Error),
}

impl Lock {
    /// Takes the lock of a file.
    ///
    /// # Errors
    /// If another run has it, or nothing can be written beside the file.
    pub fn take(path: &Path) -> Result<Self> {
        let writing = |error| Error::writing(path, error);
        let target = target(path).map_err(writing)?;
        if target.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(Self { held: None });
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let beside = folder_of(&target).join(format!(".{name}.lock"));
        // The process' number would replace what a link leads to.
        if beside.is_symlink() {
            return Err(Error::setting(
                format!("the lock `{}`", shown(&beside)),
                "needs to be a file of this program, but is a link",
                "remove it, or save to another folder",
            ));
        }
        loop {
            match try_lock(&beside).map_err(writing)? {
                LockAttempt::Held(file) => return Ok(Self { held: Some((file, beside)) }),
                LockAttempt::Gone => {}
                LockAttempt::Taken(process) => {
                    return Err(Error::setting(
                        format!("the file `{}`", shown(path)),
                        format!("needs to be written by one run at a time, but another{process} writes it now"),
                        "wait for its end, or save to another file (`--save`); nothing was written",
                    ));
                }
                LockAttempt::None(error) => {
                    log::warn!("`{}` can't be locked: {error}\n  help: let no other run save there", shown(path));
                    return Ok(Self { held: None });
                }
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is held: a run that opened it meanwhile finds it gone, and retries.
        if let Some((_, path)) = &self.held
            && let Err(error) = std::fs::remove_file(path)
        {
            log::debug!("`{}` can't be removed: {error}", shown(path));
        }
    }
}

fn try_lock(path: &Path) -> std::io::Result<LockAttempt> {
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) if is_there(&file, path) => {
            if let Err(error) = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())) {
                // As on a full disk: what can't be removed either is taken by the next run.
                drop(std::fs::remove_file(path));
                return Err(error);
            }
            Ok(LockAttempt::Held(file))
        }
        Ok(()) => Ok(LockAttempt::Gone),
        Err(TryLockError::WouldBlock) => Ok(LockAttempt::Taken(process(&mut file))),
        Err(TryLockError::Error(error)) => Ok(LockAttempt::None(error)),
    }
}

/// The process that wrote its number, in words; empty if it can't be read.
fn process(file: &mut File) -> String {
    let mut number = String::new();
    let read = file.rewind().and_then(|()| file.take(20).read_to_string(&mut number));
    let is_number = !number.is_empty() && number.bytes().all(|letter| letter.is_ascii_digit());
    if read.is_ok() && is_number { format!(" (process {number})") } else { String::new() }
}

/// Whether a path still leads to an open file.
#[cfg(unix)]
pub(super) fn is_there(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata().map(id), path.metadata().map(id)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(not(unix))]
pub(super) fn is_there(_file: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_a_lock_and_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let lock = Lock::take(&path).unwrap();
        let error = Lock::take(&folder.path().join("./a")).unwrap_err().to_string();
        assert!(error.contains(&format!("but another (process {}) writes it now", std::process::id())), "{error}");
        drop(Lock::take(&folder.path().join("b")).unwrap());
        drop(lock);
        drop(Lock::take(&path).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        // A lock left by a killed run does not block.
        std::fs::write(folder.path().join(".a.lock"), "123").unwrap();
        drop(Lock::take(&path).unwrap());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_place_of_a_lock_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let (mine, path) = (folder.path().join("mine"), folder.path().join("a"));
        std::fs::write(&mine, "text").unwrap();
        std::os::unix::fs::symlink(&mine, folder.path().join(".a.lock")).unwrap();
        assert!(Lock::take(&path).unwrap_err().to_string().contains("but is a link"));
        assert_eq!(std::fs::read_to_string(&mine).unwrap(), "text");
    }
}
