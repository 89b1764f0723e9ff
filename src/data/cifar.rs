//! CIFAR-10 in its binary form.
//!
//! A file is a row of records of 3,073 bytes: the label, then 32×32 pixels of red, of green and of
//! blue. Source: A. Krizhevsky, <https://www.cs.toronto.edu/~kriz/cifar.html>, "binary version".

use std::path::{Path, PathBuf};

use super::ByteImages;
use crate::schema::{Format, Schema};
use crate::{Error, Result, Shape, shown};

/// The classes, by label.
pub const CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

const CHANNELS: usize = 3;
const PLANE: usize = 32 * 32;
const RECORD: usize = 1 + CHANNELS * PLANE;

/// Training images and, where the folder has them, test images.
///
/// Reads every `data_batch_*.bin`, in the order of their names, and `test_batch.bin`, from the folder
/// or its `cifar-10-batches-bin`.
///
/// | part | shape | values |
/// | --- | --- | --- |
/// | input 0 | `[batch, 32, 32, 3]` | 0–1, from 0–255; red, green, blue |
/// | target 0 | `[batch]` | label, 0–9 |
///
/// # Errors
///
/// When there is no `data_batch_*.bin`, or a file is not whole records with labels from 0 to 9.
pub fn open(folder: &Path) -> Result<(ByteImages, Option<ByteImages>)> {
    let inner = folder.join("cifar-10-batches-bin");
    let folder = if inner.is_dir() { inner } else { folder.to_path_buf() };
    let batches = batch_files(&folder)?;
    if batches.is_empty() {
        return Err(Error::data(
            format!("the folder `{}`", shown(&folder)),
            "needs `data_batch_1.bin` and its like, but has none",
            "unpack `cifar-10-binary.tar.gz` there; the Python and Matlab versions are not read",
        ));
    }
    let test = folder.join("test_batch.bin");
    Ok((read(&batches)?, test.is_file().then(|| read(&[test])).transpose()?))
}

fn batch_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|source| Error::reading(folder, source))? {
        let entry = entry.map_err(|source| Error::reading(folder, source))?;
        let name = entry.file_name();
        let is_batch =
            |name: &str| name.strip_prefix("data_batch_").is_some_and(|rest| rest.strip_suffix(".bin").is_some());
        if name.to_str().is_some_and(is_batch) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn read(files: &[PathBuf]) -> Result<ByteImages> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for file in files {
        let bytes = super::source::read_file(file)?;
        decode(file, &bytes, &mut pixels, &mut labels)?;
    }
    let images = ByteImages::new(Shape::new([32, 32, CHANNELS]), pixels, labels, u8::MAX)?;
    Ok(images.with_schema(Schema::with_classes(Format::Cifar10, CLASSES)))
}

/// Appends a file's records, its planes of colours turned into pixels of three channels.
fn decode(file: &Path, bytes: &[u8], pixels: &mut Vec<u8>, labels: &mut Vec<u8>) -> Result<()> {
    let fail = |problem| {
        let help = "fetch the binary version of CIFAR-10 again; a file has 10000 records of 3073 bytes";
        Error::data(format!("`{}`", shown(file)), problem, help)
    };
    if bytes.is_empty() || !bytes.len().is_multiple_of(RECORD) {
        return Err(fail(format!("needs whole records of {RECORD} bytes, but has {} bytes", bytes.len())));
    }
    pixels.try_reserve(bytes.len()).map_err(|_| super::no_memory(&format!("`{}`", shown(file))))?;
    for (record_idx, record) in bytes.chunks_exact(RECORD).enumerate() {
        let (label, planes) = (record[0], &record[1..]);
        if usize::from(label) >= CLASSES.len() {
            return Err(fail(format!("needs labels from 0 to 9, but record {record_idx} has label {label}")));
        }
        labels.push(label);
        pixels.extend((0..PLANE).flat_map(|at| [planes[at], planes[PLANE + at], planes[2 * PLANE + at]]));
    }
    Ok(())
}
