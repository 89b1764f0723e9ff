//! Chooses the compiler for another system: the active toolchain if it has the target, else Debian's
//! with a standard library made from source.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use xshell::{Cmd, Shell, cmd};

use crate::packages;

/// A system that this one builds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Windows,
    Mac,
    Web,
}

impl Target {
    /// Its name in Rust.
    pub fn triple(self) -> &'static str {
        match self {
            Self::Windows => "x86_64-pc-windows-gnu",
            Self::Mac => "aarch64-apple-darwin",
            Self::Web => "wasm32-unknown-unknown",
        }
    }

    /// Debian's packages for its linker; a type-check needs none.
    fn linker_packages(self) -> &'static [&'static str] {
        match self {
            Self::Windows => &["gcc-mingw-w64-x86-64"],
            Self::Mac => &[],
            Self::Web => &["lld"],
        }
    }
}

/// Debian's compiler, cargo, and the source of its standard library. All three are of one version.
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_SOURCE: &str = "/usr/lib/rustlib/src/rust/library/std";

/// The compiler for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Compiler {
    /// That of the active toolchain, which has the target's standard library.
    Active,
    /// Debian's, which builds the standard library, too.
    Debian,
}

/// A compiler for a target, ready for use.
pub struct Toolchain {
    target: Target,
    compiler: Compiler,
    linker: Option<PathBuf>,
}

impl Toolchain {
    /// Finds a compiler and a linker for a target, and says which on standard error.
    ///
    /// On Debian, what is missing is installed.
    pub fn find(shell: &Shell, target: Target) -> Result<Self> {
        let triple = target.triple();
        let compiler = if has_standard_library(shell, target)? {
            eprintln!("{triple}: built by the active toolchain");
            Compiler::Active
        } else {
            prepare_debian(shell, target)?;
            eprintln!("{triple}: built by Debian's {DEBIAN_RUSTC}, the standard library from source");
            Compiler::Debian
        };
        let linker = linker(shell, target)?;
        Ok(Self { target, compiler, linker })
    }

    /// `cargo SUBCOMMAND --target …`, to be given more arguments.
    ///
    /// Each compiler has a target folder of its own: one would throw away what the other built.
    pub fn cargo<'a>(&self, shell: &'a Shell, subcommand: &str) -> Cmd<'a> {
        let (triple, folder) = (self.target.triple(), self.target_folder());
        let command = match self.compiler {
            Compiler::Active => cmd!(shell, "cargo {subcommand}"),
            Compiler::Debian => cmd!(shell, "{DEBIAN_CARGO} {subcommand} -Zbuild-std=std,panic_abort")
                .env("RUSTC", DEBIAN_RUSTC)
                .env("RUSTC_BOOTSTRAP", "1")
                // `cargo xtask` runs with the libraries of the active compiler, which are not this one's.
                .env_remove("LD_LIBRARY_PATH"),
        };
        let command = command.arg("--target").arg(triple).arg("--target-dir").arg(folder);
        match &self.linker {
            Some(linker) => command.env(linker_variable(triple), linker),
            None => command,
        }
    }

    /// Whether the standard library is built from source, by a compiler that takes unstable flags.
    pub fn builds_std(&self) -> bool {
        self.compiler == Compiler::Debian
    }

    /// Folder of built files: `<folder>/debug` and `<folder>/release`.
    pub fn folder(&self) -> PathBuf {
        self.target_folder().join(self.target.triple())
    }

    fn target_folder(&self) -> PathBuf {
        let target = crate::root().join("target");
        match self.compiler {
            Compiler::Active => target,
            Compiler::Debian => target.join("cross"),
        }
    }
}

/// `CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER`.
fn linker_variable(triple: &str) -> String {
    format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase().replace('-', "_"))
}

/// Whether the active toolchain has the target, by `rustup target add` or by a package of the system.
fn has_standard_library(shell: &Shell, target: Target) -> Result<bool> {
    let triple = target.triple();
    let folder = cmd!(shell, "rustc --print target-libdir --target {triple}").quiet().read()?;
    // An absent folder is the answer, not an error.
    let files = shell.read_dir(folder).unwrap_or_default();
    let is_std = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libstd-"));
    Ok(files.iter().any(is_std))
}

/// Installs Debian's compiler where it is missing.
fn prepare_debian(shell: &Shell, target: Target) -> Result<()> {
    let is_there = || [DEBIAN_CARGO, DEBIAN_RUSTC, DEBIAN_SOURCE].iter().all(|path| Path::new(path).exists());
    if !is_there() && packages::has_apt() {
        packages::install(shell, &DEBIAN_PACKAGES)?;
    }
    if is_there() {
        return Ok(());
    }
    let triple = target.triple();
    bail!(
        "a build for {triple} needs its standard library, but neither the active toolchain nor Debian's packages have it
  help: `rustup target add {triple}`, or on Debian and Ubuntu `apt-get install {}`",
        DEBIAN_PACKAGES.join(" ")
    )
}

/// The linker to name to cargo: none where the target's default is right.
fn linker(shell: &Shell, target: Target) -> Result<Option<PathBuf>> {
    let found = find_linker(shell, target)?;
    if found.is_some() || target == Target::Mac {
        return Ok(found);
    }
    let packages = target.linker_packages();
    if packages::has_apt() {
        packages::install(shell, packages)?;
    }
    match find_linker(shell, target)? {
        Some(linker) => Ok(Some(linker)),
        None => bail!(
            "a build for {} needs a linker, but none was found
  help: on Debian and Ubuntu `apt-get install {}`",
            target.triple(),
            packages.join(" ")
        ),
    }
}

fn find_linker(shell: &Shell, target: Target) -> Result<Option<PathBuf>> {
    Ok(match target {
        Target::Windows => on_path("x86_64-w64-mingw32-gcc"),
        Target::Mac => None,
        // The active toolchain's own is of this year; Debian's may be older than the compiler.
        Target::Web => rust_lld(shell)?.or_else(|| on_path("wasm-ld")),
    })
}

/// `rust-lld` of the active toolchain.
fn rust_lld(shell: &Shell) -> Result<Option<PathBuf>> {
    let folder = cmd!(shell, "rustc --print target-libdir").quiet().read()?;
    let linker = Path::new(&folder).with_file_name("bin").join("rust-lld");
    Ok(linker.exists().then_some(linker))
}

/// A program by its name.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}
