//! A hash of rows in their order, the same on every machine: a resumed run finds by it that its data have changed.

/// Source: the hash of Firefox and rustc, `rustc-hash` 1.1. It finds changes by mistake, none that are made on purpose.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Digest(u64);

/// Factor of `rustc-hash`: the first bits of 1 / π.
const FACTOR: u64 = 0x517c_c1b7_2722_0a95;

impl Digest {
    pub fn add(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(FACTOR);
    }

    pub fn add_floats(&mut self, values: &[f32]) {
        self.add(values.len() as u64);
        values.iter().for_each(|value| self.add(value.to_bits().into()));
    }

    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        for eight in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            self.add(u64::from_le_bytes(word));
        }
    }

    pub fn value(self) -> u64 {
        self.0
    }
}
