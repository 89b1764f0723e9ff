//! A file that is replaced atomically.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempPath};

use super::FileKind;
use super::identity::{folder_of, target};
use super::lock::is_there;
use crate::error::{Error, Result};
use crate::runtime::threads;
use crate::shown;

/// End of the names of temporary files.
const PARTIAL: &str = ".partial";
/// Letters of the target's name in that of a temporary file, which must not be too long for a file system.
const LETTERS: usize = 40;
/// New names that are tried when another process takes a temporary file for a left-over one.
const ATTEMPTS: u32 = 10;

/// A file that is being written: data goes to a temporary file beside it, which replaces it at
/// [`commit`](Self::commit). Dropped before, it leaves the old file unchanged.
///
/// Pipes and devices are written to at once.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Beside { file: NamedTempFile, target: PathBuf },
    Direct(File),
}

impl Output {
    /// Begins a file.
    ///
    /// # Errors
    /// If it can't be written, or holds something of another kind.
    pub fn create(path: &Path, kind: FileKind) -> Result<Self> {
        kind.check(path)?;
        let sink = open(path).map_err(|error| Error::writing(path, error))?;
        Ok(Self { path: path.to_owned(), sink })
    }

    /// Puts the file in its place, on the disk.
    ///
    /// # Errors
    /// If it can't be written. Then the old file stays.
    pub fn commit(self) -> Result<()> {
        let placed = match self.sink {
            Sink::Beside { file, target } => place(file, &target),
            Sink::Direct(mut file) => file.flush(),
        };
        placed.map_err(|error| Error::writing(&self.path, error))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Beside { file, .. } => file.write(bytes),
            Sink::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Beside { file, .. } => file.flush(),
            Sink::Direct(file) => file.flush(),
        }
    }
}

/// Writes a whole file.
///
/// # Errors
/// If it can't be written, or holds something of another kind.
pub fn write(path: &Path, kind: FileKind, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut output = Output::create(path, kind)?;
    write(&mut output).map_err(|error| Error::writing(path, error))?;
    output.commit()
}

/// Checks before a long run that a file can be written at its end. Changes nothing.
///
/// # Errors
/// If not.
pub fn check(path: &Path, kind: FileKind) -> Result<()> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        // A pipe's reader would see its end.
        return Ok(());
    }
    Output::create(path, kind).map(drop)
}

fn open(path: &Path) -> io::Result<Sink> {
    let target = target(path)?;
    match target.metadata() {
        Ok(old) if old.is_file() => {
            // A file without write permission may not be replaced. Windows enforces that itself.
            if cfg!(unix) {
                File::options().write(true).open(&target)?;
            }
            let file = temporary(&target)?;
            keep(&old, file.as_file())?;
            Ok(Sink::Beside { file, target })
        }
        Ok(old) if old.is_dir() => Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder")),
        Ok(old) if is_disk(&old) => Err(io::Error::new(ErrorKind::InvalidInput, "it is a disk")),
        Ok(_) => File::options().write(true).open(&target).map(Sink::Direct),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Sink::Beside { file: temporary(&target)?, target }),
        Err(error) => Err(error),
    }
}

/// A new file beside another, under a temporary name, locked while it is written. Those of killed processes
/// are removed.
fn temporary(target: &Path) -> io::Result<NamedTempFile> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{}.", name.chars().take(LETTERS).collect::<String>());
    remove_left_over(folder_of(target), &prefix);
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(PARTIAL);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    for _ in 0..ATTEMPTS {
        let file = builder.tempfile_in(folder_of(target))?;
        // Another process may have found it before it was locked, and removed it as a left-over.
        if !matches!(file.as_file().try_lock(), Err(std::fs::TryLockError::WouldBlock))
            && is_there(file.as_file(), file.path())
        {
            return Ok(file);
        }
    }
    Err(io::Error::other("its temporary files are removed by another program"))
}

/// Removes left-over temporary files.
fn remove_left_over(folder: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(prefix) && name.ends_with(PARTIAL));
        if !is_ours {
            continue;
        }
        let Ok(file) = File::options().write(true).open(entry.path()) else { continue };
        // Windows neither renames nor removes what is open: the writer releases its lock just before it renames.
        if file.try_lock().is_ok()
            && let Err(error) = std::fs::remove_file(entry.path())
        {
            log::debug!("`{}` can't be removed: {error}", shown(&entry.path()));
        }
    }
}

/// Gives a new file the mode of the old one, and its owner where that is allowed.
#[cfg(unix)]
fn keep(old: &Metadata, file: &File) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let new = file.metadata()?;
    // First the owner: changing it clears bits of the mode.
    if (new.uid(), new.gid()) != (old.uid(), old.gid())
        && let Err(error) = fchown(file, Some(old.uid()), Some(old.gid()))
    {
        log::debug!("the owner of a file can't be kept: {error}");
    }
    file.set_permissions(old.permissions())
}

#[cfg(not(unix))]
fn keep(_old: &Metadata, _file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn is_disk(metadata: &Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_block_device(&metadata.file_type())
}

#[cfg(not(unix))]
fn is_disk(_metadata: &Metadata) -> bool {
    false
}

/// Whether a path names a pipe.
#[cfg(unix)]
pub fn is_pipe(path: &Path) -> bool {
    let is_pipe = |metadata: Metadata| std::os::unix::fs::FileTypeExt::is_fifo(&metadata.file_type());
    path.metadata().is_ok_and(is_pipe)
}

/// Whether a path names a pipe: no system but Unix has such paths.
#[cfg(not(unix))]
pub fn is_pipe(_path: &Path) -> bool {
    false
}

/// Puts a temporary file in its place, and both on the disk.
fn place(file: NamedTempFile, target: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    let (file, path) = file.into_parts();
    // Windows neither renames nor removes what is open; elsewhere the lock is kept to the end.
    let file = (!cfg!(windows)).then_some(file);
    replace(path, target)?;
    drop(file);
    #[cfg(unix)]
    if let Err(error) = File::open(folder_of(target)).and_then(|folder| folder.sync_all()) {
        log::debug!("the folder of `{}` can't be put on the disk: {error}", shown(target));
    }
    Ok(())
}

/// Renames a file over another.
///
/// On Windows a program that has the other open can forbid that. Scanners and indexes open every new file for a moment,
/// so this waits for them.
fn replace(mut temporary: TempPath, target: &Path) -> io::Result<()> {
    const WAIT_MS: u64 = 50;
    const ATTEMPTS: u32 = 60;
    for _ in 0..ATTEMPTS {
        match temporary.persist(target) {
            Ok(()) => return Ok(()),
            Err(refused) if is_held(&refused.error) => {
                temporary = refused.path;
                threads::pause(WAIT_MS);
            }
            Err(refused) => return Err(refused.error),
        }
    }
    temporary.persist(target).map_err(|refused| refused.error)
}

/// Whether another program holds the file: `ERROR_ACCESS_DENIED` or `ERROR_SHARING_VIOLATION` of Windows.
fn is_held(error: &io::Error) -> bool {
    cfg!(windows) && matches!(error.raw_os_error(), Some(5 | 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, text: &str) -> Result<()> {
        write(path, FileKind::Cache, |out| out.write_all(text.as_bytes()))
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_in_one_go_or_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        put(&path, "old").unwrap();
        let mut output = Output::create(&path, FileKind::Cache).unwrap();
        output.write_all(b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        drop(output);
        assert_eq!((std::fs::read_to_string(&path).unwrap(), names(folder.path())), ("old".into(), vec!["a".into()]));
        put(&path, "new").unwrap();
        assert_eq!((std::fs::read_to_string(&path).unwrap(), names(folder.path())), ("new".into(), vec!["a".into()]));
        check(&path, FileKind::Cache).unwrap();
        assert!(check(&path, FileKind::Model).is_err() && put(folder.path(), "x").is_err());
        assert!(put(&folder.path().join("nowhere/a"), "x").is_err());
    }

    #[test]
    fn left_over_files_do_not_pile_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for number in 0..5 {
            std::fs::write(folder.path().join(format!(".a.killed{number}.partial")), "half").unwrap();
        }
        std::fs::write(folder.path().join(".b.other.partial"), "of another file").unwrap();
        let busy = Output::create(&path, FileKind::Cache).unwrap();
        put(&path, "text").unwrap();
        assert_eq!(names(folder.path()).len(), 3, "{:?}", names(folder.path()));
        busy.commit().unwrap();
        assert_eq!(names(folder.path()), [".b.other.partial", "a"]);
    }

    #[test]
    fn a_long_name_is_no_hindrance() {
        let folder = tempfile::tempdir().unwrap();
        put(&folder.path().join("ö".repeat(127)), "text").unwrap();
        assert_eq!(names(folder.path()).len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_modes_and_owners_kept() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("inner")).unwrap();
        symlink("inner/a", path("link")).unwrap();
        symlink("link", path("link of link")).unwrap();
        put(&path("link of link"), "one").unwrap();
        assert_eq!(std::fs::read_to_string(path("inner/a")).unwrap(), "one");
        let umask = 0o666 & !std::fs::metadata(path("inner/a")).unwrap().mode();
        std::fs::write(path("plain"), "").unwrap();
        assert_eq!(umask, 0o666 & !std::fs::metadata(path("plain")).unwrap().mode(), "a new file's mode is the usual");
        std::fs::set_permissions(path("inner/a"), std::fs::Permissions::from_mode(0o640)).unwrap();
        // Only root may give files away.
        let owner = chown(path("inner/a"), Some(12345), Some(54321)).is_ok();
        put(&path("link of link"), "two").unwrap();
        let metadata = std::fs::metadata(path("inner/a")).unwrap();
        assert_eq!((std::fs::read_to_string(path("link")).unwrap().as_str(), metadata.mode() & 0o7777), ("two", 0o640));
        assert!(!owner || (metadata.uid(), metadata.gid()) == (12345, 54321));
        assert!(path("link").is_symlink() && path("link of link").is_symlink());
        symlink("circle", path("circle")).unwrap();
        assert!(put(&path("circle"), "x").is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn devices_and_pipes_are_written_to() {
        let folder = tempfile::tempdir().unwrap();
        put(Path::new("/dev/null"), "x").unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        assert!(put(Path::new("/dev/full"), "x").is_err());
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = File::options().read(true).write(true).open(&pipe).unwrap();
        put(&pipe, "through").unwrap();
        let mut read = [0; 7];
        io::Read::read_exact(&mut &reader, &mut read).unwrap();
        assert_eq!((&read, names(folder.path()).len()), (b"through", 1));
    }
}
