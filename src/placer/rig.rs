//! The choice for a simulated rig: `manyhands simulate` with `placement = "auto"`.

use std::sync::Arc;

use super::blocks::Blocks;
use super::chosen::ChosenPlacement;
use super::site::Site;
use super::speeds::Speeds;
use crate::error::Result;
use crate::model::Model;
use crate::scheduler::{Placement, StageSpec};
use crate::simulator::{Report, RigConfig, simulate_model};

/// Predicts the speed of a rig as [`simulate`](crate::simulator::simulate) does; a placement that is `"auto"` is chosen
/// first. Gives the choice, too.
///
/// # Errors
/// If the model can't be built, or nothing fits the adapters' memory.
pub fn simulate(rig: &RigConfig) -> Result<(Report, Option<ChosenPlacement>)> {
    rig.check()?;
    let model = rig.build_model()?;
    if rig.placement != Placement::Auto {
        return Ok((simulate_model(rig, &model)?, None));
    }
    let chosen = choose(rig, &model)?;
    let placement = if chosen.is_staged() { named(&chosen) } else { Placement::Replicas };
    let is_staged = placement != Placement::Replicas;
    let micro_batches = if is_staged { Some(chosen.micro_batches) } else { None };
    // The placement names adapters that take part alone.
    let takes_part = |idx: &usize| chosen.division.as_ref().is_none_or(|division| division.adapters[*idx].is_some());
    let adapters = (0..rig.adapters.len()).filter(|idx| !is_staged || takes_part(idx));
    let adapters = adapters.map(|idx| rig.adapters[idx].clone()).collect();
    let placed = RigConfig { placement, micro_batches, adapters, ..rig.clone() };
    let staged = simulate_model(&placed, &model)?.staged;
    let copies = simulate_model(&RigConfig { placement: Placement::Replicas, ..rig.clone() }, &model)?;
    Ok((Report { staged, ..copies }, Some(chosen)))
}

/// The placement that is fastest by the speeds of a rig's adapters.
///
/// # Errors
/// If the model can't be planned, or nothing fits.
pub fn choose(rig: &RigConfig, model: &Model) -> Result<ChosenPlacement> {
    site(rig, model)?.choose(&vec![true; rig.adapters.len()])
}

/// The adapters of a rig, as far as placements depend on them.
///
/// # Errors
/// If the model can't be planned.
pub(crate) fn site(rig: &RigConfig, model: &Model) -> Result<Site> {
    let blocks = Blocks::new(model, &rig.objective(model))?;
    Ok(Site {
        adapters: rig.adapters.iter().map(|spec| Speeds::of_spec(spec, &blocks)).collect(),
        blocks: Arc::new(blocks),
        host_gb_s: rig.host.copy_gb_s,
        batch_size: rig.batch_size,
        micro_batches: rig.micro_batches.unwrap_or(1),
    })
}

/// A choice as a placement by hand, over those adapters that take part.
fn named(chosen: &ChosenPlacement) -> Placement {
    let Some(division) = &chosen.division else { return Placement::Replicas };
    let present: Vec<usize> = division.adapters.iter().copied().flatten().collect();
    let stage = |(number, stage): (usize, &super::ChosenStage)| StageSpec {
        layers: vec![stage.layers.clone()],
        adapters: (0..present.len()).filter(|position| present[*position] == number).collect(),
    };
    Placement::Stages(chosen.stages.iter().enumerate().map(stage).collect())
}
