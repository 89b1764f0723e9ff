//! macOS, as far as another system can tell: every target type-checks for it.

use anyhow::Result;
use xshell::Shell;

use crate::toolchain::{Target, Toolchain};

/// Type-checks library, command, tests, examples and benches for Apple's processors. A warning is an error.
pub fn run(shell: &Shell) -> Result<()> {
    let toolchain = Toolchain::find(shell, Target::Mac)?;
    let check = toolchain.cargo(shell, "check").args(["--locked", "--all-targets"]);
    check.env("RUSTFLAGS", "-D warnings").run()?;
    Ok(())
}
