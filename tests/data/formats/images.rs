//! Folders of images.

use super::*;

pub const TINY: ImageSettings = ImageSettings {
    height: 2,
    width: 3,
    channels: Channels::Rgb,
    label_mode: LabelMode::Int,
    unreadable: Unreadable::Error,
};
const SKIP: ImageSettings = ImageSettings { unreadable: Unreadable::Skip, ..TINY };

#[test]
fn image_folders_have_a_class_for_each_sub_folder() {
    let folder = tempfile::tempdir().unwrap();
    let plain = |value: [u8; 3]| image::RgbImage::from_pixel(3, 2, image::Rgb(value));
    save(&folder, "dog/b.png", plain([0, 51, 255]));
    save(&folder, "cat/nested/a.BMP", plain([255, 0, 0]));
    save(&folder, "cat/z.png", image::RgbImage::from_fn(3, 2, |x, y| image::Rgb([x as u8, y as u8, 9])));
    save(&folder, "cat/large.jpg", image::RgbImage::from_pixel(64, 48, image::Rgb([128, 128, 128])));
    write(&folder, "cat/notes.txt", "no image");
    write(&folder, "cat/.hidden.png", "no image");
    write(&folder, "readme.txt", "no class");
    let data = ImageFolder::open(folder.path(), TINY).unwrap();
    assert_eq!(data.classes(), ["cat", "dog"]);
    assert_eq!(data.input_shapes(), [Shape::new([2, 3, 3])]);
    let batch = all(&data);
    assert_eq!(batch.targets[0][..], [0.0, 0.0, 0.0, 1.0], "large.jpg, nested/a.BMP, z.png, b.png");
    let image = |row: usize| batch.inputs[0][row * 18..][..18].iter().map(|x| (x * 255.0).round()).collect::<Vec<_>>();
    assert!(image(0).iter().all(|value| (value - 128.0).abs() <= 1.0), "JPEG, resized");
    assert_eq!(image(1)[..6], [255.0, 0.0, 0.0, 255.0, 0.0, 0.0]);
    assert_eq!(image(2), [0., 0., 9., 1., 0., 9., 2., 0., 9., 0., 1., 9., 1., 1., 9., 2., 1., 9.]);
    assert_eq!(image(3)[..3], [0.0, 51.0, 255.0]);

    let gray = ImageFolder::open(folder.path(), ImageSettings { channels: Channels::Gray, ..TINY }).unwrap();
    assert_eq!(gray.input_shapes(), [Shape::new([2, 3, 1])]);
    // Red alone, by the weights of ITU-R 601: 0.299 · 255.
    assert_eq!(Batch::fetch(&gray, &[1]).unwrap().inputs[0][0], 76.0 / 255.0);
}

#[test]
fn photographs_are_turned_upright() {
    use image::ImageEncoder;
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "a/photo.jpg", "");
    // Little-endian TIFF with one entry: tag 0x0112 (orientation), a short, the value 6: the first
    // column of the file is the top of the picture.
    let exif = [b"II*\0\x08\0\0\0\x01\0".as_slice(), b"\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", &[0; 4]].concat();
    let lying = image::GrayImage::from_fn(16, 8, |x, _| image::Luma([if x < 8 { 0 } else { 255 }]));
    let mut encoder = image::codecs::jpeg::JpegEncoder::new(fs::File::create(path).unwrap());
    encoder.set_exif_metadata(exif).unwrap();
    encoder.write_image(&lying, 16, 8, image::ExtendedColorType::L8).unwrap();
    let settings = ImageSettings { channels: Channels::Gray, ..ImageSettings::new(16, 8) };
    let batch = all(&ImageFolder::open(folder.path(), settings).unwrap());
    let (top, bottom) = batch.inputs[0].split_at(64);
    assert!(top.iter().all(|x| *x < 0.1) && bottom.iter().all(|x| *x > 0.9));
}

#[test]
fn wrong_image_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(message(ImageFolder::open(folder.path(), TINY)).contains("needs a sub-folder of images for each class"));
    fs::create_dir(folder.path().join("cat")).unwrap();
    assert_eq!(
        message_in(&folder, ImageFolder::open(folder.path(), TINY)),
        format!(
            "the folder `{}` needs images, but has none\n  help: put PNG, JPEG or BMP files into the folders of the classes",
            folder.path().display()
        )
    );
    save(&folder, "cat/a.png", image::RgbImage::new(2, 2));
    let whole = fs::read(folder.path().join("cat/a.png")).unwrap();
    write(&folder, "cat/b.png", &whole[..whole.len() / 2]);
    assert_eq!(
        message_in(&folder, ImageFolder::open(folder.path(), TINY)),
        "`cat/b.png` can't be decoded as an image: it is cut short\n  help: mend or shrink the file, take it out of the \
         folder, or set `unreadable = \"skip\"` in `[data]`"
    );
    write(&folder, "cat/c.png", "text");
    let text = message_in(&folder, ImageFolder::open(folder.path(), TINY));
    let folder_name = folder.path().display().to_string();
    let found =
        "can't be read: cat/b.png, cat/c.png; the first: `cat/b.png` can't be decoded as an image: it is cut short\n";
    assert!(text.starts_with(&format!("2 images in `{folder_name}` {found}")), "{text}");
    let data = ImageFolder::open(folder.path(), SKIP).unwrap();
    assert_eq!(data.len(), 1);
    assert_eq!(data.notes(), ["2 files are left out, unreadable: for example `cat/b.png`"]);
    let classes = ["dog".to_owned()];
    assert!(message(ImageFolder::open_with_classes(folder.path(), TINY, &classes)).contains(
        "cat` needs to be one of the 1 classes of the training images, but is not\n  help: the classes are dog"
    ));
    let flat = ImageSettings { height: 0, ..TINY };
    assert!(message(ImageFolder::open(folder.path(), flat)).starts_with("`height` and `width` need at least 1×1"));
}

#[test]
fn folders_without_an_image_are_no_classes_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ant/a.png", "cow/b.png"] {
        save(&folder, name, image::RgbImage::new(2, 2));
    }
    fs::create_dir_all(folder.path().join("bee/deep")).unwrap();
    let data = ImageFolder::open(folder.path(), TINY).unwrap();
    assert_eq!(data.classes(), ["ant", "cow"]);
    assert_eq!(data.notes(), ["1 folder has no image and is no class: bee"]);
    assert_eq!(all(&data).targets[0][..], [0.0, 1.0]);
    write(&folder, "dog/notes.txt", "no image");
    let again = ImageFolder::open_with_classes(folder.path(), TINY, data.classes()).unwrap();
    assert_eq!(again.notes()[1], "2 folders have no image and are no classes: bee, dog");
}

#[test]
fn images_are_kept_once_they_are_decoded() {
    let folder = tempfile::tempdir().unwrap();
    save(&folder, "a/a.png", image::RgbImage::from_pixel(3, 2, image::Rgb([255; 3])));
    let data = ImageFolder::open(folder.path(), TINY).unwrap();
    let first = all(&data);
    fs::remove_dir_all(folder.path().join("a")).unwrap();
    assert_eq!(all(&data), first);
}

#[test]
fn test_images_get_the_labels_of_the_training_images() {
    let folder = tempfile::tempdir().unwrap();
    save(&folder, "dog/a.png", image::RgbImage::new(2, 2));
    let classes = ["cat".to_owned(), "dog".to_owned()];
    let data = ImageFolder::open_with_classes(folder.path(), TINY, &classes).unwrap();
    assert_eq!(all(&data).targets[0][..], [1.0]);
    let categorical = ImageSettings { label_mode: LabelMode::Categorical, ..TINY };
    let data = ImageFolder::open_with_classes(folder.path(), categorical, &classes).unwrap();
    assert_eq!(data.target_shapes(), [Shape::new([2])]);
    assert_eq!(all(&data).targets[0][..], [0.0, 1.0]);
    assert_eq!(Description::of("data", &data).unwrap().targets[0].1[1].rows, 1);
}

#[test]
fn gray_has_the_weights_of_rec_601() {
    let folder = tempfile::tempdir().unwrap();
    // By PIL's documented sums: (R·19595 + G·38470 + B·7471 + 0x8000) >> 16.
    let cases =
        [([255, 0, 0], 76), ([0, 255, 0], 150), ([0, 0, 255], 29), ([255; 3], 255), ([0; 3], 0), ([10, 20, 30], 18)];
    for (at, (colour, _)) in cases.iter().enumerate() {
        save(&folder, &format!("a/{at}.png"), image::RgbImage::from_pixel(1, 1, image::Rgb(*colour)));
    }
    let settings = ImageSettings { channels: Channels::Gray, ..ImageSettings::new(1, 1) };
    let batch = all(&ImageFolder::open(folder.path(), settings).unwrap());
    assert_eq!(batch.inputs[0][..], cases.map(|(_, gray)| gray as f32 / 255.0));
}

#[test]
fn every_kind_of_pixel_is_read() {
    use image::{DynamicImage, ImageBuffer};
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    let images: [DynamicImage; 6] = [
        image::GrayImage::from_pixel(1, 1, image::Luma([51])).into(),
        image::GrayAlphaImage::from_pixel(1, 1, image::LumaA([51, 0])).into(),
        image::RgbaImage::from_pixel(1, 1, image::Rgba([51, 51, 51, 7])).into(),
        ImageBuffer::from_pixel(1, 1, image::Luma([51_u16 * 257])).into(),
        ImageBuffer::from_pixel(1, 1, image::Rgb([51_u16 * 257; 3])).into(),
        ImageBuffer::from_pixel(1, 1, image::Rgba([51_u16 * 257; 4])).into(),
    ];
    for (at, image) in images.iter().enumerate() {
        image.save(folder.path().join(format!("a/{at}.png"))).unwrap();
    }
    for channels in [Channels::Gray, Channels::Rgb] {
        let settings = ImageSettings { channels, ..ImageSettings::new(1, 1) };
        let batch = all(&ImageFolder::open(folder.path(), settings).unwrap());
        assert!(batch.inputs[0].iter().all(|x| *x == 0.2), "{:?}", batch.inputs[0]);
    }
}

/// A header of BMP, and no pixels.
fn bmp(width: u32, height: u32) -> Vec<u8> {
    let words = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let (file, rest) = (words(&[1078, 0, 54]), words(&[0; 6]));
    [b"BM".to_vec(), file, words(&[40, width, height]), vec![1, 0, 24, 0], rest].concat()
}

fn jpeg(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let noise = |x: u32, y: u32| image::Rgb([(x * 37 + y * 91) as u8, (x * y) as u8, (x ^ y) as u8]);
    let image = image::RgbImage::from_fn(width, height, noise);
    image::codecs::jpeg::JpegEncoder::new(&mut bytes).encode_image(&image).unwrap();
    bytes
}

#[test]
fn images_of_too_many_pixels_are_refused_before_memory_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    save(&folder, "a/good.png", image::RgbImage::new(2, 2));
    let mut wide_jpeg = jpeg(8, 8);
    // The frame: marker, length, precision, height, width.
    let frame = wide_jpeg.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
    wide_jpeg[frame + 5..frame + 9].fill(0xff);
    let mut wide_png = fs::read(folder.path().join("a/good.png")).unwrap();
    wide_png[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let checksum = crc32(&wide_png[12..29]);
    wide_png[29..33].copy_from_slice(&checksum.to_be_bytes());
    for (name, bytes, size) in [
        ("a/x.bmp", bmp(30_000, 30_000), "30000×30000"),
        ("a/x.bmp", bmp(65_535, 1025), "65535×1025"),
        ("a/x.jpg", wide_jpeg, "65535×65535"),
        ("a/x.png", wide_png, "65536×65536"),
    ] {
        let path = write(&folder, name, bytes);
        let expected = format!("`{}` needs at most 67108864 pixels, but has {size}\n  help: ", path.display());
        for text in [message(ImageFolder::open(folder.path(), TINY)), row_problem(&path)] {
            assert!(text.starts_with(&expected), "{text}");
        }
        assert_eq!(ImageFolder::open(folder.path(), SKIP).unwrap().len(), 1);
        fs::remove_file(path).unwrap();
    }
}

/// What is wrong with an image when it is decoded.
fn row_problem(path: &Path) -> String {
    let files = ImageFiles::open_all(path, TINY).unwrap();
    let batch = all(&files);
    assert!(batch.inputs[0].iter().all(|x| *x == 0.0));
    files.unreadable().pop().expect("an unreadable row").1
}

/// Source: PNG 1.2, appendix D.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 })
    })
}

#[test]
fn images_that_are_cut_short_are_found_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let image = image::RgbImage::from_fn(64, 48, |x, y| image::Rgb([x as u8, y as u8, 9]));
    save(&folder, "a/good.png", image.clone());
    save(&folder, "whole/whole.bmp", image);
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    // A preview within the first segment has an end of its own.
    let (jpeg, preview) = (jpeg(64, 48), jpeg(8, 8));
    let length = u16::try_from(preview.len() + 2).unwrap().to_be_bytes();
    let with_preview = [&jpeg[..2], &[0xff, 0xe5], &length, &preview, &jpeg[2..]].concat();
    for (name, bytes) in [
        ("a/x.jpg", jpeg.clone()),
        ("a/x.jpg", with_preview.clone()),
        ("a/x.png", read("a/good.png")),
        ("a/x.bmp", read("whole/whole.bmp")),
    ] {
        for kept in [bytes.len() / 10, bytes.len() / 2, bytes.len() - 5] {
            let path = write(&folder, name, &bytes[..kept]);
            for text in [message(ImageFolder::open(folder.path(), TINY)), row_problem(&path)] {
                let start = format!("`{}` can't be decoded as an image: ", path.display());
                assert!(text.starts_with(&start), "{kept} of {}: {text}", bytes.len());
            }
        }
        // More behind the end does no harm.
        let path = write(&folder, name, [&bytes[..], b"more"].concat());
        assert_eq!(ImageFolder::open(folder.path(), TINY).unwrap().len(), 3, "{name}");
        fs::remove_file(path).unwrap();
    }
    // Cut within what follows the preview: its own end is the file's last bytes.
    write(&folder, "a/x.jpg", &with_preview[..6 + preview.len()]);
    assert!(message(ImageFolder::open(folder.path(), TINY)).contains("x.jpg` can't be decoded as an image"));
}

#[test]
fn an_image_that_turns_out_to_be_damaged_counts_nothing_where_it_may_be_skipped() {
    let folder = tempfile::tempdir().unwrap();
    save(&folder, "a/good.png", image::RgbImage::from_pixel(3, 2, image::Rgb([255; 3])));
    let mut bytes = fs::read(folder.path().join("a/good.png")).unwrap();
    // In the packed pixels, whose checksum then fails.
    let pixels = bytes.windows(4).position(|name| name == b"IDAT").unwrap();
    bytes[pixels + 8] ^= 0xff;
    write(&folder, "a/bad.png", bytes);
    let strict = ImageFolder::open(folder.path(), TINY).unwrap();
    assert!(message(Batch::fetch(&strict, &[0])).contains("bad.png` can't be decoded as an image: "));
    let data = ImageFolder::open(folder.path(), SKIP).unwrap();
    let batch = all(&data);
    assert_eq!(batch.sample_weights.unwrap()[..], [0.0, 1.0]);
    assert_eq!(batch.inputs[0][..36].iter().sum::<f32>(), 18.0);
    assert_eq!(data.unreadable().len(), 1);
}

#[test]
fn files_that_are_left_out_are_named_by_kind() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cat/a.png", "dog/b.png", "loose.png"] {
        save(&folder, name, image::RgbImage::new(2, 2));
    }
    for name in ["cat/b.webp", "dog/A.WEBP", "cat/c.gif", "notes", ".hidden", "cat/.hidden.gif"] {
        write(&folder, name, "x");
    }
    let data = ImageFolder::open(folder.path(), TINY).unwrap();
    assert_eq!(
        data.notes(),
        [
            "1 file is left out, images in no class's folder: `loose.png`",
            "1 file is left out, not PNG, JPEG or BMP: `notes`",
            "1 file is left out, not PNG, JPEG or BMP (`.gif`): `cat/c.gif`",
            "2 files are left out, not PNG, JPEG or BMP (`.webp`): for example `cat/b.webp`",
        ]
    );
    let text = Description::of("training data", &data).unwrap().to_string();
    assert!(
        text.starts_with("training data: 2 rows of [2, 3, 3]\n  2 classes: cat (1), dog (1)\n  1 file is left out, "),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[cfg(unix)]
#[test]
fn names_that_are_no_utf_8_are_read_and_shown() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    save(&folder, "plain/a.png", image::RgbImage::new(2, 2));
    let class = folder.path().join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&class).unwrap();
    fs::copy(folder.path().join("plain/a.png"), class.join(OsStr::from_bytes(b"\xff.png"))).unwrap();
    let data = ImageFolder::open(folder.path(), TINY).unwrap();
    assert_eq!((data.classes(), data.len()), (&[r"caf\xe9".to_owned(), "plain".to_owned()][..], 2));
    all(&data);
    assert_eq!(ImageFiles::open(&class, TINY).unwrap().names(), [r"\xff.png"]);
    fs::write(class.join(OsStr::from_bytes(b"\x1b[2J\xff.png")), "x").unwrap();
    let text = message_in(&folder, ImageFolder::open(folder.path(), TINY));
    assert!(
        text.starts_with(r"`caf\xe9/\u{1b}[2J\xff.png` needs to be PNG, JPEG or BMP, but is none of them"),
        "{text}"
    );
}

#[test]
fn spellings_of_one_class_are_kept_apart_and_told() {
    let folder = tempfile::tempdir().unwrap();
    for class in ["Sea Lion", "sea  lion", "seal"] {
        save(&folder, &format!("{class}/a.png"), image::RgbImage::from_pixel(3, 2, image::Rgb([1, 2, 3])));
    }
    let data = ImageFolder::open(folder.path(), TINY).unwrap();
    assert_eq!((data.classes().len(), data.notes().len()), (3, 1));
    assert!(
        data.notes()[0].ends_with("if they are one, join their folders: Sea Lion / sea  lion"),
        "{:?}",
        data.notes()
    );
}

/// A resumed run asks whether its data are those of before.
#[test]
fn another_picture_under_the_same_name_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    save(&folder, "cat/a.png", image::RgbImage::from_pixel(3, 2, image::Rgb([1, 2, 3])));
    let digest = || ImageFolder::open(folder.path(), TINY).unwrap().digest();
    let before = digest();
    assert_eq!(digest(), before);
    save(&folder, "cat/a.png", image::RgbImage::from_fn(30, 20, |x, y| image::Rgb([(x * y) as u8, 7, 9])));
    assert_ne!(digest(), before);
}
