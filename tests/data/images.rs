//! Folders of images.

use super::*;

pub const TINY: ImageSettings = ImageSettings { height: 2, width: 3, channels: Channels::Rgb };

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
    // Red alone, by the weights of sRGB's luminance: 0.2126 · 255.
    let red = Batch::fetch(&gray, &[1]).unwrap().inputs[0][0] * 255.0;
    assert!((red - 54.0).abs() <= 1.0, "{red}");
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
    let settings = ImageSettings { height: 16, width: 8, channels: Channels::Gray };
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
        "the folder `cat` needs images, but has none\n  help: add PNG, JPEG or BMP files, or take the folder away"
    );
    save(&folder, "cat/a.png", image::RgbImage::new(2, 2));
    let whole = fs::read(folder.path().join("cat/a.png")).unwrap();
    write(&folder, "cat/b.png", &whole[..whole.len() / 2]);
    write(&folder, "cat/c.png", "text");
    let data = ImageFolder::open(folder.path(), TINY).unwrap();
    check_labels(&data, 0, 1).expect("labels are checked without decoding");
    assert!(Batch::fetch(&data, &[0]).is_ok());
    for (row, file) in [(1, "b"), (2, "c")] {
        let text = message(Batch::fetch(&data, &[row]));
        assert!(text.contains(&format!("{file}.png` can't be decoded as an image: ")), "{text}");
    }
    let classes = ["dog".to_owned()];
    assert!(message(ImageFolder::open_with_classes(folder.path(), TINY, &classes)).contains(
        "cat` needs to be one of the 1 classes of the training images, but is not\n  help: the classes are dog"
    ));
    let flat = ImageSettings { height: 0, ..TINY };
    assert!(message(ImageFolder::open(folder.path(), flat)).starts_with("`height` and `width` need at least 1×1"));
}

#[test]
fn test_images_get_the_labels_of_the_training_images() {
    let folder = tempfile::tempdir().unwrap();
    save(&folder, "dog/a.png", image::RgbImage::new(2, 2));
    let classes = ["cat".to_owned(), "dog".to_owned()];
    let data = ImageFolder::open_with_classes(folder.path(), TINY, &classes).unwrap();
    assert_eq!(all(&data).targets[0][..], [1.0]);
}
