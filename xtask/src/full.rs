//! Everything that a release must pass.

use std::time::{Duration, Instant};

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::toolchain::on_path;
use crate::{macos, web, windows};

type Part = (&'static str, fn(&Shell) -> Result<()>);

const PARTS: &[Part] = &[
    ("xtask", itself),
    ("dependencies", dependencies),
    ("interface", interface),
    ("scripts/test --full", tests),
    ("windows", on_windows),
    ("macos", macos::run),
    ("browser", in_browser),
];

/// Runs each part in turn, and says what each took. The first that fails ends it.
pub fn run(shell: &Shell) -> Result<()> {
    let mut took = Vec::new();
    for (name, part) in PARTS {
        eprintln!("\n==> {name}");
        let (result, time) = timed(|| part(shell));
        took.push((*name, time));
        if let Err(error) = result {
            tell(&took);
            return Err(error.context(format!("`{name}` failed")));
        }
    }
    tell(&took);
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "this program never runs in a browser")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}

fn tell(took: &[(&str, Duration)]) {
    eprintln!();
    for (name, time) in took {
        eprintln!("{:>7.0} s  {name}", time.as_secs_f64());
    }
    let total: Duration = took.iter().map(|(_, time)| *time).sum();
    eprintln!("{:>7.0} s  in all", total.as_secs_f64());
}

/// Lints and tests of this program, which `scripts/test` leaves out.
fn itself(shell: &Shell) -> Result<()> {
    cmd!(shell, "cargo clippy --locked --package xtask --all-targets -- -D warnings").run()?;
    cmd!(shell, "cargo test --locked --package xtask").run()?;
    Ok(())
}

/// Known weaknesses, licenses and sources of all dependencies: `deny.toml` says what is allowed.
fn dependencies(shell: &Shell) -> Result<()> {
    need(shell, "cargo-deny")?;
    cmd!(shell, "cargo deny --locked check").run()?;
    Ok(())
}

/// Compares the library's public interface with that of the last release: breaking changes need a new version.
fn interface(shell: &Shell) -> Result<()> {
    let Ok(tag) = cmd!(shell, "git describe --tags --abbrev=0 --match v*").quiet().ignore_stderr().read() else {
        eprintln!("there is no release yet to compare with");
        return Ok(());
    };
    need(shell, "cargo-semver-checks")?;
    cmd!(shell, "cargo semver-checks --package manyhands --baseline-rev {tag}").run()?;
    Ok(())
}

/// Installs a tool that is missing.
fn need(shell: &Shell, tool: &str) -> Result<()> {
    if on_path(tool).is_none() {
        cmd!(shell, "cargo install --locked {tool}").run()?;
    }
    Ok(())
}

fn in_browser(shell: &Shell) -> Result<()> {
    web::run(shell, &web::WebJob::Check)
}

fn on_windows(shell: &Shell) -> Result<()> {
    windows::run(shell, &windows::WindowsArgs::default())
}

fn tests(shell: &Shell) -> Result<()> {
    cmd!(shell, "scripts/test --full").run()?;
    Ok(())
}
