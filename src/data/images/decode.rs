//! Decodes a file to the bytes of an image of the size that is asked for.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use fast_image_resize::images::TypedImage;
use fast_image_resize::pixels::{U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};
use image::metadata::Orientation;
use image::{DynamicImage, GrayImage, ImageDecoder, ImageFormat, ImageReader, Luma, RgbImage};
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::probe::{self, MAX_BYTES, Thoroughness};
use super::{Channels, ImageSettings};
use crate::data::source;
use crate::{Error, Result, shown};

/// Checks a file by its header and end.
pub(super) fn check(path: &Path) -> Result<()> {
    let file = source::open(path)?;
    probe::check(BufReader::new(file), Thoroughness::Quick).map_err(|problem| refuse(path, problem))
}

thread_local! {
    /// Memory of earlier images. Memory that is new to the process would cost a good part of the decoding.
    static SPARE: RefCell<Spare> = RefCell::default();
}

/// Memory of earlier images, to be filled again.
#[derive(Default)]
struct Spare {
    decoded: Vec<u8>,
    resized: Vec<u8>,
    resizer: Resizer,
}

/// Most bytes of an image whose memory is kept for later ones.
const MAX_SPARE_BYTES: usize = 16 << 20;

/// Memory for so many bytes; of an image that was decoded before, if there is any.
fn filled_up(mut spare: Vec<u8>, len: usize) -> Vec<u8> {
    spare.resize(len, 0);
    spare
}

/// Keeps the memory of an image for later ones, unless it is large.
fn keep(memory: Vec<u8>, spare: &mut Vec<u8>) {
    if memory.capacity() <= MAX_SPARE_BYTES {
        *spare = memory;
    }
}

/// Decodes a file, whatever its extension, turns it upright, and resizes it. `take` gets its bytes, `[height, width, channels]`.
pub(super) fn pixels<R>(path: &Path, settings: ImageSettings, take: impl FnOnce(&[u8]) -> R) -> Result<R> {
    let bytes = file_bytes(path)?;
    SPARE.with_borrow_mut(|spare| {
        let image = upright(&bytes, std::mem::take(&mut spare.decoded)).map_err(|problem| refuse(path, problem))?;
        // Reduced to bytes first, so that fewer channels are resized.
        let (pixels, done) = match settings.channels {
            Channels::Gray => {
                let image = gray(image);
                let (size, mut pixels) = (image.dimensions(), image.into_raw());
                let done = resized::<U8>(size, &mut pixels, settings, spare);
                (pixels, done)
            }
            Channels::Rgb => {
                let image = image.into_rgb8();
                let (size, mut pixels) = (image.dimensions(), image.into_raw());
                let done = resized::<U8x3>(size, &mut pixels, settings, spare);
                (pixels, done)
            }
        };
        let done = done.map_err(|problem| refuse(path, problem))?;
        let taken = take(done.as_deref().unwrap_or(&pixels));
        keep(pixels, &mut spare.decoded);
        keep(done.unwrap_or_default(), &mut spare.resized);
        Ok(taken)
    })
}

/// Resizes with a triangle filter, whose support grows as the image shrinks; none if the image has its size.
///
/// The pixel is a type here: with `Resizer::resize`, which takes any, 2 MB of code are compiled for pixels that no image has. And the
/// source is writable, though nothing writes it: as a `TypedImage` it has the type of the resizer's own images, which halves the rest.
fn resized<P: PixelTrait>(
    (from_width, from_height): (u32, u32),
    pixels: &mut [u8],
    settings: ImageSettings,
    spare: &mut Spare,
) -> Result<Option<Vec<u8>>, String> {
    let ImageSettings { height, width, channels, .. } = settings;
    let size = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    let (to_width, to_height) = (size(width), size(height));
    if (from_width, from_height) == (to_width, to_height) {
        return Ok(None);
    }
    let fail =
        |problem: String| format!("can't be resized from {from_width}×{from_height} to {width}×{height}: {problem}");
    // One axis is resized after the other: in between, the image has one side of each size.
    let between =
        |from: u32, to: u32| u64::from(from).saturating_mul(u64::from(to)).saturating_mul(channels.count() as u64);
    if between(from_width, to_height).max(between(from_height, to_width)) > MAX_BYTES {
        return Err(fail(format!("that takes more than {MAX_BYTES} bytes")));
    }
    let from = TypedImage::<P>::from_buffer(from_width, from_height, pixels);
    let from = from.map_err(|error| fail(error.to_string()))?;
    let mut resized = filled_up(std::mem::take(&mut spare.resized), height * width * channels.count());
    let to = TypedImage::<P>::from_buffer(to_width, to_height, &mut resized);
    let mut to = to.map_err(|error| fail(error.to_string()))?;
    let triangle = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    spare.resizer.resize_typed(&from, &mut to, &triangle).map_err(|error| fail(error.to_string()))?;
    if spare.resizer.size_of_internal_buffers() > MAX_SPARE_BYTES {
        spare.resizer.reset_internal_buffers();
    }
    drop(to);
    Ok(Some(resized))
}

fn refuse(path: &Path, problem: String) -> Error {
    let help = "mend or shrink the file, take it out of the folder, or set `unreadable = \"skip\"` in `[data]`";
    Error::data(format!("`{}`", shown(path)), problem, help)
}

fn file_bytes(path: &Path) -> Result<Vec<u8>> {
    let fail = |source| Error::reading(path, source);
    let file = source::open(path)?;
    // With a byte to spare, so that the end is found without another allocation.
    let len = file.metadata().map_or(0, |metadata| metadata.len()).min(MAX_BYTES);
    let mut bytes = Vec::with_capacity(usize::try_from(len + 1).unwrap_or_default());
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(refuse(path, format!("needs at most {MAX_BYTES} bytes, but has more")));
    }
    Ok(bytes)
}

fn upright(bytes: &[u8], spare: Vec<u8>) -> Result<DynamicImage, String> {
    probe::check(Cursor::new(bytes), Thoroughness::Full)?;
    let fail = |error: &dyn Display| format!("can't be decoded as an image: {error}");
    if image::guess_format(bytes).is_ok_and(|format| format == ImageFormat::Jpeg) {
        return jpeg(bytes, spare).map_err(|error| fail(&error));
    }
    let decode = || {
        let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
        reader.limits(probe::limits());
        let mut decoder = reader.into_decoder()?;
        let orientation = decoder.orientation()?;
        let mut image = DynamicImage::from_decoder(decoder)?;
        image.apply_orientation(orientation);
        Ok(image)
    };
    decode().map_err(|error: image::ImageError| fail(&error))
}

/// A JPEG by the decoder that `image` uses, with the same settings. `image` reads the header three times: for the size, the
/// orientation and the pixels; and it takes new memory for each image.
fn jpeg(bytes: &[u8], spare: Vec<u8>) -> Result<DynamicImage, DecodeErrors> {
    let options = DecoderOptions::default().set_strict_mode(false).set_max_width(usize::MAX).set_max_height(usize::MAX);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers()?;
    let is_gray = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let colours = if is_gray { ColorSpace::Luma } else { ColorSpace::RGB };
    decoder.set_options(options.jpeg_set_out_colorspace(colours));
    let no_size = || DecodeErrors::FormatStatic("it has no size");
    let (width, height) = decoder.dimensions().ok_or_else(no_size)?;
    let mut pixels = filled_up(spare, decoder.output_buffer_size().ok_or_else(no_size)?);
    decoder.decode_into(&mut pixels)?;
    let side = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    let (width, height) = (side(width), side(height));
    let image = if is_gray {
        GrayImage::from_raw(width, height, pixels).map(DynamicImage::ImageLuma8)
    } else {
        RgbImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgb8)
    };
    let mut image = image.ok_or_else(no_size)?;
    let orientation = decoder.exif().and_then(|exif| Orientation::from_exif_chunk(exif));
    image.apply_orientation(orientation.unwrap_or(Orientation::NoTransforms));
    Ok(image)
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
