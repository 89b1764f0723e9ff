//! Files of images: a folder with a sub-folder for each class, or images without classes.

use std::path::{Path, PathBuf};

use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder, ImageReader};
use serde::{Deserialize, Serialize};

use super::{BatchMut, Dataset, label_value};
use crate::schema::{Format, Schema, few};
use crate::{Error, Result, Shape, shown};

/// Channels of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Channels {
    /// One: brightness.
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

/// What every image becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSettings {
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// Gray or colour. Default: colour.
    #[serde(default)]
    pub channels: Channels,
}

impl ImageSettings {
    fn format(self) -> Format {
        Format::ImageFolder { height: self.height, width: self.width, channels: self.channels.into() }
    }
}

/// Images in sub-folders, whose names, sorted, are the classes.
///
/// | part | shape | values |
/// | --- | --- | --- |
/// | input 0 | `[batch, height, width, channels]` | 0–1, from 0–255 |
/// | target 0 | `[batch]` | index of the class |
///
/// PNG, JPEG and BMP, at any depth below a class; other and hidden files are left out. An image is
/// turned upright by its EXIF orientation and resized to `height`×`width` with a triangle filter
/// (bilinear, smoothed when it gets smaller), whatever its proportions; transparency is dropped. Files
/// are decoded when a batch asks for them, in the loader's workers.
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
    /// When the folder can't be read, has no sub-folder, or one of them has no image.
    pub fn open(folder: &Path, settings: ImageSettings) -> Result<Self> {
        let classes = class_names(folder)?;
        let this = Self::list(folder, settings, classes)?;
        let mut has_image = vec![false; this.classes.len()];
        this.labels.iter().for_each(|label| has_image[*label] = true);
        match has_image.iter().position(|has| !has) {
            None => Ok(this),
            Some(label) => Err(no_images(&folder.join(&this.classes[label]), TAKE_AWAY)),
        }
    }

    /// The same for test images: labels are those of `classes`, of which some may have no image.
    ///
    /// # Errors
    ///
    /// When the folder can't be read, has no image, or has a class that is not among `classes`.
    pub fn open_with_classes(folder: &Path, settings: ImageSettings, classes: &[String]) -> Result<Self> {
        if let Some(other) = class_names(folder)?.into_iter().find(|name| !classes.contains(name)) {
            return Err(Error::data(
                format!("the folder `{}`", shown(&folder.join(&other))),
                format!("needs to be one of the {} classes of the training images, but is not", classes.len()),
                format!("the classes are {}", few(classes)),
            ));
        }
        let this = Self::list(folder, settings, classes.to_vec())?;
        if this.labels.is_empty() { Err(no_images(folder, TAKE_AWAY)) } else { Ok(this) }
    }

    /// Names of the classes, by label.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    fn list(folder: &Path, settings: ImageSettings, classes: Vec<String>) -> Result<Self> {
        let (mut files, mut labels) = (Vec::new(), Vec::new());
        for (label, class) in classes.iter().enumerate() {
            let class_folder = folder.join(class);
            if class_folder.is_dir() {
                files.extend(images_in(&class_folder)?);
                labels.resize(files.len(), label);
            }
        }
        Ok(Self { images: ImageFiles::new(folder, files, settings)?, labels, classes })
    }
}

/// Images without classes, to predict from: a file, or all those of a folder, at any depth, sorted by path.
///
/// Input 0 is that of [`ImageFolder`]; there are no targets.
#[derive(Clone, Debug)]
pub struct ImageFiles {
    /// Where the names of the files start.
    folder: PathBuf,
    files: Vec<PathBuf>,
    settings: ImageSettings,
}

impl ImageFiles {
    /// Lists the files of a folder, or takes a single file, whatever its extension; decodes none.
    ///
    /// # Errors
    ///
    /// When the path can't be read, or the folder has no image.
    pub fn open(path: &Path, settings: ImageSettings) -> Result<Self> {
        if path.is_dir() {
            let files = images_in(path)?;
            if files.is_empty() {
                return Err(no_images(path, "name a folder with PNG, JPEG or BMP files, at any depth, or such a file"));
            }
            return Self::new(path, files, settings);
        }
        std::fs::metadata(path).map_err(|source| Error::reading(path, source))?;
        Self::new(path.parent().unwrap_or(path), vec![path.to_path_buf()], settings)
    }

    /// The file of each row: its path below the folder that was opened, with `/` on every system.
    pub fn names(&self) -> Vec<String> {
        let name = |file: &PathBuf| {
            let below = file.strip_prefix(&self.folder).unwrap_or(file);
            below.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
        };
        self.files.iter().map(name).collect()
    }

    fn new(folder: &Path, files: Vec<PathBuf>, settings: ImageSettings) -> Result<Self> {
        if settings.height == 0 || settings.width == 0 {
            let problem = format!("need at least 1×1 pixels, but got {}×{}", settings.height, settings.width);
            return Err(Error::setting("`height` and `width`", problem, "use the size that the model takes"));
        }
        Ok(Self { folder: folder.to_path_buf(), files, settings })
    }

    fn decode(&self, path: &Path, to: &mut [f32]) -> Result<()> {
        let fail = |problem: String| {
            Error::data(format!("`{}`", shown(path)), problem, "mend the file, or take it out of the folder")
        };
        let image = open_image(path, fail)?;
        let ImageSettings { height, width, channels } = self.settings;
        let size = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
        // Reduced to bytes first, so that fewer channels are resized.
        let image = match channels {
            Channels::Gray => DynamicImage::from(image.into_luma8()),
            Channels::Rgb => DynamicImage::from(image.into_rgb8()),
        };
        let image = if (image.height(), image.width()) == (size(height), size(width)) {
            image
        } else {
            image.resize_exact(size(width), size(height), FilterType::Triangle)
        };
        for (to, byte) in to.iter_mut().zip(image.as_bytes()) {
            *to = f32::from(*byte) / 255.0;
        }
        Ok(())
    }
}

/// Decodes a file, whatever its extension, and turns it upright.
fn open_image(path: &Path, fail: impl Fn(String) -> Error) -> Result<DynamicImage> {
    let reader = ImageReader::open(path)
        .and_then(ImageReader::with_guessed_format)
        .map_err(|source| Error::reading(path, source))?;
    let decode = || {
        let mut decoder = reader.into_decoder()?;
        let orientation = decoder.orientation()?;
        let mut image = DynamicImage::from_decoder(decoder)?;
        image.apply_orientation(orientation);
        Ok(image)
    };
    decode().map_err(|error: image::ImageError| fail(format!("can't be decoded as an image: {error}")))
}

const TAKE_AWAY: &str = "add PNG, JPEG or BMP files, or take the folder away";

fn no_images(folder: &Path, help: &str) -> Error {
    Error::data(format!("the folder `{}`", shown(folder)), "needs images, but has none", help)
}

/// Names of the sub-folders, sorted: the classes, by label.
pub(super) fn class_names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for path in entries(folder)? {
        // A link to a folder is as good as the folder.
        if path.is_dir() {
            names.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    if names.is_empty() {
        return Err(Error::data(
            format!("the folder `{}`", shown(folder)),
            "needs a sub-folder of images for each class, but has none",
            "name the folder above those of the classes",
        ));
    }
    names.sort();
    Ok(names)
}

/// All images of a folder, at any depth, sorted by path.
fn images_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    find_images(folder, &mut found)?;
    found.sort();
    Ok(found)
}

fn find_images(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for path in entries(folder)? {
        // Links to folders are not followed here: they could lead in circles.
        if path.is_dir() && !path.is_symlink() {
            find_images(&path, found)?;
        } else if is_image(&path) && path.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["png", "jpg", "jpeg", "bmp"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// What a folder holds, but for hidden files.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let fail = |source| Error::reading(folder, source);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        self.images.input_shapes()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        vec![Shape::new([])]
    }

    fn schema(&self) -> Schema {
        Schema::with_classes(self.images.settings.format(), &self.classes)
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        self.images.fetch(rows, batch)?;
        for (to, &row) in batch.target(0).iter_mut().zip(rows) {
            *to = label_value(self.labels[row]);
        }
        Ok(())
    }
}

impl Dataset for ImageFiles {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        let ImageSettings { height, width, channels } = self.settings;
        vec![Shape::new([height, width, channels.count()])]
    }

    fn target_shapes(&self) -> Vec<Shape> {
        Vec::new()
    }

    fn schema(&self) -> Schema {
        Schema { format: self.settings.format(), ..Schema::default() }
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        let ImageSettings { height, width, channels } = self.settings;
        for (to, &row) in batch.input(0).chunks_exact_mut(height * width * channels.count()).zip(rows) {
            self.decode(&self.files[row], to)?;
        }
        Ok(())
    }
}
