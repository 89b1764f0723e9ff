//! Gradients that are sums over rows, as layers record them: partial sums that are added in order.

use crate::kernels::{embedding, reduce, whole};
use crate::plan::{Grid, Length, Recorder, View, Word, length_word};

/// Rows of a shard for which sums over rows are split well; any other number works.
pub(super) const ROWS_HINT: usize = 128;

/// Records a gradient that is a sum over rows, as `splits` partial sums that are then added in order.
pub(super) fn sum_parts(
    rec: &mut Recorder<'_>,
    parameter: &str,
    splits: u32,
    record: impl FnOnce(&mut Recorder<'_>, u32, View),
) {
    let gradient = rec.parameter_gradient(parameter);
    sum_parts_into(rec, parameter, gradient, splits, record);
}

/// Records a sum over rows into a view, as [`sum_parts`] does.
fn sum_parts_into(
    rec: &mut Recorder<'_>,
    what: &str,
    gradient: View,
    splits: u32,
    record: impl FnOnce(&mut Recorder<'_>, u32, View),
) {
    if splits == 1 {
        record(rec, 1, gradient);
        return;
    }
    let partials =
        rec.scratch(&format!("{what}_partials"), Length { per_row: 0, fixed: gradient.len.fixed * u64::from(splits) });
    record(rec, splits, partials);
    let cols = length_word(gradient.len);
    let params = reduce::Record { rows: Word::U32(0), cols, splits: Word::U32(splits) };
    rec.dispatch(&reduce::COMBINE, params, [partials], [gradient], Grid::Elements(cols));
}

/// Records the gradient of a bias: the sums of the columns of `[rows * positions, cols]`.
pub(super) fn sum_columns(rec: &mut Recorder<'_>, x: View, positions: usize, cols: usize, parameter: &str) {
    let gradient = rec.parameter_gradient(parameter);
    sum_columns_into(rec, x, [positions, cols], (parameter, gradient));
}

/// Records the gradient of a parameter of which each row has the first `len` elements: the sums of the columns of
/// `[rows, len]`; that of the others is 0.
pub(super) fn sum_columns_of_first(rec: &mut Recorder<'_>, x: View, len: usize, parameter: &str) {
    let gradient = rec.parameter_gradient(parameter);
    let first = View { len: Length::fixed(len), ..gradient };
    if first.len != gradient.len {
        let all = length_word(gradient.len);
        let one = Word::U32(1);
        let params = embedding::Record {
            positions: one,
            cols: all,
            first: Word::U32(0),
            rows: one,
            vocabulary: one,
            splits: one,
        };
        rec.dispatch(&embedding::CLEAR, params, [], [gradient], Grid::Elements(all));
    }
    sum_columns_into(rec, x, [1, len], (parameter, first));
}

fn sum_columns_into(rec: &mut Recorder<'_>, x: View, [positions, cols]: [usize; 2], (what, gradient): (&str, View)) {
    let splits = u32::try_from(reduce::splits(cols)).unwrap_or(1);
    sum_parts_into(rec, what, gradient, splits, |rec, splits, partials| {
        let params = reduce::Record {
            rows: length_word(Length::per_row(positions)),
            cols: whole(cols),
            splits: Word::U32(splits),
        };
        rec.dispatch(&reduce::COLUMN_SUMS, params, [x], [partials], Grid::Elements(whole(cols * splits as usize)));
    });
}
