//! A throw-away Windows: Wine with a folder, a display and Vulkan drivers of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use xshell::{Cmd, Shell, TempDir, cmd};

use crate::packages;
use crate::toolchain::on_path;

const PACKAGES: [&str; 4] = ["wine", "wine64", "xvfb", "xauth"];

/// A running Wine. It is gone when this is dropped.
pub struct Wine<'a> {
    shell: &'a Shell,
    prefix: TempDir,
    // Wine's Vulkan asks for a display driver.
    display: Child,
    environment: Vec<(String, String)>,
}

impl<'a> Wine<'a> {
    /// Installs Wine where it is missing, and starts one.
    pub fn start(shell: &'a Shell) -> Result<Self> {
        install(shell)?;
        let drivers = drivers(shell)?;
        let (display, number) = display()?;
        let prefix = shell.create_temp_dir()?;
        let mut environment = vec![
            ("WINEPREFIX".into(), prefix.path().display().to_string()),
            ("WINEDEBUG".into(), "-all".into()),
            // Neither .NET nor a browser is asked for when the prefix is made.
            ("WINEDLLOVERRIDES".into(), "mscoree,mshtml=;d3dcompiler_47=n,b".into()),
            ("DISPLAY".into(), format!(":{number}")),
            ("XDG_RUNTIME_DIR".into(), prefix.path().display().to_string()),
        ];
        environment.extend(drivers);
        let wine = Self { shell, prefix, display, environment };
        wine.inside(cmd!(shell, "wineboot --init")).quiet().ignore_stderr().run().context("wine did not start")?;
        wine.add_random_numbers()?;
        Ok(wine)
    }

    /// A command of this system or of Windows, with Wine's environment.
    pub fn inside<'c>(&self, command: Cmd<'c>) -> Cmd<'c> {
        command.envs(self.environment.iter().map(|(name, value)| (name, value)))
    }

    /// A program of Windows.
    pub fn program(&self, program: &Path) -> Cmd<'a> {
        self.inside(cmd!(self.shell, "wine {program}").quiet())
    }

    /// Lays a library among those of the system, in place of Wine's own.
    pub fn add_library(&self, library: &Path) -> Result<()> {
        Ok(self.shell.copy_file(library, self.libraries())?)
    }

    fn libraries(&self) -> PathBuf {
        self.prefix.path().join("drive_c/windows/system32")
    }

    fn add_random_numbers(&self) -> Result<()> {
        let source = crate::root().join("xtask/src/process_prng.c");
        let library = self.libraries().join("bcryptprimitives.dll");
        if library.exists() {
            return Ok(());
        }
        let compiler = "x86_64-w64-mingw32-gcc";
        cmd!(self.shell, "{compiler} -shared -o {library} {source} -ladvapi32").quiet().run()?;
        Ok(())
    }
}

impl Drop for Wine<'_> {
    fn drop(&mut self) {
        // What is left open by a failed test would keep the prefix busy.
        let ended = self.inside(cmd!(self.shell, "wineserver --kill --wait")).quiet().ignore_status().run();
        let killed = self.display.kill().and_then(|()| self.display.wait());
        for error in [ended.err().map(|it| it.to_string()), killed.err().map(|it| it.to_string())].iter().flatten() {
            eprintln!("Wine was not put away: {error}");
        }
    }
}

fn install(shell: &Shell) -> Result<()> {
    let is_there = || ["wine", "wineserver", "Xvfb"].iter().all(|program| on_path(program).is_some());
    if !is_there() && packages::has_apt() {
        packages::install(shell, &PACKAGES)?;
    }
    if !is_there() {
        bail!(
            "Windows programs need `wine`, `wineserver` and `Xvfb` to run, but not all are there
  help: on Debian and Ubuntu `apt-get install {}`",
            PACKAGES.join(" ")
        );
    }
    Ok(())
}

/// The software Vulkan drivers of the tests, as `scripts/setup-adapters` finds or installs them.
fn drivers(shell: &Shell) -> Result<Vec<(String, String)>> {
    let exports = cmd!(shell, "scripts/setup-adapters").quiet().read()?;
    let export = |line: &str| {
        let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
        Some((name.to_owned(), value.trim_matches('\'').to_owned()))
    };
    Ok(exports.lines().filter_map(export).collect())
}

/// An X server without a screen, and its number.
fn display() -> Result<(Child, String)> {
    let mut server = Command::new("Xvfb")
        .args(["-displayfd", "1", "-screen", "0", "640x480x24", "-nolisten", "tcp"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("`Xvfb` can't be run")?;
    let mut number = String::new();
    if let Some(output) = server.stdout.take() {
        BufReader::new(output).read_line(&mut number)?;
    }
    if number.trim().is_empty() {
        server.kill()?;
        bail!("`Xvfb` gave no display\n  help: run `Xvfb -displayfd 1` to see why");
    }
    Ok((server, number.trim().to_owned()))
}
