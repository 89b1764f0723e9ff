//! The choice for a simulated rig: `manyhands simulate` with `placement = "auto"`.

use std::sync::Arc;

use super::blocks::Blocks;
use super::chosen::{ChosenPlacement, ChosenStage};
use super::site::Site;
use super::speeds::Speeds;
use crate::error::Result;
use crate::model::Model;
use crate::plan::{Pass, Work};
use crate::scheduler::{Division, Placement, StageSpec};
use crate::simulator::predict::staged;
use crate::simulator::{AdapterSpec, Report, RigConfig, simulate_model};

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
    let placed = chosen.division.as_ref().filter(|_| chosen.is_staged()).map(|division| placed(rig, &chosen, division));
    let staged = placed.map_or(Ok(None), |placed| staged(&placed, &model))?;
    let copies = simulate_model(&RigConfig { placement: Placement::Replicas, ..rig.clone() }, &model)?;
    Ok((Report { staged, ..copies }, Some(chosen)))
}

/// The rig with a chosen placement by hand, and those adapters alone that take part.
fn placed(rig: &RigConfig, chosen: &ChosenPlacement, division: &Division) -> RigConfig {
    let (stage_of, adapters): (Vec<usize>, Vec<AdapterSpec>) = division
        .adapters
        .iter()
        .zip(&rig.adapters)
        .filter_map(|(stage, adapter)| stage.map(|stage| (stage, adapter.clone())))
        .unzip();
    let stage = |(number, stage): (usize, &ChosenStage)| StageSpec {
        layers: vec![stage.layers.clone()],
        adapters: (0..stage_of.len()).filter(|position| stage_of[*position] == number).collect(),
    };
    let placement = Placement::Stages(chosen.stages.iter().enumerate().map(stage).collect());
    RigConfig { placement, micro_batches: Some(chosen.micro_batches), adapters, ..rig.clone() }
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
    let update = Work::of(&*blocks.whole(1)?, Pass::Update, 1);
    Ok(Site {
        adapters: rig.adapters.iter().map(|spec| Speeds::of_spec(spec, &blocks, &update)).collect(),
        blocks: Arc::new(blocks),
        host_gb_s: rig.host.copy_gb_s,
        batch_size: rig.batch_size,
        micro_batches: rig.micro_batches.unwrap_or(1),
    })
}
