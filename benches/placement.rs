//! Replicas, stages by hand, each adapter alone, and what `placement = "auto"` chooses.
//!
//! `cargo bench --bench placement -- [ADAPTERS] [ROUNDS] [THROTTLE]`, by default all software adapters, each with one thread of
//! its own (`LP_NUM_THREADS=1`, `SwiftShader.ini`), and the CPU, three times as slow as it is. Three models: a deep perceptron
//! with wide layers and few rows, a transformer, VGG-11 on small images. Placements take turns; the medians of whole training
//! steps count. Only a quiet machine tells anything.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]

use std::sync::Arc;

use manyhands::adapters::{self, Info, Kind};
use manyhands::data::{BatchMut, Dataset};
use manyhands::internals::bench::rig::dataset;
use manyhands::internals::bench::workloads::{self, Workload};
use manyhands::internals::timing::median;
use manyhands::layers::{Activation, Dense};
use manyhands::{ChosenPlacement, Compile, Fit, Optimizer, Placement, Result, Sequential, Shape, Trainer};

/// Milliseconds of the steps of a turn, and the fewest of them. The first ones learn tiles and shares.
const TURN_MS: f64 = 1_500.0;
const FEWEST: usize = 3;
const WARM_UP: usize = 4;

/// A way to train: adapters by position, a placement over them, pieces.
struct Way {
    name: String,
    adapters: Vec<usize>,
    placement: Placement,
    micro_batches: u32,
    steps_ms: Vec<f64>,
    chosen: Option<ChosenPlacement>,
}

struct Bench {
    adapters: Vec<Info>,
    throttle: f64,
    rounds: usize,
}

impl Bench {
    fn turn(&self, workload: &Workload, way: &mut Way) {
        let adapters: Vec<Info> = way.adapters.iter().map(|idx| self.adapters[*idx].clone()).collect();
        let compile = Compile::new(workload.optimizer.clone(), workload.loss.clone());
        let mut trainer = Trainer::new(workload.model.clone(), compile).unwrap().on(adapters.clone());
        trainer = trainer.placement(way.placement.clone());
        for (position, info) in adapters.iter().enumerate() {
            if info.kind == Kind::Cpu {
                trainer = trainer.throttle(position, self.throttle);
            }
        }
        let rows = Rows(dataset(workload, 16 * workload.batch_size as usize).unwrap());
        let fit =
            Fit::new(u64::MAX).batch_size(workload.batch_size as usize).in_order().micro_batches(way.micro_batches);
        let mut session = trainer.session(rows, fit).unwrap();
        let (mut n_steps, mut spent_ms) = (0, 0.0);
        while n_steps < WARM_UP + FEWEST || spent_ms < TURN_MS {
            let Some(log) = session.step(&mut trainer).unwrap() else {
                session.end_epoch(&mut trainer).unwrap();
                continue;
            };
            n_steps += 1;
            if n_steps > WARM_UP {
                spent_ms += log.ms;
                way.steps_ms.push(log.ms);
            }
        }
        if way.chosen.is_none() {
            way.chosen = trainer.chosen_placement();
        }
    }

    fn measure(&self, workload: &Workload) {
        let mut ways = self.ways(workload);
        for _ in 0..self.rounds {
            for way in &mut ways {
                self.turn(workload, way);
            }
        }
        println!("\n{}, batch {}", workload.about, workload.batch_size);
        let auto = ways.iter().find(|way| way.chosen.is_some());
        let chosen = auto.and_then(|way| way.chosen.clone());
        if let Some(chosen) = &chosen {
            println!("{chosen}\n");
        }
        println!("{:<52} {:>12} {:>12} {:>8}", "placement", "measured ms", "predicted", "error");
        let mut best = f64::INFINITY;
        for way in &ways {
            let ms = median(way.steps_ms.iter().copied());
            let predicted = match (&way.chosen, way.placement == Placement::Replicas, way.adapters.len()) {
                (Some(chosen), ..) => Some(chosen.step_ms),
                (None, true, n) if n == self.adapters.len() => chosen.as_ref().and_then(|chosen| chosen.copies_ms),
                _ => None,
            };
            let error = predicted.map(|predicted| format!("{:.1} %", 100.0 * (predicted / ms - 1.0)));
            let predicted = predicted.map(|ms| format!("{ms:.1}"));
            println!(
                "{:<52} {ms:>12.1} {:>12} {:>8}",
                way.name,
                predicted.unwrap_or_default(),
                error.unwrap_or_default()
            );
            if way.chosen.is_none() {
                best = best.min(ms);
            }
        }
        if let Some(auto) = ways.iter().find(|way| way.chosen.is_some()) {
            let ms = median(auto.steps_ms.iter().copied());
            println!("auto takes {:.1} % more than the best of the others", 100.0 * (ms / best - 1.0));
        }
    }

    /// All ways to train a model.
    fn ways(&self, workload: &Workload) -> Vec<Way> {
        let all: Vec<usize> = (0..self.adapters.len()).collect();
        let way = |name: &str, adapters: &[usize], placement, micro_batches| Way {
            name: name.to_owned(),
            adapters: adapters.to_vec(),
            placement,
            micro_batches,
            steps_ms: Vec::new(),
            chosen: None,
        };
        let mut ways = vec![way("auto", &all, Placement::Auto, 1), way("replicas", &all, Placement::Replicas, 1)];
        for (idx, info) in self.adapters.iter().enumerate() {
            ways.push(way(&format!("{} alone", info.name), &[idx], Placement::Replicas, 1));
        }
        let names = workload.model.node_names();
        let pieces = if workload.batch_size >= 16 { 4 } else { 2 };
        // Cut at parts of the nodes, with the adapters of each stage.
        let cut = |parts: &[f64], teams: &[Vec<usize>]| {
            let mut first = 0;
            let mut stages = Vec::new();
            for (stage, team) in teams.iter().enumerate() {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a few nodes")]
                let end = parts.get(stage).map_or(names.len(), |part| (part * names.len() as f64) as usize);
                stages.push(([format!("{}..{}", names[first], names[end - 1])], team.clone()));
                first = end;
            }
            Placement::stages(stages)
        };
        if let [a, b, ..] = all[..] {
            for part in [0.35, 0.5, 0.7] {
                let placement = cut(&[part], &[vec![0], vec![1]]);
                ways.push(way(&format!("2 stages at {part}, adapters {a} and {b}"), &[a, b], placement, pieces));
            }
        }
        if let [_, _, _] = all[..] {
            ways.push(way("2 stages at 0.6, two adapters and one", &all, cut(&[0.6], &[vec![0, 1], vec![2]]), pieces));
            let three = cut(&[0.4, 0.8], &[vec![0], vec![1], vec![2]]);
            ways.push(way("3 stages at 0.4 and 0.8", &all, three, pieces));
        }
        ways
    }
}

/// Rows that several trainers read.
struct Rows(Arc<dyn Dataset>);

impl Dataset for Rows {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        self.0.input_shapes()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        self.0.target_shapes()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        self.0.fetch(rows, batch)
    }
}

/// Eight layers of 512 to 512, for 32 rows.
fn deep() -> Workload {
    let layer = || Dense::new(512).activation(Activation::Relu);
    let model =
        (0..8).fold(Sequential::new([512]), |model, _| model.add(layer())).add(Dense::new(10)).build(0).unwrap();
    let mlp = workloads::by_name("mlp").unwrap();
    Workload {
        about: "MLP of eight layers of 512, Adam",
        model,
        optimizer: Optimizer::adam(1e-3),
        batch_size: 32,
        ..mlp
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = arguments.first().map_or("software,cpu", String::as_str);
    let rounds = arguments.get(1).map_or(2, |rounds| rounds.parse().unwrap());
    let throttle = arguments.get(2).map_or(3.0, |factor| factor.parse().unwrap());
    let adapters = adapters::choose(&adapters::list(), wanted).unwrap();
    let bench = Bench { adapters, throttle, rounds };
    let of = |name: &str, batch_size| Workload { batch_size, ..workloads::by_name(name).unwrap() };
    for workload in [deep(), of("gpt_mini", 8), of("vgg11", 8)] {
        bench.measure(&workload);
    }
}
