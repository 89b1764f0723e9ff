//! Is the house in order? What is written in two places is in both, and what may not stand somewhere does not.
//!
//! A rule is a function over the repository's texts that gives a complaint for each breach, with what to do about it.
//! [`RULES`] is the table; each has a breach that it must find. Needs nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stands outside the engine: it panics")]

mod direction;
mod documents;
mod imports;
mod rust;
#[cfg(feature = "files")]
#[cfg(feature = "files")]
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use direction::{
    PACKAGES, dependencies_point_one_way, every_part_has_a_direction, no_files_form_a_circle, types_have_one_home,
};
use documents::{
    documents_are_short, every_file_says_what_it_is, every_test_asks_a_question, fronts_name_what_is_there,
    pages_of_decisions_have_four_parts, the_map_names_every_part, the_map_names_what_is_there,
};
use manyhands::extend::{Kernel, Library};
use manyhands::layers::LAYERS;
use manyhands::optimizers::OPTIMIZERS;
use manyhands_engine::kernels::{self, Extent, Tile};

/// Texts by path, from the repository's root.
#[derive(Clone, Default)]
struct Tree(BTreeMap<String, String>);

impl Tree {
    fn read() -> Self {
        let mut tree = Self::default();
        for folder in [
            "src",
            "engine",
            "bench",
            "cli",
            "compilers",
            "mpi",
            "tests",
            "examples",
            "benches",
            "scripts",
            "text",
            "web-demo",
            "xtask",
            "python",
        ] {
            tree.read_folder(
                Path::new(env!("CARGO_MANIFEST_DIR")),
                &Path::new(env!("CARGO_MANIFEST_DIR")).join(folder),
            );
        }
        tree.read_documents(Path::new(env!("CARGO_MANIFEST_DIR")));
        tree
    }

    /// The documents that rules are about.
    fn read_documents(&mut self, root: &Path) {
        let pages = std::fs::read_dir(root.join("docs/design")).unwrap().map(|entry| entry.unwrap().file_name());
        let pages = pages.map(|name| format!("docs/design/{}", name.to_string_lossy()));
        for name in pages.chain(["ARCHITECTURE.md".to_owned()]) {
            let text = std::fs::read_to_string(root.join(&name)).unwrap();
            self.0.insert(name, text);
        }
    }

    fn read_folder(&mut self, root: &Path, folder: &Path) {
        // Not every folder is there.
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !["target", "node_modules", "dist", "pkg", "golden", ".venv"].contains(&name.as_str()) {
                self.read_folder(root, &path);
            } else if path
                .extension()
                .is_some_and(|extension| ["rs", "wgsl", "py", "sh", "js"].map(|it| extension == it).contains(&true))
            {
                let key = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
                self.0.insert(key, std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// Files in a folder, of any depth, with an extension.
    fn files<'a>(&'a self, folder: &'a str, extension: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let files = self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| path.starts_with(folder) && path.ends_with(extension))
    }

    fn text(&self, path: &str) -> &str {
        self.0.get(path).map_or("", String::as_str)
    }

    fn append(&mut self, path: &str, text: &str) {
        self.0.entry(path.to_owned()).or_default().push_str(text);
    }
}

/// `engine/shaders/batch_norm.wgsl` to `batch_norm`.
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file)
}

/// Lines that are no comments, numbered from 1.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Shaders of kernels, not of libraries.
fn shaders(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.files("engine/shaders/", ".wgsl").filter(|(path, _)| !path.starts_with("engine/shaders/lib/"))
}

fn kernels_of(stem: &str) -> Vec<&'static Kernel> {
    kernels::all().filter(|kernel| kernel.stem == stem).collect()
}

/// Names of the functions behind `@compute`.
fn entry_points(text: &str) -> Vec<&str> {
    let parts = text.split("@compute").skip(1);
    parts.filter_map(|part| part.split("fn ").nth(1)?.split('(').next()).map(str::trim).collect()
}

fn every_entry_point_has_a_kernel(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in shaders(tree) {
        let (stem, told) = (stem(path), kernels_of(stem(path)));
        for entry in entry_points(text) {
            if !told.iter().any(|kernel| kernel.entry == entry) {
                complaints.push(format!(
                    "{path}: the entry point `{entry}` has no kernel: write its bindings and its twin in \
                     engine/src/kernels/{stem}.rs, and name it in that file's `KERNELS`"
                ));
            }
        }
        if told.is_empty() {
            complaints.push(format!(
                "{path} is no kernel's source: write engine/src/kernels/{stem}.rs, or remove the shader"
            ));
        }
    }
    complaints
}

const FIELDS: [&str; 6] = ["Source", "Shapes", "Grid", "Accuracy", "Twin", "Uses"];

/// A shader's header: the fields in order, each with its text.
fn header(text: &str) -> Vec<(&str, String)> {
    let lines =
        text.lines().take_while(|line| line.starts_with("//")).map(|line| line[2..].strip_prefix(' ').unwrap_or(""));
    let mut fields: Vec<(&str, String)> = Vec::new();
    for line in lines {
        let word = line.split_whitespace().next().unwrap_or_default();
        // A field's name stands in the first column, its text from the eleventh on.
        let is_field = line.starts_with(char::is_uppercase) && line.get(word.len()..word.len() + 2) == Some("  ");
        match fields.last_mut() {
            _ if is_field => fields.push((word, line[word.len()..].trim().to_owned())),
            Some((_, text)) if line.starts_with("   ") => *text = format!("{text} {}", line.trim()),
            _ => {}
        }
    }
    fields
}

fn every_shader_has_a_header(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in shaders(tree) {
        let fields = header(text);
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        if names != FIELDS {
            complaints.push(format!(
                "{path}: its header has the fields {names:?}: let it have {FIELDS:?}, in this order, each as \
                 `// Name      text`"
            ));
        }
        let title = text.lines().next().unwrap_or_default();
        if !title.starts_with("// ") || !title.ends_with('.') {
            complaints.push(format!("{path}: let its first line say in one sentence what it computes"));
        }
    }
    complaints
}

fn field<'h>(header: &'h [(&str, String)], name: &str) -> &'h str {
    header.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text)
}

fn headers_name_their_twins(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in shaders(tree) {
        let header = header(text);
        let (file, functions) = field(&header, "Twin").split_once(", fn ").unwrap_or((field(&header, "Twin"), ""));
        let host = tree.text(&format!("engine/{}", file.trim_end_matches('.')));
        if host.is_empty() {
            complaints.push(format!("{path}: its header's Twin names `{file}`, which is not there: name the file"));
        }
        for function in
            functions.split(',').map(|name| name.trim().trim_end_matches('.')).filter(|name| !name.is_empty())
        {
            // A twin may be written for any float.
            if !["(", "<"].iter().any(|end| host.contains(&format!("fn {function}{end}"))) {
                complaints
                    .push(format!("{path}: its header's Twin names `{function}`, which {file} lacks: name its twins"));
            }
        }
    }
    complaints
}

/// A library as a header names it.
fn library(library: Library) -> String {
    match library {
        Library::Product => "lib/product_*.wgsl".into(),
        other => format!("lib/{other:?}.wgsl").to_lowercase(),
    }
}

fn headers_name_their_libraries(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in shaders(tree) {
        let header = header(text);
        let told = field(&header, "Uses");
        let told: BTreeSet<String> =
            told.split(',').map(|name| name.trim().to_owned()).filter(|name| name != "nothing").collect();
        let used: BTreeSet<String> =
            kernels_of(stem(path)).iter().flat_map(|kernel| kernel.uses).map(|used| library(*used)).collect();
        if told != used {
            complaints.push(format!(
                "{path}: its header's Uses says {told:?}, its kernels use {used:?}: let both say the same (`nothing` for none)"
            ));
        }
    }
    complaints
}

fn every_library_is_one_of_the_table(tree: &Tree) -> Vec<String> {
    use Library::{Activation, Attention, Depthwise, Gates, Grid, Product, Random, Reduce, Update};
    let all = [Grid, Reduce, Activation, Random, Update, Product, Attention, Gates, Depthwise];
    let known: Vec<&str> =
        all.iter().flat_map(|library| Tile::ALL.map(|tile| library.sources(tile))).flatten().collect();
    let known = [known, [Extent::Whole, Extent::Part].map(Extent::source).to_vec()].concat();
    let lonely = tree.files("engine/shaders/lib/", ".wgsl").filter(|(_, text)| !known.contains(text));
    lonely.map(|(path, _)| format!("{path} is no `kernels::Library`: add it there, or remove the file")).collect()
}

fn every_family_is_in_the_table(tree: &Tree) -> Vec<String> {
    let table = tree.text("engine/src/kernels/table.rs");
    let families = tree.files("engine/src/kernels/", ".rs").filter(|(_, text)| text.contains("pub static KERNELS"));
    let missing = families.filter(|(path, _)| !table.contains(&format!(" {}::KERNELS,", stem(path))));
    missing
        .map(|(path, _)| format!("{path} is not in `kernels::FAMILIES`: add the line `{}::KERNELS,` there", stem(path)))
        .collect()
}

/// An optimizer is a formula in the frame that all of them share, and no part but the two of formulas and settings knows of it.
fn optimizers_are_formulas(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for entry in OPTIMIZERS {
        let rule = (entry.from_config)(serde_json::json!({})).unwrap();
        let Some(Kernel { stem, uses, .. }) = rule.kernel() else { continue };
        if !uses.contains(&Library::Update) {
            complaints
                .push(format!("`{entry:?}` has an update of its own: give src/kernels/{stem}.rs a formula alone"));
        }
        let path = format!("kernels::{stem}");
        let names = |line: &str| line.split(&path).skip(1).any(|rest| !rest.starts_with(char::is_alphanumeric));
        let knows = |text: &str| code(text).any(|(_, line)| names(line));
        let files = PACKAGES.iter().flat_map(|package| tree.files(package, ".rs"));
        let others = files.filter(|(path, text)| !path.ends_with(&format!("/{stem}.rs")) && knows(text));
        complaints.extend(others.map(|(path, _)| {
            format!("{path} names the update `{stem}`: let it take the kernel of an `UpdateRule`, whichever that is")
        }));
    }
    complaints
}

fn every_layer_has_a_row(tree: &Tree) -> Vec<String> {
    let tables = tree.files("tests/layers/", ".rs");
    let rows: String = tables.flat_map(|(_, text)| text.split_whitespace()).collect();
    let missing = LAYERS.iter().filter(|entry| !rows.contains(&format!("row(\"{}\",", entry.kind)));
    missing
        .map(|entry| format!("the layer `{entry:?}` has no row in tests/layers/: write its contract there"))
        .collect()
}

fn every_layer_tells_of_splits(tree: &Tree) -> Vec<String> {
    let layers = tree.files("src/layers/", ".rs").filter(|(_, text)| text.contains("impl Layer for"));
    let others = ["src/losses/mod.rs", "src/optimizers/mod.rs"].map(|path| (path, tree.text(path)));
    let silent = layers.chain(others).filter(|(_, text)| !text.contains("**Across adapters**"));
    silent
        .map(|(path, _)| format!("{path}: say under `**Across adapters**` what splitting the batch changes"))
        .collect()
}

fn wgpu_is_named_in_one_folder(tree: &Tree) -> Vec<String> {
    let files = PACKAGES.iter().flat_map(|package| tree.files(package, ".rs"));
    let files = files.filter(|(path, _)| !path.starts_with("engine/src/adapters/gpu/"));
    let named = |line: &str| ["wgpu::", "use wgpu", "extern crate wgpu"].iter().any(|name| line.contains(name));
    let lines = files.flat_map(|(path, text)| code(text).map(move |(at, line)| (path, at, line)));
    lines
        .filter(|(_, _, line)| named(line))
        .map(|(path, at, _)| {
            format!(
                "{path}:{at} names wgpu: only engine/src/adapters/gpu/ may, behind the types of engine/src/adapters/"
            )
        })
        .collect()
}

/// What a user copies must compile against what is promised.
fn examples_use_the_public_api(tree: &Tree) -> Vec<String> {
    let lines =
        tree.files("examples/", ".rs").flat_map(|(path, text)| code(text).map(move |(at, line)| (path, at, line)));
    lines
        .filter(|(_, _, line)| line.contains("manyhands_"))
        .map(|(path, at, _)| format!("{path}:{at} uses what is unstable: make what it needs public, or do without"))
        .collect()
}

fn the_library_does_not_print(tree: &Tree) -> Vec<String> {
    let prints = |line: &str| ["println!(", "print!(", "dbg!("].iter().any(|name| line.contains(name));
    let files = ["src/", "engine/src/", "bench/src/"].into_iter().flat_map(|package| tree.files(package, ".rs"));
    let lines = files.flat_map(|(path, text)| code(text).map(move |(at, line)| (path, at, line)));
    lines
        .filter(|(_, _, line)| prints(line))
        .map(|(path, at, _)| format!("{path}:{at} prints: use `log`, which the user of the library can direct"))
        .collect()
}

const MAX_LINES: usize = 700;

fn files_are_short(tree: &Tree) -> Vec<String> {
    let long = tree.files("", ".rs").map(|(path, text)| (path, text.lines().count()));
    long.filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| {
            format!("{path} has {lines} lines: split it by what its parts are for; {MAX_LINES} is the most")
        })
        .collect()
}

fn nothing_is_left_for_later(tree: &Tree) -> Vec<String> {
    // This file has to name them.
    let files = tree.0.iter().filter(|(path, _)| *path != "tests/house/main.rs");
    let lines = files.flat_map(|(path, text)| (1..).zip(text.lines()).map(move |(at, line)| (path, at, line)));
    let mut complaints = Vec::new();
    for (path, at, line) in lines {
        let words: Vec<&str> = line.split(|letter: char| !letter.is_alphanumeric()).collect();
        if let Some(word) = ["TODO", "FIXME", "XXX", "HACK"].iter().find(|word| words.contains(word)) {
            complaints.push(format!("{path}:{at} says {word}: do it now, or write an issue and link it"));
        }
        if line.to_lowercase().contains("keep in sync") || line.to_lowercase().contains("keep these in sync") {
            complaints
                .push(format!("{path}:{at} asks to keep two things in sync: have one, or compare them in a test"));
        }
    }
    complaints
}

fn ignored_tests_say_why(tree: &Tree) -> Vec<String> {
    let lines = tree.files("", ".rs").flat_map(|(path, text)| code(text).map(move |(at, line)| (path, at, line)));
    let silent = lines.filter(|(path, _, line)| *path != "tests/house/main.rs" && line.trim() == "#[ignore]");
    silent
        .map(|(path, at, _)| format!("{path}:{at} ignores a test without a word: write `#[ignore = \"why\"]`"))
        .collect()
}

/// Documentation that begins like this refers to the item before it.
const RIDDLES: [&str; 4] = ["The same", "Which.", "It does.", "As above"];

/// Questions and fragments begin with these words; a statement begins with its subject, its verb, or `Whether`.
const FRAGMENTS: [&str; 29] = [
    "What", "Which", "Who", "Whose", "Whatever", "Whoever", "Why", "How", "Where", "When", "Those", "They", "It", "So",
    "Has", "Have", "Is", "Are", "Was", "Were", "Does", "Do", "May", "Can", "Must", "Would", "Did", "Could", "Will",
];

/// Whether documentation begins with a question or a fragment. The files of tests may: each asks one question.
fn asks(path: &str, doc: &str) -> bool {
    let word = doc.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
    !path.starts_with("tests/") && FRAGMENTS.contains(&word)
}

fn docs_say_what_they_mean(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in tree.files("", ".rs") {
        let mut before = "";
        for (at, line) in (1..).zip(text.lines()).map(|(at, line)| (at, line.trim_start())) {
            let doc = ["/// ", "//! "].iter().find_map(|mark| line.strip_prefix(mark));
            let begins = !["/// ", "//! "].iter().any(|mark| before.starts_with(mark));
            let is_first = !["///", "//!"].iter().any(|mark| before.starts_with(mark));
            let is_riddle = |doc: &str| RIDDLES.iter().any(|riddle| doc.starts_with(riddle));
            if let Some(doc) = doc.filter(|doc| begins && is_riddle(doc) || is_first && asks(path, doc)) {
                complaints.push(format!("{path}:{at} says \"{doc}\": say what it is, in words of its own"));
            }
            before = line;
        }
    }
    complaints
}

/// A rule, and a breach of it: what is added to which file, and a part of the complaint.
struct Rule {
    check: fn(&Tree) -> Vec<String>,
    breach: [&'static str; 2],
    complaint: &'static str,
}

static RULES: &[Rule] = &[
    Rule {
        check: every_entry_point_has_a_kernel,
        breach: ["engine/shaders/sgd.wgsl", "@compute @workgroup_size(64)\nfn extra() {}\n"],
        complaint: "engine/shaders/sgd.wgsl: the entry point `extra` has no kernel",
    },
    Rule {
        check: every_entry_point_has_a_kernel,
        breach: ["engine/shaders/new.wgsl", "// New.\n"],
        complaint: "engine/shaders/new.wgsl is no kernel's source",
    },
    Rule {
        check: every_shader_has_a_header,
        breach: ["engine/shaders/new.wgsl", "// New.\n//\n// Source    ours.\n// Grid      one.\n"],
        complaint: "engine/shaders/new.wgsl: its header has the fields [\"Source\", \"Grid\"]",
    },
    Rule {
        check: every_shader_has_a_header,
        breach: ["engine/shaders/new.wgsl", "struct Params {}\n"],
        complaint: "let its first line say in one sentence",
    },
    Rule {
        check: headers_name_their_twins,
        breach: ["engine/shaders/new.wgsl", "// New.\n//\n// Twin      src/kernels/sgd.rs, fn update, no_twin.\n"],
        complaint: "names `no_twin`, which src/kernels/sgd.rs lacks",
    },
    Rule {
        check: headers_name_their_twins,
        breach: ["engine/shaders/new.wgsl", "// New.\n//\n// Twin      src/kernels/new.rs\n"],
        complaint: "names `src/kernels/new.rs`, which is not there",
    },
    Rule {
        check: headers_name_their_libraries,
        breach: ["engine/shaders/new.wgsl", "// New.\n//\n// Uses      lib/grid.wgsl\n"],
        complaint: "Uses says {\"lib/grid.wgsl\"}, its kernels use {}",
    },
    Rule {
        check: every_library_is_one_of_the_table,
        breach: ["engine/shaders/lib/new.wgsl", "// New.\n"],
        complaint: "engine/shaders/lib/new.wgsl is no `kernels::Library`",
    },
    Rule {
        check: every_family_is_in_the_table,
        breach: ["engine/src/kernels/new.rs", "pub static KERNELS: &[&Kernel] = &[];\n"],
        complaint: "engine/src/kernels/new.rs is not in `kernels::FAMILIES`: add the line `new::KERNELS,`",
    },
    Rule {
        check: optimizers_are_formulas,
        breach: ["src/scheduler/new.rs", "use crate::kernels::lion;\n"],
        complaint: "src/scheduler/new.rs names the update `lion`",
    },
    Rule {
        check: every_layer_has_a_row,
        breach: ["tests/layers/rows.rs", ""],
        complaint: "the layer `Dense` has no row",
    },
    Rule {
        check: every_layer_tells_of_splits,
        breach: ["src/layers/new.rs", "impl Layer for New {}\n"],
        complaint: "src/layers/new.rs: say under `**Across adapters**`",
    },
    Rule {
        check: wgpu_is_named_in_one_folder,
        breach: ["src/model/new.rs", "\nuse wgpu::Device;\n"],
        complaint: "src/model/new.rs:2 names wgpu",
    },
    Rule {
        check: examples_use_the_public_api,
        breach: ["examples/new.rs", "use manyhands_engine::plan::Plan;\n"],
        complaint: "examples/new.rs:1 uses what is unstable",
    },
    Rule {
        check: dependencies_point_one_way,
        breach: ["src/layers/new.rs", "use crate::{Loss, data::Batch};\n"],
        complaint: "src/layers/new.rs:1 uses `crate::data::Batch` of src/data/batch.rs",
    },
    Rule {
        check: dependencies_point_one_way,
        breach: ["src/model/new.rs", "fn f() {\n    crate::scheduler::f();\n}\n"],
        complaint: "src/model/new.rs:2 uses `crate::scheduler::f`",
    },
    Rule {
        check: dependencies_point_one_way,
        breach: [
            "src/layers/new.rs",
            "use super::super::{\n    losses::Loss,\n    model::{\n        Model,\n    },\n};\n",
        ],
        complaint: "src/layers/new.rs:4 uses `super::super::model::Model` of src/model/mod.rs",
    },
    Rule {
        check: dependencies_point_one_way,
        breach: [
            "engine/src/adapters/cpu/new.rs",
            "use super::super::gpu as other;\nfn f() -> u8 {\n    other::device::f()\n}\n",
        ],
        complaint: "engine/src/adapters/cpu/new.rs:3 uses `other::device::f` of engine/src/adapters/gpu/device.rs",
    },
    Rule {
        check: dependencies_point_one_way,
        breach: [
            "src/losses/new.rs",
            "/* \" */ fn f(_: &'static str, _: char) -> crate::Model {\n    f(r#\"\"\"#, '\"')\n}\n",
        ],
        complaint: "src/losses/new.rs:1 uses `crate::Model` of src/model/mod.rs",
    },
    Rule {
        check: every_part_has_a_direction,
        breach: ["src/new/mod.rs", "//! New.\n"],
        complaint: "src/new/mod.rs is in no part of `USES`",
    },
    Rule {
        check: no_files_form_a_circle,
        breach: ["engine/src/size.rs", "\npub use crate::plan::Plan;\nfn f(plan: &Plan) {}\n"],
        complaint: "engine/src/kernels/mod.rs uses engine/src/size.rs",
    },
    Rule {
        check: types_have_one_home,
        breach: [
            "src/model/new.rs",
            "use crate::data::Batch;\nimpl Clone for Batch {}\nimpl<T: Fn() -> u8> Batch {}\n",
        ],
        complaint: "src/model/new.rs:3 has methods of `Batch`, which src/data/batch.rs declares",
    },
    Rule {
        check: the_map_names_every_part,
        breach: ["src/new/mod.rs", "//! New.\n"],
        complaint: "its map does not name `src/new/`",
    },
    Rule {
        check: the_map_names_every_part,
        breach: ["src/new.rs", "//! New.\n"],
        complaint: "its map does not name `src/new.rs`",
    },
    Rule {
        check: the_map_names_what_is_there,
        breach: ["engine/src/shape.rs", ""],
        complaint: "names `engine/src/shape.rs`, which is not there",
    },
    Rule {
        check: fronts_name_what_is_there,
        breach: ["src/model/build.rs", ""],
        complaint: "src/model/mod.rs: its list of files names `build.rs`",
    },
    Rule {
        check: every_file_says_what_it_is,
        breach: ["src/new.rs", "use crate::Shape;\n"],
        complaint: "src/new.rs: let its first line say",
    },
    Rule {
        check: every_test_asks_a_question,
        breach: ["tests/data/new.rs", "//! Tests of data.\n\n#[test]\nfn f() {}\n"],
        complaint: "tests/data/new.rs: ask in its first lines",
    },
    Rule { check: documents_are_short, breach: ["docs/design/new.md", WIDE], complaint: "new.md:1 is longer than 300" },
    Rule { check: documents_are_short, breach: ["ARCHITECTURE.md", HUGE], complaint: "bytes: 12000 is the most" },
    Rule {
        check: pages_of_decisions_have_four_parts,
        breach: ["docs/design/twins.md", "## Status\n"],
        complaint: "docs/design/twins.md has the parts",
    },
    Rule {
        check: pages_of_decisions_have_four_parts,
        breach: ["docs/design/new.md", "# New\n"],
        complaint: "docs/design/README.md does not list new.md",
    },
    Rule {
        check: the_library_does_not_print,
        breach: ["src/scheduler/new.rs", "// println!(\nfn f() { eprintln!(\"\"); }\n"],
        complaint: "src/scheduler/new.rs:2 prints",
    },
    Rule {
        check: nothing_is_left_for_later,
        breach: ["src/new.rs", "// TODO: more\n"],
        complaint: "src/new.rs:1 says TODO",
    },
    Rule {
        check: nothing_is_left_for_later,
        breach: ["engine/shaders/sgd.wgsl", "// Keep in sync with sgd.rs\n"],
        complaint: "asks to keep two things in sync",
    },
    Rule {
        check: ignored_tests_say_why,
        breach: ["tests/new.rs", "#[test]\n#[ignore]\nfn f() {}\n"],
        complaint: "tests/new.rs:2 ignores a test",
    },
    Rule {
        check: docs_say_what_they_mean,
        breach: ["src/new.rs", "fn f() {}\n\n/// The same with a bias.\nfn g() {}\n"],
        complaint: "src/new.rs:3 says \"The same with a bias.\"",
    },
    Rule {
        check: docs_say_what_they_mean,
        breach: [
            "src/new.rs",
            "/// Add a bias.\n///\n/// What is added.\nfn f() {}\n\n/// Is there a bias?\nfn g() {}\n",
        ],
        complaint: "src/new.rs:6 says \"Is there a bias?\"",
    },
    Rule { check: files_are_short, breach: ["src/new.rs", LONG], complaint: "src/new.rs has 701 lines" },
];

/// 701 lines.
const LONG: &str = text_of(&[b'\n'; MAX_LINES + 1]);

/// A line of 301 letters.
const WIDE: &str = text_of(&[b'a'; 301]);

/// 12,001 bytes.
const HUGE: &str = text_of(&[b'\n'; 12_001]);

const fn text_of(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => "",
    }
}

#[test]
fn the_house_is_in_order() {
    let tree = Tree::read();
    assert!(tree.0.len() > 50, "{} files were read", tree.0.len());
    let complaints: BTreeSet<String> = RULES.iter().flat_map(|rule| (rule.check)(&tree)).collect();
    let complaints: Vec<String> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "{} breaches of the house's rules:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn each_rule_finds_its_breach() {
    let tree = Tree::read();
    for rule in RULES {
        let mut tree = tree.clone();
        let [path, text] = rule.breach;
        match text {
            "" => drop(tree.0.remove(path)),
            text => tree.append(path, text),
        }
        let complaints = (rule.check)(&tree);
        let is_found = complaints.iter().any(|complaint| complaint.contains(rule.complaint));
        assert!(is_found, "`{text}` in {path}: {complaints:?} do not say `{}`", rule.complaint);
    }
}
