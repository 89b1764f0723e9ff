//! Values of a GGUF file's metadata.

/// A value of the metadata. Numbers keep their kind, not their width.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// `u8`, `u16`, `u32` or `u64`.
    Unsigned(u64),
    /// `i8`, `i16`, `i32` or `i64`.
    Signed(i64),
    /// `f32` or `f64`.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// UTF-8.
    Text(String),
    /// Values of one kind.
    Array(Vec<Self>),
}

impl Value {
    /// Kind of the value in messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Unsigned(_) => "a whole number",
            Self::Signed(_) => "a signed number",
            Self::Float(_) => "a float",
            Self::Bool(_) => "a boolean",
            Self::Text(_) => "a text",
            Self::Array(_) => "an array",
        }
    }
}
