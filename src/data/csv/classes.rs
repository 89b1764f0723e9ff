//! Classes of a target: their names, and the labels of the rows.

use std::collections::BTreeMap;

use ndarray::Array1;

use super::numerals::plain;
use crate::data::label_value;
use crate::schema::few;

/// The labels of one target, by the order in which the classes were met.
#[derive(Default)]
pub(super) struct ClassLabels {
    pub labels: Vec<usize>,
    pub met: BTreeMap<String, usize>,
    /// The only classes that may be met.
    pub known: Option<Vec<String>>,
}

impl ClassLabels {
    /// Adds the class of a row; the error is what was needed.
    pub fn push(&mut self, name: &str) -> Result<(), String> {
        let next = self.met.len();
        let label = match (self.met.get(name), &self.known) {
            (Some(&label), _) => label,
            (None, _) if name.is_empty() => return Err("needs a class".into()),
            (None, _) if name.contains(['\n', '\r']) => {
                return Err("needs a class on one line (is a quote not closed?)".into());
            }
            (None, Some(known)) => match equal_number(name, known) {
                Some(label) => label,
                None => return Err(format!("needs one of the training table's classes ({})", few(known))),
            },
            (None, None) => {
                self.met.insert(name.into(), next);
                next
            }
        };
        self.labels.push(label);
        Ok(())
    }
}

/// From here on different whole numbers may be the same float.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The number that a class's name represents, if any, with either decimal sign. Account numbers of more digits than a float has, and codes such
/// as `1E5`, are names alone: programs write `1e5` or `1E+05`.
pub(crate) fn number(name: &str) -> Option<f64> {
    let number = name.parse().ok().or_else(|| plain(name, ',')?.parse().ok());
    let is_code = name.split_once('E').is_some_and(|(_, behind)| !behind.starts_with(['+', '-']));
    number.filter(|number: &f64| number.abs() < EXACT && !is_code)
}

/// The numbers that classes represent, where all are numbers.
pub(crate) fn numbers(classes: &[String]) -> Option<Vec<f64>> {
    classes.iter().map(|class| number(class)).collect()
}

/// The class that is equal to `name` as a number, where all classes are numbers.
pub(super) fn equal_number(name: &str, classes: &[String]) -> Option<usize> {
    let wanted = number(name)?;
    numbers(classes)?.iter().position(|number| *number == wanted)
}

/// Class names sorted, by value if all are numbers; then those of equal value are one class, by its shortest name.
pub(super) fn sorted(classes: &BTreeMap<String, usize>) -> Vec<String> {
    let names: Vec<&String> = classes.keys().collect();
    let Some(values) = names.iter().map(|name| number(name)).collect::<Option<Vec<f64>>>() else {
        return names.into_iter().cloned().collect();
    };
    // 0 and -0 are equal, too.
    let mut by_value: Vec<(f64, &String)> = values.into_iter().map(|value| value + 0.0).zip(names).collect();
    by_value.sort_by(|(a, a_name), (b, b_name)| {
        a.total_cmp(b).then(a_name.len().cmp(&b_name.len())).then(a_name.cmp(b_name))
    });
    by_value.dedup_by(|(a, _), (b, _)| a == b);
    by_value.into_iter().map(|(_, name)| name.clone()).collect()
}

/// Labels in the order of `names`, from labels in the order in which the classes were met.
pub(super) fn relabel(labels: &[usize], classes: &BTreeMap<String, usize>, names: &[String]) -> Array1<f32> {
    let place: BTreeMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
    let mut sorted_label = vec![0.0; classes.len()];
    for (name, &met) in classes {
        if let Some(label) = place.get(name.as_str()).copied().or_else(|| equal_number(name, names)) {
            sorted_label[met] = label_value(label);
        }
    }
    labels.iter().map(|&met| sorted_label[met]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_floats_confuse_are_classes_of_their_own() {
        let of = |names: &[&str]| sorted(&names.iter().map(|name| ((*name).to_owned(), 0)).collect());
        assert_eq!(of(&["2", "10", "2.0"]), ["2", "10"]);
        assert_eq!(of(&["1234567890123456781", "1234567890123456782"]).len(), 2);
        assert_eq!(of(&["1E5", "10E4"]), ["10E4", "1E5"]);
        assert_eq!(of(&["1e5", "1E+05", "100000"]), ["1e5"]);
        assert_eq!(equal_number("1234567890123456782", &["1234567890123456781".into()]), None);
    }
}
