//! Files of images: a folder with a sub-folder for each class, or images without classes.

mod decode;
mod list;
mod probe;
pub mod sketch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

pub use self::list::Unreadable;

use self::list::{ClassFolder, LeftOutFiles, class_folders, images_in, no_images, problems, refuse_all};
use super::digest::Digest;
use super::labels::lookalikes;
use super::{BatchMut, Dataset, Origin, label_value};
use crate::schema::{Format, LabelMode, Schema, few};
use crate::{Error, Result, Shape, shown};

/// Most bytes of decoded images that a folder keeps for later epochs. Larger folders are decoded again in each epoch.
const MAX_HELD_BYTES: usize = 256 << 20;

/// Channels of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "u8", into = "u8")]
pub enum Channels {
    /// One channel: brightness.
    Gray,
    /// Three: red, green, blue.
    #[default]
    Rgb,
}

impl Channels {
    /// Their number, 1 or 3.
    pub fn count(self) -> usize {
        usize::from(u8::from(self))
    }
}

impl From<Channels> for u8 {
    fn from(channels: Channels) -> Self {
        match channels {
            Channels::Gray => 1,
            Channels::Rgb => 3,
        }
    }
}

impl TryFrom<u8> for Channels {
    type Error = String;

    fn try_from(count: u8) -> Result<Self, String> {
        match count {
            1 => Ok(Self::Gray),
            3 => Ok(Self::Rgb),
            _ => Err(format!("an image has 1 channel (gray) or 3 (red, green, blue), not {count}")),
        }
    }
}

/// Size and channels of every image after reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ImageSettings {
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// Gray or colour. Default: colour.
    #[serde(default)]
    pub channels: Channels,
    /// Targets. Default: labels.
    #[serde(default)]
    pub label_mode: LabelMode,
    /// Treatment of unreadable files. Default: an error.
    #[serde(default)]
    pub unreadable: Unreadable,
}

impl ImageSettings {
    /// Most pixels of a file: 8192 × 8192, or any other proportions. Larger ones are unreadable.
    pub const MAX_PIXELS: u64 = probe::MAX_PIXELS;
    /// Most bytes of a file, packed and decoded: 512 MiB. Larger ones are unreadable.
    pub const MAX_BYTES: u64 = probe::MAX_BYTES;

    /// Colour images of a size.
    pub fn new(height: usize, width: usize) -> Self {
        Self { height, width, channels: Channels::Rgb, label_mode: LabelMode::Int, unreadable: Unreadable::Error }
    }

    fn format(self) -> Format {
        let Self { height, width, channels, label_mode, .. } = self;
        Format::ImageFolder { height, width, channels: channels.into(), label_mode }
    }
}

/// Images in sub-folders, whose names, sorted, are the classes.
///
/// | part | shape | values |
/// | --- | --- | --- |
/// | input 0 | `[batch, height, width, channels]` | 0–1, from 0–255 |
/// | target 0 | `[batch]`, or `[batch, classes]` with [`LabelMode::Categorical`] | index of the class, or 1 in its place |
///
/// PNG, JPEG and BMP, at any depth below a class; other and hidden files, and folders without an image, are left out. An image is
/// turned upright by its EXIF orientation and resized to `height`×`width` with a triangle filter
/// (bilinear, smoothed when it gets smaller), whatever its proportions; transparency is dropped, 16 bits become 8. Gray
/// from colour has the weights of ITU-R 601 (0.299, 0.587, 0.114), as in PIL and Keras.
///
/// Files are decoded when a batch asks for them, in the loader's workers. If all decoded images take at most 256 MiB they are
/// kept, so that later epochs read no file; else a folder may be larger than memory.
///
/// Header and end of every file are looked at when the folder is opened. A file that is cut short, or has more than
/// [`MAX_PIXELS`](ImageSettings::MAX_PIXELS), is an error or is left out: see [`Unreadable`].
#[derive(Clone, Debug)]
pub struct ImageFolder {
    images: ImageFiles,
    labels: Vec<usize>,
    classes: Vec<String>,
}

impl ImageFolder {
    /// Lists the files of a folder; decodes none.
    ///
    /// # Errors
    ///
    /// When the folder can't be read, or has no sub-folder with an image; when an image can't be read.
    pub fn open(folder: &Path, settings: ImageSettings) -> Result<Self> {
        let (folders, left_out) = class_folders(folder)?;
        let classes = folders.iter().map(|class| class.name.clone()).collect();
        Self::list(folder, settings, folders, left_out, classes)
    }

    /// Lists test images: labels are those of `classes`, of which some may have no image.
    ///
    /// # Errors
    ///
    /// When the folder can't be read, has no image, or has a class that is not among `classes`; when an image can't be
    /// read.
    pub fn open_with_classes(folder: &Path, settings: ImageSettings, classes: &[String]) -> Result<Self> {
        let (folders, left_out) = class_folders(folder)?;
        if let Some(other) = folders.iter().find(|class| !classes.contains(&class.name)) {
            return Err(Error::data(
                format!("the folder `{}`", shown(&other.path)),
                format!("needs to be one of the {} classes of the training images, but is not", classes.len()),
                format!("the classes are {}", few(classes)),
            ));
        }
        Self::list(folder, settings, folders, left_out, classes.to_vec())
    }

    /// Names of the classes, by label.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    fn list(
        folder: &Path,
        settings: ImageSettings,
        folders: Vec<ClassFolder>,
        left_out: LeftOutFiles,
        classes: Vec<String>,
    ) -> Result<Self> {
        let mut rows: Vec<(usize, PathBuf)> = Vec::new();
        for class in folders {
            let label = classes.iter().position(|name| *name == class.name).unwrap_or_default();
            rows.extend(class.images.into_iter().map(|file| (label, file)));
        }
        // By label: the order of folders may differ from that of `classes`.
        rows.sort();
        let (labels, files): (Vec<usize>, Vec<PathBuf>) = rows.into_iter().unzip();
        let (images, is_kept) = ImageFiles::new(folder, files, settings)?.checked(left_out)?;
        let labels = labels.into_iter().zip(is_kept).filter_map(|(label, is_kept)| is_kept.then_some(label)).collect();
        Ok(Self { images: images.held(), labels, classes })
    }
}

/// Images without classes, to predict from: a file, or all those of a folder, at any depth, sorted by path.
///
/// Input 0 is that of [`ImageFolder`]; there are no targets.
#[derive(Clone, Debug)]
pub struct ImageFiles {
    /// Folder in which the names of the files start.
    folder: PathBuf,
    files: Vec<PathBuf>,
    settings: ImageSettings,
    left_out: LeftOutFiles,
    /// Rows of zeros in place of an image, with the reason; empty if such a row is an error.
    zeros: Option<Arc<Mutex<BTreeMap<usize, String>>>>,
    /// The bytes of each image that was decoded, where all of them fit in [`MAX_HELD_BYTES`].
    held: Option<Arc<[OnceLock<Vec<u8>>]>>,
}

impl ImageFiles {
    /// Lists the files of a folder, or takes a single file, whatever its extension; decodes none.
    ///
    /// # Errors
    ///
    /// When the path can't be read, or the folder has no image; when an image can't be read.
    pub fn open(path: &Path, settings: ImageSettings) -> Result<Self> {
        let (this, left_out) = Self::list(path, settings)?;
        Ok(this.checked(left_out)?.0)
    }

    /// Lists every file: one that can't be read is a row of zeros, which [`Dataset::unreadable`] names once the
    /// row was asked for.
    ///
    /// # Errors
    ///
    /// When the path can't be read, or the folder has no image.
    pub fn open_all(path: &Path, settings: ImageSettings) -> Result<Self> {
        let (this, left_out) = Self::list(path, settings)?;
        Ok(Self { left_out, zeros: Some(Arc::default()), ..this })
    }

    /// The file of each row: its path below the folder that was opened, with `/` on every system; bytes that are no
    /// UTF-8 as `shown` writes them.
    pub fn names(&self) -> Vec<String> {
        self.files.iter().map(|file| self.name(file)).collect()
    }

    fn name(&self, file: &Path) -> String {
        let part = |part: &std::ffi::OsStr| part.to_str().map_or_else(|| shown(part).to_string(), str::to_owned);
        let below = file.strip_prefix(&self.folder).unwrap_or(file);
        below.iter().map(part).collect::<Vec<_>>().join("/")
    }

    fn list(path: &Path, settings: ImageSettings) -> Result<(Self, LeftOutFiles)> {
        if path.is_dir() {
            let found = images_in(path)?;
            if found.images.is_empty() {
                return Err(no_images(path, "name a folder with PNG, JPEG or BMP files, at any depth, or such a file"));
            }
            return Ok((Self::new(path, found.images, settings)?, found.left_out));
        }
        std::fs::metadata(path).map_err(|source| Error::reading(path, source))?;
        let folder = path.parent().unwrap_or(path);
        Ok((Self::new(folder, vec![path.to_path_buf()], settings)?, LeftOutFiles::default()))
    }

    fn new(folder: &Path, files: Vec<PathBuf>, settings: ImageSettings) -> Result<Self> {
        if settings.height == 0 || settings.width == 0 {
            let problem = format!("need at least 1×1 pixels, but got {}×{}", settings.height, settings.width);
            return Err(Error::setting("`height` and `width`", problem, "use the size that the model takes"));
        }
        Ok(Self {
            folder: folder.to_path_buf(),
            files,
            settings,
            left_out: LeftOutFiles::default(),
            zeros: None,
            held: None,
        })
    }

    /// Images with readable headers and ends, and a mark for each file that was kept.
    fn checked(mut self, left_out: LeftOutFiles) -> Result<(Self, Vec<bool>)> {
        self.left_out = left_out;
        let problems = problems(&self.files);
        let is_kept: Vec<bool> = problems.iter().map(Option::is_none).collect();
        if self.settings.unreadable == Unreadable::Error {
            refuse_all(&self.folder, &self.files, problems)?;
            return Ok((self, is_kept));
        }
        for (path, problem) in self.files.iter().zip(&problems) {
            if let Some(problem) = problem {
                log::warn!("left out: {}", self.told(problem));
                self.left_out.add("unreadable".into(), path.clone());
            }
        }
        let mut kept = is_kept.iter();
        self.files.retain(|_| kept.next().copied().unwrap_or_default());
        if self.files.is_empty() {
            return Err(no_images(&self.folder, "every image in it can't be read: see the warnings"));
        }
        self.zeros = Some(Arc::default());
        Ok((self, is_kept))
    }

    /// A file's problem. Its help names `unreadable = "skip"`, so it is left out where that is set.
    fn told(&self, problem: &Error) -> String {
        let text = problem.to_string();
        match self.settings.unreadable {
            Unreadable::Error => text,
            Unreadable::Skip => text.lines().next().unwrap_or_default().to_owned(),
        }
    }

    /// Keeps each image once it is decoded, for later epochs, if there is room for all.
    fn held(mut self) -> Self {
        let bytes = self.row_len().saturating_mul(self.files.len());
        self.held = (bytes <= MAX_HELD_BYTES).then(|| self.files.iter().map(|_| OnceLock::new()).collect());
        self
    }

    /// Elements of a row.
    fn row_len(&self) -> usize {
        let ImageSettings { height, width, channels, .. } = self.settings;
        height.saturating_mul(width).saturating_mul(channels.count())
    }

    /// A row's values. Zeros for an unreadable file, unless that is an error.
    fn read(&self, row: usize, to: &mut [f32]) -> Result<()> {
        let held = self.held.as_ref().map(|held| &held[row]);
        if let Some(pixels) = held.and_then(OnceLock::get) {
            scale(pixels, to);
            return Ok(());
        }
        let take = |pixels: &[u8]| {
            scale(pixels, to);
            if let Some(held) = held {
                // Of two threads that decoded the same image, the first has kept it.
                drop(held.set(pixels.to_vec()));
            }
        };
        match (decode::pixels(&self.files[row], self.settings, take), &self.zeros) {
            (Ok(()), _) => Ok(()),
            (Err(error), None) => Err(error),
            (Err(error), Some(zeros)) => {
                to.fill(0.0);
                let text = self.told(&error);
                if zeros.lock().unwrap_or_else(PoisonError::into_inner).insert(row, text.clone()).is_none() {
                    log::warn!("{text}");
                }
                Ok(())
            }
        }
    }
}

/// Bytes as numbers from 0 to 1: the bits of `byte / 255`, by two products and a sum, which take less time than a division.
fn scale(pixels: &[u8], to: &mut [f32]) {
    // 1 / 255 = 257 / 65,536 + 1 / (255 · 65,536). The first product is exact, so that only the sum rounds what counts.
    const MOST: f32 = 257.0 / 65_536.0;
    const REST: f32 = 1.0 / (255.0 * 65_536.0);
    for (to, byte) in to.iter_mut().zip(pixels) {
        let byte = f32::from(*byte);
        *to = byte * MOST + byte * REST;
    }
}

/// Names of the sub-folders, sorted: the classes, by label.
pub(super) fn class_names(folder: &Path) -> Result<Vec<String>> {
    Ok(class_folders(folder)?.0.into_iter().map(|class| class.name).collect())
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        self.images.input_shapes()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        match self.images.settings.label_mode {
            LabelMode::Int => vec![Shape::new([])],
            LabelMode::Categorical => vec![Shape::new([self.classes.len()])],
        }
    }

    fn has_sample_weights(&self) -> bool {
        self.images.zeros.is_some()
    }

    fn schema(&self) -> Schema {
        Schema::with_classes(self.images.settings.format(), &self.classes)
    }

    fn notes(&self) -> Vec<String> {
        let groups: Vec<String> = lookalikes(self.classes.iter()).iter().map(|names| names.join(" / ")).collect();
        let note = format!(
            "classes that differ only in case or blanks count as different ones; if they are one, join their folders: {}",
            few(&groups)
        );
        self.images.notes().into_iter().chain((!groups.is_empty()).then_some(note)).collect()
    }

    fn unreadable(&self) -> Vec<(usize, String)> {
        self.images.unreadable()
    }

    fn origins(&self, rows: &[usize]) -> Vec<Origin> {
        self.images.origins(rows)
    }

    /// That of the files' names, sizes and labels. Times of change differ between machines.
    fn digest(&self) -> Option<u64> {
        let mut digest = Digest::default();
        for (file, label) in self.images.files.iter().zip(&self.labels) {
            digest.add_bytes(self.images.name(file).as_bytes());
            digest.add(file.metadata().map_or(0, |metadata| metadata.len()));
            digest.add(*label as u64);
        }
        Some(digest.value())
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        self.images.fetch(rows, batch)?;
        match self.images.settings.label_mode {
            LabelMode::Int => {
                for (to, &row) in batch.target(0).iter_mut().zip(rows) {
                    *to = label_value(self.labels[row]);
                }
            }
            LabelMode::Categorical => {
                for (to, &row) in batch.target(0).chunks_exact_mut(self.classes.len()).zip(rows) {
                    to.fill(0.0);
                    to[self.labels[row]] = 1.0;
                }
            }
        }
        if let Some(zeros) = &self.images.zeros {
            let zeros = zeros.lock().unwrap_or_else(PoisonError::into_inner);
            for (to, row) in batch.sample_weights().iter_mut().zip(rows) {
                *to = if zeros.contains_key(row) { 0.0 } else { 1.0 };
            }
        }
        Ok(())
    }
}

impl Dataset for ImageFiles {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        let ImageSettings { height, width, channels, .. } = self.settings;
        vec![Shape::new([height, width, channels.count()])]
    }

    fn target_shapes(&self) -> Vec<Shape> {
        Vec::new()
    }

    fn schema(&self) -> Schema {
        Schema { format: self.settings.format(), ..Schema::default() }
    }

    fn notes(&self) -> Vec<String> {
        self.left_out.notes(&self.folder)
    }

    fn unreadable(&self) -> Vec<(usize, String)> {
        let zeros = self.zeros.as_ref().map(|zeros| zeros.lock().unwrap_or_else(PoisonError::into_inner).clone());
        zeros.unwrap_or_default().into_iter().collect()
    }

    fn origins(&self, rows: &[usize]) -> Vec<Origin> {
        let files = rows.iter().filter_map(|&row| self.files.get(row));
        files.map(|file| Origin { file: self.name(file), line: None, fields: Vec::new() }).collect()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        for (to, &row) in batch.input(0).chunks_exact_mut(self.row_len()).zip(rows) {
            self.read(row, to)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_scaled_to_the_bits_of_a_division() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut scaled = vec![0.0; 256];
        scale(&bytes, &mut scaled);
        for (byte, scaled) in bytes.iter().zip(scaled) {
            assert_eq!(scaled.to_bits(), (f32::from(*byte) / 255.0).to_bits(), "{byte}");
        }
    }
}
