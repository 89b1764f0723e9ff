//! Compilers of GPU vendors at work on each kernel: registers, spills, subgroups, instructions, cycles.
//!
//! A driver that compiles needs no hardware: Mesa's driver of AMD shows a device for the chip that a variable names. It compiles as it
//! does for the card, and runs nothing.

// Files: `chips.rs`: the chips, and how a driver is made to compile for each; `driver.rs`: a driver of Vulkan as a compiler; `forms.rs`: the
// texts that drivers get; `assembly.rs`: instructions by kind; `report.rs`: what was found, as JSON and as tables.

pub mod assembly;
pub mod chips;
pub mod driver;
pub mod forms;
pub mod report;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use chips::Chip;
use driver::Driver;
use report::{OnChip, Told};

/// Argument by which the program is told to compile for a chip with the driver of its environment, and to write JSON.
pub const HERE: &str = "--here";

/// The forms to compile.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Part of the names of the kernels.
    pub kernels: String,
    /// Most sets of constants of a kernel and tile.
    pub constants: usize,
    /// Whether instructions are written to standard error.
    pub assembly: bool,
}

/// Runs `program` with the chip's driver, by the first of its names that the driver knows.
///
/// # Errors
/// If this machine has no such driver, or it fails.
pub fn ask(program: &Path, chip: &Chip, wanted: &Wanted) -> Result<OnChip> {
    let Some(file) = chip.driver.find() else {
        bail!(
            "there is no driver `{}` of Vulkan\n  help: on Debian: apt-get install mesa-vulkan-drivers libvulkan1",
            chip.driver.file
        );
    };
    let mut errors = Vec::new();
    for name in std::iter::once(&chip.name).chain(chip.older) {
        let mut command = Command::new(program);
        command.args([HERE, chip.name, "--kernels", &wanted.kernels]);
        command.args(["--constants", &wanted.constants.to_string()]);
        command.args(wanted.assembly.then_some("--assembly"));
        // Both names of the variable; the loader of Debian 12 knows the older one alone.
        command.env("VK_DRIVER_FILES", &file).env("VK_ICD_FILENAMES", &file);
        command.env(chip.driver.variable, name).env("RADV_DEBUG", "nocache").env("MESA_SHADER_CACHE_DISABLE", "1");
        let errors_to = if wanted.assembly { Stdio::inherit() } else { Stdio::piped() };
        let output = command.stderr(errors_to).output()?;
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout)?);
        }
        errors.push(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    bail!("{} ({}): {}", chip.name, chip.cards, errors.join("\n"))
}

/// Compiles forms with the driver of the environment.
///
/// # Errors
/// If there is no driver, or it refuses a kernel.
#[allow(clippy::print_stderr, reason = "people ask for the instructions")]
pub fn compile(chip: &str, wanted: &Wanted) -> Result<OnChip> {
    let driver = Driver::open()?;
    let forms = forms::all(&wanted.kernels, wanted.constants)?;
    ensure!(!forms.is_empty(), "no kernel has `{}` in its name", wanted.kernels);
    let mut told = Vec::new();
    for form in forms {
        let compiled = driver.compile(&form).with_context(|| form.name())?;
        if wanted.assembly {
            eprintln!("== {}\n{}", form.name(), compiled.assembly);
        }
        told.push(Told {
            form: form.name(),
            kernel: form.kernel.name(),
            tile: form.kernel.is_tiled().then_some(form.tile),
            constants: form.constants,
            subgroup: compiled.subgroup,
            statistics: compiled.statistics,
            all: assembly::all(&compiled.assembly),
            hottest: assembly::hottest(&compiled.assembly),
        });
    }
    Ok(OnChip { chip: chip.to_owned(), device: driver.names.clone(), forms: told })
}
