//! Run-time checks of shaders.

/// Environment variable: `1` keeps the run-time checks of shaders (bounds, loops) that are off otherwise.
pub const CHECKED_VARIABLE: &str = "MANYHANDS_CHECKED";

/// Whether shaders are compiled with wgpu's run-time checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Checks {
    /// Every index is checked and every loop is bounded.
    Checked,
    /// The shader is trusted; `pipelines.rs` gives the reason.
    Unchecked,
}

impl Checks {
    /// Unchecked, unless [`CHECKED_VARIABLE`] is `1`.
    pub fn from_environment() -> Self {
        let checked = std::env::var(CHECKED_VARIABLE).is_ok_and(|value| value == "1");
        if checked { Self::Checked } else { Self::Unchecked }
    }
}
