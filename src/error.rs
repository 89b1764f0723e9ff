//! The one error type of the crate: who, what was needed, what was got, then `help:`.

use std::path::PathBuf;

use crate::shown::shown;

/// `Result` with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, worded for the person who can mend it.
///
/// The text of each variant is: who · needed · got, in one sentence, and then a line `help: …`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model can't be built from its layers. Found when the model is built.
    #[error("{who} {problem}\n  help: {help}")]
    Model {
        /// The node and its layer, for example ``layer 3 `norm1` (LayerNormalization)``.
        who: String,
        /// What it needs and what it got.
        problem: String,
        /// What to change.
        help: String,
    },
    /// Data that the model can't take: shapes, labels, `NaN`. Found before anything runs.
    #[error("{who} {problem}\n  help: {help}")]
    Data {
        /// The input, target or file, and the row where one is known.
        who: String,
        /// What is needed and what was got.
        problem: String,
        /// What to change.
        help: String,
    },
    /// A setting that makes no sense, alone or with another.
    #[error("{who} {problem}\n  help: {help}")]
    Setting {
        /// The setting's name.
        who: String,
        /// What is needed and what was got.
        problem: String,
        /// What to change.
        help: String,
    },
    /// No adapter, an unknown adapter, or an adapter that failed.
    #[error("{who} {problem}\n  help: {help}")]
    Adapter {
        /// The adapter by index and name, or the choice that named none.
        who: String,
        /// What happened.
        problem: String,
        /// What to change.
        help: String,
    },
    /// A model file or checkpoint that can't be used. Nothing of it was loaded.
    #[error("{who} {problem}\n  help: {help}")]
    Checkpoint {
        /// The file, and the tensor where one is known.
        who: String,
        /// What is needed and what was got.
        problem: String,
        /// What to change.
        help: String,
    },
    /// The loss or a gradient is not finite. The training step was not applied.
    #[error("{who} {problem}\n  help: {help}")]
    NonFinite {
        /// The training step, the adapter and the first node.
        who: String,
        /// What was found.
        problem: String,
        /// What to change.
        help: String,
    },
    /// A file that can't be read or written.
    #[error("`{}` can't be {action}: {source}\n  help: {help}", shown(path))]
    File {
        /// The file.
        path: PathBuf,
        /// `read` or `written`.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
        /// What to change.
        help: String,
    },
}

macro_rules! shorthand {
    ($($(#[$doc:meta])* $name:ident => $variant:ident),* $(,)?) => {
        impl Error {
            $($(#[$doc])*
            pub fn $name(who: impl Into<String>, problem: impl Into<String>, help: impl Into<String>) -> Self {
                Self::$variant { who: who.into(), problem: problem.into(), help: help.into() }
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
    /// An adapter that is not there, or failed.
    adapter => Adapter,
    /// A file that is not a usable model or checkpoint.
    checkpoint => Checkpoint,
    /// A value that is not finite.
    non_finite => NonFinite,
}

impl Error {
    /// A file that could not be read.
    pub fn reading(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::File {
            path: path.into(),
            action: "read",
            source,
            help: "check that the path is right and that you may read it".into(),
        }
    }

    /// A file that could not be written.
    pub fn writing(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::File {
            path: path.into(),
            action: "written",
            source,
            help: "check that the folder exists, that you may write there, that no other program has the file open, and that \
                   the disk has room"
                .into(),
        }
    }
}

/// What a layer, a loss or an optimizer can't do with its inputs or settings. Whoever holds it adds who it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What it needs and what it got: `needs an input [batch, height, width, channels], but got [batch, 64]`.
    pub problem: String,
    /// What to change.
    pub help: String,
}

impl Problem {
    /// A problem and its remedy.
    pub fn new(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self { problem: problem.into(), help: help.into() }
    }
}
