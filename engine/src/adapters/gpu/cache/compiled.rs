//! Compiled pipelines of an adapter, as its driver gives them, in a file.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{Identity, VERSION, digest};
use crate::files;
use crate::shown;

/// Bytes of a file at most: what was compiled for hundreds of models. A longer one is begun anew.
const MOST_BYTES: u64 = 64 << 20;
/// Bytes of a number in the file: the digest of the rest, the count of pipelines, a name for each; then the driver's bytes.
const NUMBER: usize = size_of::<u64>();

/// The file of an adapter.
pub(in crate::adapters::gpu) struct CompiledFile {
    path: Option<PathBuf>,
    adapter: Identity,
    /// Digests of the pipelines that were compiled, here or before.
    pipelines: BTreeSet<u64>,
    /// Whether the file lacks some: what a driver gives may differ without that.
    is_changed: bool,
}

impl CompiledFile {
    /// The adapter's file in a folder, and what it holds. A file that is broken, or of another adapter, counts for nothing: drivers
    /// believe what they are given.
    pub(in crate::adapters::gpu) fn open(adapter: Identity, folder: Option<PathBuf>) -> (Self, Option<Vec<u8>>) {
        let path = folder.map(|folder| folder.join(adapter.file_name("bin")));
        let mut file = Self { path, adapter, pipelines: BTreeSet::new(), is_changed: false };
        let compiled = file.read();
        (file, compiled)
    }

    fn read(&mut self) -> Option<Vec<u8>> {
        let path = self.path.as_deref().filter(|path| path.exists())?;
        let read = files::read(path, MOST_BYTES).map_err(|error| error.to_string());
        let contents =
            read.and_then(|bytes| self.contents(&bytes).ok_or("they are damaged, or another driver's".into()));
        match contents {
            Ok((pipelines, compiled)) => {
                self.pipelines = pipelines;
                Some(compiled)
            }
            Err(why) => {
                log::warn!("the compiled pipelines in `{}` are not used: {why}", shown(path));
                None
            }
        }
    }

    /// The pipelines of a file and the driver's bytes, if it is whole.
    fn contents(&self, bytes: &[u8]) -> Option<(BTreeSet<u64>, Vec<u8>)> {
        let (digest, rest) = number(bytes)?;
        if digest != self.digest(rest) {
            return None;
        }
        let (count, rest) = number(rest)?;
        let (names, compiled) = rest.split_at_checked(usize::try_from(count).ok()?.checked_mul(NUMBER)?)?;
        Some((names.chunks_exact(NUMBER).filter_map(|name| Some(number(name)?.0)).collect(), compiled.to_vec()))
    }

    /// Notes that a pipeline was compiled.
    pub(in crate::adapters::gpu) fn add(&mut self, pipeline: u64) {
        self.is_changed |= self.pipelines.insert(pipeline);
    }

    /// Writes the file, if it lacks a pipeline.
    pub(in crate::adapters::gpu) fn save(&mut self, compiled: impl FnOnce() -> Option<Vec<u8>>) {
        let Some(path) = self.path.as_deref().filter(|_| self.is_changed) else { return };
        let Some(compiled) = compiled() else { return };
        let count = self.pipelines.len() as u64;
        let names = std::iter::once(&count).chain(&self.pipelines).flat_map(|number| number.to_le_bytes());
        let rest: Vec<u8> = names.chain(compiled).collect();
        let bytes = [&self.digest(&rest).to_le_bytes(), rest.as_slice()].concat();
        let is_long = bytes.len() as u64 > MOST_BYTES;
        match super::write(path, if is_long { &[] } else { &bytes }) {
            Ok(()) => self.is_changed = false,
            Err(error) => {
                log::warn!("compiled pipelines can't be kept: {error}");
                self.path = None;
            }
        }
    }

    fn digest(&self, rest: &[u8]) -> u64 {
        digest(&(VERSION, &self.adapter, rest))
    }
}

/// The first number of some bytes, and the rest.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER>()?;
    Some((u64::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::super::super::super::Info;
    use super::super::super::checks::Checks;
    use super::*;

    fn open(name: &str, folder: &std::path::Path) -> (CompiledFile, Option<Vec<u8>>) {
        let info = Info { name: name.into(), ..Info::cpu() };
        CompiledFile::open(Identity::new(&info, Checks::Unchecked), Some(folder.into()))
    }

    fn save(file: &mut CompiledFile, pipeline: u64, compiled: &[u8]) {
        file.add(pipeline);
        file.save(|| Some(compiled.to_vec()));
    }

    #[test]
    fn what_is_saved_is_there_again_and_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, none) = open("A", folder.path());
        save(&mut file, 1, b"compiled");
        let (mut again, compiled) = open("A", folder.path());
        assert_eq!((none, compiled.as_deref()), (None, Some(&b"compiled"[..])));
        save(&mut again, 1, b"the same in other bytes");
        assert_eq!(open("A", folder.path()).1, compiled);
        save(&mut again, 2, b"");
        assert_eq!(open("A", folder.path()).1, Some(Vec::new()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing temporary stays");
    }

    #[test]
    fn a_file_that_is_broken_or_foreign_is_ignored_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, _) = open("A", folder.path());
        save(&mut file, 1, b"compiled");
        let path = file.path.clone().unwrap();
        let whole = std::fs::read(&path).unwrap();
        let (mut other, _) = open("B", folder.path());
        save(&mut other, 1, b"compiled");
        let foreign = std::fs::read(other.path.unwrap()).unwrap();
        let flipped =
            |at: usize| whole.iter().enumerate().map(|(i, byte)| byte ^ u8::from(i == at)).collect::<Vec<u8>>();
        for spoilt in
            [whole[..whole.len() - 1].to_vec(), flipped(0), flipped(9), flipped(26), foreign, b"short".to_vec()]
        {
            std::fs::write(&path, &spoilt).unwrap();
            let (mut again, none) = open("A", folder.path());
            assert_eq!(none, None, "{spoilt:?}");
            save(&mut again, 1, b"compiled");
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
    }

    #[test]
    fn a_folder_that_can_not_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let occupied = folder.path().join("file");
        std::fs::write(&occupied, "").unwrap();
        let (mut file, _) = open("A", &occupied);
        save(&mut file, 1, b"compiled");
        assert_eq!(file.path, None);
    }
}
