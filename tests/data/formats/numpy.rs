//! Files of NumPy.

use manyhands::data::Schema;

use super::*;
use crate::golden::{Case, Golden};

fn file(folder: &TempDir, case: &Case, end: &str) -> std::path::PathBuf {
    let bytes: Vec<u8> = case.values("file").iter().map(|byte| *byte as u8).collect();
    write(folder, &format!("{}.{end}", case.name), bytes)
}

#[test]
fn arrays_are_what_numpy_stored() {
    let folder = tempfile::tempdir().unwrap();
    let cases = Golden::open("arrays").cases();
    let cases = cases.iter().filter(|case| !case.name.starts_with("npz"));
    for case in cases {
        let data = manyhands::data::numpy::open_inputs(&file(&folder, case, "npy")).unwrap();
        let needed = case.tensor("x");
        assert_eq!(data.input_shapes(), [Shape::new(&needed.shape[1..])], "{}", case.name);
        let got = all(&data).inputs[0].to_vec();
        assert!(got.iter().zip(&needed.values).all(|(got, needed)| got.to_bits() == needed.to_bits()), "{}", case.name);
        assert_eq!(got.len(), needed.values.len());
    }
}

#[test]
fn sets_are_read_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let golden = Golden::open("arrays");
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    for name in ["npz", "npz_compressed", "npz_table"] {
        let case = golden.case(name);
        let path = file(&folder, &case, "npz");
        let config: DataConfig = toml::from_str(&format!("type = 'npz'\nfile = '{}'", path.display())).unwrap();
        let pair = config.open().unwrap();
        let train = all(&pair.train);
        assert_eq!(pair.train.target_shapes(), [Shape::new([])], "{name}");
        assert_eq!((bits(&train.inputs[0]), bits(&train.targets[0])), (bits(case.values("x")), bits(case.values("y"))));
        let Some(test) = pair.test else {
            assert_eq!(name, "npz_table");
            continue;
        };
        let test = all(&test);
        assert_eq!(bits(&test.inputs[0]), bits(case.values("x_test")));
        assert_eq!(bits(&test.targets[0]), bits(case.values("y_test")));
        // The arrays of the file to predict from, without those of training.
        let inputs = config.open_inputs(&path, None).unwrap().dataset;
        assert_eq!(bits(&all(&inputs).inputs[0]), bits(case.values("x_test")));
        let named: DataConfig = toml::from_str(&format!(
            "type = 'npz'\nfile = '{}'\nx_train = 'x_test'\ny_train = 'y_test'",
            path.display()
        ))
        .unwrap();
        assert_eq!(named.open().unwrap().train.len(), test.rows);
        let wrong: DataConfig =
            toml::from_str(&format!("type = 'npz'\nfile = '{}'\ny_train = 'z'", path.display())).unwrap();
        let error = message_in(&folder, wrong.open());
        assert!(error.starts_with(&format!("`{name}.npz` needs an array `z`, but has the arrays ")), "{error}");
    }
}

#[test]
fn a_changed_byte_of_a_set_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let golden = Golden::open("arrays");
    for name in ["npz", "npz_compressed"] {
        let path = file(&folder, &golden.case(name), "npz");
        let mut bytes = fs::read(&path).unwrap();
        // The first file begins behind its header of 30 bytes, its name and its extra field; its size stands in the header
        // or, as 0xffffffff, in the extra field, which holds both sizes of 8 bytes behind 4 others.
        let number =
            |at: usize, len: usize| (0..len).rev().fold(0, |sum, byte| sum << 8 | usize::from(bytes[at + byte]));
        let (name_len, extra_len) = (number(26, 2), number(28, 2));
        let stored = if number(18, 4) == 0xffff_ffff { number(30 + name_len + 12, 8) } else { number(18, 4) };
        let last = 30 + name_len + extra_len + stored - 1;
        // The last byte of a stored array is one of a value. The last of a packed one may be unused bits.
        bytes[if name == "npz" { last } else { last - stored / 4 }] ^= 1;
        fs::write(&path, bytes).unwrap();
        let config: DataConfig = toml::from_str(&format!("type = 'npz'\nfile = '{}'", path.display())).unwrap();
        let error = message_in(&folder, config.open());
        assert!(error.contains(&format!("`{name}.npz`")) && error.contains("can't be"), "{name}: {error}");
    }
}

#[test]
fn two_files_are_inputs_and_targets() {
    let folder = tempfile::tempdir().unwrap();
    let golden = Golden::open("arrays");
    let [x, y] = ["images", "fortran"].map(|name| file(&folder, &golden.case(name), "npy"));
    let config: DataConfig =
        toml::from_str(&format!("type = 'npy'\nx_train = '{}'\ny_train = '{}'", x.display(), y.display())).unwrap();
    let data = config.open().unwrap().train;
    assert_eq!((data.len(), data.target_shapes()), (4, vec![Shape::new([3, 2])]));
    assert_eq!(all(&data).targets[0][..], golden.case("fortran").values("x")[..]);
    let y = file(&folder, &golden.case("one_axis"), "npy");
    let config = format!("type = 'npy'\nx_train = '{}'\ny_train = '{}'", x.display(), y.display());
    let error = message_in(&folder, toml::from_str::<DataConfig>(&config).unwrap().open());
    assert!(error.starts_with("`one_axis.npy` needs a target for each of 4 rows, but `y` has shape [5]\n"), "{error}");
}

/// An array as `numpy.save` writes it.
fn npy(descr: &str, is_fortran: bool, shape: &str, elements: &[u8]) -> Vec<u8> {
    let order = if is_fortran { "True" } else { "False" };
    let head = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let len = u16::try_from(head.len()).unwrap().to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &len, head.as_bytes(), elements].concat()
}

#[test]
fn numbers_that_f32_does_not_tell_apart_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    // Seconds since 1970, a minute apart: f32 near 1.7e9 has steps of 128.
    let (times, sizes) = ([1_700_000_000, 1_700_000_060, 1_700_000_120_i64], [100_000, 0, 50_000_i64]);
    let rows: Vec<i64> = times.into_iter().zip(sizes).flat_map(|(time, size)| [size, time]).collect();
    let columns = [sizes, times].concat();
    let whole = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let floats = |values: &[i64]| values.iter().flat_map(|value| (*value as f64).to_be_bytes()).collect::<Vec<_>>();
    let needed =
        "has numbers that 32-bit floats hardly tell apart, in column 1: subtract the mean of each column before saving";
    for (bytes, needed) in [
        (npy("<i8", false, "(3, 2)", &whole(&rows)), Some(needed)),
        (npy("<i8", true, "(3, 2)", &whole(&columns)), Some(needed)),
        (npy(">f8", false, "(3, 2)", &floats(&rows)), Some(needed)),
        (npy("<i8", false, "(3,)", &whole(&sizes)), None),
        // Equal numbers lose nothing, and images have no columns.
        (npy("<i8", false, "(3,)", &whole(&[times[0]; 3])), None),
        (npy("<i8", false, "(1, 3, 2)", &whole(&rows)), None),
    ] {
        let path = write(&folder, "t.npy", bytes);
        let data = manyhands::data::numpy::open_inputs(&path).unwrap();
        let needed = needed.map(|needed| format!("`{}` {needed}", path.display()));
        assert_eq!(data.notes(), needed.into_iter().collect::<Vec<_>>());
    }
    // Without rows nothing is allocated for its columns.
    let path = write(&folder, "t.npy", npy("<i8", false, "(0, 1000000000000)", &[]));
    assert!(manyhands::data::numpy::open_inputs(&path).is_err());
    // So are targets.
    let x = write(&folder, "x.npy", npy("<i8", false, "(3,)", &whole(&sizes)));
    let y = write(&folder, "y.npy", npy(">f8", false, "(3,)", &floats(&times)));
    let notes = manyhands::data::numpy::open_pair(&x, &y).unwrap().notes();
    let needed = format!("`{}` has numbers that 32-bit floats hardly tell apart, in column 0:", y.display());
    assert!(notes.len() == 1 && notes[0].starts_with(&needed), "{notes:?}");
}

/// Bytes of images are divided by 255, floats are not: what follows must be of the kind of the training data.
#[test]
fn bytes_and_floats_are_not_mistaken_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let floats =
        |top: f32| [0.0, 0.5, top, 0.25].iter().flat_map(|value: &f32| value.to_le_bytes()).collect::<Vec<_>>();
    let shape = "(1, 2, 2, 1)";
    let file = |name: &str, descr: &str, elements: &[u8]| write(&folder, name, npy(descr, false, shape, elements));
    let bytes = file("bytes.npy", "|u1", &[0, 7, 255, 3]);
    let [unit, large] = [("unit.npy", 1.02), ("large.npy", 255.0)].map(|(name, top)| file(name, "<f4", &floats(top)));
    let labels = write(&folder, "y.npy", npy("<i8", false, "(1,)", &[0; 8]));
    let config = |x: &std::path::Path, test: &str| -> DataConfig {
        let (x, y) = (x.display(), labels.display());
        toml::from_str(&format!("type = 'npy'\nx_train = '{x}'\ny_train = '{y}'\n{test}")).unwrap()
    };
    let trained = |x| -> Schema {
        let schema = config(x, "").open().unwrap().train.schema();
        serde_json::from_str(&serde_json::to_string(&schema).unwrap()).unwrap()
    };
    let old: Schema = serde_json::from_str(r#"{"format": {"type": "numpy"}}"#).unwrap();
    let [of_bytes, of_unit, of_large] = [&bytes, &unit, &large].map(|x| trained(x));
    let beyond = "`large.npy`, input 0, needs images as bytes, as the training data had, or as numbers from 0 to 1, but has other";
    let no_bytes = "`bytes.npy`, input 0, needs numbers of the range of the training data, but has bytes of images, which are read";
    for (trained, x, needed) in [
        (&of_bytes, &bytes, None),
        (&of_bytes, &unit, None),
        (&of_bytes, &large, Some(beyond)),
        (&of_unit, &bytes, None),
        (&of_unit, &large, None),
        (&of_large, &bytes, Some(no_bytes)),
        (&of_large, &unit, None),
        (&old, &bytes, None),
        (&old, &large, None),
    ] {
        let predicted = config(&unit, "").open_inputs(x, Some(trained));
        let evaluated = config(x, "").open_like(trained);
        let Some(needed) = needed else {
            assert!(predicted.is_ok() && evaluated.is_ok(), "{trained:?} {x:?}");
            continue;
        };
        for error in [message_in(&folder, predicted.map(|_| ())), message_in(&folder, evaluated.map(|_| ()))] {
            assert!(error.starts_with(needed), "{error}");
        }
    }
    let test = format!("x_test = '{}'\ny_test = '{}'", large.display(), labels.display());
    let error = message_in(&folder, config(&bytes, &test).open());
    assert!(error.starts_with(beyond), "{error}");
}

#[test]
fn files_that_are_no_arrays_of_numbers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = file(&folder, &Golden::open("arrays").case("float32"), "npy");
    let bytes = fs::read(&whole).unwrap();
    let open = |bytes: &[u8]| {
        let path = write(&folder, "x.npy", bytes);
        message_in(&folder, manyhands::data::numpy::open_inputs(&path))
    };
    for kept in [0, 5, 7, 9, 40, bytes.len() - 1] {
        let error = open(&bytes[..kept]);
        assert!(
            error.contains(" is cut short\n") || error.contains("needs to be an array of NumPy"),
            "{kept}: {error}"
        );
    }
    let head = |old: &str, new: &str| {
        let text = String::from_utf8_lossy(&bytes[..128]).into_owned();
        assert!(text.contains(old), "{text}");
        let at = bytes.windows(old.len()).position(|part| part == old.as_bytes()).unwrap();
        [&bytes[..at], new.as_bytes(), &bytes[at + old.len()..]].concat()
    };
    let error = open(&head("'<f4'", "'|O8'"));
    assert!(
        error.starts_with("`x.npy` needs booleans, integers or floats, but has elements of type `|O8`\n"),
        "{error}"
    );
    // As many elements as could never be in the file: nothing is allocated.
    assert!(open(&head("(3, 2)", "(9, 9)")).contains("is cut short"));
    let mut version = bytes.clone();
    version[6] = 9;
    assert!(open(&version).contains("is of version 9"));
    let text = write(&folder, "t.npz", "no archive");
    let config: DataConfig = toml::from_str(&format!("type = 'npz'\nfile = '{}'", text.display())).unwrap();
    assert!(message_in(&folder, config.open()).starts_with("`t.npz` is not a whole `.npz` file: "));
}
