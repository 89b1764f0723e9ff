//! The tiles that were found best, in memory and in a file of the adapter's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::super::Info;
use super::super::device::Checks;
use super::Tuning;
use crate::error::{Error, Result};
use crate::files;
use crate::kernels::Tile;
use crate::shown;

/// Longest name of a file, in bytes, without its ending.
const MOST_LETTERS: usize = 150;

/// The tile of each class of products.
pub(super) struct TileTable {
    path: Option<PathBuf>,
    found: TileFile,
}

/// Contents of the file: the adapter that was measured, and its choices.
#[derive(Debug, Deserialize, Serialize)]
struct TileFile {
    /// Version of this crate, whose kernels were timed.
    manyhands: String,
    adapter: Identity,
    tiles: BTreeMap<String, Tile>,
}

/// All that a kernel's time may depend on.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
struct Identity {
    name: String,
    backend: String,
    driver: String,
    vendor: u32,
    device: u32,
    /// Whether shaders keep their run-time checks.
    is_checked: bool,
}

impl TileTable {
    /// With what the adapter's file holds, if there is one and it is whole.
    pub(super) fn open(info: &Info, checks: Checks, tuning: &Tuning) -> Self {
        let mut found = TileFile::new(info, checks);
        let path = folder(tuning).map(|folder| folder.join(found.file_name()));
        if path.is_none() {
            log::debug!("there is no folder for the tiles of adapter {} `{}`", info.index, info.name);
        }
        if let Some(path) = &path {
            found.take_in(path);
        }
        Self { path, found }
    }

    pub(super) fn get(&self, class: &str) -> Option<Tile> {
        self.found.tiles.get(class).copied()
    }

    pub(super) fn insert(&mut self, class: &str, tile: Tile) {
        self.found.tiles.insert(class.into(), tile);
    }

    /// Writes the file, with what another process has added to it. Without a file the tiles hold for this process.
    pub(super) fn save(&mut self) {
        let Some(path) = self.path.clone() else { return };
        self.found.take_in(&path);
        if let Err(error) = self.found.write(&path) {
            log::warn!("the tiles in `{}` can't be written: {error}", shown(&path));
            self.path = None;
        }
    }
}

/// The folder of tables.
fn folder(tuning: &Tuning) -> Option<PathBuf> {
    match tuning {
        Tuning::In(folder) => Some(folder.clone()),
        Tuning::Off | Tuning::Gpus | Tuning::On => cache_folder(),
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn cache_folder() -> Option<PathBuf> {
    use etcetera::BaseStrategy as _;
    let strategy = etcetera::base_strategy::choose_native_strategy().ok()?;
    Some(strategy.cache_dir().join("manyhands").join("tiles"))
}

/// A page has no disk.
#[cfg(target_arch = "wasm32")]
fn cache_folder() -> Option<PathBuf> {
    None
}

impl TileFile {
    fn new(info: &Info, checks: Checks) -> Self {
        let Info { name, backend, driver, vendor, device, .. } = info.clone();
        let adapter = Identity { name, backend, driver, vendor, device, is_checked: checks == Checks::Checked };
        Self { manyhands: env!("CARGO_PKG_VERSION").into(), adapter, tiles: BTreeMap::new() }
    }

    /// Version and adapter in letters that any file system takes.
    fn file_name(&self) -> String {
        let Identity { name, backend, driver, vendor, device, is_checked } = &self.adapter;
        let checks = if *is_checked { "checked" } else { "" };
        let text = format!("{name} {backend} {driver} {vendor:04x} {device:04x} {checks}").to_lowercase();
        let words: Vec<&str> = text.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let mut letters = format!("{}-{}", self.manyhands, words.join("-"));
        letters.truncate(MOST_LETTERS);
        letters + ".json"
    }

    /// Adds what a file holds to what is known. A file that is broken, or of another adapter, counts for nothing.
    fn take_in(&mut self, path: &Path) {
        match self.read(path) {
            Ok(None) => {}
            Ok(Some(tiles)) => tiles.into_iter().for_each(|(class, tile)| {
                self.tiles.entry(class).or_insert(tile);
            }),
            Err(why) => log::warn!("the tiles in `{}` are not used: {why}", shown(path)),
        }
    }

    /// The tiles of a file; `None` if there is no file.
    fn read(&self, path: &Path) -> std::result::Result<Option<BTreeMap<String, Tile>>, String> {
        if !path.exists() {
            return Ok(None);
        }
        let text = files::read_text(path).map_err(|error| error.to_string())?;
        let found: Self = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if found.manyhands != self.manyhands {
            return Err(format!("they are of version {}", found.manyhands));
        }
        if found.adapter != self.adapter {
            return Err(format!("they are of another adapter, {:?}", found.adapter));
        }
        Ok(Some(found.tiles))
    }

    fn write(&self, path: &Path) -> Result<()> {
        let writing = |error| Error::writing(path, error);
        let text = serde_json::to_string_pretty(self).map_err(|error| writing(error.into()))?;
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(writing)?;
        files::write(path, files::FileKind::Tiles, |out| out.write_all(text.as_bytes()))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::super::Kind;
    use super::*;

    fn info(name: &str) -> Info {
        Info {
            index: 0,
            name: name.into(),
            kind: Kind::DiscreteGpu,
            backend: "vulkan".into(),
            driver: "NVIDIA 570.00 / x".into(),
            vendor: 0x10de,
            device: 1,
            bus_id: String::new(),
        }
    }

    pub(in super::super) fn open(name: &str, folder: &Path) -> TileTable {
        TileTable::open(&info(name), Checks::Unchecked, &Tuning::In(folder.into()))
    }

    fn path(table: &TileTable) -> PathBuf {
        table.path.clone().unwrap()
    }

    #[test]
    fn what_is_saved_is_there_again_and_two_writers_add_up() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (open("A", folder.path()), open("A", folder.path()));
        one.insert("x", Tile::Workgroup64);
        one.save();
        other.insert("y", Tile::Workgroup32);
        other.save();
        let again = open("A", folder.path());
        assert_eq!(
            ["x", "y", "z"].map(|class| again.get(class)),
            [Some(Tile::Workgroup64), Some(Tile::Workgroup32), None]
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing temporary stays");
    }

    #[test]
    fn a_table_is_of_one_adapter_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = open("GeForce RTX 4090 (ö)", folder.path());
        table.insert("x", Tile::Workgroup128);
        table.save();
        let name = path(&table).file_name().unwrap().to_str().unwrap().to_owned();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(name, format!("{version}-geforce-rtx-4090-vulkan-nvidia-570-00-x-10de-0001.json"));
        let text = std::fs::read_to_string(path(&table)).unwrap();
        assert!(text.contains("\"x\": \"workgroup128\""), "{text}");
        assert_eq!(open("GeForce RTX 4080", folder.path()).get("x"), None);
        let checked =
            TileTable::open(&info("GeForce RTX 4090 (ö)"), Checks::Checked, &Tuning::In(folder.path().into()));
        assert_eq!(checked.get("x"), None);
    }

    #[test]
    fn a_file_that_is_broken_or_foreign_is_ignored_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = open("A", folder.path());
        table.insert("x", Tile::Workgroup64);
        table.save();
        let whole = std::fs::read_to_string(path(&table)).unwrap();
        let spoilt = [
            whole[..whole.len() / 2].to_owned(),
            whole.replace("\"A\"", "\"B\""),
            whole.replace(env!("CARGO_PKG_VERSION"), "0.0.0"),
            whole.replace("\"workgroup64\"", "\"round\""),
            "\u{0}".into(),
        ];
        for text in spoilt {
            std::fs::write(path(&table), text).unwrap();
            let mut again = open("A", folder.path());
            assert_eq!(again.get("x"), None);
            again.insert("y", Tile::Registers);
            again.save();
            assert_eq!(open("A", folder.path()).get("y"), Some(Tile::Registers));
        }
    }

    #[test]
    fn a_folder_that_can_not_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let mut table = open("A", &file);
        table.insert("x", Tile::Workgroup64);
        table.save();
        assert_eq!((table.get("x"), table.path), (Some(Tile::Workgroup64), None));
    }
}
