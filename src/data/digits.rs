//! Handwritten digits of 8×8 pixels, part of the crate: data for a first training.
//!
//! 1,797 images of the digits 0 to 9 by 13 people, 1,437 to train and 360 to test with, each class
//! in the same proportion in both. They are the test part of *Optical Recognition of Handwritten
//! Digits* (E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, CC BY 4.0), as in
//! scikit-learn, split as `train_test_split(range(1797), test_size=360, random_state=0,
//! stratify=labels)` does. `scripts/make_digits.py` makes the files.
//!
//! | part | shape | values |
//! | --- | --- | --- |
//! | input 0 | `[batch, 8, 8, 1]` | 0–1, from 0–16 |
//! | target 0 | `[batch]` | the digit |

use super::ByteImages;
use super::idx::IdxArray;
use crate::schema::{Format, Schema};
use crate::{Result, Shape};

/// Number of classes.
pub const CLASSES: usize = 10;

const TRAIN_ROWS: usize = 1437;
const IMAGE_LEN: usize = 8 * 8;
/// The sum of 16 one-bit pixels of the scan that became one pixel.
const WHITE: u8 = 16;

static IMAGES: &[u8] = include_bytes!("../../data/digits-images-idx3-ubyte");
static LABELS: &[u8] = include_bytes!("../../data/digits-labels-idx1-ubyte");

/// The 1,437 images to train on.
///
/// # Errors
///
/// Only if the bytes in the program were damaged.
///
/// ```
/// use manyhands::data::{Dataset, digits};
/// # fn main() -> manyhands::Result<()> {
/// let train = digits::train()?;
/// assert_eq!(train.len(), 1437);
/// assert_eq!(train.input_shapes()[0].to_string(), "[batch, 8, 8, 1]");
/// # Ok(())
/// # }
/// ```
pub fn train() -> Result<ByteImages> {
    let (mut pixels, mut labels) = all()?;
    pixels.truncate(TRAIN_ROWS * IMAGE_LEN);
    labels.truncate(TRAIN_ROWS);
    images(pixels, labels)
}

/// The 360 images to test with.
///
/// # Errors
///
/// Only if the bytes in the program were damaged.
pub fn test() -> Result<ByteImages> {
    let (mut pixels, mut labels) = all()?;
    pixels.drain(..(TRAIN_ROWS * IMAGE_LEN).min(pixels.len()));
    labels.drain(..TRAIN_ROWS.min(labels.len()));
    images(pixels, labels)
}

fn all() -> Result<(Vec<u8>, Vec<u8>)> {
    let pixels = IdxArray::parse("the images of the digits", IMAGES.to_vec())?.values;
    let labels = IdxArray::parse("the labels of the digits", LABELS.to_vec())?.values;
    Ok((pixels, labels))
}

fn images(pixels: Vec<u8>, labels: Vec<u8>) -> Result<ByteImages> {
    let schema = Schema::with_classes(Format::Digits, (0..CLASSES).map(|digit| digit.to_string()));
    Ok(ByteImages::new(Shape::new([8, 8, 1]), pixels, labels, WHITE)?.with_schema(schema))
}
