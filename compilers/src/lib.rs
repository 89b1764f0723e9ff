//! Compilers of GPU vendors at work on each kernel: registers, spills, subgroups, instructions, cycles.
//!
//! A driver that compiles needs no hardware: Mesa's driver of AMD shows a device for the chip that a variable names; those of Intel and
//! NVIDIA get the answers that a card's kernel driver would give from a library. They compile as they do for the card, and run nothing.

// Files: `chips.rs`: the chips, and how a driver is made to compile for each; `mesa.rs`: the drivers of this machine; `driver.rs`: a driver
// of Vulkan as a compiler; `forms.rs`: the texts that drivers get; `languages.rs`: lines of assembly; `assembly.rs`: instructions by kind;
// `figures.rs`: registers, cycles and the like; `report.rs`: what was found, as JSON and as tables.

pub mod assembly;
pub mod chips;
pub mod driver;
pub mod figures;
pub mod forms;
pub mod languages;
pub mod mesa;
pub mod report;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};

use chips::Chip;
use driver::Driver;
use figures::Figure;
use mesa::Mesa;
use report::{OnChip, Told};

/// Argument by which the program is told to compile for a chip with the driver of its environment, and to write JSON.
pub const HERE: &str = "--here";

/// The forms to compile.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Part of the names of the kernels.
    pub kernels: String,
    /// Files of WGSL to compile in place of kernels.
    pub files: Vec<PathBuf>,
    /// Most sets of constants of a kernel and tile.
    pub constants: usize,
    /// Whether instructions are written to standard error.
    pub assembly: bool,
}

/// Runs `program` with the chip's driver, by the first of its names that the driver knows.
///
/// # Errors
/// If this machine has no such driver, or it fails.
pub fn ask(program: &Path, chip: &Chip, mesa: &Mesa, wanted: &Wanted) -> Result<OnChip> {
    let mut errors = Vec::new();
    for value in chip.values {
        let mut command = mesa.command(program, chip, value)?;
        command.args([HERE, chip.name, "--kernels", &wanted.kernels]);
        command.args(["--constants", &wanted.constants.to_string()]);
        command.args(wanted.files.iter().flat_map(|file| ["--wgsl".as_ref(), file.as_os_str()]));
        command.args(wanted.assembly.then_some("--assembly"));
        let errors_to = if wanted.assembly { Stdio::inherit() } else { Stdio::piped() };
        let output = command.stderr(errors_to).output().with_context(|| format!("{command:?}"))?;
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout)?);
        }
        errors.push(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    bail!("{} ({}): {}", chip.name, chip.cards, errors.join("\n"))
}

/// Compiles forms with the driver of the environment.
///
/// # Errors
/// If there is no driver, or it refuses a kernel.
#[allow(clippy::print_stderr, reason = "people ask for the instructions")]
pub fn compile(chip: &Chip, wanted: &Wanted) -> Result<OnChip> {
    let language = chip.driver.language;
    let driver = Driver::open()?;
    let forms = if wanted.files.is_empty() {
        forms::all(&wanted.kernels, wanted.constants, driver.matrices)?
    } else {
        wanted.files.iter().map(|file| forms::of_file(file)).collect::<Result<Vec<_>>>()?.concat()
    };
    ensure!(!forms.is_empty(), "no kernel has `{}` in its name", wanted.kernels);
    let mut told = Vec::new();
    for form in forms {
        let compiled = driver.compile(&form).with_context(|| form.name.clone())?;
        if wanted.assembly {
            eprintln!("== {}\n{:?}\n{}", form.name, compiled.statistics, compiled.assembly);
        }
        let (hottest, hottest_multiply_adds) = assembly::hottest(&compiled.assembly, language, compiled.subgroup);
        let figures = figures::of(&compiled.statistics, chip.driver.sources);
        let cycles = figures.get(&Figure::Cycles).copied();
        let lanes = language.lanes_of_cycles().unwrap_or(compiled.subgroup);
        let multiply_adds = f64::from(lanes) * assembly::multiply_adds(&compiled.assembly, language, compiled.subgroup);
        told.push(Told {
            form: form.name,
            kernel: form.kernel,
            tile: form.tile,
            constants: form.constants,
            invocations: form.invocations,
            subgroup: compiled.subgroup,
            figures,
            statistics: compiled.statistics,
            cycles_a_multiply_add: (multiply_adds > 0.0).then_some(()).and(cycles).map(|cycles| cycles / multiply_adds),
            main_loop_a_multiply_add: assembly::main_loop(&compiled.assembly, language, compiled.subgroup),
            all: assembly::all(&compiled.assembly, language),
            hottest,
            hottest_multiply_adds,
        });
    }
    let is_untold = |figure: &Figure| told.iter().all(|told: &Told| !told.figures.contains_key(figure));
    let untold = Figure::ALL.into_iter().filter(is_untold).collect();
    Ok(OnChip { chip: chip.name.to_owned(), device: driver.names.clone(), untold, forms: told })
}
