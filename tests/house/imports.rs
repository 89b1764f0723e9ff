//! Which file of a package names which: through `use`, through paths, through names that another file passes on.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust::{self, Import, Mention, Source, Within};

/// A name of one file that another uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tie {
    pub from: String,
    pub line: usize,
    /// The path as it was written.
    pub path: String,
    pub to: String,
}

/// The modules of a crate, by their paths.
pub struct Modules<'a> {
    files: BTreeMap<Vec<String>, (&'a str, Source)>,
}

/// Names behind which a path may be passed on: more would be a circle of re-exports.
const MOST_HOPS: usize = 16;

impl<'a> Modules<'a> {
    /// Reads the files of a package below `root`, by their paths in the repository.
    pub fn read(root: &str, files: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let files = files.map(|(path, text)| {
            let inner = path.trim_start_matches(root).trim_end_matches(".rs").trim_end_matches("/mod");
            let module: Vec<&str> = inner.split('/').filter(|name| *name != "lib").collect();
            (module.iter().map(ToString::to_string).collect(), (path, rust::read(text, &module)))
        });
        Self { files: files.collect() }
    }

    pub fn sources(&self) -> impl Iterator<Item = (&'a str, &Source)> {
        self.files.values().map(|(path, source)| (*path, source))
    }

    /// The file that declares a type which a file names.
    pub fn declaring_type(&self, source: &Source, name: &str) -> Option<&'a str> {
        let path: Vec<String> = source.module.iter().cloned().chain([name.to_owned()]).collect();
        self.declaring(&path, MOST_HOPS)
    }

    /// Every tie between two files that `within` allows.
    pub fn ties(&self, within: &[Within]) -> Vec<Tie> {
        let mut ties = Vec::new();
        for (from, source) in self.files.values() {
            let mentions = source.mentions.iter().filter(|mention| within.contains(&mention.within));
            for mention in mentions {
                let to = self.target(source, mention).filter(|to| to != from);
                let path = mention.path.join("::");
                ties.extend(to.map(|to| Tie { from: (*from).to_owned(), line: mention.line, path, to: to.to_owned() }));
            }
        }
        ties
    }

    /// The file of what a mention names. A name that is only passed on, and a module that is only imported, name none.
    fn target(&self, source: &Source, mention: &Mention) -> Option<&'a str> {
        if mention.import == Some(Import::Passed) {
            return None;
        }
        let path = self.absolute(source, &mention.base, &mention.path)?;
        let is_glob = mention.import.is_some() && source.globs.contains(&mention.path);
        if (mention.import.is_some() || mention.path.len() == 1) && self.files.contains_key(&path) && !is_glob {
            return None;
        }
        self.declaring(&path, MOST_HOPS)
    }

    /// A path from the crate's root, if it begins in this crate.
    fn absolute(&self, source: &Source, base: &[String], path: &[String]) -> Option<Vec<String>> {
        let mut names = path.iter();
        let first = names.next()?;
        let mut found = match first.as_str() {
            "crate" => Vec::new(),
            "self" => base.to_vec(),
            "super" => base[..base.len().checked_sub(1)?].to_vec(),
            name => {
                let child: Vec<String> = base.iter().cloned().chain([name.to_owned()]).collect();
                match source.imports.get(name) {
                    _ if self.files.contains_key(&child) => child,
                    Some(imported) if imported != path => self.absolute(source, &source.module, imported)?,
                    _ => return None,
                }
            }
        };
        for name in names {
            match name.as_str() {
                "super" => found.truncate(found.len().checked_sub(1)?),
                "self" => {}
                name => found.push(name.to_owned()),
            }
        }
        Some(found)
    }

    /// The file that declares what stands at a path: the names that a module passes on are followed.
    fn declaring(&self, path: &[String], hops: usize) -> Option<&'a str> {
        let depth = (0..=path.len()).rev().find(|depth| self.files.contains_key(&path[..*depth]))?;
        let (file, source) = &self.files[&path[..depth]];
        let Some(name) = path.get(depth).filter(|_| hops > 0) else { return Some(*file) };
        if source.declared.contains(name) {
            return Some(*file);
        }
        let imported = source.imports.get(name).cloned();
        let follow =
            imported.or_else(|| self.glob_with(source, name)).and_then(|to| self.absolute(source, &source.module, &to));
        if depth == 0 && follow.is_none() {
            return self
                .sources()
                .find(|(_, source)| source.macros.contains(name))
                .map_or(Some(*file), |(to, _)| Some(to));
        }
        let Some(mut target) = follow else { return Some(*file) };
        target.extend_from_slice(&path[depth + 1..]);
        self.declaring(&target, hops - 1).or(Some(*file))
    }

    /// The path of a name behind one of a file's `use …::*`.
    fn glob_with(&self, source: &Source, name: &str) -> Option<Vec<String>> {
        source.globs.iter().find_map(|glob| {
            let module = self.absolute(source, &source.module, glob)?;
            let (_, there) = self.files.get(&module)?;
            let has = there.declared.contains(name) || there.imports.contains_key(name);
            has.then(|| glob.iter().cloned().chain([name.to_owned()]).collect())
        })
    }
}

/// Groups of files that name each other in a circle, each group in order.
pub fn circles(ties: &[Tie]) -> Vec<Vec<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for tie in ties {
        next.entry(&tie.from).or_default().insert(&tie.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|from| (*from, reach(&next, from))).collect();
    let is_tied = |a: &str, b: &str| reached[a].contains(b) && reached.get(b).is_some_and(|back| back.contains(a));
    let mut groups: Vec<Vec<String>> = Vec::new();
    for file in next.keys().filter(|file| is_tied(file, file)) {
        match groups.iter_mut().find(|group| is_tied(file, &group[0])) {
            Some(group) => group.push((*file).to_owned()),
            None => groups.push(vec![(*file).to_owned()]),
        }
    }
    groups
}

/// All files that one names, and those that they name.
fn reach<'a>(next: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        let new: Vec<&str> = next.get(file).into_iter().flatten().filter(|to| seen.insert(**to)).copied().collect();
        open.extend(new);
    }
    seen
}
