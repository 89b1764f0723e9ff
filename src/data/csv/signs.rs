//! The decimal sign of a table like another one.

use super::dialect::Dialect;
use super::layout::ArrayColumns;
use super::numerals::{Sign, Signs, plain, sign, usual};
use super::settings::ColumnKind;
use super::source::TableSource;
use crate::schema::{Code, Encoding, Format, Seen, TableColumn};
use crate::{Error, Result, shown};

/// Standard deviations around the mean that stand for the range of the training rows where the model file has none.
const OLD_RANGE: f64 = 4.0;

/// A column of numbers of a later table, and what the training rows had in it.
struct TrainedColumn {
    column: usize,
    name: String,
    low: f64,
    high: f64,
    is_whole: bool,
    /// Numbers that can be read either way, of which so many lie in the range of training with a decimal point or a comma.
    unclear: usize,
    inside: [usize; 2],
    /// Distances from that range, in widths of it.
    outside: [f64; 2],
    example: String,
}

impl TrainedColumn {
    fn new(column: usize, name: String, encoding: Option<&Encoding>, seen: Option<&Seen>) -> Self {
        let (low, high) = match (seen.and_then(|seen| seen.range), encoding.map(|encoding| &encoding.code)) {
            (Some([low, high]), _) => (low, high),
            (None, Some(Code::Number { offset, scale })) if (*offset, *scale) != (0.0, 1.0) => {
                (offset - OLD_RANGE * scale, offset + OLD_RANGE * scale)
            }
            _ => (f64::NEG_INFINITY, f64::INFINITY),
        };
        let is_whole = seen.is_some_and(|seen| seen.is_whole);
        let example = String::new();
        Self { column, name, low, high, is_whole, unclear: 0, inside: [0; 2], outside: [0.0; 2], example }
    }

    /// Compares a number that can be read either way with the training rows.
    fn add(&mut self, field: &str) {
        self.unclear += 1;
        if self.example.is_empty() {
            self.example = field.into();
        }
        for (at, decimal) in ['.', ','].into_iter().enumerate() {
            let Some(number) = plain(field, decimal).and_then(|text| text.parse::<f64>().ok()) else { continue };
            let fits = !self.is_whole || number.fract() == 0.0;
            let distance = (self.low - number).max(number - self.high).max(0.0);
            self.inside[at] += usize::from(fits && distance == 0.0);
            let width = if self.high > self.low { self.high - self.low } else { self.high.abs() };
            // A fraction where all were whole numbers is as strange as a number twice as far away.
            self.outside[at] += if fits { 0.0 } else { 2.0 } + if distance > 0.0 { distance / width } else { 0.0 };
        }
    }
}

/// The sign by which numbers that can be read either way are like those of the training rows.
fn likely(columns: &[TrainedColumn]) -> Option<char> {
    let unclear: usize = columns.iter().map(|column| column.unclear).sum();
    let inside = [0, 1].map(|at| columns.iter().map(|column| column.inside[at]).sum::<usize>());
    let outside = [0, 1].map(|at| columns.iter().map(|column| column.outside[at]).sum::<f64>());
    let is_better = |one: usize, other: usize| {
        let most_are_inside = inside[one] * 2 > unclear && inside[other] * 10 <= inside[one];
        let others_are_far = inside == [0, 0] && outside[one] * 10.0 < outside[other];
        most_are_inside || others_are_far
    };
    match (is_better(0, 1), is_better(1, 0)) {
        (true, false) => Some('.'),
        (false, true) => Some(','),
        _ => None,
    }
}

/// Finds the decimal sign of a table like another one, by its numbers; where all of them can be read either way, by the numbers of
/// the training rows.
pub(super) fn settle(
    dialect: &mut Dialect,
    source: &TableSource,
    format: &Format,
    parts: &[ArrayColumns],
) -> Result<()> {
    let &Format::Csv { delimiter: trained_delimiter, decimal: trained, .. } = format else { return Ok(()) };
    if dialect.is_decimal_given {
        return Ok(());
    }
    let mut columns = numeric(dialect, parts);
    let mut signs = Signs::default();
    dialect.for_each_row(source, |record| {
        for column in &mut columns {
            let field = &record[column.column];
            let Some(sign) = sign(field) else { continue };
            signs.add(sign);
            if matches!(sign, Sign::GroupedComma | Sign::GroupedPoint) {
                column.add(field);
            }
        }
        Ok(())
    })?;
    if !signs.is_unclear() {
        dialect.decimal = signs.settled().unwrap_or(dialect.decimal);
        return Ok(());
    }
    let has_same_delimiter = char::from(dialect.delimiter) == trained_delimiter;
    let is_usual = usual(dialect.delimiter) == Some(trained);
    // Between commas, a point is a decimal point: nobody groups digits by it there.
    if trained == '.' && dialect.delimiter == b',' && has_same_delimiter && !signs.has_commas() {
        dialect.decimal = trained;
        return Ok(());
    }
    match likely(&columns).or((has_same_delimiter || is_usual).then_some(trained)) {
        Some(decimal) => dialect.decimal = decimal,
        None => return Err(unclear(source, &columns)),
    }
    if has_same_delimiter && dialect.decimal != trained {
        log::warn!(
            "{}: numbers such as `{}` are read with `{}` as decimal sign, not with `{trained}` as in training: only so are they of \
             the size of the training rows; else set `decimal` in `[data]`",
            source.named(),
            shown(first_unclear(&columns).map_or("", |column| &column.example)),
            dialect.decimal
        );
    }
    Ok(())
}

/// The columns whose fields are numbers: inputs, and targets to predict.
fn numeric(dialect: &Dialect, parts: &[ArrayColumns]) -> Vec<TrainedColumn> {
    let name = |column: usize| {
        let name = dialect.header().and_then(|header| header.get(column)).map(str::to_owned);
        TableColumn { index: column, name, ..TableColumn::default() }.to_string()
    };
    let of_part = |part: &ArrayColumns| {
        let seen = part.seen.iter().map(Option::as_ref).chain(std::iter::repeat(None));
        let columns = part.columns.iter().zip(&part.readings).zip(seen);
        let columns = columns.filter(|((_, reading), _)| reading.kind == ColumnKind::Number);
        let trained = |((column, reading), seen): ((&usize, &super::encode::ColumnReading), Option<&Seen>)| {
            TrainedColumn::new(*column, name(*column), reading.known.as_ref(), seen)
        };
        columns.map(trained).collect::<Vec<_>>()
    };
    parts.iter().flat_map(of_part).collect()
}

fn first_unclear(columns: &[TrainedColumn]) -> Option<&TrainedColumn> {
    columns.iter().find(|column| column.unclear > 0)
}

fn unclear(source: &TableSource, columns: &[TrainedColumn]) -> Error {
    let column = first_unclear(columns);
    let (name, example) = column.map_or(("", ""), |column| (&*column.name, &*column.example));
    let either = ['.', ','].map(|decimal| plain(example, decimal).unwrap_or_default());
    Error::data(
        format!("{}, column `{}`", source.named(), shown(name)),
        format!(
            "needs numbers that can be read in one way, but `{example}` can be {} and {}, and the training table had such \
             numbers of both sizes",
            either[0], either[1]
        ),
        "write numbers as in the training table; or say by `decimal` in `[data]` which sign they have, and name the settings by \
         `--config`",
    )
}
