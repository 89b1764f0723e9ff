//! Gradients that are sums over rows, as layers record them: partial sums that are added in order.

use crate::kernels::{reduce, whole};
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
    if splits == 1 {
        record(rec, 1, gradient);
        return;
    }
    let partials = rec.scratch(
        &format!("{parameter}_partials"),
        Length { per_row: 0, fixed: gradient.len.fixed * u64::from(splits) },
    );
    record(rec, splits, partials);
    let cols = length_word(gradient.len);
    let params = reduce::Record { rows: Word::U32(0), cols, splits: Word::U32(splits) };
    rec.dispatch(&reduce::COMBINE, params, [partials], [gradient], Grid::Elements(cols));
}

/// Records the gradient of a bias: the sums of the columns of `[rows * positions, cols]`.
pub(super) fn sum_columns(rec: &mut Recorder<'_>, x: View, positions: usize, cols: usize, parameter: &str) {
    let splits = u32::try_from(reduce::splits(cols)).unwrap_or(1);
    sum_parts(rec, parameter, splits, |rec, splits, partials| {
        let params = reduce::Record {
            rows: length_word(Length::per_row(positions)),
            cols: whole(cols),
            splits: Word::U32(splits),
        };
        rec.dispatch(&reduce::COLUMN_SUMS, params, [x], [partials], Grid::Elements(whole(cols * splits as usize)));
    });
}
