//! The one error type of the crate: who, what was needed, what was got, then `help:`.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::shown::shown;

/// `Result` with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, worded for the person who can mend it.
///
/// Its text is: who · needed · got, in one sentence, and then a line `help: …`. Programs distinguish errors by their
/// [`kind`](Self::kind).
///
/// ```
/// use manyhands_engine::ErrorKind;
/// use manyhands_engine::adapters::{Info, choose};
///
/// let error = choose(&[Info::cpu()], "radeon").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Adapter);
/// assert!(error.to_string().contains("names no adapter of this machine: `radeon`\n  help: "), "{error}");
/// ```
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<ErrorText>);

#[derive(Debug, thiserror::Error)]
#[error("{who} {problem}\n  help: {help}")]
struct ErrorText {
    kind: ErrorKind,
    who: String,
    problem: String,
    help: String,
    path: Option<PathBuf>,
    source: Option<io::Error>,
}

/// Kinds of errors, for programs that can handle some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A model can't be built from its layers. Found when the model is built.
    Model,
    /// Data that the model can't take: shapes, labels, NaN. Found before anything runs.
    Data,
    /// A setting that makes no sense, alone or with another.
    Setting,
    /// No adapter of that name, or one that can't do what it is asked for in its present state.
    Adapter,
    /// An adapter, or the last of them, was lost or hangs, and nothing took over. The last checkpoint resumes.
    AdapterLost,
    /// An adapter has too little memory for one row of the model.
    OutOfMemory,
    /// An adapter can't run the model at all: it reaches one of the device's limits.
    Unsupported,
    /// A model file or checkpoint that can't be used. Nothing of it was loaded.
    Checkpoint,
    /// A loss, a gradient or a weight is not finite. The training step was not applied.
    NonFinite,
    /// A file that can't be read or written.
    File,
    /// Another process of the run hangs, is gone, or has other settings or data.
    Process,
}

macro_rules! shorthand {
    ($($(#[$doc:meta])* $name:ident => $kind:ident),* $(,)?) => {
        impl Error {
            $($(#[$doc])*
            pub fn $name(who: impl Into<String>, problem: impl Into<String>, help: impl Into<String>) -> Self {
                Self::new(ErrorKind::$kind, who, problem, help)
            })*
        }
    };
}

shorthand! {
    /// A model that can't be built.
    model => Model,
    /// Data that the model can't take.
    data => Data,
    /// A setting that makes no sense.
    setting => Setting,
    /// An adapter that is not there, or can't do what it is asked for.
    adapter => Adapter,
    /// An adapter that is gone.
    adapter_lost => AdapterLost,
    /// A file that is not a usable model or checkpoint.
    checkpoint => Checkpoint,
    /// A value that is not finite.
    non_finite => NonFinite,
}

impl Error {
    /// An error of a kind, for those that have no function of their own.
    pub fn new(kind: ErrorKind, who: impl Into<String>, problem: impl Into<String>, help: impl Into<String>) -> Self {
        let (who, problem, help) = (who.into(), problem.into(), help.into());
        Self(Box::new(ErrorText { kind, who, problem, help, path: None, source: None }))
    }

    /// A file that could not be read.
    pub fn reading(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::file(path.into(), "read", source, "check that the path is right and that you may read it")
    }

    /// A file that could not be written.
    pub fn writing(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let help = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "make room on the disk, or name a place on another"
            }
            io::ErrorKind::NotFound => "check the path: its folder must be there",
            io::ErrorKind::ReadOnlyFilesystem => "name a place on another disk: nothing can be written on this one",
            // Windows says so of a file that another program has open, too.
            io::ErrorKind::PermissionDenied => {
                "name a folder in which you may write, or end the program that has the file open"
            }
            _ => {
                "check that the folder exists, that you may write there, that no other program has the file open, and that the \
                 disk has room"
            }
        };
        Self::file(path.into(), "written", source, help)
    }

    fn file(path: PathBuf, action: &str, source: io::Error, help: &str) -> Self {
        let (who, problem) = (format!("`{}`", shown(&path)), format!("can't be {action}: {}", cause(&source)));
        let (help, path, source) = (help.into(), Some(path), Some(source));
        Self(Box::new(ErrorText { kind: ErrorKind::File, who, problem, help, path, source }))
    }

    /// Kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The layer, file, adapter or setting with the error.
    pub fn who(&self) -> &str {
        &self.0.who
    }

    /// The problem: the needed and the found value, as a sentence whose subject is [`who`](Self::who).
    pub fn problem(&self) -> &str {
        &self.0.problem
    }

    /// The remedy.
    pub fn help(&self) -> &str {
        &self.0.help
    }

    /// The file that can't be read or written.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }
}

/// The cause in the system's words. The crate `tempfile` adds the path of the unfinished file, which is gone.
fn cause(source: &io::Error) -> String {
    let text = source.to_string();
    text.split(" at path \"").next().unwrap_or_default().to_owned()
}

/// The kind, then the text: what a `main` prints that returns an error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

/// An error about inputs or settings of a layer, a loss or an optimizer. The caller adds its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The problem, as a sentence: `needs an input [batch, height, width, channels], but got [batch, 64]`.
    pub problem: String,
    /// The remedy.
    pub help: String,
}

impl Problem {
    /// A problem and its remedy.
    pub fn new(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self { problem: problem.into(), help: help.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_can_not_be_written_has_the_remedy_that_fits() {
        let error = |kind: io::ErrorKind| Error::writing("m.safetensors", io::Error::from(kind)).to_string();
        assert!(error(io::ErrorKind::StorageFull).ends_with("help: make room on the disk, or name a place on another"));
        assert!(error(io::ErrorKind::PermissionDenied).contains("help: name a folder in which you may write"));
        assert!(error(io::ErrorKind::NotFound).contains("help: check the path"));
        assert!(error(io::ErrorKind::TimedOut).contains("help: check that the folder exists"));
    }

    #[test]
    fn the_name_of_an_unfinished_file_is_not_told() {
        let nowhere = std::env::temp_dir().join("manyhands has no such folder");
        let source = tempfile::NamedTempFile::new_in(&nowhere).unwrap_err();
        assert!(source.to_string().contains(" at path "), "{source}");
        let error = Error::writing(nowhere.join("m.safetensors"), source).to_string();
        assert!(error.contains("m.safetensors` can't be written: ") && !error.contains(" at path "), "{error}");
    }
}
