//! Files about adapters in the user's cache folder, one each for an adapter, its driver and this version of the program.

// Files: `table.rs`: tables, such as the tiles of products; `compiled.rs`: compiled pipelines.

mod compiled;
#[cfg(test)]
mod fuzz;
mod table;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::Info;
use super::checks::Checks;
use crate::error::{Error, Result};
use crate::files;
pub(super) use compiled::CompiledFile;
pub(super) use table::Table;

/// Environment variable: `off`, or a folder; see [`Cache`].
pub const CACHE_VARIABLE: &str = "MANYHANDS_CACHE";

/// Version of this crate.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Longest name of a file, in bytes, without its ending.
const MOST_LETTERS: usize = 150;

/// Folder for compiled pipelines and for verdicts on them, which make the next start sooner. In a browser there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// None: each process compiles and checks anew. In [`CACHE_VARIABLE`]: `off`.
    Off,
    /// The user's cache folder.
    #[default]
    User,
    /// This folder. In [`CACHE_VARIABLE`]: its path.
    In(PathBuf),
}

impl Cache {
    /// The value of [`CACHE_VARIABLE`].
    pub fn from_environment() -> Self {
        let value = std::env::var_os(CACHE_VARIABLE).unwrap_or_default();
        match value.to_str() {
            Some("") => Self::User,
            Some("off") => Self::Off,
            _ => Self::In(value.into()),
        }
    }

    /// The folder for files of a kind.
    pub(super) fn folder(&self, kind: &str) -> Option<PathBuf> {
        match self {
            Self::Off => None,
            Self::User => user_folder(kind),
            Self::In(folder) => Some(folder.join(kind)),
        }
    }
}

/// The folder of the user's cache for files of a kind.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn user_folder(kind: &str) -> Option<PathBuf> {
    use etcetera::BaseStrategy as _;
    let strategy = etcetera::base_strategy::choose_native_strategy().ok()?;
    Some(strategy.cache_dir().join("manyhands").join(kind))
}

/// A page has no disk.
#[cfg(target_arch = "wasm32")]
pub(super) fn user_folder(_kind: &str) -> Option<PathBuf> {
    None
}

/// All on which a kernel's time and its compiled form may depend.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Identity {
    name: String,
    backend: String,
    driver: String,
    vendor: u32,
    device: u32,
    /// Whether shaders keep their run-time checks.
    is_checked: bool,
}

impl Identity {
    pub(super) fn new(info: &Info, checks: Checks) -> Self {
        let Info { name, backend, driver, vendor, device, .. } = info.clone();
        Self { name, backend, driver, vendor, device, is_checked: checks == Checks::Checked }
    }

    /// Version and adapter in letters that any file system takes.
    pub(super) fn file_name(&self, ending: &str) -> String {
        let Self { name, backend, driver, vendor, device, is_checked } = self;
        let checks = if *is_checked { "checked" } else { "" };
        let text = format!("{name} {backend} {driver} {vendor:04x} {device:04x} {checks}").to_lowercase();
        let words: Vec<&str> = text.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let mut letters = format!("{VERSION}-{}", words.join("-"));
        letters.truncate(MOST_LETTERS);
        format!("{letters}.{ending}")
    }
}

/// A number that tells contents apart, the same in each process of this version.
pub(super) fn digest(contents: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    hasher.finish()
}

/// Writes a file in place of the last one, at once, and makes its folder.
fn write(path: &Path, contents: &[u8]) -> Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(|error| Error::writing(path, error))?;
    files::write(path, files::FileKind::Cache, |out| out.write_all(contents))
}
