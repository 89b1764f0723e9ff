//! Settings for images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use manyhands::data::check_labels;
use manyhands::data::images::sketch::look;
use manyhands::data::{Dataset, Description};
use manyhands::schema::few;
use manyhands::{Error, Result};
use manyhands_engine::shown::shown;

use super::table::hidden;
use super::{Proposal, TrainingLength, class_weights, commented, counts, data_of, n_classes, quoted_path};

/// Longest side of the images that a network is trained on: larger ones take long, and need more rows.
const LONGEST_SIDE: usize = 128;
/// Sides are multiples of it, so that pooling halves them without a rest.
const MULTIPLE: usize = 8;
/// Shortest side after the last pooling layer.
const SHORTEST_SIDE: usize = 4;
/// Labels that are looked for: larger ones are numbers to predict.
const MOST_CLASSES: usize = 100_000;
/// Channels of images, at most.
const MOST_CHANNELS: usize = 4;
/// Channels of each block.
const FILTERS: [usize; 5] = [16, 32, 64, 128, 128];
/// The first layer.
const NORMALIZATION: &str =
    "  { type = \"Normalization\" },      # mean 0 and variance 1 of each channel in the training rows\n";
/// Names of the folder with images to test with.
const TEST_FOLDERS: [&str; 4] = ["test", "validation", "valid", "val"];

/// MNIST's files.
pub(super) fn idx(path: &Path) -> Result<Proposal> {
    proposal(&format!("[data]\ntype = \"idx\"\nfolder = {}\n", quoted_path(path)?), "")
}

/// CIFAR-10.
pub(super) fn cifar10(path: &Path) -> Result<Proposal> {
    proposal(&format!("[data]\ntype = \"cifar10\"\nfolder = {}\n", quoted_path(path)?), "")
}

/// Arrays in one file of this type: images, or rows of numbers, with a class each.
pub(super) fn arrays(kind: &str, path: &Path) -> Result<Proposal> {
    proposal(&format!("[data]\ntype = \"{kind}\"\nfile = {}\n", quoted_path(path)?), "")
}

/// A folder of images for each class, or two of them, to train and to test: in one folder, or side by side.
pub(super) fn folder(path: &Path) -> Result<Proposal> {
    let has_folder =
        |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| entry.path().is_dir());
    let named = |folder: &Path, name: &str| Some(folder.join(name)).filter(|folder| has_folder(folder));
    let test_in = |folder: &Path| TEST_FOLDERS.iter().find_map(|name| named(folder, name));
    let is_train = path.file_name().is_some_and(|name| name == "train");
    let (train, test): (PathBuf, Option<PathBuf>) = match named(path, "train") {
        Some(train) => (train, test_in(path)),
        None => (path.to_path_buf(), path.parent().filter(|_| is_train).and_then(test_in)),
    };
    let seen = look(&train)?;
    let Some((height, width)) = size(&seen.sizes) else {
        return Err(Error::data(
            format!("the folder `{}`", shown(path)),
            "needs images whose size can be read, but has none",
            "check that it is the right folder",
        ));
    };
    let mut data = format!("[data]\ntype = \"image_folder\"\ntrain = {}\n", quoted_path(&train)?);
    if let Some(test) = &test {
        data += &format!("test = {}\n", quoted_path(test)?);
    }
    data += &commented(&format!("height = {height}"), "every image is brought to this size");
    data += &format!("width = {width}\n");
    let channels = if seen.is_gray { 1 } else { 3 };
    data += &commented(&format!("channels = {channels}"), "1 for gray, 3 for colour");
    if seen.has_unreadable {
        data += &commented("unreadable = \"skip\"", "some files can't be read: they are left out, with a warning");
    }
    let note = format!(
        "images of {} pixels{}; each is brought to {height}×{width}\n",
        range(&seen.sizes),
        if seen.is_gray { ", gray" } else { "" }
    );
    proposal(&data, &note)
}

/// Sizes of images, from the smallest to the largest.
fn range(sizes: &[(usize, usize)]) -> String {
    let by_pixels = |(height, width): &&(usize, usize)| height * width;
    match (sizes.iter().min_by_key(by_pixels), sizes.iter().max_by_key(by_pixels)) {
        (Some(smallest), Some(largest)) if smallest == largest => format!("{}×{}", smallest.0, smallest.1),
        (Some(smallest), Some(largest)) => {
            format!("{}×{} to {}×{}", smallest.0, smallest.1, largest.0, largest.1)
        }
        _ => "unknown".into(),
    }
}

/// Height and width that all images get: their own if they are small and alike, else about those of the middle one.
fn size(sizes: &[(usize, usize)]) -> Option<(usize, usize)> {
    let middle = |mut sides: Vec<usize>| {
        sides.sort_unstable();
        sides.get(sides.len() / 2).copied()
    };
    let height = middle(sizes.iter().map(|size| size.0).collect())?;
    let width = middle(sizes.iter().map(|size| size.1).collect())?;
    let is_alike = sizes.iter().all(|size| *size == (height, width));
    let longest = height.max(width);
    if is_alike && longest <= LONGEST_SIDE {
        return Some((height, width));
    }
    let fitted = |side: usize| {
        let side = if longest > LONGEST_SIDE { side * LONGEST_SIDE / longest } else { side };
        side.max(MULTIPLE).next_multiple_of(MULTIPLE)
    };
    Some((fitted(height), fitted(width)))
}

fn proposal(data: &str, note: &str) -> Result<Proposal> {
    let pair = data_of(data)?.open()?;
    let train: Arc<dyn Dataset> = pair.train;
    let description = Description::of("data", &train)?;
    let shapes = train.input_shapes();
    let axes = shapes.first().map_or(&[][..], |shape| shape.axes());
    let is_images = axes.len() == 3;
    let is_label = train.target_shapes().first().is_some_and(|shape| shape.len() == 1);
    if is_label && counts(&description).is_empty() {
        check_labels(&train, 0, MOST_CLASSES).map_err(|error| {
            let help = "classes are whole numbers from 0 on: write -1 and 1 as 0 and 1, `y = (y + 1) // 2`";
            Error::data("the target", error.problem(), help)
        })?;
    }
    if !(is_images || axes.len() == 1) || counts(&description).is_empty() {
        return Err(Error::data(
            "the arrays",
            format!("need images or rows of numbers, with a class each, but a row has shape {axes:?}"),
            "classes are whole numbers; for other arrays `docs/settings.md` lists all settings",
        ));
    }
    if let [channels @ (1 | 3 | 4), height, width] = axes
        && *width > MOST_CHANNELS
    {
        log::warn!(
            "rows of {axes:?} look like images of {channels} channels and {height}×{width} pixels, channels first as in PyTorch; they are \
             read as height, width and channels\n  help: write them channels last, as Keras has them: `x.transpose(0, 2, 3, 1)`"
        );
    }
    let (epochs, patience, learning_rate) = if is_images { (40, 15, "0.002") } else { (60, 8, "0.001") };
    let schedule = TrainingLength { rows: train.len(), epochs, patience, learning_rate, has_cosine: is_images };
    // Rows with weights of their own, as those of unreadable files, take no weights of classes.
    let weights = if train.has_sample_weights() { String::new() } else { class_weights(&description) };
    let names: Vec<String> = counts(&description).iter().map(|class| class.name.clone()).collect();
    let last = commented(&format!("  {{ type = \"Dense\", units = {} }},", n_classes(&description)), &few(&names));
    let settings = format!(
        "{data}\n[model]\n{}layers = [\n{NORMALIZATION}{}{last}]\n\n[loss]\ntype = \"SparseCategoricalCrossentropy\"\n\n{}",
        commented(&format!("input = {axes:?}"), if is_images { "height, width, channels" } else { "numbers of a row" }),
        if is_images { convolutions(axes) } else { hidden(train.len()) },
        schedule.text(None, &format!("{}{weights}", augment(train.as_ref())))
    );
    let test = pair.test.map(|test| Description::of("test data", &test)).transpose()?;
    let test = test.map_or_else(String::new, |test| format!("{test}\n"));
    let of = if is_images { "an image" } else { "a row" };
    let seen = format!("{description}\n{test}{note}the model predicts the class of {of}");
    Ok(Proposal { seen, settings })
}

/// Random changes of the images of a folder, which are mostly photographs. Digits and the like may not be mirrored.
fn augment(train: &dyn Dataset) -> String {
    if !train.schema().facts().has_photographs {
        return String::new();
    }
    let comment =
        "# Other images in each epoch. Take out what would change the class: the flip, if left and right matter.\n";
    let changes = [
        "  { type = \"RandomFlip\", mode = \"horizontal\" },\n",
        "  { type = \"RandomTranslation\", height_factor = 0.08, width_factor = 0.08 },\n",
        "  { type = \"RandomRotation\", factor = 0.03 },\n",
        "  { type = \"RandomZoom\", height_factor = 0.1 },\n",
        "  { type = \"RandomContrast\", factor = 0.15 },\n",
    ];
    format!("{comment}augment = [\n{}]\n", changes.concat())
}

/// Blocks of convolutions, each of half the size, until the image is small.
fn convolutions(axes: &[usize]) -> String {
    let mut side = axes.iter().take(2).copied().min().unwrap_or(1);
    let mut text = String::new();
    for filters in FILTERS {
        text += &format!(
            "  {{ type = \"Conv2D\", filters = {filters}, kernel_size = [3, 3], padding = \"same\", use_bias = false }},\n  \
             {{ type = \"BatchNormalization\", momentum = 0.9 }},\n  {{ type = \"ReLU\" }},\n"
        );
        if side / 2 < SHORTEST_SIDE {
            break;
        }
        text += "  { type = \"MaxPooling2D\" },\n";
        side /= 2;
    }
    let head = if side <= SHORTEST_SIDE + 3 { "Flatten" } else { "GlobalAveragePooling2D" };
    text + &format!("  {{ type = \"{head}\" }},\n  {{ type = \"Dropout\", rate = 0.3 }},\n")
}
