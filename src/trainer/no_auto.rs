//! In place of `auto.rs` without the feature `placer`: no placement is chosen by measurement.

use super::rig::Rig;
use crate::error::{Error, ErrorKind, Result};
use crate::placer::{ChosenPlacement, Probed, Site};
use crate::scheduler::{Placed, Placer};

/// A choice by measurement, of which there is none.
pub(super) enum Auto {}

impl Auto {
    /// Refuses to choose.
    pub async fn measure(_rig: &Rig<'_>, _probed: &mut Option<Probed>) -> Result<Self> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "placement",
            "can't be chosen by measurement: this program was built without the feature `placer`",
            "leave it out, name the stages, or build the program with that feature",
        ))
    }

    pub fn site(&self) -> &Site {
        match *self {}
    }

    pub fn now(&self) -> ChosenPlacement {
        match *self {}
    }

    pub fn set(&self, _chosen: ChosenPlacement) {
        match *self {}
    }

    pub fn is_due(&mut self) -> bool {
        match *self {}
    }

    pub fn reconsider(&self, _there: &[bool], _row_ms: &[Option<f64>]) -> Result<Option<(ChosenPlacement, Placed)>> {
        match *self {}
    }

    pub fn placer(&self) -> Placer {
        match *self {}
    }
}
