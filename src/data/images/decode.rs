//! Decodes a file to the bytes of an image of the size that is asked for.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};
use image::{DynamicImage, GrayImage, ImageDecoder, ImageReader, Luma};

use super::probe::{self, MAX_BYTES, Thoroughness};
use super::{Channels, ImageSettings};
use crate::{Error, Result, shown};

/// Checks a file by its header and end.
pub(super) fn check(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|source| Error::reading(path, source))?;
    probe::check(BufReader::new(file), Thoroughness::Quick).map_err(|problem| refuse(path, problem))
}

/// Decodes a file, whatever its extension, turns it upright, and resizes it: bytes, `[height, width, channels]`.
pub(super) fn pixels(path: &Path, settings: ImageSettings) -> Result<Vec<u8>> {
    let bytes = file_bytes(path)?;
    let image = upright(&bytes).map_err(|problem| refuse(path, problem))?;
    // Reduced to bytes first, so that fewer channels are resized.
    let resized = match settings.channels {
        Channels::Gray => {
            let image = gray(image);
            resized::<U8>(image.dimensions(), image.into_raw(), settings)
        }
        Channels::Rgb => {
            let image = image.into_rgb8();
            resized::<U8x3>(image.dimensions(), image.into_raw(), settings)
        }
    };
    resized.map_err(|problem| refuse(path, problem))
}

/// Resizes with a triangle filter, whose support grows as the image shrinks.
///
/// The pixel is a type here: with `Resizer::resize`, which takes any, 2 MB of code are compiled for pixels that no image has.
fn resized<P: PixelTrait>(
    (from_width, from_height): (u32, u32),
    pixels: Vec<u8>,
    settings: ImageSettings,
) -> Result<Vec<u8>, String> {
    let ImageSettings { height, width, channels, .. } = settings;
    let size = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    let (to_width, to_height) = (size(width), size(height));
    if (from_width, from_height) == (to_width, to_height) {
        return Ok(pixels);
    }
    let fail =
        |problem: String| format!("can't be resized from {from_width}×{from_height} to {width}×{height}: {problem}");
    // One axis is resized after the other: in between, the image has one side of each size.
    let between =
        |from: u32, to: u32| u64::from(from).saturating_mul(u64::from(to)).saturating_mul(channels.count() as u64);
    if between(from_width, to_height).max(between(from_height, to_width)) > MAX_BYTES {
        return Err(fail(format!("that takes more than {MAX_BYTES} bytes")));
    }
    let from = TypedImageRef::<P>::from_buffer(from_width, from_height, &pixels);
    let from = from.map_err(|error| fail(error.to_string()))?;
    let mut resized = vec![0; height * width * channels.count()];
    let to = TypedImage::<P>::from_buffer(to_width, to_height, &mut resized);
    let mut to = to.map_err(|error| fail(error.to_string()))?;
    let triangle = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    Resizer::new().resize_typed(&from, &mut to, &triangle).map_err(|error| fail(error.to_string()))?;
    drop(to);
    Ok(resized)
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
