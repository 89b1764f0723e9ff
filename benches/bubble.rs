//! Idle time of adapters within a training step of two stages, for 4, 8 and 16 micro-batches, beside the closed form.
//!
//! `cargo bench --bench bubble -- [ADAPTERS] [ROUNDS] [ROWS]`, by default the first software adapter twice, the first two,
//! each with one thread of its own (`LP_NUM_THREADS=1`, `SwiftShader.ini`), and two simulated ones; `ROWS` are those of a
//! micro-batch. CPU adapters share their threads, so that two of them tell nothing. Rigs take turns, so that other
//! work on the machine hits all alike; medians of whole training steps count.
//!
//! Idle time is counted from the beginning of a step's first run to the end of its last. Its closed form: micro-batches go
//! through the slowest stage one after the other, and all but one of them hide the other stages, which takes
//! `M · slowest + others`. With equal stages, S - 1 of M + S - 1 parts are idle.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]

use std::sync::Arc;

use manyhands::adapters::{self, Info};
use manyhands::data::Batch;
use manyhands::layers::{Activation, Dense};
use manyhands::model::Objective;
use manyhands::scheduler::timeline::{Activity, Lane, Tracing};
use manyhands::scheduler::{Scheduler, Step};
use manyhands::simulator::AdapterSpec;
use manyhands::simulator::World;
use manyhands::{CpuFallback, Loss, Model, Optimizer, Sequential, SplitMode};
use manyhands_engine::adapters as engine;
use manyhands_engine::adapters::Opener;
use manyhands_engine::runtime::{Runtime, system};
use manyhands_engine::timing::median;

const PIECES: [u32; 3] = [4, 8, 16];
const WIDTH: usize = 256;
/// The first stage goes forward twice, the second once, so that their work is about equal.
const LAYERS: [usize; 2] = [3, 4];

/// Adapters that train in two stages, or each with its part of the rows.
struct Bench {
    name: String,
    adapters: Vec<Info>,
    is_staged: bool,
    world: Option<World>,
}

/// Times of a step in milliseconds.
struct Times {
    step: f64,
    /// From the beginning of the first run to the end of the last.
    pass: f64,
    /// Time in which each adapter was busy.
    busy: Vec<f64>,
}

fn model() -> Model {
    let hidden = || Dense::new(WIDTH).activation(Activation::Tanh);
    let layers = (0..LAYERS.iter().sum()).fold(Sequential::new([WIDTH]), |model, _| model.add(hidden()));
    layers.add(Dense::new(10)).build(1).unwrap()
}

impl Bench {
    fn new(name: &str, adapters: &[&Info], is_staged: bool) -> Self {
        let adapters: Vec<Info> = adapters.iter().map(|info| (*info).clone()).collect();
        let names: Vec<&str> = adapters.iter().map(|info| info.name.split(' ').next().unwrap_or_default()).collect();
        Self { name: format!("{name}, {}", names.join(" + ")), adapters, is_staged, world: None }
    }

    fn simulated() -> Self {
        let spec = AdapterSpec { per_row_ms: None, gflops: Some(20.0), ..AdapterSpec::new("simulated", 0.1, 0.0) };
        let world = World::new(vec![spec; 2]);
        Self { name: "stages, simulated".into(), adapters: world.adapters(), is_staged: true, world: Some(world) }
    }

    /// Some steps, of which the first few do not count.
    fn turn(&mut self, pieces: u32, rows: u32, n_steps: usize) -> Vec<Times> {
        let (opener, runtime): (Opener, Arc<dyn Runtime>) = match &self.world {
            Some(world) => (world.opener(), world.runtime()),
            None => (Arc::new(engine::open), system()),
        };
        let work = steps(&self.adapters, self.is_staged, (opener, runtime), (pieces, pieces * rows), n_steps);
        match &mut self.world {
            Some(world) => world.run(f64::INFINITY, work).unwrap(),
            None => pollster::block_on(work),
        }
    }
}

async fn steps(
    adapters: &[Info],
    is_staged: bool,
    (opener, runtime): (Opener, Arc<dyn Runtime>),
    (pieces, rows): (u32, u32),
    n_steps: usize,
) -> Vec<Times> {
    let model = model();
    let objective = Objective::new(vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], Optimizer::sgd(1e-6, 0.0));
    let builder = Scheduler::builder(&model, &objective)
        .adapters(adapters.to_vec())
        .opener(opener)
        .runtime(runtime.clone())
        .split(SplitMode::Even)
        .capacity(rows.div_ceil(pieces))
        .micro_batches(pieces)
        .cpu_fallback(CpuFallback::Refused);
    let nodes = (0..model.n_nodes()).map(|node| usize::from(node >= LAYERS[0])).collect();
    let builder = if is_staged { builder.stages(nodes, vec![0, 1]) } else { builder };
    let mut scheduler = builder.open().await.unwrap();
    scheduler.keep_all();
    let count = rows as usize;
    let inputs = (0..count * WIDTH).map(|idx| (idx % 31) as f32 / 31.0 - 0.5).collect();
    let targets = (0..count).map(|row| (row % 10) as f32).collect();
    let batch = Batch { rows: count, inputs: vec![inputs], targets: vec![targets], sample_weights: None };
    let mut times = Vec::new();
    for step in 0..n_steps as u64 + WARM_UP {
        let start_ms = runtime.now_ms();
        scheduler.timeline_mut().start(start_ms, Tracing::On);
        let numbers =
            Step { step, seed: 0, learning_rate: 1e-6, loss_scales: vec![1.0 / rows as f32], ..Step::default() };
        scheduler.train(&batch, &numbers).await.unwrap();
        if step >= WARM_UP {
            times.push(times_of(&scheduler, runtime.now_ms() - start_ms));
        }
    }
    times
}

const WARM_UP: u64 = 2;

fn times_of(scheduler: &Scheduler, step: f64) -> Times {
    let is_work = |what| matches!(what, Activity::Upload | Activity::Compute | Activity::Readback);
    let spans: Vec<_> = scheduler.timeline().spans().filter(|span| is_work(span.what)).collect();
    let busy = |idx| spans.iter().filter(|span| span.lane == Lane::Adapter(idx)).map(|span| span.ms).sum();
    let (from_ms, to_ms) = spans
        .iter()
        .fold((f64::INFINITY, 0.0), |(from_ms, to_ms), span| (span.start_ms.min(from_ms), span.end_ms().max(to_ms)));
    Times { step, pass: to_ms - from_ms, busy: (0..scheduler.active().len()).map(busy).collect() }
}

/// Idle part of a pass by the closed form, for the work of the stages on all pieces together.
fn closed_form(work: &[f64], pieces: f64) -> f64 {
    let (sum, slowest) = (work.iter().sum::<f64>(), work.iter().copied().fold(0.0, f64::max));
    let pass = slowest + (sum - slowest) / pieces;
    1.0 - sum / (work.iter().fold(0.0, |count, _| count + 1.0) * pass)
}

fn print(bench: &Bench, pieces: u32, times: &[Times]) {
    let of = |value: &dyn Fn(&Times) -> f64| median(times.iter().map(value));
    let n_adapters = times[0].busy.len();
    let work: Vec<f64> = (0..n_adapters).map(|idx| of(&|times| times.busy[idx])).collect();
    let idle = of(&|times| 1.0 - times.busy.iter().sum::<f64>() / (times.busy.len() as f64 * times.pass));
    let (stages, count) = (n_adapters as f64, f64::from(pieces));
    let equal = (stages - 1.0) / (count + stages - 1.0);
    let (step, pass) = (of(&|times| times.step), of(&|times| times.pass));
    let busy: Vec<String> = work.iter().map(|ms| format!("{ms:.1}")).collect();
    let (name, busy) = (&bench.name, busy.join(", "));
    print!("{name:<34} {pieces:>4} {step:>9.1} {pass:>9.1} {busy:>15} {:>8.1} %", 100.0 * idle);
    if bench.is_staged {
        print!(" {:>8.1} % {:>8.1} %", 100.0 * closed_form(&work, count), 100.0 * equal);
    }
    println!();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = arguments.first().map_or("software", String::as_str);
    let rounds = arguments.get(1).map_or(3, |rounds| rounds.parse().unwrap());
    let rows = arguments.get(2).map_or(16, |rows| rows.parse().unwrap());
    let chosen = adapters::choose(&adapters::list(), wanted).unwrap();
    let mut benches = vec![Bench::simulated()];
    if let Some(first) = chosen.first() {
        benches.push(Bench::new("stages", &[first, first], true));
    }
    if let [first, second, ..] = chosen.as_slice() {
        benches.push(Bench::new("stages", &[first, second], true));
        benches.push(Bench::new("replicas", &[first, second], false));
    }
    println!("layers {LAYERS:?} of {WIDTH} units, {rows} rows in a micro-batch; times in ms");
    println!(
        "{:<34} {:>4} {:>9} {:>9} {:>15} {:>10} {:>10} {:>10}",
        "adapters", "M", "step", "pass", "busy", "idle", "its form", "if equal"
    );
    let mut all: Vec<Vec<Times>> = Vec::new();
    for _ in 0..rounds {
        let turns = benches.iter_mut().flat_map(|bench| PIECES.map(|pieces| bench.turn(pieces, rows, 6)));
        let turns: Vec<Vec<Times>> = turns.collect();
        all.resize_with(turns.len(), Vec::new);
        all.iter_mut().zip(turns).for_each(|(all, turn)| all.extend(turn));
    }
    let rows = benches.iter().flat_map(|bench| PIECES.map(|pieces| (bench, pieces)));
    rows.zip(&all).for_each(|((bench, pieces), times)| print(bench, pieces, times));
}
