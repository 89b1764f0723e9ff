//! Texts in UTF-16, as `>` of Windows PowerShell 5.1 writes them, and spreadsheets as "Unicode text".

/// The unit of two bytes.
type Unit = fn([u8; 2]) -> u16;

/// The start of such a text, and whether the low byte comes first.
const UTF16: [([u8; 2], Unit); 2] = [([0xff, 0xfe], u16::from_le_bytes), ([0xfe, 0xff], u16::from_be_bytes)];

/// Whether a text starts as UTF-16 does.
pub fn is_utf16(start: &[u8]) -> bool {
    UTF16.iter().any(|(mark, _)| start.starts_with(mark))
}

/// A text as UTF-8, from UTF-16 if it starts so; `None` if it does, but has bytes that are none.
pub fn from_utf16(bytes: Vec<u8>) -> Option<Vec<u8>> {
    let Some((_, unit)) = UTF16.iter().find(|(mark, _)| bytes.starts_with(mark)) else { return Some(bytes) };
    let (units, rest) = bytes[2..].as_chunks::<2>();
    let text: Result<String, _> = char::decode_utf16(units.iter().map(|bytes| unit(*bytes))).collect();
    text.ok().filter(|_| rest.is_empty()).map(String::into_bytes)
}
