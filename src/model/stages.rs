//! A model in stages: parts that adapters of their own compute, each with a plan of its own.

use std::sync::Arc;

use super::Model;
use super::model_part::{Border, ModelPart};
use super::objective::Objective;
use crate::error::{Error, Result};
use crate::plan::{Layout, Pass, PlacedTensor, Places, Plan};

/// A part of a model that adapters of its own compute. Without a division, it is all of the model.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Its plan. The flat buffers hold its own parameters and statistics alone.
    pub plan: Arc<Plan>,
    /// Places of its parameters and statistics in the whole model's flat buffers.
    pub places: Places,
    /// Tensors that it reads and earlier stages compute.
    pub values: Vec<Source>,
    /// Tensors whose gradient it needs from later stages.
    pub gradients: Vec<Source>,
}

/// A tensor, and the stage that hands it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Number of the tensor in the model.
    pub tensor: u32,
    /// Index of the stage.
    pub stage: usize,
}

impl Source {
    fn new(tensor: usize, stage: usize) -> Self {
        Self { tensor: u32::try_from(tensor).unwrap_or(u32::MAX), stage }
    }
}

impl Stage {
    /// The only stage: all of a model.
    pub fn whole(plan: Arc<Plan>, layout: &Layout) -> Self {
        Self { plan, places: Places::whole(layout), values: Vec::new(), gradients: Vec::new() }
    }

    /// Whether a pass is a part of its work.
    pub fn has(&self, pass: Pass) -> bool {
        self.plan.passes.contains_key(&pass)
    }
}

impl Model {
    /// The first and the last layer of a stage: `first..last`, or one name.
    pub(crate) fn range_of(&self, stage_of: &[usize], stage: usize) -> String {
        let names = || self.nodes.iter().zip(stage_of).filter(|(_, of)| **of == stage).map(|(node, _)| &node.name);
        match (names().next(), names().next_back()) {
            (Some(first), Some(last)) if first != last => format!("{first}..{last}"),
            (first, _) => first.cloned().unwrap_or_default(),
        }
    }

    /// Names of all nodes, in order, as a placement takes them.
    #[doc(hidden)]
    pub fn node_names(&self) -> Vec<&str> {
        self.nodes.iter().map(|node| node.name.as_str()).collect()
    }

    /// Number of nodes: of uses of layers, masks that were added included.
    #[doc(hidden)]
    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The stages of a division: `stage_of` gives the stage of each node, in order. Without an objective they only predict.
    ///
    /// # Errors
    /// If a node reads a later stage's values, a stage is empty, or losses and outputs do not go together.
    #[doc(hidden)]
    pub fn stages(&self, objective: Option<&Objective>, stage_of: &[usize]) -> Result<Vec<Stage>> {
        let n_stages = self.check_division(stage_of)?;
        if let Some(objective) = objective {
            self.check_objective(objective)?;
        }
        let mut stages = Vec::with_capacity(n_stages);
        // The stage that hands over the gradient of each tensor: the first of the later ones that read it.
        let mut handed_by: Vec<Option<usize>> = vec![None; self.shapes.len()];
        for stage in (0..n_stages).rev() {
            let border = self.border(stage_of, stage, &handed_by);
            stages.push(self.stage(objective, stage_of, stage, border, &mut handed_by)?);
        }
        stages.reverse();
        Ok(stages)
    }

    /// Checks a division; gives the number of stages.
    ///
    /// # Errors
    /// As [`stages`](Self::stages) for the division.
    pub(crate) fn check_division(&self, stage_of: &[usize]) -> Result<usize> {
        let n_stages = stage_of.iter().max().map_or(0, |last| last + 1);
        let refused = |problem: String| Err(Error::setting("placement", problem, "divide the layers in their order"));
        if stage_of.len() != self.nodes.len() {
            return refused(format!(
                "needs a stage for each of {} nodes, but has {}",
                self.nodes.len(),
                stage_of.len()
            ));
        }
        if let Some(empty) = (0..n_stages).find(|stage| !stage_of.contains(stage)) {
            return refused(format!("needs a layer in each stage, but stage {empty} has none"));
        }
        for (idx, node) in self.nodes.iter().enumerate() {
            let later = node.inputs.iter().find(|tensor| {
                let producer = tensor.checked_sub(self.inputs.len());
                producer.is_some_and(|producer| stage_of[producer] > stage_of[idx])
            });
            if let Some(tensor) = later {
                return refused(format!(
                    "needs stages that read from earlier ones only, but `{}` of stage {} reads `{}` of a later one",
                    node.name,
                    stage_of[idx],
                    self.tensor_name(*tensor)
                ));
            }
        }
        Ok(n_stages)
    }

    /// The tensors that a stage gets from others and hands over to them.
    fn border(&self, stage_of: &[usize], stage: usize, handed_by: &[Option<usize>]) -> Border {
        let n_inputs = self.inputs.len();
        let (mut is_read, mut is_read_later) = (vec![false; self.shapes.len()], vec![false; self.shapes.len()]);
        for (node, of) in self.nodes.iter().zip(stage_of) {
            let marks = if *of == stage { &mut is_read } else { &mut is_read_later };
            node.inputs.iter().for_each(|tensor| marks[*tensor] = true);
        }
        // An input that is an output has its loss in the last stage.
        if stage_of.iter().all(|other| *other <= stage) {
            self.outputs.iter().filter(|tensor| **tensor < n_inputs).for_each(|tensor| is_read[*tensor] = true);
        }
        let is_own = |tensor: usize| tensor >= n_inputs && stage_of[tensor - n_inputs] == stage;
        let computed = n_inputs..self.shapes.len();
        let values: Vec<usize> = computed.clone().filter(|tensor| is_read[*tensor] && !is_own(*tensor)).collect();
        let handed: Vec<usize> = computed.filter(|tensor| is_read_later[*tensor] && is_own(*tensor)).collect();
        let mut gradients: Vec<usize> = values.iter().chain(&handed).copied().collect();
        gradients.retain(|tensor| handed_by[*tensor].is_some());
        gradients.sort_unstable();
        Border { inputs: Some((0..n_inputs).filter(|input| is_read[*input]).collect()), values, gradients, handed }
    }

    fn stage(
        &self,
        objective: Option<&Objective>,
        stage_of: &[usize],
        stage: usize,
        border: Border,
        handed_by: &mut [Option<usize>],
    ) -> Result<Stage> {
        let holds: Vec<bool> = stage_of.iter().map(|of| *of == stage).collect();
        let layout = self.stage_layout(&holds)?;
        let places = Places::of(&layout, &self.layout);
        let producer = |tensor: &usize| Source::new(*tensor, stage_of[tensor - self.inputs.len()]);
        let values = border.values.iter().map(producer).collect();
        let gradients = border.gradients.iter().filter_map(|tensor| Some(Source::new(*tensor, handed_by[*tensor]?)));
        let gradients: Vec<Source> = gradients.collect();
        let is_last = border.handed.is_empty();
        let part = ModelPart::stage(self, layout, holds, border);
        let mut plan = part.flat_buffers();
        if let Some(objective) = objective {
            plan.masks = self.position_masks(&objective.losses);
            if part.is_trained() {
                for tensor in part.record_training(&mut plan, objective).handed {
                    handed_by[tensor] = Some(stage);
                }
            }
            if !is_last {
                part.record_forward_training(&mut plan, objective);
            }
            part.record_forward_pass(&mut plan, Pass::Evaluate, Some(objective));
        }
        if objective.is_none_or(|objective| self.predicts(objective)) {
            part.record_forward_pass(&mut plan, Pass::Predict, None);
        }
        Ok(Stage { plan: Arc::new(plan), places, values, gradients })
    }

    /// The layout of the layers that some nodes use, in the order of their first use there.
    fn stage_layout(&self, holds: &[bool]) -> Result<Layout> {
        let mut place = vec![None; self.layers.len()];
        let held = self.nodes.iter().zip(holds).filter(|(_, is_held)| **is_held).map(|(node, _)| node.layer_idx);
        for (position, layer_idx) in held.enumerate() {
            place[layer_idx].get_or_insert(position);
        }
        let in_order = |tensors: &[PlacedTensor]| {
            let used = self.owners(tensors).filter_map(|(layer_idx, placed)| Some((place[layer_idx]?, placed.clone())));
            let mut used: Vec<(usize, PlacedTensor)> = used.collect();
            used.sort_by_key(|(position, _)| *position);
            used.into_iter().map(|(_, placed)| placed)
        };
        let mut layout = Layout::default();
        let (trainable, frozen) = self.layout.parameters.split_at(self.layout.trainable().len());
        in_order(trainable).try_for_each(|it| layout.add_parameter(it.name, it.shape))?;
        in_order(frozen).try_for_each(|it| layout.add_frozen(it.name, it.shape, it.packing))?;
        in_order(&self.layout.statistics).try_for_each(|it| layout.add_statistic(it.name, it.shape))?;
        Ok(layout)
    }
}
