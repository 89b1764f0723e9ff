//! Does each kind of data become the right values, and each wrong file a clear error?

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that fails may panic, and its numbers are small"
)]

mod described;
mod drift;
mod images;
mod inputs;
mod numpy;
mod pictures;
mod safetensors;
mod schema;
mod tables;
mod text;

use std::fs;
use std::io::Write;
use std::path::Path;

use manyhands::data::check_labels;
use manyhands::data::csv::{
    self, Column, CsvSettings, InputColumns, NumberScale, OneOrMany, OutputColumns, TargetKind,
};
use manyhands::data::{
    Batch, ByteImages, Channels, DataConfig, Dataset, Description, FolderConfig, IdxConfig, ImageFiles, ImageFolder,
    ImageSettings, InMemory, LabelMode, Missing, Synthetic, Unreadable, cifar, digits, idx,
};
use manyhands::{Error, Shape};
use ndarray::{Array1, Array2, Array3, array};
use tempfile::TempDir;

fn all(dataset: &dyn Dataset) -> Batch {
    Batch::fetch(dataset, &(0..dataset.len()).collect::<Vec<_>>()).unwrap()
}

fn message<T>(result: Result<T, Error>) -> String {
    result.err().expect("an error").to_string()
}

/// The message with the folder's path taken out.
fn message_in<T>(folder: &TempDir, result: Result<T, Error>) -> String {
    message(result).replace(&format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR), "")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

// In memory

#[test]
fn arrays_become_rows_in_the_order_asked() {
    let transposed = array![[1., 4.], [2., 5.], [3., 6.]].reversed_axes();
    let data = InMemory::new(transposed, array![[0.5], [1.5]])
        .unwrap()
        .with_input(Array3::from_shape_fn((2, 2, 2), |(row, y, x)| (row * 100 + y * 10 + x) as f32))
        .unwrap()
        .with_target(array![7., 8.])
        .unwrap()
        .with_sample_weights(array![1., 0.])
        .unwrap();
    assert_eq!(data.input_shapes(), [Shape::new([3]), Shape::new([2, 2])]);
    assert_eq!(data.target_shapes(), [Shape::new([1]), Shape::new([])]);
    let batch = Batch::fetch(&data, &[1, 0, 1]).unwrap();
    assert_eq!(batch.rows, 3);
    assert_eq!(batch.inputs[0][..], [4., 5., 6., 1., 2., 3., 4., 5., 6.]);
    assert_eq!(batch.inputs[1][..], [100., 101., 110., 111., 0., 1., 10., 11., 100., 101., 110., 111.]);
    assert_eq!(batch.targets[0][..], [1.5, 0.5, 1.5]);
    assert_eq!(batch.targets[1][..], [8., 7., 8.]);
    assert_eq!(batch.sample_weights.unwrap()[..], [0., 1., 0.]);
}

#[test]
fn a_slice_of_an_array_is_only_the_slice() {
    let whole = Array2::from_shape_fn((10, 3), |(row, column)| (row * 3 + column) as f32);
    let part = whole.slice_move(ndarray::s![4..6, ..]);
    assert_eq!(all(&InMemory::without_targets(part).unwrap()).inputs[0][..], [12., 13., 14., 15., 16., 17.]);
}

#[test]
fn arrays_that_do_not_fit_are_refused() {
    assert_eq!(
        message(InMemory::new(Array2::zeros((4, 2)), Array1::zeros(3))),
        "target 0 needs 4 rows as input 0 has, but its array has shape [3]\n  \
         help: all arrays of a dataset have the same first axis, the row"
    );
    assert!(message(InMemory::without_targets(Array2::zeros((0, 2)))).contains("needs at least one row"));
    assert!(message(InMemory::without_targets(Array2::zeros((2, 0)))).contains("needs at least one element a row"));
    let data = || InMemory::without_targets(Array2::zeros((2, 2))).unwrap();
    assert!(message(data().with_sample_weights(Array1::ones(3))).starts_with("sample weights needs 2 rows"));
    assert_eq!(
        message(data().with_sample_weights(array![1., -1.])),
        "sample weights need finite numbers from 0 up, but row 1 has -1\n  help: use 0 for a row that must not count"
    );
}

#[test]
fn values_that_are_not_finite_are_found_by_row_and_column() {
    let mut inputs = Array2::zeros((5, 4));
    inputs[[3, 2]] = f32::NAN;
    assert_eq!(
        message(InMemory::without_targets(inputs)),
        "input 0 needs finite numbers, but row 3, column 2 holds NaN\n  \
         help: mend the value or leave the row out: one such value would spoil every weight"
    );
    let mut images = Array3::zeros((5, 4, 3));
    images[[2, 3, 1]] = f32::NEG_INFINITY;
    assert!(message(InMemory::without_targets(images)).contains("row 2, element [3, 1] holds -inf"));
    let labels = array![0., 1., f32::INFINITY];
    assert!(
        message(InMemory::new(Array2::zeros((3, 1)), labels))
            .starts_with("target 0 needs finite numbers, but row 2 holds inf")
    );
}

#[test]
fn labels_out_of_range_are_found() {
    let labelled =
        |labels: Vec<f32>| InMemory::new(Array2::zeros((labels.len(), 1)), Array1::from_vec(labels)).unwrap();
    let mut labels: Vec<f32> = (0..10_000).map(|row| (row % 10) as f32).collect();
    check_labels(&labelled(labels.clone()), 0, 10).unwrap();
    labels[9_000] = 10.0;
    assert_eq!(
        message(check_labels(&labelled(labels.clone()), 0, 10)),
        "target 0 needs labels from 0 to 9, but row 9000 has label 10\n  \
         help: labels count from 0; give the last layer as many units as there are classes, now 10"
    );
    labels[4_095] = -1.0;
    assert!(message(check_labels(&labelled(labels.clone()), 0, 10)).contains("row 4095 has label -1"));
    labels[17] = 1.5;
    assert!(message(check_labels(&labelled(labels), 0, 10)).contains("row 17 has label 1.5\n  help: a class label is"));
    assert!(
        message(check_labels(&labelled(vec![0.0]), 1, 10)).starts_with("target 1 is needed, but the dataset has 1")
    );
}

// Digits

const TEST_COUNTS: [usize; 10] = [36, 36, 35, 37, 36, 37, 36, 36, 35, 36];
const FIRST_TEST_LABEL: f32 = 7.0;
#[rustfmt::skip]
const FIRST_TEST_IMAGE: [f32; 64] = [
    0., 0., 2., 13., 16., 9., 0., 0.,
    0., 0., 12., 12., 7., 16., 3., 0.,
    0., 1., 14., 3., 0., 16., 4., 0.,
    0., 0., 0., 4., 10., 16., 6., 0.,
    0., 0., 0., 13., 16., 16., 9., 0.,
    0., 0., 0., 5., 13., 1., 0., 0.,
    0., 0., 0., 11., 9., 0., 0., 0.,
    0., 0., 1., 16., 4., 0., 0., 0.,
];

#[test]
fn the_digits_are_those_of_scikit_learn() {
    let (train, test) = (digits::train().unwrap(), digits::test().unwrap());
    assert_eq!((train.len(), test.len()), (1437, 360));
    // Counts of `load_digits().target`, and of the test part of the split, by NumPy.
    let count = |data: &ByteImages| {
        (0..10).map(|digit| data.labels().iter().filter(|&&label| label == digit).count()).collect::<Vec<_>>()
    };
    assert_eq!(count(&test), TEST_COUNTS);
    let both: Vec<_> = count(&train).iter().zip(count(&test)).map(|(train, test)| train + test).collect();
    assert_eq!(both, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    // `load_digits().images.sum()` is 561718.
    let sum: f32 = [&train, &test].iter().map(|data| all(*data).inputs[0].iter().map(|x| x * 16.0).sum::<f32>()).sum();
    assert_eq!(sum, 561_718.0);
    // The first test row: an image of its own digit, by scikit-learn.
    let first = Batch::fetch(&test, &[0]).unwrap();
    assert_eq!(first.targets[0][0], FIRST_TEST_LABEL);
    assert_eq!(first.inputs[0].iter().map(|x| x * 16.0).collect::<Vec<_>>(), FIRST_TEST_IMAGE);
}

// IDX

fn idx_file(axes: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, u8::try_from(axes.len()).unwrap()];
    bytes.extend(axes.iter().flat_map(|axis| axis.to_be_bytes()));
    bytes.extend(values);
    bytes
}

fn write(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> std::path::PathBuf {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

fn save(folder: &TempDir, name: &str, image: image::RgbImage) {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    image.save(path).unwrap();
}

#[test]
fn idx_folders_are_read_plain_and_gzipped() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "train-images-idx3-ubyte", idx_file(&[2, 2, 3], &[0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6]));
    write(&folder, "train-labels-idx1-ubyte.gz", gzip(&idx_file(&[2], &[3, 9])));
    let (train, test) = idx::open_folder(folder.path()).unwrap();
    assert!(test.is_none());
    assert_eq!(train.input_shapes(), [Shape::new([2, 3, 1])]);
    let batch = all(&train);
    assert_eq!(batch.inputs[0][..6], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
    assert_eq!(batch.targets[0][..], [3.0, 9.0]);

    write(&folder, "t10k-images.idx3-ubyte", idx_file(&[1, 2, 3], &[0; 6]));
    assert_eq!(
        message_in(&folder, idx::open_folder(folder.path())),
        "`t10k-images.idx3-ubyte` needs `t10k-labels-idx1-ubyte` beside it, but there is none\n  \
         help: put the file with the labels into the same folder"
    );
    write(&folder, "t10k-labels.idx1-ubyte", idx_file(&[1], &[0]));
    assert_eq!(idx::open_folder(folder.path()).unwrap().1.unwrap().len(), 1);
}

#[test]
fn broken_idx_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let labels = write(&folder, "labels", idx_file(&[2], &[1, 2]));
    let good = idx_file(&[2, 2, 2], &[0; 8]);
    let zipped = gzip(&good);
    let cases: [(&[u8], &str); 9] = [
        (b"", "`images` is not an IDX file"),
        (b"\x89PNG\r\n\x1a\n", "`images` is not an IDX file"),
        (&good[..9], "`images` is cut short or too long: shape [2] needs 2 bytes, but it has 0"),
        (&good[..23], "`images` is cut short or too long: shape [2, 2, 2] needs 8 bytes, but it has 7"),
        (&[&good[..], &[0]].concat(), "`images` is cut short or too long: shape [2, 2, 2] needs 8 bytes, but it has 9"),
        (&idx_file(&[u32::MAX; 3], &[]), "`images` is cut short or too long"),
        (&[0, 0, 13, 1, 0, 0, 0, 0], "`images` needs values of type 8 (unsigned bytes), but has type 13"),
        (&zipped[..zipped.len() - 9], "`images` is not a whole gzip file"),
        (&idx_file(&[2], &[1, 2]), "`images` needs images, [rows, height, width]"),
    ];
    for (bytes, expected) in cases {
        let images = write(&folder, "images", bytes);
        let text = message_in(&folder, idx::open_pair(&images, &labels));
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("\n  help: "), "{text}");
    }
    let images = write(&folder, "images", good);
    let labels = write(&folder, "labels", idx_file(&[3], &[1, 2, 3]));
    assert_eq!(
        message_in(&folder, idx::open_pair(&images, &labels)),
        "`labels` needs a label for each image, but has [3] for [2, 2, 2]\n  \
         help: use images and labels of the same set: `train` or `t10k`"
    );
    assert!(message(idx::open_pair(&images, &images)).contains("needs one axis, a label for each image"));
    assert!(message(idx::open_pair(Path::new("none/x"), &labels)).starts_with("`none/x` can't be read: "));
    assert!(
        message(idx::open_folder(Path::new("none"))).starts_with("the folder `none` needs `train-images-idx3-ubyte`")
    );
}

#[test]
fn fashion_mnist_is_read_where_it_is_installed() {
    let folder = Path::new("/usr/share/datasets/fashion-mnist");
    if !folder.is_dir() {
        eprintln!("not run: {} is not there (Debian: dataset-fashion-mnist)", folder.display());
        return;
    }
    let (train, test) = idx::open_folder(folder).unwrap();
    let test = test.unwrap();
    assert_eq!((train.len(), test.len()), (60_000, 10_000));
    assert_eq!(train.input_shapes(), [Shape::new([28, 28, 1])]);
    check_labels(&train, 0, 10).unwrap();
    // Each class has the same number of rows, as its authors say.
    for (data, count) in [(&train, 6000), (&test, 1000)] {
        assert!((0..10).all(|class| data.labels().iter().filter(|&&label| label == class).count() == count));
    }
    // The mean of the training pixels that is given everywhere for Fashion-MNIST.
    let sum: f64 = (0..60_000)
        .collect::<Vec<_>>()
        .chunks(1000)
        .flat_map(|rows| Batch::fetch(&train, rows).unwrap().inputs[0].to_vec())
        .map(f64::from)
        .sum();
    assert!((sum / (60_000.0 * 784.0) - 0.2860).abs() < 5e-5);
}

#[test]
fn what_unpacks_without_end_is_read_as_far_as_its_header_asks() {
    let folder = tempfile::tempdir().unwrap();
    let labels = write(&folder, "labels", idx_file(&[2], &[1, 2]));
    // 64 MiB of zeros in 64 kB: behind a header for 8 bytes, and behind one for more than can be packed in so few.
    for (axes, expected) in
        [([2, 2, 2], "needs 8 bytes, but it has"), ([1 << 20, 1 << 10, 1 << 10], "bytes, but it has 1")]
    {
        let images = write(&folder, "images", gzip(&idx_file(&axes, &vec![0; 64 << 20])));
        let text = message_in(&folder, idx::open_pair(&images, &labels));
        assert!(text.starts_with("`images` is cut short or too long") && text.contains(expected), "{text}");
        let got: usize = text.split(" it has ").nth(1).unwrap().split('\n').next().unwrap().parse().unwrap();
        assert!(got < 1024, "{text}");
    }
}

// CIFAR-10

#[test]
fn cifar_planes_become_channels() {
    let folder = tempfile::tempdir().unwrap();
    let record = |label: u8, first: u8| {
        let planes = [[first; 1024], [first + 1; 1024], [first + 2; 1024]].concat();
        [vec![label], planes].concat()
    };
    write(&folder, "cifar-10-batches-bin/data_batch_2.bin", record(9, 30));
    write(&folder, "cifar-10-batches-bin/data_batch_1.bin", [record(4, 10), record(0, 20)].concat());
    let (train, test) = cifar::open(folder.path()).unwrap();
    assert!(test.is_none());
    assert_eq!(train.input_shapes(), [Shape::new([32, 32, 3])]);
    assert_eq!(train.labels(), [4, 0, 9]);
    let batch = Batch::fetch(&train, &[2]).unwrap();
    assert_eq!(batch.inputs[0][3069..], [30.0 / 255.0, 31.0 / 255.0, 32.0 / 255.0]);

    write(&folder, "cifar-10-batches-bin/test_batch.bin", &record(1, 0)[..3000]);
    assert!(
        message_in(&folder, cifar::open(folder.path()))
            .contains("test_batch.bin` needs whole records of 3073 bytes, but has 3000 bytes\n  help: ")
    );
    write(&folder, "cifar-10-batches-bin/test_batch.bin", record(10, 0));
    assert!(message(cifar::open(folder.path())).contains("needs labels from 0 to 9, but record 0 has label 10"));
    let empty = tempfile::tempdir().unwrap();
    assert!(message(cifar::open(empty.path())).contains("needs `data_batch_1.bin` and its like, but has none"));
}

// CSV

/// Numbers as they stand in the table, of which none may be missing.
fn by_name(target: &str, kind: TargetKind) -> CsvSettings {
    plain(CsvSettings::new(Column::Name(target.into()), kind))
}

fn plain(settings: CsvSettings) -> CsvSettings {
    CsvSettings { numbers: NumberScale::Unchanged, missing: Missing::Error, ..settings }
}

#[test]
fn tables_have_classes_in_sorted_order() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "\u{feff}length,species,width\r\n1.5,setosa,2\r\n\"3\", virginica ,4e-1\r\n-5,\"setosa\",6\r\n7,alba,8\r\n";
    let path = write(&folder, "iris.csv", text);
    let table = csv::open(&path, &by_name("species", TargetKind::Classes)).unwrap();
    let schema = table.dataset.schema();
    assert_eq!(schema.inputs[0].column_names(), ["length", "width"]);
    assert_eq!(schema.classes(0), ["alba", "setosa", "virginica"]);
    let batch = all(&table.dataset);
    assert_eq!(batch.inputs[0][..], [1.5, 2.0, 3.0, 0.4, -5.0, 6.0, 7.0, 8.0]);
    assert_eq!(batch.targets[0][..], [1.0, 2.0, 1.0, 0.0]);
    assert_eq!(table.dataset.target_shapes(), [Shape::new([])]);

    let path = write(&folder, "test.csv", "length,species,width\n1,virginica,2\n");
    let settings = by_name("species", TargetKind::Classes);
    let test = csv::open_like(&path, &settings, &schema).unwrap();
    assert_eq!(all(&test.dataset).targets[0][..], [2.0], "the classes are those of the training table");
    let path = write(&folder, "test.csv", "length,species,width\n1,setosa,2\n1,rosa,2\n");
    assert_eq!(
        message_in(&folder, csv::open_like(&path, &settings, &schema)),
        "`test.csv` line 3, column 1 (`species`) needs one of the training table's classes (alba, setosa, virginica), \
         but holds `rosa`\n  \
         help: mend the field, leave the line out, or name the column in `ignore` if it is no input"
    );
    let path = write(&folder, "test.csv", "width,id,species,length\n1,x,setosa,2\n");
    let test = csv::open_like(&path, &settings, &schema).unwrap();
    assert_eq!(all(&test.dataset).inputs[0][..], [2.0, 1.0], "columns are found by name");
    let path = write(&folder, "test.csv", "height,species,length\n1,setosa,2\n");
    assert_eq!(
        message_in(&folder, csv::open_like(&path, &settings, &schema)),
        "`test.csv` needs a column `width`, but has none\n  help: its columns are height, species, length"
    );
}

#[test]
fn tables_may_lack_a_header_and_have_several_targets() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "t.csv", "10;1;2;3;id1\n2;4;5;0.5;id2\n");
    let output = |columns: &[usize], target_kind| OutputColumns {
        name: None,
        target: OneOrMany::Many(columns.iter().copied().map(Column::Index).collect()),
        target_kind,
    };
    let settings = CsvSettings {
        ignore: vec![Column::Index(4)],
        sample_weight: Some(Column::Index(3)),
        ..plain(CsvSettings::of_outputs(vec![output(&[2, 0], TargetKind::Values)]))
    };
    let table = csv::open(&path, &settings).unwrap();
    assert_eq!(table.dataset.schema().inputs[0].column_names(), ["column 1"]);
    assert_eq!(table.dataset.schema().targets[0].column_names(), ["column 2", "column 0"]);
    assert!(table.dataset.schema().classes(0).is_empty());
    let batch = all(&table.dataset);
    assert_eq!(batch.inputs[0][..], [1.0, 4.0]);
    assert_eq!(batch.targets[0][..], [2.0, 10.0, 5.0, 2.0]);
    assert_eq!(batch.sample_weights.unwrap()[..], [3.0, 0.5]);
    assert_eq!(table.dataset.target_shapes(), [Shape::new([2])]);

    let settings = CsvSettings { outputs: vec![output(&[0], TargetKind::Classes)], ..settings };
    let table = csv::open(&path, &settings).unwrap();
    assert_eq!(table.dataset.schema().classes(0), ["2", "10"], "numbers are sorted by value");
}

#[test]
fn wrong_tables_are_refused_by_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("a,b,y\n1,2,3\n4,,6\n", "`t.csv` line 3, column 1 (`b`) needs a finite number, but is empty"),
        ("a,b,y\n1,NA,3\n", "`t.csv` line 2, column 1 (`b`) needs a finite number, but holds `NA`"),
        ("a,b,y\n\n1,2,nan\n", "`t.csv` line 3, column 2 (`y`) needs a finite number, but holds `nan`"),
        ("a,b,y\n1e39,2,3\n", "`t.csv` line 2, column 0 (`a`) needs a finite number, but holds `1e39`"),
        ("a,b,y\r\n1,2,3\r\n\r\n\r\n4,5,x\r\n", "`t.csv` line 5, column 2 (`y`) needs a finite number, but holds `x`"),
        ("\u{feff}a,b,y\n\"1\",2,3\n\n4,5,x", "`t.csv` line 4, column 2 (`y`) needs a finite number, but holds `x`"),
        ("a,b,y\r1,2,3\r4,5,x", "`t.csv` line 3, column 2 (`y`) needs a finite number, but holds `x`"),
        ("\"a\nb\",b,y\n1,2,x\n", "`t.csv` line 3, column 2 (`y`) needs a finite number, but holds `x`"),
        ("a,b,y\r\n1,2,3\r\n4,5\r\n", "`t.csv` line 3 needs 3 fields as the first line has, but has 2"),
        ("a,b,c\n1,2,3\n", "`t.csv` needs a column `y`, but has none\n  help: its columns are a, b, c"),
        ("1,2,3\n", "`t.csv` needs a column `y`, but has none\n  help: the table has no header and 3 columns"),
        ("a,y,y\n1,2,3\n", "`t.csv` needs a column `y`, but has 2"),
        ("y\n1\n", "`t.csv` has 0 input columns and 1 target columns"),
        ("a,b,y\n", "`t.csv` needs at least one row, but has none"),
        ("", "`t.csv` needs at least one row, but has none"),
    ];
    for (text, expected) in cases {
        let path = write(&folder, "t.csv", text);
        let got = message_in(&folder, csv::open(&path, &by_name("y", TargetKind::Values)));
        assert!(got.starts_with(expected), "{text:?}: {got}");
        assert!(got.contains("\n  help: "), "{got}");
    }
    let path = write(&folder, "t.csv", b"a,y\n1,\xff\xfe\n");
    let got = message_in(&folder, csv::open(&path, &by_name("y", TargetKind::Classes)));
    assert!(got.starts_with("`t.csv` line 2 needs UTF-8 text, but has other bytes"), "{got}");
    let path = write(&folder, "t.csv", "a,y\n1,\n");
    let got = message_in(&folder, csv::open(&path, &by_name("y", TargetKind::Classes)));
    assert!(got.starts_with("`t.csv` line 2, column 1 (`y`) needs a class, but is empty"), "{got}");
    let settings = CsvSettings { delimiter: Some('→'), ..by_name("y", TargetKind::Classes) };
    assert!(message(csv::open(&path, &settings)).starts_with("`delimiter` needs an ASCII character, but is `→`"));
}

// Synthetic

#[test]
fn synthetic_rows_are_fixed_by_the_seed_and_can_be_learnt() {
    let train = Synthetic::new([4, 5], 3, 0..300, 8).unwrap();
    let test = Synthetic::new([4, 5], 3, 300..500, 8).unwrap();
    let (train, test) = (all(&train), all(&test));
    assert_eq!(train, all(&Synthetic::new([4, 5], 3, 0..300, 8).unwrap()));
    assert_ne!(train, all(&Synthetic::new([4, 5], 3, 0..300, 9).unwrap()));
    assert!(train.inputs[0].iter().all(|x| (0.0..1.0).contains(x)));

    // The nearest class mean of the training rows names the class of a test row.
    let rows = |batch: &Batch| -> Vec<(Vec<f32>, f32)> {
        batch.inputs[0].chunks(20).map(<[f32]>::to_vec).zip(batch.targets[0].to_vec()).collect()
    };
    let (train, test) = (rows(&train), rows(&test));
    let means: Vec<Vec<f32>> = (0..3)
        .map(|class| {
            let of_class: Vec<_> = train.iter().filter(|(_, label)| *label == class as f32).collect();
            assert!(of_class.len() > 60, "classes are about as frequent");
            (0..20).map(|at| of_class.iter().map(|(x, _)| x[at]).sum::<f32>() / of_class.len() as f32).collect()
        })
        .collect();
    let distance = |x: &[f32], mean: &[f32]| x.iter().zip(mean).map(|(x, mean)| (x - mean).powi(2)).sum::<f32>();
    let right = test.iter().filter(|(x, label)| {
        (0..3).min_by(|&a, &b| distance(x, &means[a]).total_cmp(&distance(x, &means[b]))) == Some(*label as usize)
    });
    assert!(right.count() > 180);
    assert!(message(Synthetic::new([4, 5], 0, 0..3, 0)).starts_with("synthetic data needs elements, classes and rows"));
}

// Settings files

fn config(text: &str) -> DataConfig {
    toml::from_str(text).unwrap()
}

#[test]
fn settings_open_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let images = write(&folder, "idx/train-images-idx3-ubyte", idx_file(&[1, 2, 2], &[0; 4])).display().to_string();
    let labels = write(&folder, "idx/train-labels-idx1-ubyte", idx_file(&[1], &[0])).display().to_string();
    write(&folder, "cifar/data_batch_1.bin", [0; 3073]);
    save(&folder, "images/a/1.png", image::RgbImage::new(2, 2));
    let table = write(&folder, "t.csv", "x,name,y\n1,one,a\n2,two,b\n").display().to_string();
    let cases = [
        ("type = 'digits'".into(), 1437, Some(360), Some(10)),
        (format!("type = 'idx'\nfolder = '{}'", at("idx")), 1, None, None),
        (format!("type = 'idx_files'\ntrain_images = '{images}'\ntrain_labels = '{labels}'"), 1, None, None),
        (format!("type = 'cifar10'\nfolder = '{}'", at("cifar")), 1, None, Some(10)),
        (
            format!(
                "type = 'csv'\ntrain = '{table}'\ntest = '{table}'\ntarget = 'y'\ntarget_kind = 'classes'\nignore = [1]"
            ),
            2,
            Some(2),
            Some(2),
        ),
        (
            format!(
                "type = 'image_folder'\ntrain = '{0}'\ntest = '{0}'\nheight = 4\nwidth = 4\nchannels = 1",
                at("images")
            ),
            1,
            Some(1),
            Some(1),
        ),
        ("type = 'synthetic'\nshape = [3]\nclasses = 2\nrows = 50\ntest_rows = 5".into(), 50, Some(5), None),
    ];
    for (text, train, test, classes) in cases {
        let config = config(&text);
        let data = config.open().unwrap();
        let classes_of = data.train.schema().classes(0).len();
        let got = (data.train.len(), data.test.map(|test| test.len()), (classes_of > 0).then_some(classes_of));
        assert_eq!(got, (train, test, classes), "{text}");
        let written = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<DataConfig>(&written).unwrap(), config, "{written}");
    }
}

#[test]
fn settings_are_strict() {
    let refused = |text: &str| toml::from_str::<DataConfig>(text).unwrap_err().to_string();
    assert!(refused("type = 'digits'\nfolder = 'x'").contains("unknown field `folder`"));
    assert!(refused("type = 'idx'\nfolder = 'x'\nfoldr = 'y'").contains("unknown field `foldr`"));
    assert!(refused("type = 'mnist'").contains("unknown variant `mnist`"));
    assert!(refused("type = 'idx'").contains("missing field `folder`"));
    let image = "type = 'image_folder'\ntrain = 'x'\nheight = 4\nwidth = 4\nchannels = 2";
    assert!(refused(image).contains("an image has 1 channel (gray) or 3 (red, green, blue), not 2"));
    let table = "type = 'csv'\ntrain = 'x'\ntarget = 1.5\ntarget_kind = 'values'";
    assert!(refused(table).contains("a column's name or index, or a list of them"));
    let lone = config("type = 'idx_files'\ntrain_images = 'none'\ntrain_labels = 'none'\ntest_images = 'none'");
    assert!(message(lone.open()).starts_with("`none` can't be read"));
}

#[test]
fn test_data_must_have_the_shapes_of_the_training_data() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "train-images-idx3-ubyte", idx_file(&[1, 2, 2], &[0; 4]));
    write(&folder, "train-labels-idx1-ubyte", idx_file(&[1], &[0]));
    write(&folder, "t10k-images-idx3-ubyte", idx_file(&[1, 2, 3], &[0; 6]));
    write(&folder, "t10k-labels-idx1-ubyte", idx_file(&[1], &[0]));
    let config = DataConfig::Idx(IdxConfig { folder: folder.path().into() });
    assert_eq!(
        message(config.open()),
        "the test data needs inputs [[batch, 2, 2, 1]] and targets [[batch]], \
         but has [[batch, 2, 3, 1]] and [[batch]]\n  \
         help: the test data must have the shapes of the training data"
    );
}
