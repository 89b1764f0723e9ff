//! Everything that a release must pass.

use std::time::{Duration, Instant};

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{macos, web, windows};

type Part = (&'static str, fn(&Shell) -> Result<()>);

const PARTS: &[Part] = &[
    ("xtask", itself),
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
