//! The setting `early_stopping`, and the direction in which a watched number improves.

use clap::ValueEnum;
use manyhands::callbacks::{EarlyStopping, Mode, Monitor};
use manyhands::{Error, Result};
use serde::Deserialize;

/// The table `early_stopping`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EarlyStoppingTable {
    /// The number that is watched: `val_loss`.
    monitor: String,
    /// Direction in which it improves: `min`, `max`, or `auto`, as its loss or metric says.
    #[serde(default)]
    mode: ModeSetting,
    /// Epochs without improvement after which training ends.
    patience: u32,
    /// Least change that counts as an improvement.
    #[serde(default)]
    min_delta: f64,
    /// Epochs at the start of the run that count for nothing: neither are they waited for, nor is one of them the best.
    #[serde(default)]
    start_from_epoch: u64,
}

impl EarlyStoppingTable {
    /// The callback that ends training early.
    pub fn callback(&self, has_validation: bool) -> Result<EarlyStopping> {
        if self.monitor.starts_with("val_") && !has_validation {
            return Err(Error::setting(
                format!("early stopping on `{}`", self.monitor),
                "needs validation data, but there is none",
                "name test data, set `validation = 0.1`, or monitor `loss`",
            ));
        }
        let stopping = EarlyStopping::new(self.mode.monitor(&self.monitor), self.patience);
        Ok(stopping.min_delta(self.min_delta).start_from_epoch(self.start_from_epoch))
    }
}

/// Direction in which a watched number improves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ModeSetting {
    /// As its loss or metric says.
    #[default]
    Auto,
    /// Smaller is better.
    Min,
    /// Larger is better.
    Max,
}

impl ModeSetting {
    /// A watched number, with this direction.
    pub fn monitor(self, name: &str) -> Monitor {
        let monitor = Monitor::new(name);
        match self {
            Self::Auto => monitor,
            Self::Min => monitor.mode(Mode::Min),
            Self::Max => monitor.mode(Mode::Max),
        }
    }
}
