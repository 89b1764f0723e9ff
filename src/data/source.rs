//! Bytes of data files. A pipe can be read only once, and a pipe that nobody writes to is waited for without end.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{Error, Result, shown};

/// Most bytes that are read from a pipe or a device: they stay in memory.
pub(crate) const MAX_PIPED_BYTES: u64 = 256 << 20;

/// Whether a path names a file that can be read several times, and not a pipe or a device. Opens nothing.
pub(crate) fn is_regular(path: &Path) -> Result<bool> {
    let metadata = path.metadata().map_err(|source| Error::reading(path, source))?;
    // A folder is refused by the system where it is read.
    Ok(metadata.is_file() || metadata.is_dir())
}

/// Refuses pipes and devices, for data that are read several times. Opens nothing. A missing file is not refused.
///
/// # Errors
/// If the file can't be opened or read.
pub fn check_regular(path: &Path) -> Result<()> {
    if is_regular(path).unwrap_or(true) {
        return Ok(());
    }
    Err(Error::data(
        format!("`{}`", shown(path)),
        "needs to be a file, since it is read several times, but is a pipe or a device",
        "write it to a file first: `zcat table.csv.gz > table.csv`",
    ))
}

/// Opens a file, but no pipe and no device.
pub(in crate::data) fn open(path: &Path) -> Result<File> {
    check_regular(path)?;
    File::open(path).map_err(|source| Error::reading(path, source))
}

/// All bytes of a file, but not of a pipe or a device.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>> {
    check_regular(path)?;
    read(path)
}

/// All bytes of a file, or of a pipe or device up to a limit.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let reading = |source| Error::reading(path, source);
    let mut file = File::open(path).map_err(reading)?;
    let metadata = file.metadata().map_err(reading)?;
    let mut bytes = Vec::new();
    if metadata.is_file() {
        let len = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
        bytes.try_reserve_exact(len).map_err(|_| super::no_memory(&format!("`{}`", shown(path))))?;
        file.read_to_end(&mut bytes).map_err(reading)?;
        return Ok(bytes);
    }
    file.take(MAX_PIPED_BYTES + 1).read_to_end(&mut bytes).map_err(reading)?;
    if bytes.len() as u64 > MAX_PIPED_BYTES {
        return Err(Error::data(
            format!("`{}`", shown(path)),
            format!("needs at most {MAX_PIPED_BYTES} bytes from a pipe or a device, but has more"),
            "write it to a file first",
        ));
    }
    Ok(bytes)
}
