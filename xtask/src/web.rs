//! The browser demo: a static folder that any server can serve.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use wasm_bindgen_cli_support::Bindgen;
use xshell::{Shell, cmd};

use crate::serve;
use crate::toolchain::{Target, Toolchain, on_path};

/// Actions for the browser demo.
#[derive(Subcommand)]
pub enum WebJob {
    /// Build it into `web-demo/dist`, for any server of static files, and fail if it has grown too large.
    Build {
        /// For tests: built far sooner, but larger and slower.
        #[arg(long)]
        quick: bool,
    },
    /// Serve `web-demo/dist` on this machine.
    Serve {
        /// Port; 0 for any that is free.
        #[arg(long, default_value_t = 8080)]
        port: u16,
    },
    /// Build the engine for `web-demo/bench/steps.js`, which times training steps beside TensorFlow.js.
    Bench,
    /// Type-check engine and worker for browsers. A warning is an error.
    Check,
}

/// A profile of `Cargo.toml` for the engine as wasm.
#[derive(Clone, Copy)]
enum Profile {
    Small,
    Quick,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Small => "web",
            Self::Quick => "web-quick",
        }
    }
}

const PACKAGE: &str = "manyhands-web-demo";
const WASM: &str = "manyhands_web_demo";
/// Functions that `web-demo/bench/steps.js` calls.
const BENCH: [&str; 2] = ["--features", "bench"];
/// Vectors of 128 bits, which every browser with WebGPU has.
const RUSTFLAGS: &str = "-C target-feature=+simd128";
/// Smaller by a fourth where the standard library is built, too: a panic ends the worker without a text, and small functions are
/// inlined before each is optimized for size, which LLVM would leave as calls.
const SMALL_STD: &str = "-Zunstable-options -Cpanic=immediate-abort -Zlocation-detail=none -Zinline-mir=yes";
/// The engine as small as can be: the loops of its kernels are as fast as before only with [`SMALL_STD`].
const SMALL_ENGINE: [&str; 3] = [
    r#"profile.web.package.manyhands.opt-level="z""#,
    r#"profile.web.package.manyhands-bench.opt-level="z""#,
    r#"profile.web.package.manyhands-engine.opt-level="z""#,
];

/// Bytes, gzipped, that the demo may have until it trains, and in all, a little above what it has with a standard library built from
/// source: a page that grows without notice is caught here.
const LIMITS: [usize; 2] = [835_000, 877_000];
/// Files that training doesn't wait for: the library of charts, and the scripts that are loaded when they are first used, `LATER` in `web-demo/www/later.js`.
const LATER: [&str; 7] =
    ["card.js", "lines.js", "replay.js", "stages.js", "step-picture.js", "words.js", "vendor/uPlot.esm.js"];

/// Files and folders of the article, of which the lab loads none, and the bytes, gzipped, that they may have with all embedded figures.
const ARTICLE: [&str; 4] = ["article", "embed", "index.html", "link.js"];
const ARTICLE_LIMIT: usize = 56_000;

/// Folder of the data that a visitor may choose.
const DATA: &str = "data";

pub fn run(shell: &Shell, job: &WebJob) -> Result<()> {
    match job {
        WebJob::Build { quick: false } => {
            build_page(shell, Profile::Small, &[])?;
            pack(shell, &dist())?;
            weigh(shell, &dist())
        }
        // With what the bench calls, so that tests see whether it still builds.
        WebJob::Build { quick: true } => build_page(shell, Profile::Quick, &BENCH),
        WebJob::Bench => {
            let folder = crate::root().join("target/web-bench");
            compile(shell, Profile::Small, &BENCH, &folder)
        }
        WebJob::Serve { port } => serve::run(&dist(), *port),
        WebJob::Check => {
            let check = Toolchain::find(shell, Target::Web)?.cargo(shell, "check");
            check.args(["--locked", "--package", PACKAGE]).env("RUSTFLAGS", "-D warnings").run()?;
            Ok(())
        }
    }
}

fn dist() -> PathBuf {
    crate::root().join("web-demo/dist")
}

fn build_page(shell: &Shell, profile: Profile, features: &[&str]) -> Result<()> {
    shell.remove_path(dist())?;
    compile(shell, profile, features, &dist().join("engine"))?;
    lay_page(shell, &dist())
}

/// The engine as wasm, with the JavaScript that it is called through.
fn compile(shell: &Shell, profile: Profile, features: &[&str], engine: &Path) -> Result<()> {
    shell.create_dir(engine)?;
    let profile = profile.name();
    let toolchain = Toolchain::find(shell, Target::Web)?;
    let compile = toolchain.cargo(shell, "build").args(["--locked", "--profile", profile, "--package", PACKAGE]);
    let compile = if toolchain.builds_std() {
        let flags = format!("{RUSTFLAGS} {SMALL_STD}");
        let compile = compile.arg("-Zbuild-std-features=optimize_for_size").env("RUSTFLAGS", flags);
        compile.args(SMALL_ENGINE.iter().flat_map(|setting| ["--config", setting]))
    } else {
        compile.env("RUSTFLAGS", RUSTFLAGS)
    };
    compile.args(features).run()?;
    let wasm = toolchain.folder().join(profile).join(format!("{WASM}.wasm"));
    Bindgen::new()
        .input_path(wasm)
        .web(true)?
        .typescript(false)
        .remove_producers_section(true)
        .remove_name_section(true)
        .generate(engine)
}

/// The page's own files, made small by the page's own script.
fn lay_page(shell: &Shell, dist: &Path) -> Result<()> {
    if on_path("npm").is_none() {
        bail!("the page needs `npm`, but there is none\n  help: install Node.js 20 or later");
    }
    let _folder = shell.push_dir(crate::root().join("web-demo"));
    if !shell.path_exists("node_modules") {
        cmd!(shell, "npm ci --omit=dev --no-audit --no-fund").run()?;
    }
    cmd!(shell, "node build.js {dist}").run()?;
    Ok(())
}

/// Lays each file compressed beside it.
fn pack(shell: &Shell, dist: &Path) -> Result<()> {
    let script = crate::root().join("web-demo/pack.js");
    cmd!(shell, "node {script} {dist}").run()?;
    Ok(())
}

/// Says how large each packed file is, by gzip and by brotli, and fails if those that training needs, or all together, are too large,
/// where they can be smaller. Data that a visitor may choose do not count, and the article counts by itself.
fn weigh(shell: &Shell, dist: &Path) -> Result<()> {
    let [mut first, mut total, mut article] = [[0, 0]; 3];
    let data = dist.join(DATA);
    for path in files(shell, dist)?.into_iter().filter(|path| path.extension().is_some_and(|it| it == "gz")) {
        let bytes = [size(&path)?, size(&path.with_extension("br"))?];
        let name = path.strip_prefix(dist).unwrap_or(&path).with_extension("");
        let (is_data, is_later) = (path.starts_with(&data), LATER.iter().any(|later| name == Path::new(later)));
        let is_article = ARTICLE.iter().any(|of| name.starts_with(of));
        let note = if is_article {
            ", of the article"
        } else if is_data {
            ", loaded when it is chosen"
        } else if is_later {
            ", loaded later"
        } else {
            ""
        };
        eprintln!("{:>9} {:>9}  {}{note}", thousands(bytes[0]), thousands(bytes[1]), name.display());
        if is_article {
            article = [article[0] + bytes[0], article[1] + bytes[1]];
            continue;
        }
        if !is_data {
            total = [total[0] + bytes[0], total[1] + bytes[1]];
        }
        if !is_data && !is_later {
            first = [first[0] + bytes[0], first[1] + bytes[1]];
        }
    }
    eprintln!("{:>9} {:>9}  for training to begin, by gzip and by brotli", thousands(first[0]), thousands(first[1]));
    eprintln!("{:>9} {:>9}  in all but the data", thousands(total[0]), thousands(total[1]));
    eprintln!("{:>9} {:>9}  of the article", thousands(article[0]), thousands(article[1]));
    let limits = LIMITS.into_iter().chain([ARTICLE_LIMIT]);
    if let Some((bytes, limit)) =
        [first[0], total[0], article[0]].into_iter().zip(limits).find(|(bytes, limit)| bytes > limit)
    {
        let problem = format!("the demo needs to stay below {} bytes, but has {}", thousands(limit), thousands(bytes));
        if Toolchain::find(shell, Target::Web)?.builds_std() {
            bail!("{problem}\n  help: the largest files are above; look for what is new in them");
        }
        eprintln!("{problem}: the standard library was not built from source, which makes it smaller");
    }
    Ok(())
}

fn files(shell: &Shell, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in shell.read_dir(folder)? {
        if path.is_dir() { files.extend(self::files(shell, &path)?) } else { files.push(path) }
    }
    Ok(files)
}

fn size(path: &Path) -> Result<usize> {
    let file = std::fs::metadata(path).with_context(|| format!("`{}` can't be weighed", path.display()))?;
    Ok(usize::try_from(file.len())?)
}

fn thousands(bytes: usize) -> String {
    let digits = bytes.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|part| str::from_utf8(part).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_read_in_thousands() {
        assert_eq!(super::thousands(999), "999");
        assert_eq!(super::thousands(1_234_567), "1,234,567");
    }
}
