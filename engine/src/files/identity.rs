//! Identifies the file behind a path.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::shown;

/// Links that are followed before they count as a circle; Linux' own limit.
const MOST_LINKS: u32 = 40;

/// The path behind symbolic links, also where the last one leads to no file yet.
///
/// # Errors
/// If they lead in a circle.
pub(super) fn target(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..MOST_LINKS {
        match std::fs::read_link(&target) {
            Ok(next) => target = folder_of(&target).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("its links lead in a circle"))
}

/// The folder in which a file is.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file, whatever it is called.
#[derive(PartialEq, Eq)]
enum FileIdentity {
    /// Device and inode.
    #[cfg(unix)]
    Inode(u64, u64),
    /// Without links and relative parts.
    Path(PathBuf),
}

fn identity(path: &Path) -> FileIdentity {
    #[cfg(unix)]
    if let Ok(metadata) = path.metadata() {
        use std::os::unix::fs::MetadataExt;
        return FileIdentity::Inode(metadata.dev(), metadata.ino());
    }
    let target = target(path).unwrap_or_else(|_| path.into());
    let whole = target.canonicalize().or_else(|_| {
        let folder = folder_of(&target).canonicalize()?;
        Ok::<_, io::Error>(target.file_name().map_or(folder.clone(), |name| folder.join(name)))
    });
    FileIdentity::Path(whole.or_else(|_| std::path::absolute(&target)).unwrap_or(target))
}

/// Whether two paths lead to one file.
pub fn are_same(one: &Path, other: &Path) -> bool {
    identity(one) == identity(other)
}

/// Refuses to write a file that is read, and to write two things to one file. Pipes and devices may serve several.
///
/// # Errors
/// If so: which file.
pub fn check_apart(written: &[&Path], read: &[&Path]) -> Result<()> {
    let is_file = |path: &&&Path| path.metadata().map_or(true, |metadata| metadata.is_file());
    let read: Vec<FileIdentity> = read.iter().filter(is_file).map(|path| identity(path)).collect();
    let mut known = Vec::new();
    for path in written.iter().filter(is_file) {
        let identity = identity(path);
        if read.contains(&identity) {
            return Err(Error::setting(
                format!("the file `{}`", shown(path)),
                "is an input of this run, and can't be written",
                "name another file to write; nothing was written",
            ));
        }
        if known.contains(&identity) {
            return Err(Error::setting(
                format!("the file `{}`", shown(path)),
                "needs to be one output's, but is named for two",
                "give each its own file; nothing was written",
            ));
        }
        known.push(identity);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_file_is_known_by_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("inner")).unwrap();
        std::fs::write(path("a"), "a").unwrap();
        std::fs::hard_link(path("a"), path("hard")).unwrap();
        std::os::unix::fs::symlink("a", path("soft")).unwrap();
        std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
        for other in ["a", "./a", "inner/../a", "hard", "soft"] {
            assert!(are_same(&path("a"), &path(other)), "{other}");
            assert!(check_apart(&[&path("a")], &[&path(other)]).is_err(), "{other}");
            assert!(check_apart(&[&path("a"), &path(other)], &[]).is_err(), "{other}");
        }
        assert!(are_same(&path("nowhere"), &path("dangling")) && are_same(&path("nowhere"), &path("inner/../nowhere")));
        assert!(!are_same(&path("a"), &path("b")) && !are_same(&path("b"), &path("c")));
        check_apart(&[&path("b"), Path::new("/dev/null"), Path::new("/dev/null")], &[&path("a")]).unwrap();
    }
}
