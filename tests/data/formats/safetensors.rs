//! Safetensors files.

use half::{bf16, f16};

use super::*;

/// A file of tensors, each by name, type, shape and bytes.
fn file(folder: &TempDir, tensors: &[(&str, &str, &str, &[u8])]) -> std::path::PathBuf {
    let (mut entries, mut at) = (Vec::new(), 0);
    for (name, dtype, shape, bytes) in tensors {
        let end = at + bytes.len();
        entries.push(format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{at},{end}]}}"#));
        at = end;
    }
    let header = format!("{{{}}}", entries.join(","));
    let data = tensors.iter().flat_map(|(.., bytes)| bytes.iter().copied());
    let bytes = (header.len() as u64).to_le_bytes().into_iter().chain(header.bytes()).chain(data);
    write(folder, "t.safetensors", bytes.collect::<Vec<u8>>())
}

fn config(path: &Path, more: &str) -> DataConfig {
    toml::from_str(&format!("type = 'safetensors'\nfile = '{}'\n{more}", path.display())).unwrap()
}

#[test]
fn numbers_of_each_type_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let numbers = [-2_i8, 0, 3, 100];
    let signed = numbers.map(f32::from);
    let of = |bytes: &dyn Fn(i8) -> Vec<u8>| numbers.iter().flat_map(|number| bytes(*number)).collect::<Vec<_>>();
    let cases = [
        ("F64", of(&|it| f64::from(it).to_le_bytes().into()), signed),
        ("F32", of(&|it| f32::from(it).to_le_bytes().into()), signed),
        ("F16", of(&|it| f16::from_f32(it.into()).to_le_bytes().into()), signed),
        ("BF16", of(&|it| bf16::from_f32(it.into()).to_le_bytes().into()), signed),
        ("I64", of(&|it| i64::from(it).to_le_bytes().into()), signed),
        ("I32", of(&|it| i32::from(it).to_le_bytes().into()), signed),
        ("I16", of(&|it| i16::from(it).to_le_bytes().into()), signed),
        ("I8", of(&|it| it.to_le_bytes().into()), signed),
        ("U64", [2_u64, 0, 3, 100].map(u64::to_le_bytes).concat(), [2.0, 0.0, 3.0, 100.0]),
        ("U32", [2_u32, 0, 3, u32::MAX].map(u32::to_le_bytes).concat(), [2.0, 0.0, 3.0, 4_294_967_296.0]),
        ("U16", [2_u16, 0, 3, u16::MAX].map(u16::to_le_bytes).concat(), [2.0, 0.0, 3.0, 65535.0]),
        ("U8", vec![2, 0, 3, 255], [2.0, 0.0, 3.0, 255.0]),
        ("BOOL", vec![1, 0, 0, 1], [1.0, 0.0, 0.0, 1.0]),
    ];
    for (dtype, bytes, needed) in cases {
        let path = file(&folder, &[("only", dtype, "[2,2]", &bytes)]);
        let data = manyhands::data::safetensors::open_inputs(&path).unwrap();
        assert_eq!(data.input_shapes(), [Shape::new([2])], "{dtype}");
        assert_eq!(all(&data).inputs[0][..], needed, "{dtype}");
    }
}

#[test]
fn inputs_after_the_first_have_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let (pixels, ages, labels) = ([0, 51, 255, 102], [3.0_f32, 5.0].map(f32::to_le_bytes).concat(), [1, 0]);
    let train = [("x_train", "U8", "[2,1,2]", &pixels[..]), ("x_train_2", "F32", "[2]", &ages[..])];
    let target = ("y_train", "U8", "[2]", &labels[..]);
    let path = file(&folder, &[train[0], train[1], ("x_train_4", "U8", "[2]", &labels[..]), target]);
    let data = config(&path, "").open().unwrap().train;
    // There is no third, so the fourth is none.
    assert_eq!(data.input_shapes(), [Shape::new([1, 2, 1]), Shape::new([1])]);
    let rows = all(&data);
    assert_eq!((&rows.inputs[0][..], &rows.inputs[1][..]), (&[0.0, 0.2, 1.0, 0.4][..], &[3.0, 5.0][..]));
    let short = [("x_train", "U8", "[2,1,2]", &pixels[..]), ("x_train_2", "F32", "[1]", &ages[4..])];
    let path = file(&folder, &[short[0], short[1], target]);
    let error = message_in(&folder, config(&path, "").open());
    assert!(error.starts_with("input 1 needs 2 rows as input 0 has"), "{error}");
}

#[test]
fn sets_are_read_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    // Bytes of three axes are images, and whole numbers labels.
    let (pixels, labels) = ([0, 51, 255, 102], [0_i64, 1].map(i64::to_le_bytes).concat());
    let train = [("x_train", "U8", "[2,1,2]", &pixels[..]), ("y_train", "I64", "[2]", &labels)];
    let test = [("x_test", "U8", "[1,1,2]", &pixels[2..]), ("y_test", "I64", "[1]", &labels[8..])];
    let path = file(&folder, &[train, test].concat());
    let pair = config(&path, "").open().unwrap();
    assert_eq!(
        (pair.train.input_shapes(), pair.train.target_shapes()),
        (vec![Shape::new([1, 2, 1])], vec![Shape::new([])])
    );
    let rows = all(&pair.train);
    assert_eq!((&rows.inputs[0][..], &rows.targets[0][..]), (&[0.0, 0.2, 1.0, 0.4][..], &[0.0, 1.0][..]));
    assert_eq!(all(&pair.test.unwrap()).targets[0][..], [1.0]);
    let named = config(&path, "x_train = 'x_test'\ny_train = 'y_test'");
    assert_eq!(named.open().unwrap().train.len(), 1);
    // To predict from, the tensors of training are none.
    assert_eq!(named.open_inputs(&path, None).unwrap().dataset.len(), 1);
    assert_eq!(
        message_in(&folder, config(&path, "y_train = 'z'").open()),
        "`t.safetensors` needs an array `z`, but has the arrays x_test, x_train, y_test, y_train\n  help: name the arrays \
         in `[data]`: `x_train`, `y_train`, `x_test`, `y_test`"
    );
}

#[test]
fn files_that_hold_no_numbers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = |tensors: &[_]| message_in(&folder, manyhands::data::safetensors::open_inputs(&file(&folder, tensors)));
    assert_eq!(
        open(&[("x", "F8_E4M3", "[2,2]", &[0; 4])]),
        "`t.safetensors`, array `x`, needs booleans, integers or floats of at least 16 bits, but has elements of type \
         `F8_E4M3`\n  help: save another type: `x.float()`"
    );
    // More elements than the file has bytes, and more than can be counted: nothing is allocated.
    let none: &[u8] = &[];
    for (shape, bytes) in [("[2,2]", &[0; 15][..]), ("[9,9]", &[0; 16]), ("[4294967296,4294967296,8]", none)] {
        let error = open(&[("x", "F32", shape, bytes)]);
        assert!(
            error.starts_with("`t.safetensors` needs to be a whole safetensors file, but is not: "),
            "{shape}: {error}"
        );
    }
    let longest = write(&folder, "long.safetensors", [&u64::MAX.to_le_bytes()[..], b"{}"].concat());
    for path in [longest, write(&folder, "empty.safetensors", ""), write(&folder, "text.safetensors", "no tensors")] {
        let error = message_in(&folder, config(&path, "").open());
        assert!(error.contains("needs to be a whole safetensors file, but is not: "), "{error}");
    }
}
