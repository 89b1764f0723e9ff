//! Which part of `src/` may use which: arrows point one way, and no files form a circle.

use std::collections::BTreeSet;

use crate::Tree;
use crate::imports::{Modules, Tie, circles};
use crate::rust::Within;

/// Parts that use hardly anything, as [`USES`] names them together.
const LEAVES: &[&str] = &["error", "kind", "misread", "names", "schema", "shape", "size", "table"];

/// How names and numbers are shown: every part has messages.
const EVERYWHERE: &str = "shown";

/// The parts of `src/`, from the bottom up, and what each may use. A file belongs to the part with the longest name.
const USES: &[(&str, &[&str])] = &[
    (EVERYWHERE, &[]),
    ("error", &[]),
    ("shape", &[]),
    ("size", &[]),
    ("schema", &[]),
    ("table", &[]),
    ("names", &[]),
    ("misread", &["names", "error"]),
    ("kind", &["names", "misread", "error"]),
    ("runtime", &["error"]),
    ("files", &["error", "runtime"]),
    ("kernels", &["runtime", "size"]),
    ("plan", &["kernels", "size", "shape", "error"]),
    ("layers", &["plan", "kernels", "size", "kind", "misread", "names", "shape", "error"]),
    ("losses", &["plan", "kernels", "size", "kind", "misread", "names", "shape", "error"]),
    ("optimizers", &["plan", "kernels", "size", "kind", "misread", "names", "error"]),
    ("data", &["files", "runtime", "schema", "shape", "error"]),
    ("model", &["layers", "losses", "optimizers", "plan", "kernels", "files", "leaves"]),
    ("adapters", &["adapters/cpu", "adapters/gpu", "plan", "kernels", "runtime", "size", "shape", "error"]),
    ("adapters/cpu", &["adapters", "plan", "kernels", "runtime", "size", "error"]),
    ("adapters/gpu", &["adapters", "files", "plan", "kernels", "runtime", "size", "error"]),
    ("scheduler/split", &["scheduler", "error"]),
    ("scheduler/timeline", &["files", "table", "scheduler", "scheduler/split", "data", "adapters", "plan", "error"]),
    (
        "scheduler",
        &[
            "scheduler/split",
            "scheduler/timeline",
            "adapters",
            "adapters/cpu",
            "model",
            "data",
            "losses",
            "optimizers",
            "plan",
            "kernels",
            "runtime",
            "leaves",
        ],
    ),
    (
        "simulator",
        &[
            "bench",
            "scheduler",
            "scheduler/split",
            "adapters",
            "adapters/cpu",
            "model",
            "data",
            "layers",
            "losses",
            "optimizers",
            "plan",
            "kernels",
            "runtime",
            "leaves",
        ],
    ),
    (
        "bench",
        &[
            "files",
            "scheduler",
            "scheduler/split",
            "scheduler/timeline",
            "adapters",
            "adapters/gpu",
            "model",
            "data",
            "layers",
            "losses",
            "optimizers",
            "plan",
            "kernels",
            "runtime",
            "leaves",
        ],
    ),
    (
        "trainer",
        &[
            "scheduler",
            "scheduler/split",
            "scheduler/timeline",
            "adapters",
            "adapters/cpu",
            "model",
            "data",
            "layers",
            "losses",
            "optimizers",
            "plan",
            "files",
            "runtime",
            "leaves",
        ],
    ),
    (
        "cli",
        &[
            "trainer",
            "bench",
            "simulator",
            "scheduler",
            "scheduler/split",
            "scheduler/timeline",
            "adapters",
            "model",
            "data",
            "layers",
            "losses",
            "optimizers",
            "plan",
            "files",
            "runtime",
            "leaves",
        ],
    ),
];

/// Circles that stand until the parts that they are in are rebuilt. What is struck from here may not come back.
const KNOWN_CIRCLES: &[&[&str]] = &[&[
    "src/adapters/gpu/program.rs",
    "src/adapters/gpu/run.rs",
    "src/adapters/gpu/run/ahead.rs",
    "src/adapters/gpu/tuning/mod.rs",
]];

/// The longest name in [`USES`] that a file stands under.
fn part(path: &str) -> Option<&'static str> {
    let inner = path.strip_prefix("src/")?.trim_end_matches(".rs");
    let is_in = |name: &str| inner.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    USES.iter().map(|(name, _)| *name).filter(|name| is_in(name)).max_by_key(|name| name.len())
}

fn is_root(path: &str) -> bool {
    ["src/lib.rs", "src/main.rs"].contains(&path)
}

fn modules(tree: &Tree) -> Modules<'_> {
    Modules::read(tree.files("src/", ".rs"))
}

pub fn every_part_has_a_direction(tree: &Tree) -> Vec<String> {
    let files = tree.files("src/", ".rs").map(|(path, _)| path).filter(|path| !is_root(path));
    let lost = files.filter(|path| part(path).is_none());
    lost.map(|path| format!("{path} is in no part of `USES` in tests/house/direction.rs: say there what it may use"))
        .collect()
}

pub fn dependencies_point_one_way(tree: &Tree) -> Vec<String> {
    let ties = modules(tree).ties(&[Within::Product, Within::Tests]);
    let mut complaints = Vec::new();
    for Tie { from, line, path, to } in &ties {
        let (Some(mine), Some(other)) = (part(from), part(to)) else { continue };
        let allowed = USES.iter().find(|(name, _)| *name == mine).map_or(&[][..], |(_, allowed)| allowed);
        let is_leaf = allowed.contains(&"leaves") && LEAVES.contains(&other) || other == EVERYWHERE;
        if mine != other && !allowed.contains(&other) && !is_leaf {
            complaints.push(format!(
                "{from}:{line} uses `{path}` of {to}: `{mine}` may use {allowed:?} only; move what it needs down, or \
                 what it does up"
            ));
        }
    }
    complaints
}

/// The folder whose front a file is: its `mod.rs`, or the file that is named after it.
fn fronted(path: &str) -> String {
    match path.strip_suffix("mod.rs") {
        Some(folder) => folder.to_owned(),
        None => format!("{}/", path.trim_end_matches(".rs")),
    }
}

/// Ties but for those of a folder's front with its own files: a front tells what the folder holds, and its files use
/// what the front declares.
fn ties_between_files(tree: &Tree) -> Vec<Tie> {
    let ties = modules(tree).ties(&[Within::Product]);
    ties.into_iter().filter(|tie| !tie.to.starts_with(&fronted(&tie.from)) && !is_root(&tie.from)).collect()
}

pub fn no_files_form_a_circle(tree: &Tree) -> Vec<String> {
    let ties = ties_between_files(tree);
    let (mut complaints, circles) = (Vec::new(), circles(&ties));
    for circle in &circles {
        let is_known = |known: &&&[&str]| circle.iter().all(|file| known.contains(&file.as_str()));
        if KNOWN_CIRCLES.iter().find(is_known).is_none() {
            let inner = ties.iter().filter(|tie| circle.contains(&tie.from) && circle.contains(&tie.to));
            let told: BTreeSet<String> = inner.map(|tie| format!("{} uses {}", tie.from, tie.to)).collect();
            let told: Vec<String> = told.into_iter().collect();
            complaints.push(format!(
                "{circle:?} form a circle ({}): move what several need into a file of its own",
                told.join("; ")
            ));
        }
    }
    for known in KNOWN_CIRCLES {
        if !circles.iter().flatten().any(|file| known.contains(&file.as_str())) {
            complaints.push(format!(
                "{known:?} form no circle any more: strike it from `KNOWN_CIRCLES` in tests/house/direction.rs"
            ));
        }
    }
    complaints
}

/// Methods that stand elsewhere until the part that they are in is rebuilt.
const KNOWN_GUESTS: &[(&str, &str)] = &[
    ("src/adapters/gpu/run/ahead.rs", "Execution"),
    ("src/trainer/describe.rs", "Compile"),
    ("src/trainer/describe.rs", "Evaluation"),
];

/// `GradientCompression` to `gradient_compression`.
fn snake(name: &str) -> String {
    let letters = name.char_indices().map(|(at, letter)| {
        let gap = if at > 0 && letter.is_uppercase() { "_" } else { "" };
        format!("{gap}{}", letter.to_lowercase())
    });
    letters.collect()
}

/// Methods stand in the file that declares their type, or in the folder that is named after it.
pub fn types_have_one_home(tree: &Tree) -> Vec<String> {
    let (modules, mut complaints) = (modules(tree), Vec::new());
    for (path, source) in modules.sources() {
        for (line, name) in &source.impls {
            let home = modules.declaring_type(source, name).unwrap_or(path);
            let is_in_folder = path.contains(&format!("/{}/", snake(name)));
            let is_known = KNOWN_GUESTS.contains(&(path, name.as_str()));
            if home != path && !is_in_folder && !is_known {
                complaints.push(format!(
                    "{path}:{line} has methods of `{name}`, which {home} declares: move them there, or into a folder `{}/`",
                    snake(name)
                ));
            }
        }
    }
    complaints
}
