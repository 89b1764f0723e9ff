//! Images that stay bytes until a batch is made: a quarter of the memory of f32.

use super::digest::Digest;
use super::{BatchMut, Dataset};
use crate::schema::Schema;
use crate::{Error, Result, Shape};

/// Images of one byte a value, mostly with a label each, scaled to 0–1 when a batch is made.
///
/// | part | shape | values |
/// | --- | --- | --- |
/// | input 0 | any, mostly `[batch, height, width, channels]` | byte / `white` |
/// | target 0, if there are labels | `[batch]` | label |
#[derive(Clone, Debug)]
pub struct ByteImages {
    shape: Shape,
    pixels: Vec<u8>,
    labels: Option<Vec<u8>>,
    scaled: Box<[f32; 256]>,
    schema: Schema,
}

impl ByteImages {
    /// Images of one shape, row-major, and the label of each. `white` is the byte that becomes 1.
    ///
    /// # Errors
    ///
    /// When there is no image, or the pixels are not as many as the labels and the shape ask for.
    pub fn new(shape: Shape, pixels: Vec<u8>, labels: Vec<u8>, white: u8) -> Result<Self> {
        if labels.is_empty() || shape.len() == 0 || pixels.len() != labels.len() * shape.len() {
            return Err(Error::data(
                "images",
                format!("of shape {shape} with {} labels do not fit {} bytes", labels.len(), pixels.len()),
                "there must be at least one image, and a label for each",
            ));
        }
        Ok(Self::of_any(shape, pixels, Some(labels), white))
    }

    /// Images of one shape, row-major, to predict from. `white` is the byte that becomes 1.
    ///
    /// # Errors
    ///
    /// When there is no image, or the pixels are no whole number of images.
    pub fn without_labels(shape: Shape, pixels: Vec<u8>, white: u8) -> Result<Self> {
        if pixels.is_empty() || shape.len() == 0 || !pixels.len().is_multiple_of(shape.len()) {
            return Err(Error::data(
                "images",
                format!("of shape {shape} do not fit {} bytes", pixels.len()),
                "there must be at least one image, and each must be whole",
            ));
        }
        Ok(Self::of_any(shape, pixels, None, white))
    }

    fn of_any(shape: Shape, pixels: Vec<u8>, labels: Option<Vec<u8>>, white: u8) -> Self {
        // Divided, not multiplied by 1/white: the same bits as NumPy's `x.astype('float32') / 255`.
        let white = f32::from(white.max(1));
        let scaled = Box::new(std::array::from_fn(|byte| f32::from(u8::try_from(byte).unwrap_or(u8::MAX)) / white));
        Self { shape, pixels, labels, scaled, schema: Schema::default() }
    }

    /// Sets the names of classes.
    #[must_use]
    pub fn with_schema(mut self, schema: Schema) -> Self {
        self.schema = schema;
        self
    }

    /// The label of each row; empty where there are none.
    pub fn labels(&self) -> &[u8] {
        self.labels.as_deref().unwrap_or_default()
    }
}

impl Dataset for ByteImages {
    fn len(&self) -> usize {
        self.pixels.len() / self.shape.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn target_shapes(&self) -> Vec<Shape> {
        self.labels.iter().map(|_| Shape::new([])).collect()
    }

    fn schema(&self) -> Schema {
        self.schema.clone()
    }

    fn digest(&self) -> Option<u64> {
        let mut digest = Digest::default();
        digest.add_bytes(&self.pixels);
        digest.add_bytes(self.labels());
        Some(digest.value())
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        let row_len = self.shape.len();
        for (to, &row) in batch.input(0).chunks_exact_mut(row_len).zip(rows) {
            for (to, &byte) in to.iter_mut().zip(&self.pixels[row * row_len..][..row_len]) {
                *to = self.scaled[usize::from(byte)];
            }
        }
        let labels = self.labels();
        for (to, &row) in batch.target(0).iter_mut().zip(rows) {
            *to = f32::from(labels[row]);
        }
        Ok(())
    }
}
