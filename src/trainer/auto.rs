//! The placement that a trainer has chosen by measurement, and follows.

use std::sync::{Arc, Mutex, PoisonError};

use super::rig::Rig;
use crate::error::Result;
use crate::placer::{Blocks, ChosenPlacement, Probed, Site, probe};
use crate::scheduler::{Placed, Placer};

/// Steps after which measured speeds are first compared with those of the choice; doubled each time.
const FIRST_CHECK: u64 = 32;

/// A choice by measurement.
pub(super) struct Auto {
    site: Arc<Site>,
    /// The placement in use: the loss of an adapter may change it within a step.
    now: Arc<Mutex<ChosenPlacement>>,
    steps: u64,
    next_check: u64,
}

impl Auto {
    /// Measures the adapters, unless they have been, and chooses the fastest placement.
    ///
    /// # Errors
    /// If an adapter can't be opened, or nothing fits the memory that the adapters may take.
    pub async fn measure(rig: &Rig<'_>, probed: &mut Option<Probed>) -> Result<Self> {
        let Rig { batch_size, micro_batches, .. } = *rig;
        let blocks = Arc::new(Blocks::new(rig.model, rig.objective)?);
        let speeds = match probed.take() {
            Some(speeds) => speeds,
            None => probe(&blocks, rig.adapters, &rig.limits, rig.opener, rig.runtime, batch_size).await?,
        };
        let Probed { adapters, host_gb_s } = probed.insert(speeds).clone();
        Self::choose(Site { blocks, adapters, host_gb_s, batch_size, micro_batches })
    }

    fn choose(site: Site) -> Result<Self> {
        let chosen = site.choose(&vec![true; site.adapters.len()])?;
        log::debug!("{chosen}");
        let now = Arc::new(Mutex::new(chosen));
        Ok(Self { site: Arc::new(site), now, steps: 0, next_check: FIRST_CHECK })
    }

    /// All that the placement was chosen by.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// The placement in use.
    pub fn now(&self) -> ChosenPlacement {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that another placement is in use.
    pub fn set(&self, chosen: ChosenPlacement) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = chosen;
    }

    /// Counts a step; true if speeds are to be compared after it.
    pub fn is_due(&mut self) -> bool {
        self.steps += 1;
        let is_due = self.steps >= self.next_check;
        if is_due {
            self.next_check *= 2;
        }
        is_due
    }

    /// Another placement on those adapters that are there, if the speeds that were measured since predict it to be faster.
    ///
    /// # Errors
    /// If the model can't be divided so.
    pub fn reconsider(&self, there: &[bool], row_ms: &[Option<f64>]) -> Result<Option<(ChosenPlacement, Placed)>> {
        let mut there = there.to_vec();
        there.resize(self.site.adapters.len(), false);
        let now = self.now();
        let site = self.site.corrected(&now, row_ms);
        let Some(chosen) = site.faster(&there, &now)? else { return Ok(None) };
        let placed = site.placed(&chosen)?;
        Ok(Some((chosen, placed)))
    }

    /// A function that places the model anew within a step, where a stage has lost its adapters.
    pub fn placer(&self) -> Placer {
        let (site, now) = (self.site.clone(), self.now.clone());
        Arc::new(move |active: &[bool]| {
            let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
            let chosen = site.rescue(active, now.micro_batches)?;
            let placed = site.placed(&chosen).ok()?;
            *now = chosen;
            Some(placed)
        })
    }
}
