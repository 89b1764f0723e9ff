//! Windows, as far as Wine goes: builds the command and the tests, and runs both on Wine's Vulkan and DX12.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::toolchain::{Target, Toolchain};
use crate::wine::Wine;

#[derive(Args, Default)]
pub struct WindowsArgs {
    /// A `d3dcompiler_47.dll` of Windows 10 or 11, to compile the kernels for DX12 with Microsoft's own compiler
    #[arg(long, value_name = "DLL")]
    d3dcompiler: Option<PathBuf>,
    /// Leave the tests out: only the command and the kernels
    #[arg(long)]
    no_tests: bool,
}

/// Test files that say nothing more under Wine than here.
const LEFT_OUT: [(&str, &str); 2] =
    [("browser", "it drives a browser of this system"), ("mutations", "it is about the cases, not about a system")];

/// Relative difference of the first losses: the code of two compilers rounds differently.
const TOLERANCE: f64 = 1e-5;
/// As many losses; later ones drift apart, since a rounding that turns a ReLU on or off grows from step to step.
const FIRST: usize = 10;
/// Relative difference of an epoch's mean losses.
const TOLERANCE_OF_EPOCHS: f64 = 2e-2;

/// Builds for Windows and runs under Wine.
pub fn run(shell: &Shell, args: &WindowsArgs) -> Result<()> {
    let toolchain = Toolchain::find(shell, Target::Windows)?;
    // As a test's companion: built alone, it would have its dependencies built twice, with other features.
    toolchain.cargo(shell, "test").args(["--locked", "--no-run", "--test", "kernels"]).run()?;
    let program = toolchain.folder().join("debug/manyhands.exe");
    let wine = Wine::start(shell)?;
    adapters(&wine, &program)?;
    train(shell, &wine, &program)?;
    if !args.no_tests {
        tests(shell, &toolchain, &wine)?;
    }
    direct3d(shell, &toolchain, &wine, args)
}

/// The list has the driver that Wine hands Vulkan to.
fn adapters(wine: &Wine<'_>, program: &Path) -> Result<()> {
    let list = wine.program(program).arg("adapters").read()?;
    eprintln!("{list}");
    let is_listed = list.lines().any(|line| line.contains("llvmpipe") && line.contains("vulkan"));
    ensure!(is_listed, "`manyhands.exe adapters` does not list llvmpipe through Vulkan");
    Ok(())
}

/// One of the two systems.
#[derive(Clone, Copy, PartialEq)]
enum System {
    Windows,
    Here,
}

/// Runs the digits on both systems: same losses on each choice of adapters, and files that go over.
fn train(shell: &Shell, wine: &Wine<'_>, program: &Path) -> Result<()> {
    cmd!(shell, "cargo build --locked --package manyhands-cli").quiet().run()?;
    let here = crate::root().join("target/debug/manyhands");
    let folder = shell.create_temp_dir()?;
    let _inside = shell.push_dir(folder.path());
    let run = |system: System, words: &str| -> Result<()> {
        let command = match system {
            System::Windows => wine.program(program),
            System::Here => wine.inside(cmd!(shell, "{here}").quiet()),
        };
        let quiet = ["train", "--quiet", "--overwrite", "--seed", "1"];
        command.args(quiet).args(words.split(' ')).run().with_context(|| format!("`train {words}` failed"))
    };
    for (adapters, split) in [("cpu", "even"), ("llvmpipe", "even"), ("cpu,llvmpipe", "3:1")] {
        let words =
            |file| format!("--epochs 2 --adapters {adapters} --split {split} --json {file}.jsonl --save {file}");
        run(System::Windows, &words("windows"))?;
        run(System::Here, &words("here"))?;
        let compared = compare(shell, "windows.jsonl", "here.jsonl")?;
        eprintln!("digits on {adapters}: {compared}");
    }
    // What either saved goes on in the same way on both.
    for from in ["windows", "here"] {
        let words = |to| format!("--epochs 3 --adapters cpu --resume {from} --save {to} --json {to}.jsonl");
        run(System::Windows, &words("on_windows"))?;
        run(System::Here, &words("on_here"))?;
        let compared = compare(shell, "on_windows.jsonl", "on_here.jsonl")?;
        eprintln!("checkpoint of `{from}`, resumed on both: {compared}");
        ["on_windows.jsonl", "on_here.jsonl"].iter().try_for_each(|log| shell.remove_path(log))?;
    }
    Ok(())
}

/// Compares two logs: their first losses, and those of their epochs. Gives a summary.
fn compare(shell: &Shell, one: &str, other: &str) -> Result<String> {
    let [steps, epochs] = ["step", "epoch"].map(|kind| worst(shell, kind, one, other));
    let (steps, epochs) = (steps?, epochs?);
    ensure!(
        steps <= TOLERANCE,
        "the first {FIRST} losses differ by {steps:.1e}, relative; {TOLERANCE:.0e} is the most"
    );
    ensure!(
        epochs <= TOLERANCE_OF_EPOCHS,
        "the losses of epochs differ by {epochs:.1e}, relative; {TOLERANCE_OF_EPOCHS:.0e} is the most"
    );
    Ok(format!("the first {FIRST} losses agree within {steps:.1e}, those of epochs within {epochs:.1e}, relative"))
}

/// Largest relative difference of the first losses of a kind.
fn worst(shell: &Shell, kind: &str, one: &str, other: &str) -> Result<f64> {
    let (one, other) = (losses(shell, kind, one)?, losses(shell, kind, other)?);
    ensure!(one.len() == other.len() && !one.is_empty(), "{} and {} losses of a {kind}", one.len(), other.len());
    let differences = one.iter().zip(&other).take(FIRST).map(|(a, b)| (a - b).abs() / b.abs());
    Ok(differences.fold(0.0, f64::max))
}

fn losses(shell: &Shell, kind: &str, log: &str) -> Result<Vec<f64>> {
    let mut losses = Vec::new();
    for line in shell.read_file(log)?.lines() {
        let entry: Value = serde_json::from_str(line)?;
        if entry["kind"] == kind {
            losses.extend(entry["loss"].as_f64());
        }
    }
    Ok(losses)
}

/// Every test file, with Vulkan alone: what Wine's DX12 computes is told apart.
fn tests(shell: &Shell, toolchain: &Toolchain, wine: &Wine<'_>) -> Result<()> {
    let mut chosen = Vec::new();
    for path in shell.read_dir("tests")? {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match LEFT_OUT.iter().find(|(name, _)| *name == stem) {
            Some((name, reason)) => eprintln!("left out: tests/{name}.rs, since {reason}"),
            None if path.extension().is_some_and(|extension| extension == "rs") => {
                chosen.extend(["--test".to_owned(), stem]);
            }
            None => {}
        }
    }
    let test = toolchain.cargo(shell, "test").args(["--locked", "--no-fail-fast", "--lib", "--bins"]).args(chosen);
    let test = wine.inside(test).env(runner(), "wine").env("WGPU_BACKEND", "vulkan");
    // The tools that judge shaders are not for Windows.
    test.env("MANYHANDS_ALLOW_SKIP", "1").run()?;
    Ok(())
}

/// The runner with which cargo starts programs built for the target.
fn runner() -> String {
    format!("CARGO_TARGET_{}_RUNNER", Target::Windows.triple().to_uppercase().replace('-', "_"))
}

/// Results of the kernels on Wine's DX12. Printed only: a failure may be Wine's.
///
/// With Microsoft's compiler each kernel must at least compile.
fn direct3d(shell: &Shell, toolchain: &Toolchain, wine: &Wine<'_>, args: &WindowsArgs) -> Result<()> {
    if let Some(library) = &args.d3dcompiler {
        wine.add_library(library)?;
    }
    let test = toolchain.cargo(shell, "test").args(["--locked", "--test", "kernels", "--", "--nocapture"]);
    let output = wine.inside(test).env(runner(), "wine").env("WGPU_BACKEND", "dx12").ignore_status().output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let summary = said.lines().find(|line| line.contains("(dx12): "));
    eprintln!("DX12: {}", summary.unwrap_or("wine shows no adapter"));
    let refused = said.matches("can't be built").count();
    let wrong = said.matches(", its twin ").count();
    eprintln!("      {refused} did not compile, {wrong} computed something else");
    if args.d3dcompiler.is_some() && (refused > 0 || summary.is_none()) {
        bail!("{refused} cases do not compile with the given compiler\n{said}");
    }
    Ok(())
}
