//! The choice of `placement = "auto"` beside each adapter alone, replicas and stages by hand.
//!
//! `cargo bench --bench placement -- [ADAPTERS] [ROUNDS] [THROTTLE]`, by default all software adapters, each with one thread of
//! its own (`LP_NUM_THREADS=1`, `SwiftShader.ini`), and the CPU, three times as slow as it is. Three models: a deep perceptron
//! with wide layers and few rows, a transformer, VGG-11 with a quarter of its channels. Placements take turns; the medians of whole
//! training steps count. Speeds are measured as `auto` does before each round of turns and after the last, since they change from one
//! minute to the next: a turn is compared with the mean of the predictions before and after it, and the median of a placement's
//! errors is told. Stages that begin within a measured block are not predicted. Only a quiet machine tells anything.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]

use std::sync::Arc;

use manyhands::adapters::{self, Info, Kind};
use manyhands::data::{BatchMut, Dataset};
use manyhands::layers::{Activation, Conv2D, Dense, Flatten, MaxPooling2D};
use manyhands::presets;
use manyhands::{Compile, Fit, Optimizer, Placement, Result, Sequential, Session, Shape, Trainer};
use manyhands_bench::rig::dataset;
use manyhands_bench::workloads::{self, Workload};
use manyhands_engine::timing::median;

/// Steps before the first turn of a placement: drivers compile, tiles and shares are learned.
const WARM_UP: usize = 3;
/// Steps before the first turn of replicas on several adapters: the scheduler excludes adapters that slow steps down, one after the other.
const SETTLING: usize = 100;
/// Milliseconds of the steps of a turn, and the fewest of them.
const TURN_MS: f64 = 600.0;
const FEWEST: usize = 2;

/// A way to train: adapters by position, a placement over them, pieces.
struct Way {
    name: String,
    adapters: Vec<usize>,
    placement: Placement,
    micro_batches: u32,
    open: Option<(Trainer, Session)>,
    steps_ms: Vec<f64>,
    /// Milliseconds of a step by each measurement of speeds.
    predicted_ms: Vec<f64>,
    /// Median of each turn's steps.
    turns_ms: Vec<f64>,
}

struct Bench {
    adapters: Vec<Info>,
    throttle: f64,
    rounds: usize,
}

impl Way {
    fn new(name: &str, adapters: &[usize], placement: Placement, micro_batches: u32) -> Self {
        let (name, adapters) = (name.to_owned(), adapters.to_vec());
        let (steps_ms, predicted_ms, turns_ms) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, adapters, placement, micro_batches, open: None, steps_ms, predicted_ms, turns_ms }
    }

    /// One training step; gives its milliseconds.
    fn step(&mut self) -> f64 {
        let (trainer, session) = self.open.as_mut().unwrap();
        loop {
            match session.step(trainer).unwrap() {
                Some(log) => return log.ms,
                None => drop(session.end_epoch(trainer).unwrap()),
            }
        }
    }

    /// Lets the scheduler exclude copies that slow steps down.
    fn settle(&mut self) {
        let (trainer, _) = self.open.as_ref().unwrap();
        let are_chosen = trainer.chosen_placement().is_some_and(|chosen| !chosen.is_staged());
        let are_copies = are_chosen || self.placement == Placement::Replicas;
        if are_copies && trainer.open_adapters().len() > 1 {
            for _ in 0..SETTLING {
                self.step();
            }
        }
    }

    fn turn(&mut self) {
        let mut steps_ms = Vec::new();
        while steps_ms.len() < FEWEST || steps_ms.iter().sum::<f64>() < TURN_MS {
            steps_ms.push(self.step());
        }
        self.turns_ms.push(median(steps_ms.iter().copied()));
        self.steps_ms.append(&mut steps_ms);
    }

    /// By how much predictions are above what turns took, in percent; none if stages begin within a measured block.
    fn error(&self) -> Option<f64> {
        let around = self.predicted_ms.windows(2).map(|ms| ms.iter().sum::<f64>() / 2.0);
        let ratios: Vec<f64> = around.zip(&self.turns_ms).map(|(predicted, measured)| predicted / measured).collect();
        (!ratios.is_empty()).then(|| 100.0 * (median(ratios) - 1.0))
    }

    fn ms(&self) -> f64 {
        median(self.steps_ms.iter().copied())
    }
}

impl Bench {
    /// Opens the adapters of a way, which stay open: between its turns they are idle.
    fn open(&self, workload: &Workload, way: &mut Way) {
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
        let session = trainer.session(rows, fit).unwrap();
        way.open = Some((trainer, session));
        for _ in 0..WARM_UP {
            way.step();
        }
    }

    fn measure(&self, workload: &Workload) {
        let mut ways = self.ways(workload);
        for way in &mut ways {
            self.open(workload, way);
            way.settle();
        }
        let chosen = ways[0].open.as_ref().unwrap().0.chosen_placement();
        for round in 0..=self.rounds {
            self.predict(workload, &mut ways);
            if round < self.rounds {
                ways.iter_mut().for_each(Way::turn);
            }
        }
        println!("\n{}, batch {}", workload.about, workload.batch_size);
        if let Some(chosen) = &chosen {
            println!("{chosen}\n");
        }
        println!("{:<52} {:>12} {:>12} {:>8}", "placement", "measured ms", "predicted", "error");
        for way in &ways {
            let error = way.error().map_or_else(String::new, |error| format!("{error:.1} %"));
            let predicted = (!way.predicted_ms.is_empty()).then(|| median(way.predicted_ms.iter().copied()));
            let predicted = predicted.map_or_else(String::new, |ms| format!("{ms:.1}"));
            println!("{:<52} {:>12.1} {predicted:>12} {error:>8}", way.name, way.ms());
        }
        let best = ways[1..].iter().min_by(|a, b| a.ms().total_cmp(&b.ms())).unwrap();
        let more = 100.0 * (ways[0].ms() / best.ms() - 1.0);
        println!("auto takes {more:.1} % more than the best by hand, {}", best.name);
    }

    /// Measures speeds as `auto` does, and predicts all ways by them.
    fn predict(&self, workload: &Workload, ways: &mut [Way]) {
        let mut fresh = Way::new("auto", &ways[0].adapters, Placement::Auto, 1);
        self.open(workload, &mut fresh);
        let chooser = &fresh.open.as_ref().unwrap().0;
        for way in ways {
            way.predicted_ms.extend(match way.placement {
                Placement::Auto => chooser.chosen_placement().map(|chosen| chosen.step_ms),
                _ => chooser.predicted_ms(&way.placement, &way.adapters, way.micro_batches).unwrap(),
            });
        }
    }

    /// All ways to train a model, `auto` first.
    fn ways(&self, workload: &Workload) -> Vec<Way> {
        let all: Vec<usize> = (0..self.adapters.len()).collect();
        let mut ways =
            vec![Way::new("auto", &all, Placement::Auto, 1), Way::new("replicas on all", &all, Placement::Replicas, 1)];
        for (idx, info) in self.adapters.iter().enumerate() {
            ways.push(Way::new(&format!("{} alone", info.name), &[idx], Placement::Replicas, 1));
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
        for (a, b) in all.iter().flat_map(|a| all[a + 1..].iter().map(move |b| (*a, *b))) {
            for (part, first, second) in [(0.5, a, b), (0.7, b, a)] {
                let name = format!("2 stages at {part}, adapters {first} and {second}");
                ways.push(Way::new(&name, &[first, second], cut(&[part], &[vec![0], vec![1]]), pieces));
            }
        }
        if let [_, _, _] = all[..] {
            let team = cut(&[0.6], &[vec![0, 1], vec![2]]);
            ways.push(Way::new("2 stages at 0.6, two adapters and one", &all, team, pieces));
            let three = cut(&[0.4, 0.8], &[vec![0], vec![1], vec![2]]);
            ways.push(Way::new("3 stages at 0.4 and 0.8", &all, three, pieces));
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
    let about = "MLP of eight layers of 512, Adam";
    let mlp = workloads::by_name("mlp").unwrap();
    Workload { about, model, optimizer: Optimizer::adam(1e-3), batch_size: 32, ..mlp }
}

/// The transformer of four blocks over 16 characters, for 8 rows.
fn transformer() -> Workload {
    let gpt_mini = workloads::by_name("gpt_mini").unwrap();
    let model = presets::find("gpt_mini").unwrap().build_for([16], gpt_mini.classes, 0).unwrap();
    Workload { about: "transformer of four blocks over 16 characters, Adam", model, batch_size: 8, ..gpt_mini }
}

/// VGG-11 with a quarter of its channels, for 8 rows of 32 × 32 × 3.
fn narrow_vgg() -> Workload {
    let mut layers = Sequential::new([32, 32, 3]);
    for stage in [&[16][..], &[32], &[64, 64], &[128, 128], &[128, 128]] {
        for filters in stage {
            layers = layers.add(Conv2D::new(*filters, [3, 3]).same().activation(Activation::Relu));
        }
        layers = layers.add(MaxPooling2D::new([2, 2]));
    }
    let head = || Dense::new(1024).activation(Activation::Relu);
    let model = layers.add(Flatten::default()).add(head()).add(head()).add(Dense::new(10)).build(0).unwrap();
    let about = "VGG-11 for 32 × 32 × 3 with a quarter of its channels, SGD momentum";
    Workload { about, model, batch_size: 8, ..workloads::by_name("vgg11").unwrap() }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = arguments.first().map_or("software,cpu", String::as_str);
    let rounds = arguments.get(1).map_or(2, |rounds| rounds.parse().unwrap());
    let throttle = arguments.get(2).map_or(3.0, |factor| factor.parse().unwrap());
    let adapters = adapters::choose(&adapters::list(), wanted).unwrap();
    let bench = Bench { adapters, throttle, rounds };
    for workload in [deep(), transformer(), narrow_vgg()] {
        bench.measure(&workload);
    }
}
