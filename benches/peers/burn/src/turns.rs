//! The protocol: a line when warm, then a line for each `turn N` of stdin, until `quit`.

use std::io::{BufRead, Write, stdin, stdout};
use std::time::Instant;

use serde_json::json;

/// Repeated work.
pub trait Work {
    /// Begins a step; it may go on after this returns.
    fn step(&mut self);
    /// Waits for all that was begun. Gives the last loss, or the last element of a product.
    fn finish(&mut self) -> f64;
    /// Values of the module.
    fn parameters(&self) -> usize;
}

/// The program's arguments.
pub struct Settings {
    pub model: String,
    pub rows: usize,
    pub warm_up: usize,
    pub device: String,
}

impl Settings {
    pub fn from_arguments() -> Self {
        let mut settings = Self { model: String::new(), rows: 0, warm_up: 5, device: "default".into() };
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { panic!("`{}` has no value", pair[0]) };
            let number = || value.parse().unwrap_or_else(|_| panic!("`{name}` takes a number, not `{value}`"));
            match name.as_str() {
                "--model" => settings.model.clone_from(value),
                "--rows" => settings.rows = number(),
                "--warm-up" => settings.warm_up = number(),
                "--device" => settings.device.clone_from(value),
                other => panic!("`{other}` is no option: --model, --rows, --warm-up, --device are"),
            }
        }
        assert!(settings.rows > 0 && settings.warm_up > 0, "`--rows` and `--warm-up` take 1 or more");
        settings
    }
}

/// Warms up, says so, and does the turns that stdin asks for. `begin` is when the program began.
pub fn serve(device: &str, settings: &Settings, parameters: usize, mut work: Box<dyn Work>, begin: Instant) {
    let open_ms = ms(begin);
    let (first_loss, first_step_ms) = turn(work.as_mut(), 1);
    let mut warm_up_ms = first_step_ms;
    for _ in 1..settings.warm_up {
        warm_up_ms += turn(work.as_mut(), 1).1;
    }
    say(&json!({
        "peer": "burn 0.22.1", "device": device, "model": settings.model, "rows": settings.rows,
        "parameters": parameters, "open_ms": open_ms, "first_step_ms": first_step_ms, "warm_up_ms": warm_up_ms,
        "value": first_loss,
    }));
    for line in stdin().lock().lines() {
        let line = line.expect("stdin can be read");
        let steps = match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["quit"] => return,
            ["turn", steps] => steps.parse().expect("a turn has a number of steps"),
            _ => panic!("`{line}` is neither `turn N` nor `quit`"),
        };
        let (value, ms) = turn(work.as_mut(), steps);
        say(&json!({ "steps": steps, "ms": ms, "value": value }));
    }
}

/// Some steps, and then the wait for all of them: the last value, and the milliseconds of all.
fn turn(work: &mut dyn Work, steps: usize) -> (f64, f64) {
    let begin = Instant::now();
    for _ in 0..steps {
        work.step();
    }
    let value = work.finish();
    assert!(value.is_finite(), "a turn of {steps} steps ends with {value}");
    (value, ms(begin))
}

fn ms(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}

fn say(line: &serde_json::Value) {
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("stdout can be written");
}
