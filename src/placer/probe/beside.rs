//! Slowdown of adapters that share cores or memory: beside each other one, and beside all.

use std::cell::Cell;

use super::super::speeds::Speeds;
use super::{FEWEST, Probe, each, first_pass};
use crate::error::Result;
use crate::simulator::crowd::Crowding;
use crate::timing::median;
use manyhands_engine::adapters::Combining;

/// Milliseconds for which adapters compute beside each other, and after which a single run of each is enough.
const BESIDE_MS: f64 = 120.0;
const BESIDE_MOST_MS: f64 = 1_000.0;
/// Factor from which on the cost of computing beside others counts.
const CROWDED: f64 = 1.05;
/// Most runs of an adapter, and the least time of one: simulated adapters may take none.
const MOST_RUNS: usize = 1_000;
const LEAST_MS: f64 = 1e-3;
/// Pairs of adapters that are measured beside each other.
const MOST_PAIRS: usize = 15;

/// The slowdown of each adapter while others compute, by runs of its slowest block; none where nothing is slowed down.
///
/// # Errors
/// None of its own.
pub(super) async fn crowdings(probes: &mut [Probe<'_>], speeds: &[Speeds]) -> Result<Vec<Option<Crowding>>> {
    let n_adapters = probes.len();
    let mut alone_ms = Vec::with_capacity(n_adapters);
    for (probe, speeds) in probes.iter_mut().zip(speeds) {
        alone_ms.push(probe.begin_beside(speeds).await);
    }
    let everyone: Vec<usize> = (0..n_adapters).filter(|idx| alone_ms[*idx].is_some()).collect();
    let factors = |together: Vec<Option<f64>>| -> Vec<f64> {
        let factor = |(ms, alone): (Option<f64>, &Option<f64>)| {
            (*alone).zip(ms).map(|(alone, ms)| (ms / alone.max(LEAST_MS)).max(1.0))
        };
        together.into_iter().zip(&alone_ms).map(|it| factor(it).unwrap_or(1.0)).collect()
    };
    let of_all = factors(together(probes, &everyone).await?);
    if of_all.iter().all(|factor| *factor < CROWDED) {
        return Ok(vec![None; n_adapters]);
    }
    let even = |own: usize| Crowding::even(own, n_adapters, of_all[own]);
    let mut crowdings: Vec<Crowding> = (0..n_adapters).map(even).collect();
    if (3..=MOST_PAIRS).contains(&(n_adapters * (n_adapters - 1) / 2)) {
        for (a, b) in everyone.iter().flat_map(|a| everyone[a + 1..].iter().map(move |b| (*a, *b))) {
            let of_pair = factors(together(probes, &[a, b]).await?);
            crowdings[a].beside[b] = of_pair[a];
            crowdings[b].beside[a] = of_pair[b];
        }
    }
    let is_slowed = |it: &Crowding| it.beside.iter().chain([&it.beside_all]).any(|factor| *factor >= CROWDED);
    Ok(crowdings.into_iter().map(|crowding| Some(crowding).filter(is_slowed)).collect())
}

/// Milliseconds of a run of each of these adapters while all of them compute.
async fn together(probes: &mut [Probe<'_>], on: &[usize]) -> Result<Vec<Option<f64>>> {
    let n_ready = Cell::new(0);
    each(probes, async |idx, probe| if on.contains(&idx) { probe.beside(&n_ready, on.len()).await } else { None }).await
}

impl Probe<'_> {
    /// Loads the slowest of the blocks that fit; gives the milliseconds of a run of it by itself.
    async fn begin_beside(&mut self, speeds: &Speeds) -> Option<f64> {
        let (few, many) = self.sizes();
        let ms = |block: &usize| speeds.blocks[*block].train.at(f64::from(many));
        let mut blocks: Vec<usize> = (0..self.blocks.len()).collect();
        blocks.sort_by(|a, b| ms(b).total_cmp(&ms(a)));
        let mut fitting = None;
        for block in blocks {
            if fitting.is_none() && self.load(&self.blocks.stages[block].plan, many).await.is_some() {
                fitting = Some(block);
            }
        }
        self.slowest = fitting?;
        let stage = &self.blocks.stages[self.slowest];
        self.run(&stage.plan, first_pass(stage), few, Combining::Host).await?;
        self.beside(&Cell::new(0), 1).await
    }

    /// Median milliseconds of runs of the loaded block, until so many adapters have enough of them.
    async fn beside(&mut self, n_ready: &Cell<usize>, n_adapters: usize) -> Option<f64> {
        let stage = &self.blocks.stages[self.slowest];
        let (begin_ms, many) = (self.elapsed_ms(), self.sizes().1);
        let (mut all_ms, mut is_ready) = (Vec::new(), false);
        while n_ready.get() < n_adapters {
            let run = self.run(&stage.plan, first_pass(stage), many, Combining::Host).await;
            all_ms.extend(run.as_ref().map(|timing| timing.compute_ms));
            let elapsed_ms = self.elapsed_ms() - begin_ms;
            let is_long = all_ms.len() >= FEWEST && elapsed_ms > BESIDE_MS || elapsed_ms > BESIDE_MOST_MS;
            let has_enough = is_long || all_ms.len() >= MOST_RUNS;
            if !is_ready && (has_enough || run.is_none()) {
                is_ready = true;
                n_ready.set(n_ready.get() + 1);
            }
            run?;
        }
        (!all_ms.is_empty()).then(|| median(all_ms))
    }
}
