//! IDX files, the format of MNIST and Fashion-MNIST, plain or gzipped.
//!
//! Two zero bytes, the type of a value (8 is u8), the number of axes, each axis as a big-endian u32,
//! then the values, row-major. Source: the file format at the end of <http://yann.lecun.com/exdb/mnist/>.

use std::path::{Path, PathBuf};

use super::ByteImages;
use crate::schema::{Format, Schema};
use crate::{Error, Result, Shape, shown};

/// Training images and, where the folder has them, test images.
///
/// The files are named as MNIST's are: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
/// `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, with or without `.gz`; `.idx3-ubyte` in
/// place of `-idx3-ubyte` is known too.
///
/// # Errors
///
/// When there are no training images, labels are missing, or a file is not whole.
pub fn open_folder(folder: &Path) -> Result<(ByteImages, Option<ByteImages>)> {
    let train = pair(folder, "train")?.ok_or_else(|| {
        Error::data(
            format!("the folder `{}`", shown(folder)),
            "needs `train-images-idx3-ubyte` or `train-images-idx3-ubyte.gz`, but has neither",
            "name the folder that holds MNIST's files, or name the files one by one",
        )
    })?;
    Ok((train, pair(folder, "t10k")?))
}

fn pair(folder: &Path, part: &str) -> Result<Option<ByteImages>> {
    let Some(images) = find(folder, part, "images", 3) else { return Ok(None) };
    let labels = find(folder, part, "labels", 1).ok_or_else(|| {
        Error::data(
            format!("`{}`", shown(&images)),
            format!("needs `{part}-labels-idx1-ubyte` beside it, but there is none"),
            "put the file with the labels into the same folder",
        )
    })?;
    open_pair(&images, &labels).map(Some)
}

fn find(folder: &Path, part: &str, what: &str, axes: usize) -> Option<PathBuf> {
    ["-", "."]
        .iter()
        .flat_map(|dash| ["", ".gz"].map(|end| folder.join(format!("{part}-{what}{dash}idx{axes}-ubyte{end}"))))
        .find(|path| path.is_file())
}

/// Images and their labels, scaled from 0–255 to 0–1.
///
/// Images of `[rows, height, width]` get one channel: `[batch, height, width, 1]`.
///
/// # Errors
///
/// When a file is not IDX, not of bytes, not whole, or the numbers of rows differ.
pub fn open_pair(images: &Path, labels: &Path) -> Result<ByteImages> {
    let image_array = IdxArray::read(images)?;
    let label_array = IdxArray::read(labels)?;
    let who = format!("`{}`", shown(labels));
    if label_array.axes.len() != 1 {
        let problem = format!("needs one axis, a label for each image, but has shape {:?}", label_array.axes);
        return Err(Error::data(who, problem, "name the file with the images first, then the one with the labels"));
    }
    if image_array.axes.first() != label_array.axes.first() {
        let problem =
            format!("needs a label for each image, but has {:?} for {:?}", label_array.axes, image_array.axes);
        return Err(Error::data(who, problem, "use images and labels of the same set: `train` or `t10k`"));
    }
    let shape = image_array.image_shape(images)?;
    let images = ByteImages::new(shape, image_array.values, label_array.values, u8::MAX)?;
    Ok(images.with_schema(Schema { format: Format::Idx, ..Schema::default() }))
}

/// Images without labels, to predict from; as those of [`open_pair`].
///
/// # Errors
///
/// When the file is not IDX, not of bytes, not whole, or not of images.
pub fn open_images(images: &Path) -> Result<ByteImages> {
    let array = IdxArray::read(images)?;
    ByteImages::without_labels(array.image_shape(images)?, array.values, u8::MAX)
}

/// A whole IDX file of bytes.
pub(super) struct IdxArray {
    axes: Vec<usize>,
    pub(super) values: Vec<u8>,
}

const HELP: &str = "fetch or copy the file again; it must be IDX as MNIST's files are, plain or gzipped";

impl IdxArray {
    fn read(path: &Path) -> Result<Self> {
        #[cfg(feature = "files")]
        let bytes = super::source::read_file(path)?;
        #[cfg(not(feature = "files"))]
        let bytes = std::fs::read(path).map_err(|source| Error::reading(path, source))?;
        Self::parse(&format!("`{}`", shown(path)), bytes)
    }

    /// Takes the bytes of a file, plain or gzipped. `who` names it in errors.
    pub(super) fn parse(who: &str, bytes: Vec<u8>) -> Result<Self> {
        let fail = |problem: String| Error::data(who, problem, HELP);
        let mut bytes = unzipped(who, bytes)?;
        let &[0, 0, kind, n_axes, ref rest @ ..] = &bytes[..] else {
            return Err(fail("is not an IDX file: it does not begin with two zero bytes and a type".into()));
        };
        if kind != 8 {
            return Err(fail(format!("needs values of type 8 (unsigned bytes), but has type {kind}")));
        }
        let (axes, needed) = axes_of(rest, n_axes);
        let header = 4 + 4 * usize::from(n_axes);
        let got = bytes.len().saturating_sub(header);
        if n_axes == 0 || axes.len() != usize::from(n_axes) || needed != Some(got) {
            let needed = needed.map_or("too many".into(), |needed| needed.to_string());
            return Err(fail(format!(
                "is cut short or too long: shape {axes:?} needs {needed} bytes, but it has {got}"
            )));
        }
        bytes.drain(..header);
        Ok(Self { axes, values: bytes })
    }

    /// The shape of an image; `path` is the file's, for errors.
    fn image_shape(&self, path: &Path) -> Result<Shape> {
        let mut axes = self.axes.get(1..).unwrap_or_default().to_vec();
        match axes.len() {
            2 => axes.push(1),
            3 => {}
            _ => {
                let problem = format!(
                    "needs images, [rows, height, width] or [rows, height, width, channels], but has shape {:?}",
                    self.axes
                );
                let help = "name the file with the images here, not the one with the labels";
                return Err(Error::data(format!("`{}`", shown(path)), problem, help));
            }
        }
        Ok(Shape::new(axes))
    }
}

/// The axes of a header, and their number of values, unless it overflows.
fn axes_of(rest: &[u8], n_axes: u8) -> (Vec<usize>, Option<usize>) {
    let axes = rest.as_chunks::<4>().0.iter().take(usize::from(n_axes));
    let axes: Vec<usize> = axes.filter_map(|axis| usize::try_from(u32::from_be_bytes(*axis)).ok()).collect();
    let needed = axes.iter().try_fold(1_usize, |all, &axis| all.checked_mul(axis));
    (axes, needed)
}

/// Unpacks the length of the header and one byte more, to detect a longer file without unpacking all of it.
#[cfg(feature = "files")]
fn unzipped(who: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
    use std::io::Read;
    /// The longest header: 255 axes.
    const HEADER: u64 = 4 + 4 * 255;
    /// Bytes that one packed byte can become at most; source: RFC 1951, copies of 258 bytes by 2 bits.
    const DEFLATE: usize = 1032;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let fail = |error: std::io::Error| Error::data(who, format!("is not a whole gzip file: {error}"), HELP);
    let mut unpacked = flate2::read::MultiGzDecoder::new(&bytes[..]);
    let mut plain = Vec::new();
    unpacked.by_ref().take(HEADER).read_to_end(&mut plain).map_err(fail)?;
    let &[_, _, _, n_axes, ref rest @ ..] = &plain[..] else { return Ok(plain) };
    let (_, needed) = axes_of(rest, n_axes);
    let whole = needed.and_then(|needed| needed.checked_add(4 + 4 * usize::from(n_axes) + 1));
    let Some(whole) = whole.filter(|whole| *whole / DEFLATE <= bytes.len()) else { return Ok(plain) };
    let missing = whole.saturating_sub(plain.len());
    plain.try_reserve_exact(missing).map_err(|_| super::no_memory(who))?;
    unpacked.take(missing as u64).read_to_end(&mut plain).map_err(fail)?;
    Ok(plain)
}

/// Without the feature `files` nothing is unzipped, so that a page need not load the code.
#[cfg(not(feature = "files"))]
#[allow(clippy::unnecessary_wraps, reason = "as its counterpart above")]
fn unzipped(_who: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
    Ok(bytes)
}
