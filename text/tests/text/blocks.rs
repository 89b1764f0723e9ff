//! Packed blocks unpack to the bits that the Python package `gguf` makes of them.

use manyhands_text::Encoding;
use safetensors::SafeTensors;

use super::golden;

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn blocks_unpack_to_the_bits_of_gguf() {
    let bytes = std::fs::read(golden::path("blocks.safetensors")).unwrap();
    let arrays = SafeTensors::deserialize(&bytes).unwrap();
    let packed = Encoding::ALL.into_iter().filter(|encoding| *encoding != Encoding::F32);
    for encoding in packed {
        let name = encoding.name();
        let [packed, values] = ["packed", "values"].map(|part| arrays.tensor(&format!("{name}.{part}")).unwrap());
        let values = Encoding::F32.unpack(values.data());
        assert!(
            values.len() >= 12 * encoding.block_len() && values.iter().all(|value| value.is_finite() || name == "BF16")
        );
        assert_eq!(encoding.bytes(values.len()), Some(packed.data().len()), "{name}");
        assert_eq!(bits(&encoding.unpack(packed.data())), bits(&values), "{name}");
    }
}

#[test]
fn parts_of_blocks_have_no_bytes() {
    assert_eq!((Encoding::Q4_1.bytes(64), Encoding::Q4_1.bytes(48)), (Some(40), None));
    assert_eq!((Encoding::Q6K.bytes(512), Encoding::Q6K.bytes(32)), (Some(420), None));
    assert_eq!((Encoding::F16.bytes(3), Encoding::F32.bytes(usize::MAX)), (Some(6), None));
}
