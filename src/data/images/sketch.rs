//! Images before their use is settled, for `manyhands init`.

use std::path::{Path, PathBuf};

use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageReader};

use super::list::{class_folders, problems, refuse_all};
use crate::Result;

/// Files whose size is read, at most.
const MOST_FILES: usize = 500;

/// Images at first sight.
pub struct ImagesSketch {
    /// Height and width of some of them.
    pub sizes: Vec<(usize, usize)>,
    /// Whether all of these are gray.
    pub is_gray: bool,
    /// Whether some can't be read.
    pub has_unreadable: bool,
}

/// Looks at a folder with a sub-folder for each class. Reads the headers of some images, spread over all classes, for their sizes.
///
/// # Errors
///
/// When the folder can't be read, or has no sub-folder with an image; when no image can be read.
pub fn look(folder: &Path) -> Result<ImagesSketch> {
    let files: Vec<PathBuf> = class_folders(folder)?.0.into_iter().flat_map(|class| class.images).collect();
    let problems = problems(&files);
    let is_readable: Vec<bool> = problems.iter().map(Option::is_none).collect();
    let has_unreadable = is_readable.contains(&false);
    if !is_readable.contains(&true) {
        refuse_all(folder, &files, problems)?;
    }
    let readable: Vec<PathBuf> =
        files.into_iter().zip(is_readable).filter_map(|(file, is_readable)| is_readable.then_some(file)).collect();
    let step = readable.len().div_ceil(MOST_FILES).max(1);
    let (mut sizes, mut is_gray) = (Vec::new(), true);
    for file in readable.iter().step_by(step) {
        let reader = ImageReader::open(file).and_then(ImageReader::with_guessed_format);
        let Some(mut decoder) = reader.ok().and_then(|reader| reader.into_decoder().ok()) else { continue };
        let (width, height) = decoder.dimensions();
        let is_lying = decoder.orientation().is_ok_and(is_lying);
        let (height, width) = if is_lying { (width, height) } else { (height, width) };
        sizes.push((height as usize, width as usize));
        is_gray &= matches!(decoder.color_type(), ColorType::L8 | ColorType::L16 | ColorType::La8 | ColorType::La16);
    }
    let is_gray = is_gray && !sizes.is_empty();
    Ok(ImagesSketch { sizes, is_gray, has_unreadable })
}

/// Whether width and height change places when an image is turned upright.
fn is_lying(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, create_dir};

    use image::codecs::jpeg::JpegEncoder;
    use image::{ExtendedColorType, ImageEncoder};

    use super::*;

    #[test]
    fn photographs_have_the_size_of_the_upright_picture() {
        for (orientation, size) in [(1, (8, 16)), (3, (8, 16)), (5, (16, 8)), (6, (16, 8)), (8, (16, 8))] {
            let folder = tempfile::tempdir().unwrap();
            create_dir(folder.path().join("a")).unwrap();
            let exif = [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".as_slice(), &[orientation], &[0; 7]].concat();
            let mut encoder = JpegEncoder::new(File::create(folder.path().join("a/photo.jpg")).unwrap());
            encoder.set_exif_metadata(exif).unwrap();
            encoder.write_image(&[0; 128], 16, 8, ExtendedColorType::L8).unwrap();
            let seen = look(folder.path()).unwrap();
            assert_eq!((seen.sizes, seen.is_gray, seen.has_unreadable), (vec![size], true, false), "{orientation}");
        }
    }
}
