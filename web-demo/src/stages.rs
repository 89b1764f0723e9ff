//! A model in stages, as the simulator predicts it, for the page.

use manyhands::Placement;
use manyhands::placer::rig::StagedRig;
use manyhands::scheduler::timeline::{Activity, Lane, Span};
use manyhands::simulator::Staged;
use manyhands_engine::plan::Pass;
use serde::Serialize;

#[cfg(test)]
use crate::types;

/// Work of an adapter on a piece of a batch, or of the host, in a simulated step of a model in stages.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Brick {
    /// The adapter of the pipeline; none is the host.
    adapter: Option<usize>,
    /// Of an adapter's work: index of the micro-batch.
    piece: Option<usize>,
    /// Whether it is the first way forward. The way back computes forward again, and the last stage has that alone.
    is_forward: bool,
    /// Kind of the work.
    #[cfg_attr(test, ts(as = "types::Activity"))]
    what: Activity,
    /// Milliseconds of virtual time from the start of the step.
    start_ms: f64,
    /// Milliseconds that it takes.
    ms: f64,
}

impl Brick {
    fn of(span: &Span) -> Option<Self> {
        let Span { lane, what, start_ms, ms, task, .. } = *span;
        let adapter = match lane {
            Lane::Adapter(idx) => Some(idx),
            Lane::Host => None,
        };
        let is_work = adapter.is_none() || task.is_some();
        (what != Activity::Step && is_work).then(|| Self {
            adapter,
            piece: task.map(|task| task.piece),
            is_forward: task.is_some_and(|task| task.pass == Pass::Forward),
            what,
            start_ms,
            ms,
        })
    }
}

/// The layers in stages, one on each adapter, in the simulator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Pipelined {
    /// Names of the adapters, by which `placement` counts them.
    adapters: Vec<String>,
    /// As a rig's file for `manyhands simulate` has it.
    #[cfg_attr(test, ts(as = "Vec<types::StageSpec>"))]
    placement: Placement,
    /// Its speed.
    #[cfg_attr(test, ts(as = "types::StagedReport"))]
    staged: Staged,
    /// Milliseconds of the step that is made of the bricks.
    ms: f64,
    /// All work of the step.
    bricks: Vec<Brick>,
}

impl From<&StagedRig> for Pipelined {
    fn from(StagedRig { rig, staged, step }: &StagedRig) -> Self {
        Self {
            adapters: rig.adapters.iter().map(|spec| spec.name.clone()).collect(),
            placement: rig.placement.clone(),
            staged: staged.clone(),
            ms: step.ms,
            bricks: step.spans.iter().filter_map(Brick::of).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use manyhands::placer::rig::simulate_pipelines;
    use manyhands::presets;
    use manyhands::simulator::{RigConfig, simulate_model};

    use super::*;

    #[test]
    fn bricks_fill_no_place_twice_and_stages_are_those_of_their_placement() {
        let card = |name| {
            let speeds = "fixed_ms = 2.0\ngflops = 1000.0\nmemory_gb_s = 100.0\nupload_gb_s = 6.0\ndownload_gb_s = 5.0";
            format!("[[adapters]]\nname = \"{name}\"\n{speeds}\nlatency_ms = 0.1\n")
        };
        let head = "batch_size = 64\npreset = \"cnn6\"\nmicro_batches = 4\nhost.copy_gb_s = 20.0\n";
        let rig = RigConfig::parse(&[head, &card("a"), &card("a"), &card("b")].concat()).unwrap();
        let model = presets::find("cnn6").unwrap().build(0).unwrap();
        let (report, pipelines) = simulate_pipelines(&rig, &model).unwrap();
        assert_eq!((report.strong.len(), pipelines.len()), (3, 2));
        for pipeline in &pipelines {
            // The same rig and placement by the way that the command takes.
            assert_eq!(simulate_model(&pipeline.rig, &model).unwrap().staged, Some(pipeline.staged.clone()));
            let shown = Pipelined::from(pipeline);
            let (n_adapters, mut n_forward) = (shown.adapters.len(), 0);
            for adapter in 0..n_adapters {
                let mut bricks: Vec<&Brick> = shown.bricks.iter().filter(|it| it.adapter == Some(adapter)).collect();
                bricks.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
                assert!(bricks.windows(2).all(|pair| pair[0].start_ms + pair[0].ms <= pair[1].start_ms + 1e-6));
                assert!(bricks.iter().all(|it| it.start_ms > -1e-6 && it.start_ms + it.ms <= shown.ms + 1e-6));
                let pieces = |is_forward| {
                    let of_pass = |it: &&&Brick| it.what == Activity::Compute && it.is_forward == is_forward;
                    bricks.iter().filter(of_pass).filter_map(|it| it.piece).collect::<BTreeSet<_>>().len()
                };
                assert_eq!(pieces(false), 4);
                n_forward += pieces(true);
            }
            assert_eq!(n_forward, 4 * (n_adapters - 1), "the last stage goes forward and back at once");
            assert!(shown.bricks.iter().any(|it| it.adapter.is_none() && it.what == Activity::Update));
        }
    }
}
