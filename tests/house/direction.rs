//! Which part of `src/` may use which: arrows point one way, and no files form a circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::Tree;
use crate::imports::{Modules, Tie, circles};
use crate::rust::Within;

/// Parts that use hardly anything, as [`USES`] names them together.
const LEAVES: &[&str] =
    &["error", "kind", "misread", "names", "schema", "shape", "size", "table", "timing", "vocabulary"];

/// How names and numbers are shown: every part has messages.
const EVERYWHERE: &str = "shown";

/// The parts of `src/`, from the bottom up, and behind each what it may use. A file belongs to the part with the longest
/// name.
const USES: &str = "
shown:
error:
shape:
size:
vocabulary:
schema:             vocabulary
table:
timing:
names:
misread:            names error
kind:               names misread error
protobuf:
onnx:               protobuf shape
runtime:            error
processes:          runtime error
files:              error runtime
kernels:            runtime size
plan:               kernels size shape error
layers:             plan kernels onnx size kind misread names shape error
losses:             plan kernels size kind misread names shape error
metrics:            losses kernels kind misread names shape error
optimizers:         plan kernels size kind misread names error
data:               files runtime schema vocabulary table names shape error
model:              layers losses metrics optimizers plan kernels onnx files runtime leaves
adapters:           adapters/cpu adapters/gpu plan kernels runtime size shape error
adapters/cpu:       adapters plan kernels runtime size error
adapters/gpu:       adapters files plan kernels runtime size error
presets:            model layers names shape error
scheduler/split:    scheduler error
scheduler/timeline: files table timing scheduler scheduler/split data adapters plan error
scheduler:          scheduler/split scheduler/timeline adapters adapters/cpu model data losses optimizers plan
                    kernels processes runtime leaves
placer:             simulator scheduler adapters model plan kernels runtime leaves
simulator:          presets scheduler scheduler/split scheduler/timeline adapters adapters/cpu model data losses optimizers plan
                    kernels files processes runtime leaves
bench:              simulator presets files scheduler scheduler/split scheduler/timeline adapters adapters/gpu
                    model data losses optimizers plan kernels processes runtime leaves
trainer:            placer scheduler scheduler/split scheduler/timeline adapters adapters/cpu model data layers losses
                    metrics optimizers plan files processes protobuf runtime leaves
extend:             layers losses metrics optimizers model plan kernels onnx leaves
internals:          trainer placer bench simulator presets scheduler adapters adapters/cpu adapters/gpu model data
                    layers losses metrics optimizers plan kernels files runtime leaves
cli:                trainer placer bench simulator presets scheduler scheduler/split scheduler/timeline adapters model
                    data layers losses metrics optimizers plan files processes runtime leaves
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
    let inner = path.strip_prefix("src/")?.trim_end_matches(".rs");
    let is_in = |name: &str| inner.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    uses.keys().copied().filter(|name| is_in(name)).max_by_key(|name| name.len())
}

fn is_root(path: &str) -> bool {
    ["src/lib.rs", "src/main.rs"].contains(&path)
}

fn modules(tree: &Tree) -> Modules<'_> {
    Modules::read(tree.files("src/", ".rs"))
}

pub fn every_part_has_a_direction(tree: &Tree) -> Vec<String> {
    let files = tree.files("src/", ".rs").map(|(path, _)| path).filter(|path| !is_root(path));
    let uses = uses();
    let lost = files.filter(|path| part(&uses, path).is_none());
    lost.map(|path| format!("{path} is in no part of `USES` in tests/house/direction.rs: say there what it may use"))
        .collect()
}

pub fn dependencies_point_one_way(tree: &Tree) -> Vec<String> {
    let ties = modules(tree).ties(&[Within::Product, Within::Tests]);
    let uses = uses();
    let mut complaints = Vec::new();
    for Tie { from, line, path, to } in &ties {
        let (Some(mine), Some(other)) = (part(&uses, from), part(&uses, to)) else { continue };
        let allowed = &uses[mine];
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

/// Methods stand in the file that declares their type, or in the folder that is named after it.
pub fn types_have_one_home(tree: &Tree) -> Vec<String> {
    let (modules, mut complaints) = (modules(tree), Vec::new());
    for (path, source) in modules.sources() {
        for (line, name) in &source.impls {
            let home = modules.declaring_type(source, name).unwrap_or(path);
            let is_in_folder = path.contains(&format!("/{}/", snake(name)));
            if home != path && !is_in_folder {
                complaints.push(format!(
                    "{path}:{line} has methods of `{name}`, which {home} declares: move them there, or into a folder `{}/`",
                    snake(name)
                ));
            }
        }
    }
    complaints
}
