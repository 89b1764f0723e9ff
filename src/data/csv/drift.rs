//! Compares a later table with the training rows: a column that can't be the same quantity is a warning, or an error where
//! that is certain.

use super::encode::{Fields, Lost};
use crate::schema::{Code, Encoding, Seen, few};
use crate::{Error, Result, thousands};

/// Standard deviations from the mean beyond which a number is far, if it lies as far outside of the range of training, too.
const FAR: f64 = 10.0;
/// Numbers that all lie on one side of the training rows' range by chance in fewer than one of a thousand tables.
const FEWEST_OUTSIDE: usize = 3;
/// Chance below which rows that are all missing, or all of unknown categories, are certainly another column.
const CERTAIN: f64 = 1e-6;
/// Rows from which on parts of them can be compared; fewer are never refused.
const FEWEST_COMPARED: usize = 20;

/// Compares the fields of an input column. `who` names the table and the column.
pub(super) fn check(
    who: &str,
    fields: &Fields,
    lost: &Lost,
    (encoding, seen): (&Encoding, Option<&Seen>),
) -> Result<()> {
    let rows = fields.len();
    if let Some(seen) = seen {
        // Rows of one new category are no others by chance: those of a new shop, say.
        if lost.others == rows && lost.names.len() > 1 && is_certain(seen.others, seen.rows, rows) {
            return Err(all_unknown(who, lost, encoding));
        }
        if lost.missing == rows && is_certain(seen.missing, seen.rows, rows) {
            return Err(all_missing(who, rows, seen));
        }
    }
    numbers_of(who, fields, encoding, seen);
    if lost.others > 0 {
        log::warn!(
            "{who}: {} of {} values are of no category of the training rows and count as none ({})",
            thousands(lost.others),
            thousands(rows),
            few(&lost.names)
        );
    }
    missing(who, lost, rows, (encoding, seen));
    Ok(())
}

fn numbers_of(who: &str, fields: &Fields, encoding: &Encoding, seen: Option<&Seen>) {
    match encoding.code {
        Code::Number { .. } => numbers(who, fields.all(), seen),
        Code::Date { .. } => {
            if let Some(Distance { far: far @ 1.., rows, deviations, .. }) = distance(fields.all(), seen) {
                log::warn!(
                    "{who}: {} of {} dates are far from those of the training rows, up to {} standard deviations; is the form \
                     of the dates another?",
                    thousands(far),
                    thousands(rows),
                    thousands(format_args!("{deviations:.0}"))
                );
            }
        }
        _ => {}
    }
}

/// Warns of numbers that can't be the quantity of the training rows.
pub(super) fn numbers(who: &str, numbers: impl Iterator<Item = f64>, seen: Option<&Seen>) {
    let Some(Distance { rows, far, deviations, is_one_side, range: [low, high] }) = distance(numbers, seen) else {
        return;
    };
    let question = "is the decimal sign or the unit another?";
    if far > 0 {
        log::warn!(
            "{who}: {} of {} values are far from those of the training rows ({low} to {high}), up to {} standard deviations; \
             {question}",
            thousands(far),
            thousands(rows),
            thousands(format_args!("{deviations:.0}"))
        );
    } else if is_one_side && rows >= FEWEST_OUTSIDE {
        log::warn!(
            "{who}: all {} values are outside of those of the training rows ({low} to {high}); {question}",
            thousands(rows)
        );
    }
}

/// Distance of numbers from those of the training rows.
struct Distance {
    rows: usize,
    far: usize,
    /// The largest distance from the mean, in standard deviations.
    deviations: f64,
    /// Whether all are below, or all above, those of the training rows.
    is_one_side: bool,
    range: [f64; 2],
}

fn distance(numbers: impl Iterator<Item = f64>, seen: Option<&Seen>) -> Option<Distance> {
    let seen = seen?;
    let range @ [low, high] = seen.range?;
    let (mut below, mut above) = (0, 0);
    let mut distance = Distance { rows: 0, far: 0, deviations: 0.0, is_one_side: false, range };
    for number in numbers {
        distance.rows += 1;
        below += usize::from(number < low);
        above += usize::from(number > high);
        let outside = (low - number).max(number - high);
        let deviations = (number - seen.mean).abs() / seen.deviation;
        if outside > high - low && deviations > FAR && deviations.is_finite() {
            distance.far += 1;
            distance.deviations = distance.deviations.max(deviations);
        }
    }
    distance.is_one_side = distance.rows > 0 && (below == distance.rows || above == distance.rows);
    Some(distance)
}

/// Whether so many rows that are all of a kind are certainly no chance, by the training rows of that kind.
#[allow(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^52")]
fn is_certain(of_kind: usize, trained: usize, rows: usize) -> bool {
    let chance = (of_kind as f64 + 1.0) / (trained as f64 + 2.0);
    rows >= FEWEST_COMPARED && rows as f64 * chance.ln() < CERTAIN.ln()
}

fn all_unknown(who: &str, lost: &Lost, encoding: &Encoding) -> Error {
    let (Code::Category { categories } | Code::Index { categories }) = &encoding.code else {
        return Error::data(who, "needs known categories", "check the column");
    };
    Error::data(
        who,
        format!("needs categories of the training rows, but none of its values is one ({})", few(&lost.names)),
        format!("check that it is the right column, written as in training: {}", few(categories)),
    )
}

fn all_missing(who: &str, rows: usize, seen: &Seen) -> Error {
    Error::data(
        who,
        format!(
            "needs values, but all {} are missing, and of {} training rows {} were",
            thousands(rows),
            thousands(seen.rows),
            thousands(seen.missing)
        ),
        "check that it is the right column; a model can't do without what it was trained on",
    )
}

/// Warns of missing values that were rare in the training rows, or unknown.
fn missing(who: &str, lost: &Lost, rows: usize, (encoding, seen): (&Encoding, Option<&Seen>)) {
    if lost.missing == 0 || matches!(encoding.code, Code::Index { .. }) {
        return;
    }
    if !encoding.indicator {
        let (values, are) = if lost.missing == 1 { ("value", "is") } else { ("values", "are") };
        log::warn!(
            "{who}: {} missing {values} (none in training) {are} filled with the usual value",
            thousands(lost.missing)
        );
    } else if let Some(seen) = seen
        && rows >= FEWEST_COMPARED
        && lost.missing * 2 > rows
        && seen.missing * 4 < seen.rows
    {
        log::warn!(
            "{who}: {} of {} values are missing, in training {} of {}",
            thousands(lost.missing),
            thousands(rows),
            thousands(seen.missing),
            thousands(seen.rows)
        );
    }
}
