//! The question of a placement by measurement.

use std::sync::Arc;

use crate::model::{Model, Objective};
use crate::runtime::Runtime;
use manyhands_engine::adapters::{Info, Opener};

/// A model and the adapters on which a placement is to be chosen.
pub(super) struct Rig<'a> {
    pub model: &'a Model,
    pub objective: &'a Objective,
    pub adapters: &'a [Info],
    /// Bytes that each may take.
    pub limits: Vec<Option<u64>>,
    pub opener: &'a Opener,
    pub runtime: &'a Arc<dyn Runtime>,
    pub batch_size: u32,
    pub micro_batches: u32,
}
