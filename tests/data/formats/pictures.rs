//! Image files of every kind against Pillow: sizes, orientations, modes.

use super::*;
use crate::golden::Golden;

#[test]
fn images_are_read_as_pillow_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let cases = Golden::open("pictures").cases();
    for prefix in ["resize_", "orientation_", "cmyk_", "palette_", "gray_of_16_bits"] {
        assert!(cases.iter().any(|case| case.name.starts_with(prefix)), "{prefix}");
    }
    for case in cases {
        let bytes: Vec<u8> = case.values("file").iter().map(|byte| *byte as u8).collect();
        let is_jpeg = bytes.starts_with(&[0xff, 0xd8]);
        let path = write(&folder, &case.name, bytes);
        let output = case.tensor("output");
        let channels = if case.facts["channels"] == 1 { Channels::Gray } else { Channels::Rgb };
        let settings = ImageSettings { channels, ..ImageSettings::new(output.shape[0], output.shape[1]) };
        let batch = all(&ImageFiles::open(&path, settings).unwrap());
        let differences = batch.inputs[0].iter().zip(&output.values).map(|(got, needed)| (got * 255.0 - needed).abs());
        // Resizing rounds after each axis, and decoders of JPEG round their cosines and colours in different ways.
        let limit = if is_jpeg { 3.01 } else { 1.01 };
        let worst = differences.fold(0.0, f32::max);
        assert!(worst < limit, "{}: {worst}", case.name);
    }
}
