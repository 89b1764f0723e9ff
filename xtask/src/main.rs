//! `cargo xtask JOB`: builds, runs and checks for other systems than this one, and what a release needs.

mod full;
mod macos;
mod manifests;
mod packages;
mod serve;
mod toolchain;
mod web;
mod windows;
mod wine;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use xshell::Shell;

/// Builds, runs and checks for other systems than this one, and writes what a release needs.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Job {
    /// Build the command and the tests for Windows, and run them under Wine.
    Windows(windows::WindowsArgs),
    /// Type-check library, command, tests and examples for Macs, with Metal.
    Macos,
    /// Build, serve or type-check the browser demo.
    #[command(subcommand)]
    Web(web::WebJob),
    /// Everything that a release must pass, with the time of each part.
    Full,
    /// Write the manifests of a release for winget, Scoop and Homebrew.
    Manifests(manifests::ManifestsArgs),
}

fn main() -> ExitCode {
    match run(&Job::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(job: &Job) -> anyhow::Result<()> {
    let shell = Shell::new()?;
    shell.change_dir(root());
    match job {
        Job::Windows(args) => windows::run(&shell, args),
        Job::Macos => macos::run(&shell),
        Job::Web(job) => web::run(&shell, job),
        Job::Full => full::run(&shell),
        Job::Manifests(args) => manifests::run(args),
    }
}

/// The repository's root.
fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}
