//! The choice for a simulated rig: `manyhands simulate` with `placement = "auto"`.

use std::sync::Arc;

use super::blocks::Blocks;
use super::chosen::{ChosenPlacement, ChosenStage};
use super::site::Site;
use super::speeds::Speeds;
use crate::error::Result;
use crate::model::Model;
use crate::scheduler::{Division, Placement, StageSpec};
use crate::simulator::predict::{MICRO_BATCHES, StagedStep, staged, staged_step};
use crate::simulator::{AdapterSpec, Report, RigConfig, Staged, simulate_model};

/// Predicts the speed of a rig as [`simulate`](crate::simulator::simulate) does; a placement that is `"auto"` is chosen
/// first. Gives the choice, too.
///
/// # Errors
/// If the model can't be built, or nothing fits the adapters' memory.
pub fn simulate(rig: &RigConfig) -> Result<(Report, Option<ChosenPlacement>)> {
    rig.check()?;
    simulate_placed(rig, &rig.build_model()?)
}

/// Predicts for this model, in place of that of the rig: see [`simulate`].
///
/// # Errors
/// If a number of the rig makes no sense, or nothing fits the adapters' memory.
pub fn simulate_placed(rig: &RigConfig, model: &Model) -> Result<(Report, Option<ChosenPlacement>)> {
    rig.check()?;
    if rig.placement != Placement::Auto {
        return Ok((simulate_model(rig, model)?, None));
    }
    let chosen = choose(rig, model)?;
    let placed = chosen.division.as_ref().filter(|_| chosen.is_staged()).map(|division| placed(rig, &chosen, division));
    let staged = placed.map_or(Ok(None), |placed| staged(&placed, model))?;
    let copies = simulate_model(&RigConfig { placement: Placement::Replicas, ..rig.clone() }, model)?;
    Ok((Report { staged, ..copies }, Some(chosen)))
}

/// A rig with its layers in stages, one on each adapter, and its predicted speed.
#[derive(Clone, Debug)]
pub struct StagedRig {
    /// The rig, with the placement that [`simulate_model`] reads.
    pub rig: RigConfig,
    /// Its speed.
    pub staged: Staged,
    /// A step of it.
    pub step: StagedStep,
}

/// Predicts a rig's speed as [`simulate_model`] does, and that of its fastest 2, 3 and so on adapters with the layers in stages, one
/// on each: up to as many as there are blocks of layers.
///
/// # Errors
/// If the model can't be built, or copies or stages do not fit the adapters' memory.
pub fn simulate_pipelines(rig: &RigConfig, model: &Model) -> Result<(Report, Vec<StagedRig>)> {
    let report = simulate_model(&RigConfig { placement: Placement::Replicas, ..rig.clone() }, model)?;
    let mut left = rig.adapters.clone();
    let take = |name: &String| Some(left.remove(left.iter().position(|spec| spec.name == *name)?));
    let rig = RigConfig { adapters: report.adapters.iter().filter_map(take).collect(), ..rig.clone() };
    let site = site(&rig, model)?;
    let mut pipelines = Vec::new();
    for n_adapters in 2..=rig.adapters.len() {
        let few = Site { adapters: site.adapters[..n_adapters].to_vec(), ..site.clone() };
        let Some(chosen) = few.one_on_each(rig.micro_batches.unwrap_or(MICRO_BATCHES))? else { break };
        let Some(division) = &chosen.division else { break };
        let rig = RigConfig { adapters: rig.adapters[..n_adapters].to_vec(), ..rig.clone() };
        let rig = placed(&rig, &chosen, division);
        let Some((staged, step)) = staged_step(&rig, model)? else { break };
        pipelines.push(StagedRig { rig, staged, step });
    }
    Ok((report, pipelines))
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
    let whole = blocks.whole(1)?;
    Ok(Site {
        adapters: rig.adapters.iter().map(|spec| Speeds::of_spec(spec, &blocks, &whole)).collect(),
        blocks: Arc::new(blocks),
        host_gb_s: rig.host.copy_gb_s,
        batch_size: rig.batch_size,
        micro_batches: rig.micro_batches.unwrap_or(1),
    })
}
