//! `PyTorch` on the same machine, where Python has it.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use manyhands::{Error, Result};
use serde::{Deserialize, Serialize};

/// The program that Python runs. It imports PyTorch alone, and writes one line of JSON. Files of the current folder, such as
/// another `torch.py`, are no modules: the program takes that folder off the path. `-I` would hide what `pip install --user` installed.
const PROGRAM: &str = concat!("import sys\nif sys.path[:1] == ['']:\n    del sys.path[0]\n", include_str!("torch.py"));
/// Names of Python.
const PYTHONS: [&str; 2] = ["python3", "python"];
/// Pause between two looks at the program.
const PAUSE: Duration = Duration::from_millis(50);

/// Speeds of PyTorch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Torch {
    pub version: String,
    /// `cuda`, `xpu`, `mps` or `cpu`, and the device's name.
    pub device: String,
    pub name: String,
    /// Products of matrices, f32 without TF32.
    pub products: Vec<Product>,
    pub steps: Vec<TorchSteps>,
}

/// A product of matrices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Product {
    pub size: String,
    pub gflop_per_s: f64,
}

/// Training steps of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TorchSteps {
    pub model: String,
    pub batch_size: u32,
    /// The median.
    pub step_ms: f64,
}

/// Runs PyTorch for some seconds at most.
pub fn measure(seconds: f64) -> Result<Torch> {
    let missing = |problem: String| Error::setting("PyTorch", problem, "`pip install torch` gives it to Python");
    let started = PYTHONS.iter().find_map(|python| start(python).ok());
    let mut program = started.ok_or_else(|| missing("is not there: no Python is found".into()))?;
    let told = wait(&mut program, seconds);
    let text = told.ok_or_else(|| missing("is not there, or was not done in time".into()))?;
    serde_json::from_str(&text).map_err(|error| missing(format!("gave no result: {error}")))
}

fn start(python: &str) -> std::io::Result<Child> {
    Command::new(python).args(["-c", PROGRAM]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

/// The text of a program that ends well and in time.
#[allow(clippy::disallowed_methods, reason = "the command waits for another program")]
fn wait(program: &mut Child, seconds: f64) -> Option<String> {
    let begin = Instant::now();
    let status = loop {
        match program.try_wait().ok()? {
            Some(status) => break status,
            None if begin.elapsed().as_secs_f64() < seconds => std::thread::sleep(PAUSE),
            None => {
                // It may have ended just now.
                drop(program.kill());
                drop(program.wait());
                return None;
            }
        }
    };
    let mut text = String::new();
    program.stdout.take()?.read_to_string(&mut text).ok()?;
    status.success().then_some(text)
}
