//! Lists the images of a folder, and the files that are left out.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::decode;
use crate::runtime::threads;
use crate::schema::few;
use crate::{Error, Result, shown, thousands};

/// Treatment of unreadable image files: cut short, too large, or no images at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unreadable {
    /// An error when the folder is opened, which names the first such file.
    #[default]
    Error,
    /// Such files are left out, with a warning. A file whose pixels turn out to be damaged later becomes a row of zeros
    /// with sample weight 0.
    Skip,
}

/// A class, by the folder of its images.
pub(super) struct ClassFolder {
    /// The folder's name; bytes that are no UTF-8 as [`shown`] writes them.
    pub name: String,
    pub path: PathBuf,
    /// Its images, at any depth, sorted by path.
    pub images: Vec<PathBuf>,
}

/// Images that were found, and files that were left out.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub images: Vec<PathBuf>,
    pub left_out: LeftOutFiles,
}

/// Files and folders that are left out.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftOutFiles {
    /// Files: their number and the first, for each reason.
    files: BTreeMap<String, (usize, PathBuf)>,
    /// Folders of classes without an image.
    empty: Vec<PathBuf>,
}

impl LeftOutFiles {
    pub fn add(&mut self, reason: String, path: PathBuf) {
        let (count, first) = self.files.entry(reason).or_insert((0, path.clone()));
        *count += 1;
        if path < *first {
            *first = path;
        }
    }

    pub fn merge(&mut self, other: Self) {
        for (reason, (count, first)) in other.files {
            self.add(reason.clone(), first);
            if let Some(entry) = self.files.get_mut(&reason) {
                entry.0 += count - 1;
            }
        }
        self.empty.extend(other.empty);
    }

    /// A line for each reason; paths start at `folder`.
    pub fn notes(&self, folder: &Path) -> Vec<String> {
        let note = |(reason, (count, first)): (&String, &(usize, PathBuf))| {
            let first = first.strip_prefix(folder).unwrap_or(first);
            let files = if *count == 1 { "file is" } else { "files are" };
            let example = if *count == 1 { "" } else { "for example " };
            format!("{} {files} left out, {reason}: {example}`{}`", thousands(count), shown(first))
        };
        let name = |path: &PathBuf| path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned();
        let empty: Vec<String> = self.empty.iter().map(name).collect();
        let empty = match empty.len() {
            0 => None,
            1 => Some(format!("1 folder has no image and is no class: {}", few(&empty))),
            count => Some(format!("{} folders have no image and are no classes: {}", thousands(count), few(&empty))),
        };
        self.files.iter().map(note).chain(empty).collect()
    }
}

/// The sub-folders with images, sorted by name: the classes, by label. Empty ones, and files beside them, are left out.
pub(super) fn class_folders(folder: &Path) -> Result<(Vec<ClassFolder>, LeftOutFiles)> {
    let (mut classes, mut left_out) = (Vec::new(), LeftOutFiles::default());
    for path in entries(folder)? {
        // A link to a folder counts as the folder.
        if path.is_dir() {
            let name = name_of(path.file_name().unwrap_or_default());
            let found = images_in(&path)?;
            left_out.merge(found.left_out);
            classes.push(ClassFolder { name, path, images: found.images });
        } else if is_image(&path) {
            left_out.add("images in no class's folder".into(), path);
        } else {
            left_out.add(kind(&path), path);
        }
    }
    if classes.is_empty() {
        return Err(Error::data(
            format!("the folder `{}`", shown(folder)),
            "needs a sub-folder of images for each class, but has none",
            "name the folder above those of the classes",
        ));
    }
    classes.sort_by(|a, b| a.name.cmp(&b.name));
    let (classes, empty): (Vec<_>, Vec<_>) = classes.into_iter().partition(|class| !class.images.is_empty());
    left_out.empty = empty.into_iter().map(|class| class.path).collect();
    if classes.is_empty() {
        return Err(no_images(folder, "put PNG, JPEG or BMP files into the folders of the classes"));
    }
    Ok((classes, left_out))
}

pub(super) fn no_images(folder: &Path, help: &str) -> Error {
    Error::data(format!("the folder `{}`", shown(folder)), "needs images, but has none", help)
}

/// A name in UTF-8 stays unchanged.
fn name_of(name: &OsStr) -> String {
    name.to_str().map_or_else(|| shown(name).to_string(), str::to_owned)
}

/// All images of a folder, at any depth, sorted by path.
pub(super) fn images_in(folder: &Path) -> Result<Listing> {
    let mut found = Listing::default();
    find_images(folder, &mut found)?;
    found.images.sort();
    Ok(found)
}

fn find_images(folder: &Path, found: &mut Listing) -> Result<()> {
    for path in entries(folder)? {
        // Links to folders are not followed here: they could lead in circles.
        if path.is_dir() && !path.is_symlink() {
            find_images(&path, found)?;
        } else if is_image(&path) && path.is_file() {
            found.images.push(path);
        } else if path.is_dir() {
            found.left_out.add("links to folders".into(), path);
        } else {
            found.left_out.add(kind(&path), path);
        }
    }
    Ok(())
}

/// Problem of each file by header and end; found on all cores.
pub(super) fn problems(files: &[PathBuf]) -> Vec<Option<Error>> {
    let mut problems: Vec<Option<Error>> = files.iter().map(|_| None).collect();
    let each: Vec<_> = files.iter().zip(&mut problems).collect();
    threads::for_each(each, |(path, problem)| *problem = decode::check(path).err());
    problems
}

/// One error for all files that can't be read.
pub(super) fn refuse_all(folder: &Path, files: &[PathBuf], problems: Vec<Option<Error>>) -> Result<()> {
    let bad = files.iter().zip(&problems).filter(|(_, problem)| problem.is_some());
    let name = |(path, _): (&PathBuf, _)| path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned();
    let names: Vec<String> = bad.map(name).collect();
    let count = names.len();
    match problems.into_iter().flatten().next() {
        None => Ok(()),
        Some(only) if count == 1 => Err(only),
        Some(first) => Err(Error::data(
            format!("{} images in `{}`", thousands(count), shown(folder)),
            format!(
                "can't be read: {}; the first: {}",
                few(&names),
                first.to_string().lines().next().unwrap_or_default()
            ),
            "mend them, take them out of the folder, or set `unreadable = \"skip\"` in `[data]`",
        )),
    }
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["png", "jpg", "jpeg", "bmp"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Kind of a file that is left out.
fn kind(path: &Path) -> String {
    match path.extension() {
        Some(extension) => format!("not PNG, JPEG or BMP (`.{}`)", shown(&extension.to_ascii_lowercase())),
        None => "not PNG, JPEG or BMP".into(),
    }
}

/// Entries of a folder, without hidden files.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let fail = |source| Error::reading(folder, source);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}
