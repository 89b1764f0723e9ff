//! The speed of an adapter for each block of a model, and of its link.

use std::ops::Range;

use super::blocks::Blocks;
use crate::plan::{Pass, Plan};
use crate::simulator::AdapterSpec;
use crate::simulator::adapter::FORWARD_PART;
use crate::simulator::cost::{CostLine, Times};
use crate::simulator::crowd::Crowding;
use crate::simulator::link::transfer_ms;
use manyhands_engine::adapters::Kind;

/// An adapter, as far as placements depend on it.
#[derive(Clone, Debug)]
pub(crate) struct Speeds {
    pub name: String,
    pub kind: Kind,
    /// Bytes that a model may take on it.
    pub limit: Option<u64>,
    /// Milliseconds of a run, whatever it computes.
    pub launch_ms: f64,
    /// Computing of each block, without the launch, while all other adapters are idle.
    pub blocks: Vec<Times>,
    /// Computing of the whole model, likewise, where it is known: with its update, and as one of several copies.
    pub lone: Option<Times>,
    pub copy: Option<Times>,
    /// Its slowdown beside adapters that share cores or memory with it; none without such adapters.
    pub crowding: Option<Crowding>,
    pub upload_gb_s: Option<f64>,
    pub download_gb_s: Option<f64>,
    /// Milliseconds of each transfer whatever its bytes.
    pub latency_ms: f64,
    /// The adapter itself, if it is a simulated one: its times then come from each plan, and those above serve the search alone.
    pub simulated: Option<AdapterSpec>,
}

impl Speeds {
    /// Computing of a range of blocks in one run.
    pub fn times(&self, range: Range<usize>) -> Times {
        let launch = CostLine { fixed_ms: self.launch_ms, per_row_ms: 0.0 };
        let launch = Times { train: launch, forward: launch, update_ms: 0.0 };
        self.blocks[range].iter().fold(launch, Times::and)
    }

    /// Computing of the whole model, as one of so many copies.
    pub fn copy(&self, of: usize) -> Times {
        let known = if of == 1 { self.lone.or(self.copy) } else { self.copy.or(self.lone) };
        known.unwrap_or_else(|| self.times(0..self.blocks.len()))
    }

    /// The speeds while all others compute.
    #[must_use]
    pub fn crowded(&self) -> Self {
        self.slowed(self.crowding.as_ref().map_or(1.0, |crowding| crowding.beside_all))
    }

    /// An adapter like this one, with computing that takes `factor` times as long.
    #[must_use]
    pub fn slowed(&self, factor: f64) -> Self {
        let slowed = |times: &Times| times.times(factor);
        Self {
            launch_ms: self.launch_ms * factor,
            blocks: self.blocks.iter().map(slowed).collect(),
            lone: self.lone.as_ref().map(slowed),
            copy: self.copy.as_ref().map(slowed),
            simulated: None,
            ..self.clone()
        }
    }

    /// Milliseconds of sending and getting so many bytes, in so many transfers.
    pub fn transfer_ms(&self, up: f64, down: f64, transfers: f64) -> f64 {
        let latency_ms = self.latency_ms * transfers;
        transfer_ms(up, self.upload_gb_s, latency_ms) + transfer_ms(down, self.download_gb_s, 0.0)
    }

    /// The simulated adapter; one that was measured has computing times that are given by plan.
    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    pub fn spec(&self) -> AdapterSpec {
        if let Some(spec) = &self.simulated {
            return spec.clone();
        }
        AdapterSpec {
            name: self.name.clone(),
            per_row_ms: Some(0.0),
            upload_gb_s: self.upload_gb_s,
            download_gb_s: self.download_gb_s,
            latency_ms: self.latency_ms,
            memory_gb: self.limit.map(|bytes| bytes as f64 / 1e9),
            kind: Some(self.kind),
            ..AdapterSpec::default()
        }
    }

    /// The speeds of a specified adapter: for a time by row, by each block's part of the work. `whole` is the plan of
    /// the whole model.
    pub fn of_spec(spec: &AdapterSpec, blocks: &Blocks, whole: &Plan) -> Self {
        let weights: Vec<f64> = (0..blocks.len()).map(|block| blocks.weight(block)).collect();
        let total: f64 = weights.iter().sum::<f64>().max(1.0);
        let times = |(block, weight): (usize, &f64)| match spec.per_row_ms {
            Some(per_row_ms) => {
                let train = CostLine { fixed_ms: 0.0, per_row_ms: per_row_ms * weight / total };
                Times { train, forward: train.times(FORWARD_PART), update_ms: 0.0 }
            }
            None => {
                let forward = computed(spec, blocks, block, Pass::Forward)
                    .or_else(|| computed(spec, blocks, block, Pass::Predict));
                let forward = forward.unwrap_or_default();
                let train = computed(spec, blocks, block, Pass::Train).unwrap_or(forward);
                Times { train, forward, update_ms: 0.0 }
            }
        };
        let speeds = Self {
            name: spec.name.clone(),
            kind: spec.kind.unwrap_or(Kind::DiscreteGpu),
            limit: spec.memory_bytes(),
            launch_ms: spec.fixed_ms,
            blocks: weights.iter().enumerate().map(times).collect(),
            lone: None,
            copy: None,
            crowding: None,
            upload_gb_s: spec.upload_gb_s,
            download_gb_s: spec.download_gb_s,
            latency_ms: spec.latency_ms,
            simulated: Some(spec.clone()),
        };
        let lone = Times { update_ms: spec.pass_ms(whole, Pass::Update, 1), ..speeds.times(0..blocks.len()) };
        Self { lone: Some(lone), ..speeds }
    }
}

/// The line of a block's pass at an adapter's rates; `None` if it has no such pass.
fn computed(spec: &AdapterSpec, blocks: &Blocks, block: usize, pass: Pass) -> Option<CostLine> {
    let stage = &blocks.stages[block];
    let ms = |rows: u32| spec.pass_ms(&stage.plan, pass, rows);
    stage.has(pass).then(|| line((8, ms(8)), (64, ms(64))))
}

/// The line through two times of so many rows, that neither falls nor begins below 0.
pub(super) fn line((few, few_ms): (u32, f64), (many, many_ms): (u32, f64)) -> CostLine {
    let rows = f64::from(many) - f64::from(few);
    let slope = if rows > 0.0 { (many_ms - few_ms) / rows } else { 0.0 };
    let most = many_ms / f64::from(many.max(1));
    let per_row_ms = slope.clamp(0.1 * most, most);
    CostLine { fixed_ms: (many_ms - per_row_ms * f64::from(many)).max(0.0), per_row_ms }
}
