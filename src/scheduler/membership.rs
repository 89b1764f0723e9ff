//! Changes to a rig while it trains: adapters that join and leave, another split, another plan of the same weights.

use std::sync::Arc;

use crate::adapters::{Handle, Info, Request};
use crate::error::{Error, Result};
use crate::plan::{Pass, Plan};

use super::opening::min_rows;
use super::round::is_awaited;
use super::split::SplitMode;
use super::{Place, Presence, Scheduler};

/// How it stands with an adapter of a rig.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(tag = "presence", rename_all = "snake_case")]
pub enum Standing {
    /// It takes part.
    There {
        /// Does it get no rows because training is faster without it?
        is_resting: bool,
    },
    /// It was lost.
    Lost {
        /// Milliseconds until it is opened again; `None` if it never is.
        again_ms: Option<f64>,
    },
    /// It is opened again.
    Returning,
    /// It was taken out.
    Left,
}

impl Scheduler {
    /// How it stands with each adapter, in order; those that left keep their places.
    pub fn standings(&self) -> Vec<Standing> {
        let now_ms = self.runtime.now_ms();
        let standing = |idx: usize| match self.members[idx].presence {
            Presence::There => Standing::There { is_resting: self.fewer.rests(idx) },
            Presence::Lost { again_ms } => {
                Standing::Lost { again_ms: again_ms.is_finite().then(|| (again_ms - now_ms).max(0.0)) }
            }
            Presence::Returning | Presence::Back => Standing::Returning,
            Presence::Left => Standing::Left,
        };
        (0..self.members.len()).map(standing).collect()
    }

    /// The near end of an adapter, to throttle or destroy it while a step runs.
    pub fn near_end(&self, adapter_idx: usize) -> &Handle {
        &self.members[adapter_idx].handle
    }

    /// Opens one adapter more, which takes part from the next step on; gives its position.
    ///
    /// # Errors
    /// If it can't be opened, or can't run the plan. Then nothing has changed.
    pub async fn join(&mut self, info: &Info) -> Result<usize> {
        self.update_on_host_from_now().await?;
        let capacity = self.members.iter().map(|member| member.capacity).max().unwrap_or(1);
        self.add_member(info, capacity)?;
        self.splitter.add();
        let adapter_idx = self.members.len() - 1;
        self.send(adapter_idx, Request::Load { plan: self.plan.clone(), capacity });
        match self.finish_load(adapter_idx).await {
            Ok(()) => Ok(adapter_idx),
            Err(error) => {
                self.dismiss(adapter_idx);
                Err(error)
            }
        }
    }

    /// Takes an adapter out, between two steps. Its position stays empty.
    ///
    /// # Errors
    /// If it is the only one that takes part.
    pub fn leave(&mut self, adapter_idx: usize) -> Result<()> {
        let others = (0..self.members.len()).any(|idx| idx != adapter_idx && self.members[idx].is_alive());
        if !others {
            return Err(Error::adapter(
                self.who(adapter_idx),
                "needs to stay: no other takes part",
                "add another adapter first",
            ));
        }
        self.dismiss(adapter_idx);
        Ok(())
    }

    fn dismiss(&mut self, adapter_idx: usize) {
        let member = &mut self.members[adapter_idx];
        member.handle.requests.close();
        (member.presence, member.actor) = (Presence::Left, usize::MAX);
        (member.has_seat, member.is_fielded) = (false, false);
    }

    /// Lets only the first `n_adapters` have rows: to measure what fewer do.
    pub fn field(&mut self, n_adapters: usize) {
        for (idx, member) in self.members.iter_mut().enumerate() {
            member.is_fielded = idx < n_adapters && member.presence != Presence::Left;
        }
    }

    /// Splits batches in another way from the next step on.
    ///
    /// # Errors
    /// If the split does not go with the adapters. Then nothing has changed.
    pub fn set_split(&mut self, mode: SplitMode) -> Result<()> {
        self.splitter.set_mode(mode)
    }

    /// Loads another plan over the same weights, for runs of up to `capacity` rows, on all adapters. Devices stay open.
    ///
    /// # Errors
    /// If an adapter can't run it.
    pub async fn reload(&mut self, plan: Plan, capacity: u32) -> Result<()> {
        self.sync().await?;
        self.splitter.set_min_rows(min_rows(&plan));
        self.plan = Arc::new(plan);
        let is_there = |presence| !matches!(presence, Presence::Left | Presence::Lost { .. });
        for adapter_idx in 0..self.members.len() {
            self.members[adapter_idx].capacity = capacity;
            if is_there(self.members[adapter_idx].presence) {
                self.send(adapter_idx, Request::Load { plan: self.plan.clone(), capacity });
            }
        }
        for adapter_idx in 0..self.members.len() {
            if self.members[adapter_idx].is_alive() {
                self.finish_load_or_lose(adapter_idx).await?;
            }
        }
        self.ensure_survivor().await
    }

    /// The plan that runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Do shards of a step wait for each other?
    pub fn is_coupled(&self) -> bool {
        self.plan.commands(Pass::Train).iter().any(is_awaited)
    }

    async fn update_on_host_from_now(&mut self) -> Result<()> {
        self.sync().await?;
        self.place = Place::Host;
        Ok(())
    }
}
