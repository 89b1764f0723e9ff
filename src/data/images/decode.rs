//! Decodes a file to the values of an image.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use image::imageops::FilterType;
use image::{DynamicImage, GrayImage, ImageDecoder, ImageReader, Luma};

use super::probe::{self, MAX_BYTES, Thoroughness};
use super::{Channels, ImageSettings};
use crate::{Error, Result, shown};

/// Bytes of a pixel while an image is resized.
const RESIZED_BYTES: u64 = 16;

/// Checks a file by its header and end.
pub(super) fn check(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|source| Error::reading(path, source))?;
    probe::check(BufReader::new(file), Thoroughness::Quick).map_err(|problem| refuse(path, problem))
}

/// Decodes a file, whatever its extension, turns it upright, and resizes it.
pub(super) fn read(path: &Path, settings: ImageSettings, to: &mut [f32]) -> Result<()> {
    let bytes = file_bytes(path)?;
    let image = upright(&bytes).map_err(|problem| refuse(path, problem))?;
    let ImageSettings { height, width, channels, .. } = settings;
    let size = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    // Reduced to bytes first, so that fewer channels are resized.
    let image = match channels {
        Channels::Gray => DynamicImage::from(gray(image)),
        Channels::Rgb => DynamicImage::from(image.into_rgb8()),
    };
    let image = if (image.height(), image.width()) == (size(height), size(width)) {
        image
    } else {
        // Height is resized before width, so the wider of both has the other's height in between.
        if u64::from(image.width()).saturating_mul(height as u64).saturating_mul(RESIZED_BYTES) > MAX_BYTES {
            let (from_width, from_height) = (image.width(), image.height());
            let problem = format!("is too large to resize: {from_width}×{from_height} pixels to {width}×{height}");
            return Err(refuse(path, problem));
        }
        image.resize_exact(size(width), size(height), FilterType::Triangle)
    };
    for (to, byte) in to.iter_mut().zip(image.as_bytes()) {
        *to = f32::from(*byte) / 255.0;
    }
    Ok(())
}

fn refuse(path: &Path, problem: String) -> Error {
    let help = "mend or shrink the file, take it out of the folder, or set `unreadable = \"skip\"` in `[data]`";
    Error::data(format!("`{}`", shown(path)), problem, help)
}

fn file_bytes(path: &Path) -> Result<Vec<u8>> {
    let fail = |source| Error::reading(path, source);
    let file = File::open(path).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(refuse(path, format!("needs at most {MAX_BYTES} bytes, but has more")));
    }
    Ok(bytes)
}

fn upright(bytes: &[u8]) -> Result<DynamicImage, String> {
    probe::check(Cursor::new(bytes), Thoroughness::Full)?;
    let decode = || {
        let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
        reader.limits(probe::limits());
        let mut decoder = reader.into_decoder()?;
        let orientation = decoder.orientation()?;
        let mut image = DynamicImage::from_decoder(decoder)?;
        image.apply_orientation(orientation);
        Ok(image)
    };
    decode().map_err(|error: image::ImageError| format!("can't be decoded as an image: {error}"))
}

/// Brightness by the weights of ITU-R 601, in the sums of PIL's `convert("L")`, which Keras uses, too.
fn gray(image: DynamicImage) -> GrayImage {
    if !image.color().has_color() {
        return image.into_luma8();
    }
    let image = image.into_rgb8();
    GrayImage::from_fn(image.width(), image.height(), |x, y| {
        let [red, green, blue] = image.get_pixel(x, y).0.map(u32::from);
        let sum = (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16;
        Luma([u8::try_from(sum).unwrap_or(u8::MAX)])
    })
}
