//! A model in blocks: neighbours among its layers, between which a stage may begin.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use litemap::LiteMap;

use crate::error::Result;
use crate::model::stages::Stage;
use crate::model::{Model, Objective, Weights};
use crate::plan::{Command, Pass, Plan, Role, Scalars, Work};
use crate::scheduler::Division;
use crate::size::F32_BYTES;
use manyhands_engine::adapters::Kind;
use manyhands_engine::adapters::memory::{self, NeedOrLack};

/// Most blocks of a model.
const MOST: usize = 12;

/// A tensor that a block computes and later ones read.
struct Crossing {
    producer: usize,
    readers: Vec<usize>,
    row_bytes: f64,
    /// Whether its gradient goes back.
    has_gradient: bool,
}

/// Bytes of a row that cross the ends of a range of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct BorderBytes {
    /// Values that it gets.
    pub values_in: f64,
    /// Values that it hands over.
    pub values_out: f64,
    /// Gradients that it gets.
    pub gradients_in: f64,
    /// Gradients that it hands over.
    pub gradients_out: f64,
}

/// Plans of ranges, by first and last block and whether gradients are added on the adapter.
type Plans = LiteMap<(usize, usize, bool), Arc<Plan>>;

/// A model in blocks, without its weights.
pub(crate) struct Blocks {
    pub model: Model,
    pub objective: Objective,
    /// The block of each node.
    block_of: Vec<usize>,
    /// Each block as a stage, to be measured.
    pub stages: Vec<Stage>,
    crossings: Vec<Crossing>,
    /// Bytes of the trainable parameters of each block.
    parameter_bytes: Vec<f64>,
    plans: Mutex<Plans>,
}

impl Blocks {
    /// The blocks of a model.
    ///
    /// # Errors
    /// If model and objective do not go together.
    pub fn new(model: &Model, objective: &Objective) -> Result<Self> {
        let model = Model { weights: Weights::default(), ..model.clone() };
        let block_of = divided(&model, objective)?;
        let stages = model.stages(Some(&objective.clone().for_micro_batches(2)), &block_of)?;
        let crossings = crossings(&stages);
        let parameter_bytes = stages.iter().map(|stage| gradient_bytes(&stage.plan)).collect();
        let plans = Mutex::default();
        Ok(Self { model, objective: objective.clone(), block_of, stages, crossings, parameter_bytes, plans })
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.stages.len()
    }

    /// Whether a pass of a range of blocks is part of its work.
    pub fn has(&self, range: Range<usize>, pass: Pass) -> bool {
        self.stages[range].iter().any(|stage| stage.has(pass))
    }

    /// Bytes of the trainable parameters of a range.
    pub fn parameter_bytes(&self, range: Range<usize>) -> f64 {
        self.parameter_bytes[range].iter().sum()
    }

    /// Bytes of a row that cross the ends of a range.
    pub fn border(&self, range: &Range<usize>) -> BorderBytes {
        let mut border = BorderBytes::default();
        for Crossing { producer, readers, row_bytes, has_gradient } in &self.crossings {
            let gradient = if *has_gradient { *row_bytes } else { 0.0 };
            if *producer < range.start && readers.iter().any(|reader| range.contains(reader)) {
                border.values_in += row_bytes;
                border.gradients_out += gradient;
            }
            if range.contains(producer) && readers.iter().any(|reader| *reader >= range.end) {
                border.values_out += row_bytes;
                border.gradients_in += gradient;
            }
        }
        border
    }

    /// The stage of each node, for stages that end before these blocks.
    pub fn nodes(&self, ends: &[usize]) -> Vec<usize> {
        self.block_of.iter().map(|block| ends.iter().filter(|end| *end <= block).count()).collect()
    }

    /// The stage of a block, by that of its nodes.
    pub fn stage_of_block(&self, nodes: &[usize], block: usize) -> usize {
        self.block_of.iter().position(|of| *of == block).map_or(0, |node| nodes[node])
    }

    /// The plan of a range, with gradients that are added over `micro_batches`.
    ///
    /// # Errors
    /// If it can't be planned.
    fn plan(&self, range: &Range<usize>, micro_batches: u32) -> Result<Arc<Plan>> {
        let key = (range.start, range.end, micro_batches > 1);
        if let Some(plan) = self.plans.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(plan.clone());
        }
        let objective = self.objective.clone().for_micro_batches(micro_batches);
        let plan = if *range == (0..self.len()) {
            Arc::new(self.model.plan(&objective)?)
        } else {
            let ends: Vec<usize> =
                [range.start, range.end].into_iter().filter(|end| (1..self.len()).contains(end)).collect();
            let mut stages = self.model.stages(Some(&objective), &self.nodes(&ends))?;
            stages.swap_remove(usize::from(range.start > 0)).plan
        };
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).insert(key, plan.clone());
        Ok(plan)
    }

    /// Bytes that a range takes on an adapter of a kind, for pieces of so many rows.
    ///
    /// # Errors
    /// If it can't be planned.
    pub fn bytes(&self, range: &Range<usize>, micro_batches: u32, rows: u32, kind: Kind) -> Result<u64> {
        Ok(memory::bytes(&*self.plan(range, micro_batches)?, rows, kind))
    }

    /// Memory of a copy of the whole model for up to `rows` rows at once.
    ///
    /// # Errors
    /// If it can't be planned.
    pub fn need_of_copy(&self, micro_batches: u32, rows: u32, kind: Kind, limit: Option<u64>) -> Result<NeedOrLack> {
        memory::need_of_copy(|pieces| self.whole(pieces), micro_batches, rows, kind, limit.unwrap_or(u64::MAX))
    }

    /// The work of a block for each row, in one number.
    pub fn weight(&self, block: usize) -> f64 {
        let plan = &self.stages[block].plan;
        let pass = if self.stages[block].has(Pass::Train) { Pass::Train } else { Pass::Forward };
        Work::of_row(plan, pass)
    }

    /// Whether stages of nodes end between blocks.
    pub fn are_whole(&self, nodes: &[usize]) -> bool {
        self.block_of.iter().zip(nodes).all(|(block, stage)| self.stage_of_block(nodes, *block) == *stage)
    }

    /// The blocks of each stage of a division that ends between blocks.
    pub fn ranges(&self, division: &Division) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for block in 0..self.len() {
            let stage = self.stage_of_block(&division.nodes, block);
            if stage == ranges.len() {
                ranges.push(block..block + 1);
            } else if let Some(last) = ranges.last_mut() {
                last.end = block + 1;
            }
        }
        ranges
    }

    /// The plan of the whole model.
    ///
    /// # Errors
    /// If it can't be planned.
    pub fn whole(&self, micro_batches: u32) -> Result<Arc<Plan>> {
        self.plan(&(0..self.len()), micro_batches)
    }
}

/// Bytes of a plan's gradients.
#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn gradient_bytes(plan: &Plan) -> f64 {
    let gradients = plan.buffers.iter().filter(|buffer| matches!(buffer.role, Role::Gradients(_)));
    gradients.map(|buffer| (buffer.len.fixed * F32_BYTES) as f64).sum()
}

/// The block of each node: a block of its own, or neighbours with about the same part of the work and of the parameters.
fn divided(model: &Model, objective: &Objective) -> Result<Vec<usize>> {
    if model.nodes.len() <= MOST {
        return Ok((0..model.nodes.len()).collect());
    }
    let costs = costs(model, &model.plan(objective)?);
    let total: f64 = costs.iter().sum();
    let mut before = 0.0;
    let (mut blocks, mut last) = (Vec::with_capacity(costs.len()), None);
    let mut block = 0;
    for cost in costs {
        // By the middle of a node, so that large ones stand by themselves.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "small"
        )]
        let part = ((before + cost / 2.0) / total * MOST as f64) as usize;
        if last.is_some_and(|last| part > last) {
            block += 1;
        }
        last = Some(part);
        blocks.push(block);
        before += cost;
    }
    Ok(blocks)
}

/// Costs of each node: its part of the work of training, and of the parameters.
#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn costs(model: &Model, plan: &Plan) -> Vec<f64> {
    let scalars = Scalars { rows: 8, batch_rows: 8, is_first: 1, is_last: 1, ..Scalars::default() };
    let mut work: LiteMap<&str, f64> = LiteMap::new();
    for command in plan.commands(Pass::Train) {
        if let Command::Dispatch(dispatch) = command {
            *work.entry(&dispatch.node).or_default() += Work::of_dispatch(dispatch, &scalars).weight();
        }
    }
    let mut held: LiteMap<&str, f64> = LiteMap::new();
    for placed in &model.layout.parameters {
        let layer = placed.name.rsplit_once('/').map_or(placed.name.as_str(), |(layer, _)| layer);
        *held.entry(layer).or_default() += placed.len() as f64;
    }
    let of = |parts: &LiteMap<&str, f64>, name: &str| {
        let total: f64 = parts.values().sum();
        parts.get(name).copied().unwrap_or_default() / total.max(1.0)
    };
    model.nodes.iter().map(|node| 1e-6 + of(&work, &node.name) + of(&held, &node.name)).collect()
}

#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn crossings(stages: &[Stage]) -> Vec<Crossing> {
    let mut crossings: LiteMap<u32, Crossing> = LiteMap::new();
    for (reader, stage) in stages.iter().enumerate() {
        for source in &stage.values {
            let received = stage.plan.find(Role::Received(source.tensor));
            let row_bytes = received.map_or(0.0, |id| (stage.plan.get(id).len.per_row * F32_BYTES) as f64);
            let has_gradient = stages[source.stage].gradients.iter().any(|it| it.tensor == source.tensor);
            let crossing = crossings.entry(source.tensor).or_insert_with(|| Crossing {
                producer: source.stage,
                readers: Vec::new(),
                row_bytes: 0.0,
                has_gradient,
            });
            crossing.readers.push(reader);
            crossing.row_bytes = crossing.row_bytes.max(row_bytes);
        }
    }
    crossings.into_iter().map(|(_, crossing)| crossing).collect()
}
