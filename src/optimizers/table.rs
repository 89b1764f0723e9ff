//! The table of optimizers that can be read from a file by name.

use super::adadelta::Adadelta;
use super::adagrad::Adagrad;
use super::adam::{Adam, AdamW};
use super::adamax::Adamax;
use super::lion::Lion;
use super::nadam::Nadam;
use super::rmsprop::RmsProp;
use super::rule::{Entry, entry};
use super::sgd::Sgd;

/// Every optimizer of the crate.
pub static OPTIMIZERS: &[Entry] = &[
    entry::<Sgd>("SGD"),
    entry::<Adam>("Adam"),
    entry::<AdamW>("AdamW"),
    entry::<Nadam>("Nadam"),
    entry::<Adamax>("Adamax"),
    entry::<Lion>("Lion"),
    entry::<RmsProp>("RMSprop"),
    entry::<Adagrad>("Adagrad"),
    entry::<Adadelta>("Adadelta"),
];
