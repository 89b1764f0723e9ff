//! Names of a table's columns, each of its own.

use std::collections::{BTreeMap, BTreeSet};

use ::csv::StringRecord;

/// Names as messages, settings and model files have them, and the written ones of those columns that share theirs with others.
///
/// Columns of one name are numbered in their order: `a, y, a` becomes `a (1), y, a (2)`. So no name stands for several columns, and none for
/// the first of them alone: a later table with one column `a` has neither. Columns without a name stay without.
pub(super) fn distinct(written: &StringRecord) -> (StringRecord, BTreeMap<usize, String>) {
    let (mut met, mut shared) = (BTreeSet::new(), BTreeSet::new());
    for name in written.iter().filter(|name| !name.is_empty()) {
        if !met.insert(name) {
            shared.insert(name);
        }
    }
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut renamed = BTreeMap::new();
    let mut own = |(index, name): (usize, &str)| {
        if !shared.contains(name) {
            return name.to_owned();
        }
        renamed.insert(index, name.to_owned());
        let number = numbers.entry(written.get(index).unwrap_or_default()).or_default();
        loop {
            *number += 1;
            let own = format!("{name} ({number})");
            if !met.contains(&*own) {
                return own;
            }
        }
    };
    let names = written.iter().enumerate().map(&mut own).collect();
    (names, renamed)
}

/// A name without the number that tells it apart.
pub(super) fn written(name: &str) -> &str {
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    let parts = name.strip_suffix(')').and_then(|name| name.rsplit_once(" ("));
    parts.filter(|(_, number)| is_number(number)).map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_one_name_are_numbered() {
        for (written, expected) in [
            (&["a", "y"][..], &["a", "y"][..]),
            (&["a", "y", "a", "a"], &["a (1)", "y", "a (2)", "a (3)"]),
            (&["a", "a (1)", "a"], &["a (2)", "a (1)", "a (3)"]),
            (&["", "a", ""], &["", "a", ""]),
        ] {
            let (names, renamed) = distinct(&StringRecord::from(written));
            assert_eq!(names.iter().collect::<Vec<_>>(), expected);
            assert!(renamed.iter().all(|(index, name)| {
                let own = &names[*index];
                own != name && super::written(own) == name && super::written(name) == name
            }));
        }
    }
}
