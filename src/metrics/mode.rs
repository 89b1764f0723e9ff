//! The direction in which a number improves.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Direction in which a number improves: `mode` of Keras' callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Smaller is better, as of a loss.
    Min,
    /// Larger is better, as of an accuracy.
    Max,
}

impl Mode {
    /// The sign that makes the smaller of two numbers the better one.
    #[doc(hidden)]
    pub fn sign(self) -> f64 {
        match self {
            Self::Min => 1.0,
            Self::Max => -1.0,
        }
    }
}

/// As in a settings file.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Min => "min",
            Self::Max => "max",
        })
    }
}

/// A number that training reports, and the direction in which it improves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Its name in a log: `val_f1_score`.
    pub name: String,
    /// Its direction; none where its metric does not tell.
    pub mode: Option<Mode>,
}
