//! The table of optimizers that can be read from a file by name.

use super::adadelta::Adadelta;
use super::adafactor::Adafactor;
use super::adagrad::Adagrad;
use super::adam::{Adam, AdamW};
use super::adamax::Adamax;
use super::ftrl::Ftrl;
use super::lion::Lion;
use super::muon::Muon;
use super::nadam::Nadam;
use super::rmsprop::RmsProp;
use super::rule::{Entry, entry};
use super::sgd::Sgd;

manyhands_engine::table_of_kinds! {
    /// Every optimizer of the crate.
    OPTIMIZERS {
        Sgd => "SGD",
        Adam => "Adam",
        AdamW => "AdamW",
        Nadam => "Nadam",
        Adamax => "Adamax",
        Lion => "Lion",
        RmsProp => "RMSprop",
        Adagrad => "Adagrad",
        Adadelta => "Adadelta",
        Ftrl => "Ftrl",
        Adafactor => "Adafactor",
        Muon => "Muon",
    }
}
