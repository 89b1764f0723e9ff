//! Writing files in one go.

use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};
use crate::runtime::threads;

/// Writes a file in one go: whoever reads it sees the old contents or the new, never a part.
///
/// The temporary file has a fixed name, so that a run that is killed over and over leaves at most one behind.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".partial");
    let temporary = Path::new(&temporary);
    let written = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        // Windows neither renames nor removes what is open.
        drop(file);
        replace(temporary, path)
    };
    written().map_err(|error| {
        if let Err(left) = std::fs::remove_file(temporary) {
            log::debug!("`{}` can't be removed: {left}", crate::shown(temporary));
        }
        Error::writing(path, error)
    })
}

/// Renames a file over another.
///
/// On Windows a program that has the other open can forbid that. Scanners and indexes open every new file for a moment,
/// so this waits for them.
fn replace(temporary: &Path, path: &Path) -> std::io::Result<()> {
    const WAIT_MS: u64 = 50;
    const ATTEMPTS: u32 = 60;
    for _ in 0..ATTEMPTS {
        match std::fs::rename(temporary, path) {
            Err(error) if is_held(&error) => threads::pause(WAIT_MS),
            done => return done,
        }
    }
    std::fs::rename(temporary, path)
}

/// Is another program in the way? Windows says `ERROR_ACCESS_DENIED` or `ERROR_SHARING_VIOLATION`.
fn is_held(error: &std::io::Error) -> bool {
    cfg!(windows) && matches!(error.raw_os_error(), Some(5 | 32))
}
