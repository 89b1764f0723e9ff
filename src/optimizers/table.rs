//! The table of optimizers that can be read from a file by name.

use super::adam::{Adam, AdamW};
use super::rmsprop::RmsProp;
use super::rule::{Entry, entry};
use super::sgd::Sgd;

/// Every optimizer of the crate.
pub static OPTIMIZERS: &[Entry] =
    &[entry::<Sgd>("SGD"), entry::<Adam>("Adam"), entry::<AdamW>("AdamW"), entry::<RmsProp>("RMSprop")];
