//! Checks that a file is a whole image of a size that may be decoded, by its header and its end, without decoding.

use std::io::{BufRead, ErrorKind, Read, Seek, SeekFrom};

use image::{ImageDecoder, ImageFormat, ImageReader, Limits};

/// Most pixels of an image: 8192 × 8192, or any other proportions. A decoder allocates by the header.
pub(super) const MAX_PIXELS: u64 = 1 << 26;
/// Most bytes of an image, as a file and decoded: 8 for each pixel.
pub(super) const MAX_BYTES: u64 = MAX_PIXELS * 8;

/// Search for the end of an image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Thoroughness {
    /// Checks the last bytes of the file; reads all of it only if they differ.
    Quick,
    /// Reads up to the end: later bytes may look like an end, too.
    Full,
}

/// Limits for the decoders of `image`.
pub(super) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_BYTES);
    limits
}

/// Problem of an image; none, if header and end allow to decode it.
pub(super) fn check(mut file: impl BufRead + Seek, thoroughness: Thoroughness) -> Result<(), String> {
    let mut start = Vec::new();
    file.by_ref().take(16).read_to_end(&mut start).map_err(unreadable)?;
    file.rewind().map_err(unreadable)?;
    match image::guess_format(&start) {
        Ok(ImageFormat::Jpeg) => jpeg(file, thoroughness),
        Ok(ImageFormat::Png) => png(file),
        Ok(ImageFormat::Bmp) => bmp(file),
        Ok(other) => Err(format!("needs to be PNG, JPEG or BMP, but is {}", format!("{other:?}").to_uppercase())),
        Err(_) if start.is_empty() => Err("needs to be PNG, JPEG or BMP, but is empty".into()),
        Err(_) => Err("needs to be PNG, JPEG or BMP, but is none of them".into()),
    }
}

fn unreadable(error: std::io::Error) -> String {
    if error.kind() == ErrorKind::UnexpectedEof { cut_short() } else { format!("can't be read: {error}") }
}

fn cut_short() -> String {
    "can't be decoded as an image: it is cut short".into()
}

fn check_size(width: u64, height: u64) -> Result<(), String> {
    match width.checked_mul(height) {
        Some(1..=MAX_PIXELS) => Ok(()),
        Some(0) => Err(format!("can't be decoded as an image: it has {width}×{height} pixels")),
        _ => Err(format!("needs at most {MAX_PIXELS} pixels, but has {width}×{height}")),
    }
}

/// The size by `image`'s decoder, which reads no pixel for it.
fn check_header(file: impl BufRead + Seek, format: ImageFormat) -> Result<(), String> {
    let mut reader = ImageReader::with_format(file, format);
    reader.limits(limits());
    let decoder = reader.into_decoder().map_err(|error| format!("can't be decoded as an image: {error}"))?;
    let (width, height) = decoder.dimensions();
    check_size(width.into(), height.into())?;
    if decoder.total_bytes() > MAX_BYTES {
        return Err(format!("needs at most {MAX_BYTES} bytes when decoded, but has {}", decoder.total_bytes()));
    }
    Ok(())
}

/// Reads the markers of a JPEG, up to that of its end.
///
/// Decoders fill missing parts with gray, and a photograph's small preview has an end of its own; so all markers
/// must be read. Source: ITU T.81, annex B.
fn jpeg(mut file: impl BufRead + Seek, thoroughness: Thoroughness) -> Result<(), String> {
    const END: [u8; 2] = [0xff, 0xd9];
    let has_end = thoroughness == Thoroughness::Quick && ends_with(&mut file, &END).map_err(unreadable)?;
    let mut has_size = false;
    loop {
        if file.skip_until(0xff).map_err(unreadable)? == 0 {
            return Err(cut_short());
        }
        let mut marker = 0xff;
        while marker == 0xff {
            marker = byte(&mut file)?;
        }
        match marker {
            // A byte of the image, no marker; restarts and others without a length.
            0x00 | 0x01 | 0xd0..=0xd8 => continue,
            0xd9 if has_size => return Ok(()),
            0xd9 => return Err("can't be decoded as an image: it has no frame".into()),
            _ => {}
        }
        let len = u64::from(byte(&mut file)?) << 8 | u64::from(byte(&mut file)?);
        let mut rest = len.saturating_sub(2);
        if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            let mut frame = [0; 5];
            file.read_exact(&mut frame).map_err(unreadable)?;
            let side = |high: u8, low: u8| u64::from(high) << 8 | u64::from(low);
            check_size(side(frame[3], frame[4]), side(frame[1], frame[2]))?;
            rest = rest.saturating_sub(5);
            has_size = true;
        }
        if has_size && has_end {
            return Ok(());
        }
        skip(&mut file, rest).map_err(unreadable)?;
    }
}

/// Reads the chunks of a PNG, up to the last. Source: PNG 1.2, section 3.
fn png(mut file: impl BufRead + Seek) -> Result<(), String> {
    const END: &[u8; 12] = b"\0\0\0\0IEND\xae\x42\x60\x82";
    check_header(&mut file, ImageFormat::Png)?;
    if ends_with(&mut file, END).map_err(unreadable)? {
        return Ok(());
    }
    skip(&mut file, 8).map_err(unreadable)?;
    loop {
        let mut head = [0; 8];
        file.read_exact(&mut head).map_err(unreadable)?;
        if &head[4..] == b"IEND" {
            return Ok(());
        }
        let len = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        // With the checksum behind it.
        skip(&mut file, u64::from(len) + 4).map_err(unreadable)?;
    }
}

/// A BMP that is not packed has a length that follows from its header.
fn bmp(mut file: impl BufRead + Seek) -> Result<(), String> {
    check_header(&mut file, ImageFormat::Bmp)?;
    file.rewind().map_err(unreadable)?;
    let mut head = [0; 34];
    file.read_exact(&mut head).map_err(unreadable)?;
    let number = |at: usize| u64::from(u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let is_old = number(14) == 12;
    let is_packed = !is_old && matches!(number(30), 1 | 2 | 4 | 5);
    if is_old || is_packed {
        return Ok(());
    }
    let (width, bits) = (number(18), u64::from(head[28]));
    // Lines may be stored from top to bottom: then the height is negative.
    let height = u64::from(i32::from_le_bytes([head[22], head[23], head[24], head[25]]).unsigned_abs());
    let needed = number(10) + (width * bits).div_ceil(32) * 4 * height;
    // The padding of the last line may be missing.
    let got = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
    if got + 4 > needed { Ok(()) } else { Err(cut_short()) }
}

fn byte(file: &mut impl Read) -> Result<u8, String> {
    let mut byte = [0];
    file.read_exact(&mut byte).map_err(unreadable)?;
    Ok(byte[0])
}

fn skip(file: &mut impl Seek, bytes: u64) -> std::io::Result<()> {
    file.seek_relative(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Whether the file ends with these bytes. Seeks back to its start.
fn ends_with(file: &mut (impl Read + Seek), end: &[u8]) -> std::io::Result<bool> {
    let mut last = Vec::new();
    let len = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(len.saturating_sub(end.len() as u64)))?;
    file.read_to_end(&mut last)?;
    file.rewind()?;
    Ok(last == end)
}
