//! Columns as they were read, the encodings that fit them, and the elements that they become.

use std::collections::BTreeMap;

use super::classes::{equal_number, sorted};
use super::dates;
use super::dialect::Dialect;
use super::settings::{ColumnKind, CsvSettings, NumberScale};
use super::survey::boolean;
use crate::schema::{Code, Encoding, Missing, Seen};

/// Kind of a column, and its treatment of missing fields.
#[derive(Clone, Debug)]
pub(super) struct ColumnReading {
    pub kind: ColumnKind,
    /// The encoding of the training table.
    pub known: Option<Encoding>,
    /// Whether a missing field is an error.
    pub missing: Missing,
}

/// The fields of a column. Missing ones are NaN, or [`NONE`].
#[derive(Clone, Debug)]
pub(super) enum Fields {
    Numbers(Vec<f64>),
    Days(Vec<f64>),
    Names { places: Vec<u32>, met: BTreeMap<String, u32> },
}

const NONE: u32 = u32::MAX;

/// Fields that have no element of their own.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost {
    /// Missing fields.
    pub missing: usize,
    /// Fields of categories that have no element, and their names.
    pub others: usize,
    pub names: Vec<String>,
}

impl ColumnReading {
    /// A column of a table whose encoding is to be found.
    pub fn new(kind: ColumnKind, missing: Missing) -> Self {
        Self { kind, known: None, missing }
    }

    /// A column of the training table.
    pub fn of(encoding: Option<&Encoding>) -> Self {
        let encoding = encoding.unwrap_or(&Encoding::UNCHANGED);
        let kind = match &encoding.code {
            Code::Number { .. } => ColumnKind::Number,
            Code::Boolean => ColumnKind::Boolean,
            Code::Category { .. } => ColumnKind::Category,
            Code::Index { .. } => ColumnKind::Index,
            Code::Date { format, .. } => ColumnKind::Date(Some(format.clone())),
        };
        let missing = if encoding.fill.is_some() { Missing::Fill } else { Missing::Error };
        Self { kind, known: Some(encoding.clone()), missing }
    }
}

impl Fields {
    pub fn new(kind: &ColumnKind) -> Self {
        match kind {
            ColumnKind::Number | ColumnKind::Boolean => Self::Numbers(Vec::new()),
            ColumnKind::Date(_) => Self::Days(Vec::new()),
            ColumnKind::Category | ColumnKind::Index => Self::Names { places: Vec::new(), met: BTreeMap::new() },
        }
    }

    /// Makes room for one more; a table may be larger than memory.
    pub fn has_room(&mut self) -> bool {
        match self {
            Self::Numbers(values) | Self::Days(values) => values.try_reserve(1).is_ok(),
            Self::Names { places, .. } => places.try_reserve(1).is_ok(),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(values) | Self::Days(values) => values.len(),
            Self::Names { places, .. } => places.len(),
        }
    }

    /// Adds a field; the error is what was needed.
    pub fn push(&mut self, field: &str, reading: &ColumnReading, dialect: &Dialect) -> Result<(), String> {
        let value = match self {
            Self::Names { places, met } => {
                let is_missing = dialect.is_missing(field);
                if is_missing && reading.missing == Missing::Error {
                    return Err("needs a category".into());
                }
                let next = u32::try_from(met.len()).unwrap_or(NONE);
                let place = if is_missing {
                    NONE
                } else {
                    met.get(field).copied().unwrap_or_else(|| *met.entry(field.to_owned()).or_insert(next))
                };
                places.push(place);
                return Ok(());
            }
            _ => value(field, &reading.kind, dialect),
        };
        // A number such as -999 may stand for a missing one.
        let value = match (value, dialect.is_missing(field)) {
            (Some(value), false) => value,
            (_, true) if reading.missing == Missing::Fill => f64::NAN,
            _ => return Err(needed(&reading.kind)),
        };
        match self {
            Self::Numbers(values) | Self::Days(values) => values.push(value),
            Self::Names { .. } => {}
        }
        Ok(())
    }

    /// The numbers at some rows that are there.
    fn numbers<'a>(&'a self, rows: &'a [usize]) -> Box<dyn Iterator<Item = f64> + 'a> {
        match self {
            Self::Numbers(values) | Self::Days(values) => {
                Box::new(rows.iter().map(|row| values[*row]).filter(|value| !value.is_nan()))
            }
            Self::Names { .. } => Box::new(std::iter::empty()),
        }
    }

    /// Number of the fields of each category in some rows.
    fn counts(&self, rows: &[usize]) -> BTreeMap<String, usize> {
        let Self::Names { places, met } = self else { return BTreeMap::new() };
        let mut counts = vec![0; met.len()];
        rows.iter().filter_map(|row| counts_at(places[*row])).for_each(|place| counts[place] += 1);
        let counted = met.iter().map(|(name, place)| (name.clone(), counts[*place as usize]));
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// Number of the missing fields in some rows.
    pub fn missing(&self, rows: impl Iterator<Item = usize>) -> usize {
        rows.filter(|row| self.is_missing(*row)).count()
    }

    /// The different names that are there.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        let met = if let Self::Names { met, .. } = self { Some(met) } else { None };
        met.into_iter().flat_map(BTreeMap::keys)
    }

    /// All numbers that are there.
    pub fn all(&self) -> impl Iterator<Item = f64> + '_ {
        let values: &[f64] = if let Self::Numbers(values) | Self::Days(values) = self { values } else { &[] };
        values.iter().copied().filter(|value| !value.is_nan())
    }

    /// Whether all are numbers without a fraction, as an `Embedding` needs them, and none is missing.
    pub fn are_whole_numbers(&self) -> bool {
        matches!(self, Self::Numbers(values) if values.iter().all(|value| value.fract() == 0.0))
    }

    /// Contents of the training rows.
    pub fn seen(&self, encoding: &Encoding, rows: &[usize]) -> Seen {
        let missing = self.missing(rows.iter().copied());
        let (Code::Category { categories } | Code::Index { categories }, Self::Names { places, .. }) =
            (&encoding.code, self)
        else {
            return Seen { rows: rows.len(), missing, ..spread_of(|| self.numbers(rows)) };
        };
        let known = self.places_in(categories);
        let is_other = |place: usize| known[place].is_none();
        let others = rows.iter().filter_map(|row| counts_at(places[*row])).filter(|place| is_other(*place)).count();
        Seen { rows: rows.len(), missing, others, ..Seen::default() }
    }

    /// Root mean square of the numbers that are there.
    pub fn size(&self) -> Option<f64> {
        let Self::Numbers(values) = self else { return None };
        let squares = values.iter().filter(|value| !value.is_nan()).map(|value| value.powi(2));
        #[allow(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^52")]
        let count = values.len().max(1) as f64;
        Some((squares.sum::<f64>() / count).sqrt())
    }

    fn is_missing(&self, row: usize) -> bool {
        match self {
            Self::Numbers(values) | Self::Days(values) => values[row].is_nan(),
            Self::Names { places, .. } => places[row] == NONE,
        }
    }

    /// The encoding that fits the fields at `rows`, those to train on.
    pub fn fit(&self, kind: &ColumnKind, settings: &CsvSettings, rows: &[usize]) -> Encoding {
        let (code, fill) = match kind {
            ColumnKind::Number => {
                let (mean, offset, scale) = spread(|| self.numbers(rows), settings.numbers);
                (Code::Number { offset, scale }, mean)
            }
            ColumnKind::Date(form) => {
                let (mean, offset, scale) = spread(
                    || Box::new(self.numbers(rows).map(|days| days / dates::DAYS_OF_YEAR)),
                    match settings.numbers {
                        // Years are far from 0.
                        NumberScale::Unchanged => NumberScale::Standardize,
                        other => other,
                    },
                );
                let format = form.clone().unwrap_or_default();
                (Code::Date { format, offset, scale }, mean * dates::DAYS_OF_YEAR)
            }
            ColumnKind::Boolean => {
                let yes = self.numbers(rows).filter(|value| *value > 0.0).count();
                (Code::Boolean, f64::from(u8::from(yes * 2 > self.numbers(rows).count())))
            }
            ColumnKind::Category | ColumnKind::Index => {
                let counts = self.counts(rows);
                let mut by_count: Vec<(&String, usize)> = counts.iter().map(|(name, count)| (name, *count)).collect();
                by_count.sort_by(|(a, a_count), (b, b_count)| b_count.cmp(a_count).then(a.cmp(b)));
                let most = by_count.first().map(|(name, _)| (*name).clone());
                let kept = by_count.into_iter().take(settings.max_categories.max(1));
                let kept: BTreeMap<String, usize> = kept.map(|(name, count)| (name.clone(), count)).collect();
                let categories = sorted(&kept);
                let fill = most.and_then(|most| place_of(&most, &categories)).map_or(0, label);
                let code =
                    if *kind == ColumnKind::Index { Code::Index { categories } } else { Code::Category { categories } };
                (code, f64::from(fill))
            }
        };
        let is_filled = settings.missing == Missing::Fill;
        // An index has its 0 for what is missing.
        let indicator = is_filled && *kind != ColumnKind::Index && rows.iter().any(|row| self.is_missing(*row));
        Encoding { code, fill: is_filled.then_some(fill), indicator }
    }

    /// Writes the elements of all rows, `stride` apart, from `first` on.
    pub fn write(&self, encoding: &Encoding, to: &mut [f32], first: usize, stride: usize) -> Lost {
        let mut lost = Lost::default();
        let categories = match &encoding.code {
            Code::Category { categories } | Code::Index { categories } => categories,
            _ => &Vec::new(),
        };
        let places = self.places_in(categories);
        let fill = encoding.fill.unwrap_or_default();
        for (row, to) in to.chunks_exact_mut(stride).enumerate() {
            let to = &mut to[first..first + encoding.width()];
            let is_missing = self.is_missing(row);
            lost.missing += usize::from(is_missing);
            if encoding.indicator {
                to[encoding.width() - 1] = f32::from(u8::from(is_missing));
            }
            let place = || match self {
                Self::Names { places: of_rows, .. } if !is_missing => places[of_rows[row] as usize],
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the place of a category")]
                _ => Some(fill as usize).filter(|place| *place < categories.len()),
            };
            let number = || match self {
                Self::Numbers(values) | Self::Days(values) if !is_missing => values[row],
                _ => fill,
            };
            match &encoding.code {
                Code::Number { offset, scale } => to[0] = single((number() - offset) / scale),
                Code::Boolean => to[0] = single(number()),
                Code::Category { .. } => match place() {
                    Some(place) => to[place] = 1.0,
                    None => lost.others += 1,
                },
                Code::Index { .. } if is_missing => to[0] = 0.0,
                Code::Index { .. } => match place() {
                    Some(place) => to[0] = single(f64::from(label(place)) + 1.0),
                    None => lost.others += 1,
                },
                Code::Date { format, offset, scale } => {
                    for (to, element) in to.iter_mut().zip(dates::elements(number(), format.contains("%H"))) {
                        *to = single(element);
                    }
                    to[0] = single((number() / dates::DAYS_OF_YEAR - offset) / scale);
                }
            }
        }
        if let Self::Names { met, .. } = self {
            let is_lost = |(_, place): &(&String, &u32)| places[**place as usize].is_none();
            lost.names = met.iter().filter(is_lost).map(|(name, _)| name.clone()).collect();
        }
        lost
    }

    /// The category of each name that was met, by the order in which they were met.
    fn places_in(&self, categories: &[String]) -> Vec<Option<usize>> {
        let Self::Names { met, .. } = self else { return Vec::new() };
        let known: BTreeMap<&str, usize> = categories.iter().map(String::as_str).zip(0..).collect();
        let mut places = vec![None; met.len()];
        for (name, place) in met {
            places[*place as usize] = known.get(name.as_str()).copied().or_else(|| equal_number(name, categories));
        }
        places
    }
}

fn counts_at(place: u32) -> Option<usize> {
    (place != NONE).then_some(place as usize)
}

fn place_of(name: &str, categories: &[String]) -> Option<usize> {
    categories.iter().position(|known| known == name).or_else(|| equal_number(name, categories))
}

fn label(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[allow(clippy::cast_possible_truncation, reason = "elements are f32")]
pub(super) fn single(value: f64) -> f32 {
    value as f32
}

fn value(field: &str, kind: &ColumnKind, dialect: &Dialect) -> Option<f64> {
    match kind {
        ColumnKind::Boolean => boolean(field).map(|yes| f64::from(u8::from(yes))),
        ColumnKind::Date(form) => dates::days(field, form.as_deref()?),
        _ => dialect.number(field),
    }
}

fn needed(kind: &ColumnKind) -> String {
    match kind {
        ColumnKind::Boolean => "needs true or false, or yes or no".into(),
        ColumnKind::Date(form) => format!("needs a date of the form `{}`", form.as_deref().unwrap_or_default()),
        ColumnKind::Category | ColumnKind::Index => "needs a category".into(),
        ColumnKind::Number => "needs a finite number".into(),
    }
}

/// Range, mean and standard deviation of numbers.
pub(super) fn spread_of<'a>(numbers: impl Fn() -> Box<dyn Iterator<Item = f64> + 'a>) -> Seen {
    // Differences from the first number keep the digits of numbers that are far from 0 but near each other, such as times.
    let Some(first) = numbers().next() else { return Seen::default() };
    #[allow(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^52")]
    let count = numbers().count() as f64;
    let mean = first + numbers().map(|number| number - first).sum::<f64>() / count;
    let deviation = (numbers().map(|number| (number - mean).powi(2)).sum::<f64>() / count).sqrt();
    let range = numbers().fold([first, first], |[low, high], number| [low.min(number), high.max(number)]);
    let is_whole = numbers().all(|number| number.fract() == 0.0);
    Seen { range: Some(range), mean, deviation, is_whole, ..Seen::default() }
}

/// Mean of the numbers, and the offset and scale that they get.
fn spread<'a>(numbers: impl Fn() -> Box<dyn Iterator<Item = f64> + 'a>, how: NumberScale) -> (f64, f64, f64) {
    let Seen { range, mean, deviation, .. } = spread_of(numbers);
    let (offset, scale) = match (how, range) {
        (NumberScale::Unchanged, _) | (NumberScale::MinMax, None) => (0.0, 1.0),
        (NumberScale::Standardize, _) => (mean, deviation),
        (NumberScale::MinMax, Some([low, high])) => (low, high - low),
    };
    // A column of one value has none.
    let is_spread = scale > f64::from(f32::MIN_POSITIVE);
    (mean, offset, if is_spread { scale } else { 1.0 })
}
