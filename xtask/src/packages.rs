//! Packages of Debian and Ubuntu that a job needs.

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::toolchain::on_path;

/// Whether this system has `apt-get`.
pub fn has_apt() -> bool {
    on_path("apt-get").is_some()
}

/// Installs packages that are missing.
pub fn install(shell: &Shell, packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    cmd!(shell, "scripts/install-packages {packages...}").quiet().run().with_context(|| {
        format!(
            "the packages {names} could not be installed\n  help: read the messages above, or install them yourself"
        )
    })
}
