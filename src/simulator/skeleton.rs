//! Plans with the commands of others and few values, so that large models are simulated fast.

use std::sync::Arc;

use super::cost::Cost;
use super::traffic::Traffic;
use crate::model::stages::Stage;
use crate::plan::{ALIGN, BufferId, Combine, Command, Layout, Length, Pass, Place, Places, Plan, Role, View, Work};

/// Values that stand for the parameters of a model in stages, about.
const FEW: u64 = 1 << 16;

/// Plans that make the scheduler act as for the plans they replace.
#[derive(Clone, Debug)]
pub(super) struct Skeleton {
    /// The plan of the whole model.
    pub plan: Plan,
    pub layout: Layout,
    /// The plans of the stages; none for a model that is not divided.
    pub stages: Vec<Stage>,
    /// Costs of the plans that are replaced: of each stage, or of the whole.
    pub costs: Vec<Cost>,
    /// Parameters of the model for each value that the host goes over.
    pub scale: f64,
}

impl Skeleton {
    /// Every gradient bucket becomes [`ALIGN`] elements of one segment, every row of an input one element. Exchanges of
    /// statistics stay. Dispatches stay as data: what they cost is read from them, but they are never run.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn of(plan: &Plan, layout: &Layout) -> Self {
        let mut traffic = Traffic::of(plan);
        let (mut small, segment) = shrunk(plan, ALIGN);
        shrink_updates(&mut small, segment);
        let updated = layout.trainable_segments().iter().sum::<u64>();
        traffic.scale = updated.max(segment) as f64 / segment as f64;
        let scale = traffic.scale;
        let mut small_layout = layout.clone();
        small_layout.shrink_to(segment);
        let cost = Cost { plan: Arc::new(Plan::default()), traffic, part: 1.0, times: Vec::new() };
        Self { plan: small, layout: small_layout, stages: Vec::new(), costs: vec![cost], scale }
    }

    /// The skeletons of a model's stages. All parameters are fewer by about the same factor.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    pub fn of_stages(plan: &Plan, layout: &Layout, stages: &[Stage]) -> Self {
        let trainable = layout.trainable_segments().iter().sum::<u64>();
        let factor = (trainable as f64 / FEW as f64).max(1.0);
        let whole = Work::of_row(plan, Pass::Train).max(1.0);
        let (mut small_stages, mut costs, mut base) = (Vec::new(), Vec::new(), 0);
        for stage in stages {
            let gradients = stage.plan.buffers.iter().filter(|buffer| matches!(buffer.role, Role::Gradients(_)));
            let own: u64 = gradients.map(|buffer| buffer.len.fixed).sum();
            let least = ((own as f64 / factor) as u64).next_multiple_of(ALIGN).max(ALIGN);
            let (small, segment) = shrunk(&stage.plan, least);
            let mut traffic = Traffic::of(&stage.plan);
            traffic.scale = own as f64 / segment as f64;
            let place = Place { segment: 0, offset: 0, whole_segment: 0, whole_offset: base, len: segment };
            let parameters = if own > 0 { vec![place] } else { Vec::new() };
            base += if own > 0 { segment } else { 0 };
            let plan = Arc::new(small);
            let pass = if stage.has(Pass::Train) { Pass::Train } else { Pass::Forward };
            let part = Work::of_row(&stage.plan, pass) / whole;
            let places = Places { parameters, statistics: stage.places.statistics.clone() };
            small_stages.push(Stage { plan: plan.clone(), places, ..stage.clone() });
            costs.push(Cost { plan, traffic, part, times: Vec::new() });
        }
        let segment = base.max(ALIGN);
        let mut small = Plan { penalties: Vec::new(), masks: Vec::new(), ..plan.clone() };
        shrink_buffers(&mut small, segment);
        shrink_updates(&mut small, segment);
        let mut small_layout = layout.clone();
        small_layout.shrink_to(segment);
        let scale = trainable.max(segment) as f64 / segment as f64;
        Self { plan: small, layout: small_layout, stages: small_stages, costs, scale }
    }
}

/// The plan with few values, and the length of its one segment of parameters, which is `least` or more.
fn shrunk(plan: &Plan, least: u64) -> (Plan, u64) {
    // The host adds penalties while it adds gradients: no more than these cost. Rows of few numbers have no masks.
    let mut small = Plan { penalties: Vec::new(), masks: Vec::new(), ..plan.clone() };
    let gradients = plan.find(Role::Gradients(0));
    let mut buckets: Vec<&mut View> = Vec::new();
    for command in small.passes.iter_mut().flat_map(|(_, commands)| commands) {
        let Command::Exchange(exchange) = command else { continue };
        let is_gradient = matches!(plan.get(exchange.view.buffer).role, Role::Gradients(_));
        match (is_gradient, exchange.combine) {
            (true, Combine::Sum) if !exchange.is_awaited() => {
                exchange.halves = None;
                buckets.push(&mut exchange.view);
            }
            (_, Combine::HandOver(_)) => exchange.view.len = Length::per_row(1),
            _ => {}
        }
    }
    let mut offset = 0;
    let n_buckets = buckets.len() as u64;
    let segment = (n_buckets.max(1) * ALIGN).max(least);
    for (number, view) in (1..).zip(buckets) {
        // The last one takes what is left.
        let len = if number == n_buckets { segment - offset } else { ALIGN };
        *view = View { buffer: gradients.unwrap_or(view.buffer), offset, len: Length { per_row: 0, fixed: len } };
        offset += len;
    }
    shrink_buffers(&mut small, segment);
    (small, segment)
}

fn shrink_buffers(plan: &mut Plan, segment: u64) {
    for idx in 0..plan.buffers.len() {
        shrink(plan, idx, segment);
    }
}

/// The host updates the one segment. What an update costs on a device still counts: the whole stretch becomes an input.
fn shrink_updates(plan: &mut Plan, segment: u64) {
    let Some(buffer) = plan.find(Role::Parameters(0)) else { return };
    plan.updated = vec![(0, 0..usize::try_from(segment).unwrap_or(usize::MAX))];
    let is_parameters: Vec<bool> = plan.buffers.iter().map(|it| matches!(it.role, Role::Parameters(_))).collect();
    let mut fixed = segment;
    for command in plan.passes.get_mut(&Pass::Update).into_iter().flatten() {
        let Command::Dispatch(dispatch) = command else { continue };
        let updated = dispatch.outputs.first_mut().filter(|view| is_parameters[view.buffer.0 as usize]);
        if let Some(updated) = updated {
            dispatch.inputs.push(*updated);
            *updated = View { buffer, offset: 0, len: Length { per_row: 0, fixed } };
            fixed = 0;
        }
    }
}

fn shrink(plan: &mut Plan, idx: usize, segment: u64) {
    let id = BufferId(u32::try_from(idx).unwrap_or(u32::MAX));
    let len = match plan.get(id).role {
        Role::Parameters(_) | Role::Gradients(_) | Role::State(..) => Length { per_row: 0, fixed: segment },
        Role::Input(_) | Role::Target(_) | Role::SampleWeight(_) | Role::Output(_) => Length::per_row(1),
        Role::Report(_) => Length::per_row(2),
        Role::Statistics
        | Role::Activation
        | Role::Unpacked
        | Role::Control
        | Role::Received(_)
        | Role::ReceivedGradient(_) => return,
    };
    plan.buffers[idx].len = len;
}
