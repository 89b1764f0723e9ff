//! The place of an error whose path serde has lost: serde buffers an enum that is chosen by its `type`, and a reader that
//! looks a name up in a table of kinds raises errors of another reader.

use super::error::{PathStep, ReadError, ReadReason};
use super::tree::Tree;

/// Key that chooses what the other keys of its table mean.
const KIND: &str = "type";

/// Most elements that are tried one by one: each takes a reading of the whole tree.
const MOST: usize = 1000;

/// Reads a tree; the error, if there is one.
type Refusal<'a> = &'a dyn Fn(&Tree) -> Option<ReadError>;

/// The error with a path that goes on to the value without which it would vanish, or be another one.
pub(super) fn located(tree: &Tree, error: ReadError, refusal: Refusal<'_>) -> ReadError {
    let search = Search { tree, error: &error, refusal };
    let mut path = error.path.clone();
    match &error.reason {
        ReadReason::MissingField(name) => path = search.lacking(&path, name).unwrap_or(path),
        _ => {
            while let Some(step) = search.step(&path) {
                path.push(step);
            }
        }
    }
    ReadError { path, ..error }
}

/// A tree, the error of reading it, and the reader.
struct Search<'a> {
    tree: &'a Tree,
    error: &'a ReadError,
    refusal: Refusal<'a>,
}

impl Search<'_> {
    /// Step from a table or list to the element that the error is about.
    fn step(&self, path: &[PathStep]) -> Option<PathStep> {
        let mut steps = self.steps(path);
        // The last one to leave out: without it, nothing can be read.
        steps.sort_by_key(|step| !is_kind(step));
        let mut rest = self.tree.clone();
        let mut needed = Vec::new();
        for step in steps.into_iter().rev() {
            let mut less = rest.clone();
            less.at_mut(path)?.remove(&step);
            match (self.refusal)(&less) {
                Some(error) if is_same(&error, self.error) => rest = less,
                error => needed.push((step, error)),
            }
        }
        needed.reverse();
        culprit(&needed).cloned()
    }

    /// The steps from a table or list, unless they are too many.
    fn steps(&self, path: &[PathStep]) -> Vec<PathStep> {
        let steps = self.tree.at(path).map(Tree::steps).unwrap_or_default();
        if steps.len() > MOST { Vec::new() } else { steps }
    }

    /// The path to the table at a path, or within it, that lacks a key: with it, the error would be another one.
    fn lacking(&self, path: &[PathStep], name: &str) -> Option<Vec<PathStep>> {
        let node = self.tree.at(path)?;
        if matches!(node, Tree::Table(_)) && node.get(&name.into()).is_none() {
            let mut more = self.tree.clone();
            if let Some(Tree::Table(entries)) = more.at_mut(path) {
                entries.push((name.to_owned(), Tree::Nothing));
            }
            let error = (self.refusal)(&more);
            let is_unknown = error.as_ref().is_some_and(|error| is_unknown(&error.reason, name));
            if !is_unknown && error.is_none_or(|error| !is_same(&error, self.error)) {
                return Some(path.to_vec());
            }
        }
        self.steps(path).into_iter().find_map(|step| self.lacking(&[path, &[step]].concat(), name))
    }
}

/// The culprit among the elements without which another error comes, or none.
fn culprit(needed: &[(PathStep, Option<ReadError>)]) -> Option<&PathStep> {
    match needed {
        [(step, _)] => Some(step),
        // Of several elements of a list, none is the one.
        [(PathStep::Index(_), _), ..] => None,
        _ => {
            let keys = || needed.iter().filter(|(step, _)| !is_kind(step));
            // A table that lacks a key may be refused for that alone.
            let first = keys().find(|(step, error)| !is_lack_of(step, error.as_ref())).or_else(|| keys().next());
            first.map(|(step, _)| step)
        }
    }
}

fn is_kind(step: &PathStep) -> bool {
    matches!(step, PathStep::Key(key) if key == KIND)
}

/// Whether an error says that a table lacks the key of a step.
fn is_lack_of(step: &PathStep, error: Option<&ReadError>) -> bool {
    let name = error.and_then(|error| match error.reason {
        ReadReason::MissingField(name) => Some(name),
        _ => None,
    });
    matches!((step, name), (PathStep::Key(key), Some(name)) if key == name)
}

fn is_unknown(reason: &ReadReason, name: &str) -> bool {
    matches!(reason, ReadReason::UnknownField { name: unknown, .. } if unknown == name)
}

/// Whether two errors say the same. Not `==`, since `nan` is not equal to itself.
fn is_same(one: &ReadError, other: &ReadError) -> bool {
    format!("{one:?}") == format!("{other:?}")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::super::{PathStep, ReadError, Tree, read};

    #[derive(Debug, Deserialize)]
    struct Run {
        #[serde(rename = "schedule")]
        _schedule: Schedule,
    }

    /// Buffered by serde, which then knows no key.
    #[derive(Debug, Deserialize)]
    #[serde(tag = "type", deny_unknown_fields)]
    enum Schedule {
        Steps {
            #[serde(rename = "first")]
            _first: u32,
            #[serde(rename = "rates")]
            _rates: Vec<f32>,
            #[serde(default, rename = "last")]
            _last: Option<Last>,
        },
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Last {
        #[serde(rename = "step")]
        _step: u32,
    }

    fn path(schedule: serde_json::Value) -> String {
        let error: ReadError = read::<Run>(&Tree::from(json!({ "schedule": schedule }))).unwrap_err();
        error.path.iter().map(PathStep::to_string).collect::<Vec<_>>().join(".")
    }

    #[test]
    fn the_place_within_a_buffered_table_is_found() {
        for (schedule, expected) in [
            (json!({"type": "Steps", "first": "x", "rates": []}), "schedule.first"),
            (json!({"type": "Steps", "first": 1, "rates": [0.5, "x"]}), "schedule.rates.1"),
            (json!({"type": "Steps", "first": 1, "rates": ["x", "x"]}), "schedule.rates.0"),
            (json!({"type": "Steps", "first": 1, "rates": [], "second": 2}), "schedule.second"),
            (json!({"type": "Step", "first": 1, "rates": []}), "schedule.type"),
            (json!({"type": "Steps", "rates": []}), "schedule"),
            (json!({"first": 1}), "schedule"),
            (json!({"type": "Steps", "first": 1, "rates": [], "last": {}}), "schedule.last"),
            (json!({"type": "Steps", "first": 1, "rates": [], "last": {"step": -1}}), "schedule.last.step"),
            (json!({"type": "Steps", "first": 1, "rates": [], "last": {"steps": 1}}), "schedule.last.steps"),
            (json!({"type": "Steps", "first": "x", "rates": "x"}), "schedule.first"),
            (json!(3), "schedule"),
        ] {
            assert_eq!(path(schedule.clone()), expected, "{schedule}");
        }
    }
}
