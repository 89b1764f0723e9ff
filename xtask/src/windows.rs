//! Windows, as far as Wine goes: builds the command and the tests, and runs both on Wine's Vulkan and DX12.

use anyhow::Result;
use xshell::Shell;

use crate::toolchain::{Target, Toolchain};

/// Builds the command and the tests for Windows.
pub fn run(shell: &Shell) -> Result<()> {
    let toolchain = Toolchain::find(shell, Target::Windows)?;
    toolchain.cargo(shell, "test").args(["--locked", "--no-run", "--lib", "--bins", "--tests"]).run()?;
    eprintln!("built: {}", toolchain.folder().join("debug").join("manyhands.exe").display());
    Ok(())
}
