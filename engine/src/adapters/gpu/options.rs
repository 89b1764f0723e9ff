//! Choices of a device that no plan makes.

use std::path::PathBuf;

use super::cache::Cache;
use super::profile;
use super::tuning::Tuning;

/// Choices of a device that no plan makes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Choice of the tiles of products.
    pub tuning: Tuning,
    /// Place of compiled pipelines and of verdicts on them.
    pub cache: Cache,
    /// Folder for the times of each kernel; `None`: they are not taken.
    pub profile: Option<PathBuf>,
    /// Milliseconds that a dispatch should take at most; longer ones run in parts. `None`: as suits the kind of adapter.
    pub dispatch_ms: Option<f64>,
    /// Workgroups that a product of training should have; sums are split for them. `None`: as suits the kind of adapter.
    pub workgroups: Option<u32>,
    /// Number of a submission that the device leaves out and reports as done, counted from 1: an error of a driver, for tests.
    #[doc(hidden)]
    pub left_out: Option<u64>,
}

impl Options {
    /// As the environment variables say; see [`Tuning`], [`Cache`] and [`PROFILE_VARIABLE`](profile::PROFILE_VARIABLE).
    pub fn from_environment() -> Self {
        let profile = profile::folder();
        Self { tuning: Tuning::from_environment(), cache: Cache::from_environment(), profile, ..Self::default() }
    }
}
