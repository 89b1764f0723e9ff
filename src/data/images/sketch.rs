//! Sizes of images before their use is settled, for `manyhands init`.

use image::{ColorType, ImageDecoder, ImageReader};

use super::ImageFolder;

/// Files that are looked at, at most.
const MOST_FILES: usize = 500;

/// Images at first sight.
pub(crate) struct ImageSizes {
    /// Height and width of some of them.
    pub sizes: Vec<(usize, usize)>,
    /// Whether all of these are gray.
    pub is_gray: bool,
}

/// Reads the headers of some images, spread over all classes.
pub(crate) fn sizes(folder: &ImageFolder) -> ImageSizes {
    let files = &folder.images.files;
    let step = files.len().div_ceil(MOST_FILES).max(1);
    let (mut sizes, mut is_gray) = (Vec::new(), true);
    for file in files.iter().step_by(step) {
        let reader = ImageReader::open(file).and_then(ImageReader::with_guessed_format);
        let Some(decoder) = reader.ok().and_then(|reader| reader.into_decoder().ok()) else { continue };
        let (width, height) = decoder.dimensions();
        sizes.push((height as usize, width as usize));
        is_gray &= matches!(decoder.color_type(), ColorType::L8 | ColorType::L16 | ColorType::La8 | ColorType::La16);
    }
    let is_gray = is_gray && !sizes.is_empty();
    ImageSizes { sizes, is_gray }
}
