//! Costs of a plan on simulated adapters, where its commands don't tell them.

use std::sync::Arc;

use super::traffic::Traffic;
use crate::plan::{Pass, Plan};

/// Milliseconds of a run as a line over its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CostLine {
    pub fixed_ms: f64,
    pub per_row_ms: f64,
}

impl CostLine {
    /// Milliseconds of a run on so many rows.
    pub fn at(self, rows: f64) -> f64 {
        self.fixed_ms + self.per_row_ms * rows
    }

    /// The line of two runs, one after the other.
    pub fn and(self, more: Self) -> Self {
        Self { fixed_ms: self.fixed_ms + more.fixed_ms, per_row_ms: self.per_row_ms + more.per_row_ms }
    }

    /// The line of an adapter that takes `factor` times as long.
    pub fn times(self, factor: f64) -> Self {
        Self { fixed_ms: self.fixed_ms * factor, per_row_ms: self.per_row_ms * factor }
    }
}

/// Computing times of a plan on an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Times {
    /// Of `Pass::Train`.
    pub train: CostLine,
    /// Of `Pass::Forward`, `Pass::Evaluate` and `Pass::Predict`, which compute no gradients.
    pub forward: CostLine,
    /// Milliseconds of `Pass::Update`, whatever the rows: a lone adapter updates by itself.
    pub update_ms: f64,
}

impl Times {
    /// Of the two, one after the other.
    pub fn and(self, more: &Self) -> Self {
        Self {
            train: self.train.and(more.train),
            forward: self.forward.and(more.forward),
            update_ms: self.update_ms + more.update_ms,
        }
    }

    /// The times of an adapter that takes `factor` times as long.
    pub fn times(&self, factor: f64) -> Self {
        Self {
            train: self.train.times(factor),
            forward: self.forward.times(factor),
            update_ms: self.update_ms * factor,
        }
    }

    /// Milliseconds of computing of a pass.
    pub fn of(&self, pass: Pass, rows: u32) -> f64 {
        match pass {
            Pass::Train => self.train.at(f64::from(rows)),
            Pass::Update => self.update_ms,
            Pass::Forward | Pass::Evaluate | Pass::Predict => self.forward.at(f64::from(rows)),
        }
    }
}

/// Costs of a plan.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    /// The plan, as adapters get it.
    pub plan: Arc<Plan>,
    pub traffic: Traffic,
    /// Its part of the whole model's work, for adapters whose time is known for the whole model.
    pub part: f64,
    /// Its times on each adapter, where they are known.
    pub times: Vec<Times>,
}

impl Cost {
    /// The cost of a plan among several; that of the only one holds for any plan.
    pub fn find<'a>(costs: &'a [Self], plan: &Arc<Plan>) -> Option<&'a Self> {
        let same = costs.iter().find(|cost| Arc::ptr_eq(&cost.plan, plan));
        same.or_else(|| costs.first().filter(|_| costs.len() == 1))
    }
}
