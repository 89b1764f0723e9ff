//! A row as a person can look at it: a picture, or its values by name.

use std::io::Cursor;
use std::sync::Arc;

use image::codecs::png::PngEncoder;
use image::imageops::thumbnail;
use image::{DynamicImage, GrayImage, RgbImage};
use manyhands::data::{Augment, Batch, Dataset, Field, Loader, LoaderSettings, Origin};
use manyhands::{Error, Fit, Result, Shape};
use serde::{Deserialize, Deserializer, Serialize, de};

/// Most pixels of a side of a picture.
const SIDE: u32 = 160;
/// Fewest pixels of a side: a smaller grid is a table.
const LEAST_SIDE: usize = 4;
/// Most values that are named.
const VALUES: usize = 12;
/// Most letters of a value.
const LETTERS: usize = 300;
/// Training images that are shown as they were changed.
const CHANGED: usize = 12;
/// Most tokens of a text.
const TOKENS: usize = 60;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowPreview {
    /// A PNG, in base64.
    Picture {
        #[serde(deserialize_with = "read_base64")]
        png: String,
        width: u32,
        height: u32,
    },
    /// Names and values, and how many others there are.
    Values(Vec<(String, String)>, usize),
}

/// A row to look at, and where it comes from, if that is known.
pub type PreviewAndOrigin = (RowPreview, Option<String>);

/// Rows of a data set to look at.
pub fn samples(dataset: &Arc<dyn Dataset>, inputs: &[Field], rows: &[usize]) -> Result<Vec<PreviewAndOrigin>> {
    let origins = dataset.origins(rows);
    let source = |row: usize| origins.get(row).map(ToString::to_string);
    let samples = samples_of(dataset, inputs, rows, &origins)?;
    Ok(samples.into_iter().enumerate().map(|(row, sample)| (sample, source(row))).collect())
}

/// Some training images as the first epoch changes them at random; none where it changes nothing.
pub fn changed(train: &Arc<dyn Dataset>, fit: &Fit, seed: u64) -> Result<Vec<RowPreview>> {
    let shapes = train.input_shapes();
    let ([shape], false) = (&shapes[..], fit.augment.is_empty()) else { return Ok(Vec::new()) };
    let Some(size) = Pixels::of(shape) else { return Ok(Vec::new()) };
    let augment = Some(Augment { changes: fit.augment.clone(), seed });
    let shuffle = fit.shuffle.then_some(seed);
    let settings = LoaderSettings { batch_size: CHANGED, shuffle, workers: 0, augment, ..LoaderSettings::default() };
    let Some(batch) = Loader::new(train.clone(), settings)?.next()? else { return Ok(Vec::new()) };
    let (values, scale) = (&batch.inputs[0], ByteScale::of(&batch.inputs[0]));
    values.chunks_exact(shape.len()).map(|values| size.picture(values, scale)).collect()
}

fn samples_of(
    dataset: &Arc<dyn Dataset>,
    inputs: &[Field],
    rows: &[usize],
    origins: &[Origin],
) -> Result<Vec<RowPreview>> {
    let shapes = dataset.input_shapes();
    // The fields of a table as they stand there say more than the numbers that they become.
    if !origins.is_empty() && origins.iter().all(|origin| !origin.fields.is_empty()) {
        return Ok(origins.iter().map(|origin| named(origin.fields.clone())).collect());
    }
    let batch = Batch::fetch(dataset, rows)?;
    let of_row = |input: usize, row: usize| {
        let len = shapes[input].len();
        &batch.inputs[input][row * len..(row + 1) * len]
    };
    if let [shape] = &shapes[..]
        && let Some(size) = Pixels::of(shape)
    {
        let scale = ByteScale::of(&batch.inputs[0]);
        return (0..rows.len()).map(|row| size.picture(of_row(0, row), scale)).collect();
    }
    let unknown = Field::default();
    let values = |row: usize| {
        let all = shapes
            .iter()
            .enumerate()
            .flat_map(|(input, shape)| values(inputs.get(input).unwrap_or(&unknown), shape, input, of_row(input, row)));
        named(all.collect())
    };
    Ok((0..rows.len()).map(values).collect())
}

/// The first of many values.
fn named(mut values: Vec<(String, String)>) -> RowPreview {
    let others = values.len().saturating_sub(VALUES);
    values.truncate(VALUES);
    for (_, value) in &mut values {
        if let Some((end, _)) = value.char_indices().nth(LETTERS) {
            value.truncate(end);
            value.push('…');
        }
    }
    RowPreview::Values(values, others)
}

/// The values of an input by name.
fn values(field: &Field, shape: &Shape, input: usize, values: &[f32]) -> Vec<(String, String)> {
    let name = field.name.clone().unwrap_or_else(|| format!("input {input}"));
    if let Some(text) = &field.text {
        let tokens = text.vocabulary.tokens();
        let token = |value: &f32| tokens.get(whole(*value)).map_or("", String::as_str);
        let words: Vec<&str> = values.iter().take(TOKENS).map(token).filter(|token| !token.is_empty()).collect();
        let column = field.column_names().into_iter().next();
        return vec![(column.unwrap_or(name), words.join(" "))];
    }
    let columns = field.column_names();
    let named = (columns.len() == shape.len()).then_some(columns);
    let name = |at: usize| named.as_ref().map_or_else(|| format!("{name}[{at}]"), |names| names[at].clone());
    values.iter().enumerate().map(|(at, value)| (name(at), short(*value))).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index that was checked")]
fn whole(value: f32) -> usize {
    value as usize
}

/// At most four digits after the point.
fn short(value: f32) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Size of an image.
#[derive(Clone, Copy)]
struct Pixels {
    height: u32,
    width: u32,
    channels: usize,
}

impl Pixels {
    /// Of a shape `[height, width, channels]`, if a row is an image.
    fn of(shape: &Shape) -> Option<Self> {
        let &[height, width, channels] = shape.axes() else { return None };
        let is_image = height >= LEAST_SIDE && width >= LEAST_SIDE && [1, 3].contains(&channels);
        let size = |side: usize| u32::try_from(side).ok();
        is_image.then_some(())?;
        Some(Self { height: size(height)?, width: size(width)?, channels })
    }

    fn picture(self, values: &[f32], scale: ByteScale) -> Result<RowPreview> {
        let Self { height, width, channels } = self;
        let bytes: Vec<u8> = values.iter().map(|value| scale.byte(*value)).collect();
        let image = match channels {
            1 => GrayImage::from_raw(width, height, bytes).map(DynamicImage::from),
            _ => RgbImage::from_raw(width, height, bytes).map(DynamicImage::from),
        };
        let image = image.unwrap_or_default();
        let image = if width.max(height) > SIDE {
            let (width, height) = smaller(width, height);
            DynamicImage::from(thumbnail(&image.to_rgb8(), width, height))
        } else {
            image
        };
        let mut png = Cursor::new(Vec::new());
        image.write_with_encoder(PngEncoder::new(&mut png)).map_err(|error| {
            Error::setting(
                "a picture of the report",
                format!("can't be made: {error}"),
                "this is a bug: please report it",
            )
        })?;
        let (width, height) = (image.width(), image.height());
        Ok(RowPreview::Picture { png: base64(png.get_ref()), width, height })
    }
}

/// A size of the same form within [`SIDE`].
fn smaller(width: u32, height: u32) -> (u32, u32) {
    let longest = width.max(height);
    let side = |length: u32| (length * SIDE / longest).max(1);
    (side(width), side(height))
}

/// From values to bytes.
#[derive(Clone, Copy)]
struct ByteScale {
    least: f32,
    factor: f32,
}

impl ByteScale {
    /// Values from 0 to 1 or from 0 to 255 are colours; others are spread over them. Changed pictures may be a little brighter than 1; of
    /// 255, that would be black.
    fn of(values: &[f32]) -> Self {
        let (least, most) =
            values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), value| (a.min(*value), b.max(*value)));
        match (least, most) {
            _ if least >= 0.0 && most <= 4.0 => Self { least: 0.0, factor: 255.0 },
            _ if least >= 0.0 && most <= 255.0 => Self { least: 0.0, factor: 1.0 },
            _ => Self { least, factor: 255.0 / (most - least).max(f32::MIN_POSITIVE) },
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a byte")]
    fn byte(self, value: f32) -> u8 {
        ((value - self.least) * self.factor).round().clamp(0.0, 255.0) as u8
    }
}

/// Base64 from a file, which may come from a stranger: the page takes it as it is, so it may hold nothing but letters.
fn read_base64<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    if text.bytes().all(is_letter) { Ok(text) } else { Err(de::Error::custom("needs a picture in base64")) }
}

/// Source: RFC 4648, section 4.
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyhands::data::digits;

    #[test]
    fn base64_is_that_of_the_standard() {
        // Source: RFC 4648, section 10.
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (text, coded) in cases.into_iter().chain([("foobar", "Zm9vYmFy")]) {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }

    #[test]
    fn images_become_pictures_of_the_same_pixels() {
        let dataset: Arc<dyn Dataset> = Arc::new(digits::test().unwrap());
        let shown = samples(&dataset, &[], &[3, 5]).unwrap();
        let RowPreview::Picture { png, width, height } = &shown[1].0 else { panic!("{shown:?}") };
        assert_eq!((*width, *height), (8, 8));
        assert!(png.starts_with("iVBORw0KGgo"), "the mark of a PNG: {png}");
    }

    #[test]
    fn large_images_keep_their_form() {
        assert_eq!((smaller(640, 320), smaller(1000, 1)), ((160, 80), (160, 1)));
    }
}
