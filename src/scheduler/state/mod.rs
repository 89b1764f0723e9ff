//! Weights, statistics and optimizer state: their place, the newest copy, and their transfer to the adapters.
//!
//! A step changes them in `reduce.rs` (gradients added), `update.rs` (the update, and its broadcast) and `statistics.rs`
//! (moving statistics).

mod reduce;
mod statistics;
mod update;

use std::sync::Arc;

use super::rig::Rig;
use crate::error::Result;
use crate::model::{Objective, Weights};
use crate::optimizers::Optimizer;
use crate::plan::{GradientCompression, Layout, Place, Places, Role, Scalars};
use crate::runtime::threads;
use crate::size::power_of_two;
use manyhands_engine::adapters::Request;

use super::{Part, Step};

pub(super) use reduce::Totals;
pub(super) use statistics::{Moments, merge};
pub(super) use update::Updated;

/// Values that one thread copies at a time.
const COPIED: usize = 1 << 18;

/// Weights, statistics and optimizer state: all that training changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingState {
    /// Parameters and moving statistics.
    pub weights: Weights,
    /// Optimizer state: kind, then segment of trainable parameters, each of their layout.
    pub optimizer: Vec<Vec<Vec<f32>>>,
}

impl TrainingState {
    /// The state before the first step of an optimizer.
    pub fn new(weights: Weights, layout: &Layout, optimizer: &Optimizer) -> Self {
        let zeros = trainable_zeros(layout);
        let filled = |value: f32| zeros.iter().map(|segment| vec![value; segment.len()]).collect();
        let rule = optimizer.rule();
        let mut states: Vec<Vec<Vec<f32>>> =
            rule.state_names().iter().map(|name| filled(rule.initial_state(name))).collect();
        states.extend(optimizer.accumulation().map(|_| zeros.clone()));
        // Until a step changes them, the averages are the weights.
        states.extend(optimizer.ema().map(|_| match weights.parameters.get(..zeros.len()) {
            Some(trainable) => trainable.to_vec(),
            None => zeros.clone(),
        }));
        Self { weights, optimizer: states }
    }

    /// Whether this is a state of an optimizer: as many numbers in each part.
    pub fn fits_optimizer(&self, layout: &Layout, optimizer: &Optimizer) -> bool {
        let lens = layout.trainable_segments();
        let fits = |kind: &Vec<Vec<f32>>| kind.iter().map(|part| part.len() as u64).eq(lens.iter().copied());
        self.optimizer.len() == optimizer.state_names().len() && self.optimizer.iter().all(fits)
    }

    /// A copy, made by all threads: a large one takes many times as long as the rest of a step.
    fn copied(&self) -> Self {
        let copied = |values: &Vec<f32>| {
            let mut copy = vec![0.0; values.len()];
            threads::chunks(&mut copy, COPIED, |idx, part| part.copy_from_slice(&values[idx * COPIED..][..part.len()]));
            copy
        };
        let Weights { parameters, statistics } = &self.weights;
        let weights = Weights { parameters: parameters.iter().map(copied).collect(), statistics: copied(statistics) };
        Self { weights, optimizer: self.optimizer.iter().map(|kind| kind.iter().map(copied).collect()).collect() }
    }

    /// Averages of the trainable parameters, by segment, if their optimizer keeps them.
    pub fn averages(&self, optimizer: &Optimizer) -> Option<&[Vec<f32>]> {
        self.optimizer.last().filter(|_| optimizer.ema().is_some()).map(Vec::as_slice)
    }
}

/// A zero for each value of the trainable segments.
#[allow(clippy::cast_possible_truncation, reason = "a segment is smaller than 2^25 elements")]
fn trainable_zeros(layout: &Layout) -> Vec<Vec<f32>> {
    layout.trainable_segments().iter().map(|len| vec![0.0; *len as usize]).collect()
}

/// Place of the parameters' update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpdateOn {
    /// On the host, once, for all adapters.
    Host,
    /// On the only adapter.
    Device,
}

/// The state that the adapters of a rig train.
pub(super) struct State {
    /// With the update on the device: the state of the last [`read_back`](Self::read_back), a snapshot to rewind to.
    /// While it is saved, the saver has it, too.
    training: Arc<TrainingState>,
    pub layout: Layout,
    optimizer: Option<Optimizer>,
    clip_norm: f32,
    /// Format of gradients on their way between processes.
    compression: GradientCompression,
    update_on: UpdateOn,
    /// Whether the only adapter has trained since.
    is_behind: bool,
    /// Whether training was lost with the only adapter, and this is not yet reported.
    is_rewound: bool,
    /// Sums of the last step's gradients, by trainable segment.
    gradients: Vec<Vec<f32>>,
}

impl State {
    pub fn new(training: TrainingState, layout: Layout, objective: Option<&Objective>, update_on: UpdateOn) -> Self {
        Self {
            gradients: trainable_zeros(&layout),
            training: Arc::new(training),
            layout,
            optimizer: objective.map(|objective| objective.optimizer.clone()),
            clip_norm: objective.map_or(0.0, |objective| objective.clip_norm),
            compression: objective.map_or(GradientCompression::None, |objective| objective.gradient_compression),
            update_on,
            is_behind: false,
            is_rewound: false,
        }
    }

    /// State after the last step, with the update on the host, or of the last [`read_back`](Self::read_back).
    pub fn training(&self) -> &TrainingState {
        &self.training
    }

    /// [`training`](Self::training) for a caller that keeps it unchanged: the next step that changes it copies it first.
    pub fn share_training(&self) -> Arc<TrainingState> {
        self.training.clone()
    }

    /// The state to change. If it is still shared, it is copied now.
    fn training_mut(training: &mut Arc<TrainingState>) -> &mut TrainingState {
        if Arc::get_mut(training).is_none() {
            *training = Arc::new(training.copied());
        }
        Arc::make_mut(training)
    }

    /// Without what belongs to a run.
    pub fn into_training(self) -> TrainingState {
        Arc::unwrap_or_clone(self.training)
    }

    /// Whether the state is for inference only.
    pub fn is_fixed(&self) -> bool {
        self.optimizer.is_none()
    }

    /// Whether parameters are kept on the only adapter.
    pub fn is_on_device(&self) -> bool {
        self.update_on == UpdateOn::Device
    }

    /// Updates on the host from now on. The adapter's state must have been read back.
    pub fn move_to_host(&mut self) {
        self.update_on = UpdateOn::Host;
    }

    /// Whether the only adapter has trained since the last copy.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Marks that the only adapter trains from now on.
    pub fn fall_behind(&mut self) {
        self.is_behind = true;
    }

    /// Discards the training of the only adapter since the last copy.
    pub fn rewind(&mut self) {
        (self.is_behind, self.is_rewound) = (false, true);
    }

    /// Whether training was lost since the last call.
    pub fn take_rewound(&mut self) -> bool {
        std::mem::take(&mut self.is_rewound)
    }

    /// Whether training was lost and this is not yet reported.
    pub fn is_rewound(&self) -> bool {
        self.is_rewound
    }

    /// The numbers of a step on `rows` rows, which are a part of a batch, or all of it.
    #[allow(clippy::cast_possible_truncation, reason = "the key of random numbers takes the low bits of the step")]
    pub fn scalars(&self, rows: u32, part: Part, step: &Step) -> Scalars {
        let updates = step.scaling.map_or(step.step, |scaling| scaling.updates);
        let hyper = self.optimizer.as_ref().map_or_else(Vec::new, |it| it.hyper(step.learning_rate, updates + 1));
        let exponent = step.scaling.map_or(0, |scaling| scaling.exponent);
        Scalars {
            rows,
            batch_rows: part.batch_rows,
            first_row: part.first_row,
            is_first: 1,
            is_last: 1,
            seed: step.seed,
            step: step.step as u32,
            update: 0,
            gradient_exponent: exponent,
            loss_scales: step.loss_scales.iter().map(|scale| scale * power_of_two(exponent)).collect(),
            hyper,
        }
    }

    /// Replaces the state, on all adapters.
    pub fn restore(&mut self, rig: &mut Rig, training: TrainingState) {
        (self.training, self.is_behind) = (Arc::new(training), false);
        for adapter_idx in 0..rig.members.len() {
            self.send_to(rig, adapter_idx);
        }
    }

    /// Sends the newest state to an adapter that lacks it.
    pub fn freshen(&self, rig: &mut Rig, adapter_idx: usize) {
        if rig.members[adapter_idx].is_stale {
            self.send_to(rig, adapter_idx);
        }
    }

    /// Sends parameters, statistics and, with the update on the device, optimizer state to an adapter.
    fn send_to(&self, rig: &mut Rig, adapter_idx: usize) {
        rig.members[adapter_idx].is_stale = false;
        for (role, offset, data) in self.weights(&rig.stage(adapter_idx).places) {
            rig.send(adapter_idx, Request::Write { role, offset, data });
        }
        if self.is_on_device() {
            for (kind, segments) in (0..).zip(&self.training.optimizer) {
                for (segment, values) in (0..).zip(segments) {
                    let data = Arc::from(values.as_slice());
                    rig.send(adapter_idx, Request::Write { role: Role::State(kind, segment), offset: 0, data });
                }
            }
        }
    }

    /// Parameters and statistics of a stage: role, first element, values.
    pub fn weights(&self, places: &Places) -> Vec<(Role, u64, Arc<[f32]>)> {
        let parameters = places.parameters.iter().filter_map(|place| {
            let values = self.training.weights.parameters.get(place.whole_segment as usize)?;
            Some((Role::Parameters(place.segment), place.offset, Arc::from(values.get(place.whole_range())?)))
        });
        parameters.chain(self.statistics(places)).collect()
    }

    /// Moving statistics of a stage.
    fn statistics<'a>(&'a self, places: &'a Places) -> impl Iterator<Item = (Role, u64, Arc<[f32]>)> + 'a {
        let statistics = &self.training.weights.statistics;
        let of = |place: &Place| Some((Role::Statistics, place.offset, statistics.get(place.whole_range())?.into()));
        places.statistics.iter().filter_map(of)
    }

    /// Parameters and statistics that the only adapter holds, without what is frozen. The host's copy stays as it is.
    ///
    /// # Errors
    /// If it was lost.
    pub async fn on_device(&self, rig: &mut Rig) -> Result<Vec<(Role, Vec<f32>)>> {
        let parameters = (0..).zip(self.layout.trainable_segments()).map(|(segment, _)| Role::Parameters(segment));
        let statistics = (!self.training.weights.statistics.is_empty()).then_some(Role::Statistics);
        let mut held = Vec::new();
        for role in parameters.chain(statistics) {
            held.push((role, rig.read(rig.only(), role).await?));
        }
        Ok(held)
    }

    /// Copies the state of the only adapter to the host, if it has trained since the last copy.
    ///
    /// # Errors
    /// If it was lost.
    pub async fn read_back(&mut self, rig: &mut Rig) -> Result<()> {
        if !self.is_behind {
            return Ok(());
        }
        let only = rig.only();
        // All or nothing: if the adapter is lost meanwhile, the old copy must stay complete.
        let mut read =
            TrainingState { optimizer: vec![Vec::new(); self.training.optimizer.len()], ..TrainingState::default() };
        for (segment, _) in (0..).zip(self.layout.trainable_segments()) {
            read.weights.parameters.push(rig.read(only, Role::Parameters(segment)).await?);
            for (kind, segments) in (0..).zip(&mut read.optimizer) {
                segments.push(rig.read(only, Role::State(kind, segment)).await?);
            }
        }
        if !self.training.weights.statistics.is_empty() {
            read.weights.statistics = rig.read(only, Role::Statistics).await?;
        }
        // What is frozen is as it was.
        let n_read = read.weights.parameters.len();
        match Arc::get_mut(&mut self.training) {
            Some(old) => read.weights.parameters.extend(old.weights.parameters.drain(n_read..)),
            None => read.weights.parameters.extend_from_slice(&self.training.weights.parameters[n_read..]),
        }
        (self.training, self.is_behind) = (Arc::new(read), false);
        Ok(())
    }
}
