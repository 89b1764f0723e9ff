//! A plan with the commands of another and few values, so that large models are simulated fast.

use super::traffic::Traffic;
use crate::plan::{ALIGN, BufferId, Combine, Command, Layout, Length, Pass, Plan, Role, View};

/// A plan that makes the scheduler act as for the plan it replaces.
pub(super) struct Skeleton {
    pub plan: Plan,
    pub layout: Layout,
    /// Transfers of the plan that it replaces.
    pub traffic: Traffic,
}

impl Skeleton {
    /// Every gradient bucket becomes [`ALIGN`] elements of one segment, every row of an input one element. Exchanges of
    /// statistics stay. Dispatches stay as data: what they cost is read from them, but they are never run.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn of(plan: &Plan, layout: &Layout) -> Self {
        let mut traffic = Traffic::of(plan);
        // The host adds penalties while it adds gradients: no more than these cost.
        let mut small = Plan { penalties: Vec::new(), ..plan.clone() };
        let gradients = plan.find(Role::Gradients(0));
        let mut n_buckets = 0;
        for command in small.passes.iter_mut().flat_map(|(_, commands)| commands) {
            let Command::Exchange(exchange) = command else { continue };
            let is_gradient = matches!(plan.get(exchange.view.buffer).role, Role::Gradients(_));
            if let (true, Some(buffer), Combine::Sum, false) =
                (is_gradient, gradients, exchange.combine, exchange.is_awaited())
            {
                exchange.view = View { buffer, offset: n_buckets * ALIGN, len: Length { per_row: 0, fixed: ALIGN } };
                exchange.halves = None;
                n_buckets += 1;
            }
        }
        let segment = n_buckets.max(1) * ALIGN;
        for idx in 0..small.buffers.len() {
            shrink(&mut small, idx, segment);
        }
        shrink_updates(&mut small, segment);
        let updated = layout.trainable_segments().iter().sum::<u64>();
        traffic.scale = updated.max(segment) as f64 / segment as f64;
        let mut small_layout = layout.clone();
        small_layout.shrink_to(segment);
        Self { plan: small, layout: small_layout, traffic }
    }
}

/// The host updates the one segment. What an update costs on a device still counts: the whole stretch becomes an input.
fn shrink_updates(plan: &mut Plan, segment: u64) {
    let Some(buffer) = plan.find(Role::Parameters(0)) else { return };
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
        Role::Statistics | Role::Activation | Role::Control | Role::Received(_) | Role::ReceivedGradient(_) => return,
    };
    plan.buffers[idx].len = len;
}
