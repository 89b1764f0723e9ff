//! Our side of the comparison with other libraries: `benches/peers/README.md` tells the protocol.
//!
//! `turns --model mlp --rows 256 --warm-up 5 --adapters cpu`. `benches/peers/compare` starts it and asks for its turns.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]

mod product;
mod smollm2;
mod training;

use std::io::stdin;

use manyhands::adapters::{self, Info};
use manyhands_engine::runtime::{Native, Runtime};
use serde_json::json;

use product::{OnDevice, OnHost};
use training::Training;

/// Repeated work.
trait Work {
    /// Some steps, to their end: the milliseconds they took, and the last loss or the last element of a product.
    fn turn(&mut self, steps: u32) -> Turn;
    /// Chooses how to go on, where there is a choice to make, and says what was chosen.
    fn tune(&mut self) -> String {
        String::new()
    }
    /// Parameters that training changes.
    fn parameters(&self) -> usize;
}

/// Times and result of some steps.
struct Turn {
    ms: f64,
    value: f64,
}

/// The program's arguments.
struct Settings {
    model: String,
    rows: u32,
    warm_up: u32,
    adapters: String,
}

impl Settings {
    fn from_arguments() -> Self {
        let mut settings = Self { model: String::new(), rows: 0, warm_up: 5, adapters: "default".into() };
        let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { panic!("`{}` has no value", pair[0]) };
            match name.as_str() {
                "--model" => settings.model.clone_from(value),
                "--rows" => settings.rows = value.parse().unwrap(),
                "--warm-up" => settings.warm_up = value.parse().unwrap(),
                "--adapters" => settings.adapters.clone_from(value),
                other => panic!("`{other}` is no option: --model, --rows, --warm-up, --adapters are"),
            }
        }
        assert!(settings.rows > 0 && settings.warm_up > 0, "`--rows` and `--warm-up` take 1 or more");
        settings
    }
}

fn main() {
    let begin_ms = Native.now_ms();
    let settings = Settings::from_arguments();
    let listed = adapters::list();
    let adapters = adapters::choose(&listed, &settings.adapters).unwrap();
    let mut work = work(&settings, &adapters);
    let open_ms = Native.now_ms() - begin_ms;
    warm_up(&settings, &adapters, work.as_mut(), open_ms);
    for line in stdin().lines() {
        let line = line.unwrap();
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["quit"] => return,
            ["turn", steps] => {
                let turn = turn(work.as_mut(), steps.parse().unwrap());
                println!("{}", json!({ "steps": steps.parse::<u32>().unwrap(), "ms": turn.ms, "value": turn.value }));
            }
            _ => panic!("`{line}` is neither `turn N` nor `quit`"),
        }
    }
}

fn work(settings: &Settings, adapters: &[Info]) -> Box<dyn Work> {
    match settings.model.as_str() {
        "product" if adapters[0].backend == "host" => Box::new(OnHost::new(settings.rows)),
        "product" => Box::new(OnDevice::tiled(&adapters[0], settings.rows)),
        "naive_product" => Box::new(OnDevice::naive(&adapters[0], settings.rows)),
        name => Box::new(Training::new(name, adapters, settings.rows)),
    }
}

/// The first step, the choices, and the steps that are not measured; then the first line.
fn warm_up(settings: &Settings, adapters: &[Info], work: &mut dyn Work, open_ms: f64) {
    let begin_ms = Native.now_ms();
    let value = turn(work, 1).value;
    let first_step_ms = Native.now_ms() - begin_ms;
    let choice = work.tune();
    for _ in 1..settings.warm_up {
        turn(work, 1);
    }
    let devices: Vec<String> = adapters.iter().map(|info| format!("{}, {}", info.name, info.backend)).collect();
    let ready = json!({
        "peer": concat!("manyhands ", env!("CARGO_PKG_VERSION")), "device": devices.join(" + "),
        "model": settings.model, "rows": settings.rows, "parameters": work.parameters(), "open_ms": open_ms,
        "first_step_ms": first_step_ms, "warm_up_ms": Native.now_ms() - begin_ms, "value": value, "choice": choice,
    });
    println!("{ready}");
}

fn turn(work: &mut dyn Work, steps: u32) -> Turn {
    let turn = work.turn(steps);
    assert!(turn.value.is_finite(), "a turn of {steps} steps ends with {}", turn.value);
    turn
}
