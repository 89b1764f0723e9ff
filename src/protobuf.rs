//! Messages of Protocol Buffers, as their bytes.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding>. Only what is written here is read elsewhere, by other programs,
//! so there is no description of messages: who writes one names its fields by number.

/// A message that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message(Vec<u8>);

impl Message {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A whole number.
    pub fn integer(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    /// A whole number that may be negative, of the type `int64`.
    pub fn signed(&mut self, field: u64, value: i64) {
        self.integer(field, value.cast_unsigned());
    }

    /// A number of 32 bits.
    pub fn float(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }

    /// A number of 64 bits.
    #[cfg(any(test, all(feature = "files", not(target_arch = "wasm32"))))]
    pub fn double(&mut self, field: u64, value: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    /// Bytes, or a text.
    pub fn bytes(&mut self, field: u64, bytes: impl AsRef<[u8]>) {
        self.begin_bytes(field, bytes.as_ref().len() as u64);
        self.0.extend(bytes.as_ref());
    }

    /// A message.
    pub fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    /// The fields of another message, behind these.
    pub fn append(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    /// The head of so many bytes, or of a message of this length, that are written behind this message.
    pub fn begin_bytes(&mut self, field: u64, length: u64) {
        self.varint(field << 3 | 2);
        self.varint(length);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_whole() {
        let mut message = Message::default();
        [0, 127, 128, 300].into_iter().for_each(|value| message.varint(value));
        assert_eq!(message.0, [0, 127, 128, 1, 172, 2]);
    }

    /// Source: the page above, which has 150 as field 1, and `testing` as field 2.
    #[test]
    fn fields_are_those_of_the_standard() {
        let mut message = Message::default();
        message.integer(1, 150);
        message.bytes(2, "testing");
        assert_eq!(message.as_bytes(), b"\x08\x96\x01\x12\x07testing");
        let mut negative = Message::default();
        negative.signed(1, -2);
        assert_eq!(negative.as_bytes(), b"\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
        let mut numbers = Message::default();
        numbers.float(1, 1.0);
        numbers.double(2, 1.0);
        assert_eq!(numbers.as_bytes(), b"\x0d\x00\x00\x80\x3f\x11\x00\x00\x00\x00\x00\x00\xf0\x3f");
    }
}
