//! Which part of a package may use which: arrows point one way, and no files form a circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::Tree;
use crate::imports::{Modules, Tie, circles};
use crate::rust::Within;

/// The packages, and what each is built from below its folder.
pub const PACKAGES: [&str; 6] = ["src/", "engine/src/", "bench/src/", "cli/src/", "compilers/src/", "text/src/"];

/// The parts of the engine and of the library, from the bottom up, and behind each what it may use of its own package; Cargo knows which
/// package uses which. A file belongs to the part with the longest name.
const USES: &str = "
engine/src/shown:
engine/src/error:              engine/src/shown
engine/src/shape:
engine/src/table:              engine/src/shown
engine/src/timing:
engine/src/reading:
engine/src/names:              engine/src/reading engine/src/shown
engine/src/described:
engine/src/kind:               engine/src/names engine/src/reading engine/src/error
engine/src/runtime:            engine/src/error
engine/src/files:              engine/src/error engine/src/runtime engine/src/shown
engine/src/size:
engine/src/packed:             engine/src/error
engine/src/kernels:            engine/src/packed engine/src/runtime engine/src/size
engine/src/plan:               engine/src/kernels engine/src/packed engine/src/size engine/src/shape engine/src/error engine/src/shown
engine/src/adapters:           engine/src/adapters/cpu engine/src/adapters/gpu engine/src/plan engine/src/kernels engine/src/runtime
                               engine/src/size engine/src/shape engine/src/error engine/src/shown
engine/src/adapters/cpu:       engine/src/adapters engine/src/plan engine/src/kernels engine/src/runtime engine/src/size
                               engine/src/error engine/src/shown
engine/src/adapters/gpu:       engine/src/adapters engine/src/files engine/src/plan engine/src/kernels engine/src/runtime
                               engine/src/size engine/src/error engine/src/shown
src/adapters:
src/vocabulary:
src/schema:                    src/vocabulary
src/misread:
src/protobuf:
src/onnx:                      src/protobuf
src/processes:
src/layers:                    src/onnx src/misread
src/losses:                    src/misread
src/metrics:                   src/losses src/misread
src/optimizers:                src/misread
src/data:                      src/schema src/vocabulary
src/raw:                       src/onnx src/data src/losses src/schema
src/model:                     src/layers src/losses src/metrics src/optimizers src/onnx src/raw src/misread src/schema src/vocabulary
src/presets:                   src/model src/layers
src/scheduler/split:           src/scheduler
src/scheduler/timeline:        src/scheduler src/scheduler/split src/data
src/scheduler:                 src/scheduler/split src/scheduler/timeline src/model src/data src/losses src/optimizers src/processes
src/placer:                    src/simulator src/scheduler src/model
src/simulator:                 src/presets src/scheduler src/scheduler/split src/scheduler/timeline src/model src/data src/losses
                               src/optimizers src/processes src/misread
src/trainer:                   src/placer src/scheduler src/scheduler/split src/scheduler/timeline src/model src/data src/layers
                               src/losses src/metrics src/optimizers src/processes src/protobuf src/schema
src/extend:                    src/layers src/losses src/metrics src/optimizers src/model src/onnx
";

/// What each part may use.
type Uses = BTreeMap<&'static str, Vec<&'static str>>;

/// [`USES`] by part.
fn uses() -> Uses {
    let (mut uses, mut part) = (BTreeMap::new(), "");
    for word in USES.split_whitespace() {
        match word.strip_suffix(':') {
            Some(name) => {
                part = name;
                uses.insert(part, Vec::new());
            }
            None => uses.entry(part).or_insert_with(Vec::new).push(word),
        }
    }
    uses
}

/// The longest name in [`USES`] that a file stands under.
fn part(uses: &Uses, path: &str) -> Option<&'static str> {
    let inner = path.trim_end_matches(".rs");
    let is_in = |name: &str| inner.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    uses.keys().copied().filter(|name| is_in(name)).max_by_key(|name| name.len())
}

fn is_root(path: &str) -> bool {
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs")
}

/// The modules of each package.
fn modules(tree: &Tree) -> impl Iterator<Item = Modules<'_>> {
    PACKAGES.iter().map(|package| Modules::read(package, tree.files(package, ".rs")))
}

pub fn every_part_has_a_direction(tree: &Tree) -> Vec<String> {
    let files = ["src/", "engine/src/"].into_iter().flat_map(|package| tree.files(package, ".rs"));
    let files = files.map(|(path, _)| path).filter(|path| !is_root(path));
    let uses = uses();
    let lost = files.filter(|path| part(&uses, path).is_none());
    lost.map(|path| format!("{path} is in no part of `USES` in tests/house/direction.rs: say there what it may use"))
        .collect()
}

pub fn dependencies_point_one_way(tree: &Tree) -> Vec<String> {
    let ties: Vec<Tie> = modules(tree).flat_map(|modules| modules.ties(&[Within::Product, Within::Tests])).collect();
    let uses = uses();
    let mut complaints = Vec::new();
    for Tie { from, line, path, to } in &ties {
        let (Some(mine), Some(other)) = (part(&uses, from), part(&uses, to)) else { continue };
        let allowed = &uses[mine];
        if mine != other && !allowed.contains(&other) {
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
    let ties = modules(tree).flat_map(|modules| modules.ties(&[Within::Product]));
    ties.filter(|tie| !tie.to.starts_with(&fronted(&tie.from)) && !is_root(&tie.from)).collect()
}

pub fn no_files_form_a_circle(tree: &Tree) -> Vec<String> {
    let ties = ties_between_files(tree);
    let (mut complaints, circles) = (Vec::new(), circles(&ties));
    for circle in &circles {
        let inner = ties.iter().filter(|tie| circle.contains(&tie.from) && circle.contains(&tie.to));
        let told: BTreeSet<String> = inner.map(|tie| format!("{} uses {}", tie.from, tie.to)).collect();
        let told: Vec<String> = told.into_iter().collect();
        complaints.push(format!(
            "{circle:?} form a circle ({}): move what several need into a file of its own",
            told.join("; ")
        ));
    }
    complaints
}

/// `GradientCompression` to `gradient_compression`.
fn snake(name: &str) -> String {
    let letters = name.char_indices().map(|(at, letter)| {
        let gap = if at > 0 && letter.is_uppercase() { "_" } else { "" };
        format!("{gap}{}", letter.to_lowercase())
    });
    letters.collect()
}

fn folder_of(name: &str) -> String {
    snake(name.strip_prefix("Async").unwrap_or(name))
}

/// Methods stand in the file that declares their type, or in the folder that is named after it. Those of `AsyncTrainer`, which lead to a
/// trainer, stand with the trainer's.
pub fn types_have_one_home(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for modules in modules(tree) {
        for (path, source) in modules.sources() {
            let impls = source
                .impls
                .iter()
                .map(|(line, name)| (line, name, modules.declaring_type(source, name).unwrap_or(path)));
            let is_away = |(_, name, home): &(&usize, &String, &str)| {
                *home != path && !path.contains(&format!("/{}/", folder_of(name)))
            };
            complaints.extend(impls.filter(is_away).map(|(line, name, home)| {
                let folder = folder_of(name);
                format!("{path}:{line} has methods of `{name}`, which {home} declares: move them there, or into a folder `{folder}/`")
            }));
        }
    }
    complaints
}
