//! Facts found out about an adapter, in memory and in a file of the adapter's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Identity, VERSION};
use crate::error::{Error, Result};
use crate::files;
use crate::shown;

/// Something for each name, such as the tile of each class of products.
pub(in crate::adapters::gpu) struct Table<T> {
    path: Option<PathBuf>,
    found: TableFile<T>,
}

/// Contents of the file: the adapter, and what was found out about it.
#[derive(Debug, Deserialize, Serialize)]
struct TableFile<T> {
    /// Version of this crate, whose kernels ran.
    manyhands: String,
    adapter: Identity,
    entries: BTreeMap<String, T>,
}

impl<T: Clone + DeserializeOwned + Serialize> Table<T> {
    /// With what the adapter's file in a folder holds, if there is one and it is whole.
    pub(in crate::adapters::gpu) fn open(adapter: Identity, folder: Option<PathBuf>) -> Self {
        let path = folder.map(|folder| folder.join(adapter.file_name("json")));
        let mut found = TableFile { manyhands: VERSION.into(), adapter, entries: BTreeMap::new() };
        if let Some(path) = &path {
            found.take_in(path);
        }
        Self { path, found }
    }

    pub(in crate::adapters::gpu) fn get(&self, name: &str) -> Option<&T> {
        self.found.entries.get(name)
    }

    pub(in crate::adapters::gpu) fn insert(&mut self, name: &str, entry: T) {
        self.found.entries.insert(name.into(), entry);
    }

    /// Writes the file, with what another process has added to it. Without a file the entries hold for this process.
    pub(in crate::adapters::gpu) fn save(&mut self) {
        let Some(path) = self.path.clone() else { return };
        self.found.take_in(&path);
        if let Err(error) = self.found.write(&path) {
            log::warn!("the table `{}` can't be written: {error}", shown(&path));
            self.path = None;
        }
    }
}

impl<T: DeserializeOwned + Serialize> TableFile<T> {
    /// Adds what a file holds to what is known. A file that is broken, or of another adapter, counts for nothing.
    fn take_in(&mut self, path: &Path) {
        match self.read(path) {
            Ok(None) => {}
            Ok(Some(entries)) => entries.into_iter().for_each(|(name, entry)| {
                self.entries.entry(name).or_insert(entry);
            }),
            Err(why) => log::warn!("the table `{}` is not used: {why}", shown(path)),
        }
    }

    /// The entries of a file; `None` if there is no file.
    fn read(&self, path: &Path) -> std::result::Result<Option<BTreeMap<String, T>>, String> {
        if !path.exists() {
            return Ok(None);
        }
        let text = files::read_text(path).map_err(|error| error.to_string())?;
        let found: Self = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if found.manyhands != self.manyhands {
            return Err(format!("it is of version {}", found.manyhands));
        }
        if found.adapter != self.adapter {
            return Err(format!("it is of another adapter, {:?}", found.adapter));
        }
        Ok(Some(found.entries))
    }

    fn write(&self, path: &Path) -> Result<()> {
        let writing = |error| Error::writing(path, error);
        let text = serde_json::to_string_pretty(self).map_err(|error| writing(error.into()))?;
        super::write(path, text.as_bytes())
    }
}

#[cfg(test)]
pub(in crate::adapters::gpu) mod tests {
    use super::super::super::super::{Info, Kind};
    use super::super::super::checks::Checks;
    use super::*;
    use crate::kernels::Tile;

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

    pub(in crate::adapters::gpu) fn open(name: &str, folder: &Path) -> Table<Tile> {
        Table::open(Identity::new(&info(name), Checks::Unchecked), Some(folder.into()))
    }

    fn path(table: &Table<Tile>) -> PathBuf {
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
            ["x", "y", "z"].map(|class| again.get(class).copied()),
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
        let identity = Identity::new(&info("GeForce RTX 4090 (ö)"), Checks::Checked);
        let checked = Table::<Tile>::open(identity, Some(folder.path().into()));
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
            assert_eq!(open("A", folder.path()).get("y"), Some(&Tile::Registers));
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
        assert_eq!((table.get("x"), &table.path), (Some(&Tile::Workgroup64), &None));
    }
}
