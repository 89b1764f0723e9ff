//! The Mesa that a program compiles with: the system's own, or that of `scripts/setup-compilers`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::chips::Chip;

/// Compilers of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mesa {
    /// Installed in the system: AMD's alone.
    System,
    /// Unpacked in a folder by `scripts/setup-compilers`: all.
    Unpacked(PathBuf),
}

impl Mesa {
    /// That of `scripts/setup-compilers`, if it ran.
    pub fn unpacked() -> Option<Self> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
        let folder = target.join("compilers");
        folder.join("ready").is_file().then(|| folder.canonicalize().ok()).flatten().map(Self::Unpacked)
    }

    /// A command that runs `program` with the driver of a chip, to which the driver gives the name `value`.
    ///
    /// # Errors
    /// If there is no such driver.
    pub fn command(&self, program: &Path, chip: &Chip, value: &str) -> Result<Command> {
        let driver = chip.driver;
        let (mut command, file) = match self {
            Self::System => {
                let Some(file) = chip.driver.find().filter(|_| driver.stub.is_none()) else {
                    bail!(
                        "`{}` ({}) needs Mesa's driver `{}`, and this system has none that works without a card\n  \
                         help: scripts/setup-compilers",
                        chip.name,
                        chip.cards,
                        driver.file
                    );
                };
                (Command::new(program), file)
            }
            Self::Unpacked(folder) => {
                let libraries = driver.folders.iter().map(|it| folder.join(it).join("usr/lib/x86_64-linux-gnu"));
                let libraries: Vec<OsString> = libraries.map(OsString::from).collect();
                let loader = folder.join("root/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2");
                let mut command = Command::new(loader);
                command.arg("--library-path").arg(libraries.join(":".as_ref())).arg(program);
                if let Some(stub) = driver.stub {
                    command.env("LD_PRELOAD", folder.join("bin").join(stub));
                }
                (command, folder.join(format!("icd/{}.json", driver.file)))
            }
        };
        // Both names of the variable; the loader of Debian 12 knows the older one alone.
        command.env("VK_DRIVER_FILES", &file).env("VK_ICD_FILENAMES", &file);
        command
            .env(driver.variable, value)
            .envs(driver.variables.iter().copied())
            .env("MESA_SHADER_CACHE_DISABLE", "1");
        Ok(command)
    }
}
