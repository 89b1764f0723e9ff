//! The product that makes logits of a vocabulary, with weights that hold all of its words or some.

use super::linear::with_bias;
use super::packed::Weights;
use crate::kernels::{dense as kernel, whole};
use crate::plan::{Length, Recorder, View, Word, length_word};

/// Order in which weights are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// A table `[words, dim]`, as that of an embedding.
    Rows,
    /// A kernel `[dim, words]`, as that of `Dense`.
    Columns,
}

/// The product `logits = x · weights` of the words of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogitProduct {
    pub stored: Stored,
    /// Positions of a row.
    pub positions: usize,
    /// Numbers of a position.
    pub dim: usize,
    /// First word of the tensor in the vocabulary.
    pub first: usize,
    /// Words of the tensor.
    pub count: usize,
    /// Words of the vocabulary: the length of a row of logits.
    pub vocabulary: usize,
}

impl LogitProduct {
    fn rows(&self) -> Word {
        length_word(Length::per_row(self.positions))
    }

    /// The weights, `[words, dim]` or `[dim, words]`.
    pub(super) fn weights(&self, rec: &Recorder<'_>, name: &str) -> Weights {
        let (words, dim) = (self.count, self.dim);
        Weights::of(rec, name, if self.stored == Stored::Rows { [words, dim] } else { [dim, words] })
    }

    /// Sizes of a product without gaps, where none of the offsets is set.
    fn params(&self, [m, n, k]: [Word; 3]) -> kernel::Record {
        let zero = Word::U32(0);
        kernel::Record {
            m,
            n,
            k,
            a_offset: zero,
            a_stride: k,
            b_offset: zero,
            b_stride: n,
            y_offset: zero,
            y_stride: n,
            splits: Word::U32(1),
        }
    }

    /// Records the logits of `x`, at their places in `logits [rows * positions, vocabulary]`.
    pub(super) fn forward(&self, rec: &mut Recorder<'_>, x: View, weights: Weights, logits: View) {
        let axis = if self.stored == Stored::Rows { 0 } else { 1 };
        for words in weights.parts(axis) {
            let b_stride = if self.stored == Stored::Rows { self.dim } else { words.len() };
            let params = kernel::Record {
                b_stride: whole(b_stride),
                y_offset: whole(self.first + words.start),
                y_stride: whole(self.vocabulary),
                ..self.params([self.rows(), whole(words.len()), whole(self.dim)])
            };
            let floats = weights.floats(rec, axis, &words);
            Self::multiply(rec, self.stored == Stored::Rows, params, [x, floats], logits);
        }
    }

    /// Records a product with weights `[k, n]`, or with `[n, k]`, which are turned.
    fn multiply(rec: &mut Recorder<'_>, is_turned: bool, params: kernel::Record, factors: [View; 2], y: View) {
        if is_turned {
            rec.dispatch(&kernel::BACKWARD_INPUT, params, factors, [y], params.grid());
        } else {
            with_bias(rec, &kernel::FORWARD, params, factors, None, y, params.grid());
        }
    }

    /// Records the gradient of `x` from that of the logits: a sum over the words, some after the others, in their order.
    pub(super) fn backward_input(&self, rec: &mut Recorder<'_>, d_logits: View, weights: Weights, dx: View) {
        let axis = if self.stored == Stored::Rows { 0 } else { 1 };
        for (idx, words) in weights.summed_parts(axis).into_iter().enumerate() {
            // Floats that were unpacked are those of these words alone.
            let (first, stride) = if weights.are_packed() { (0, words.len()) } else { (words.start, self.count) };
            let (b_offset, b_stride) = match self.stored {
                Stored::Rows => (whole(first * self.dim), whole(self.dim)),
                Stored::Columns => (whole(first), whole(stride)),
            };
            let params = kernel::Record {
                a_offset: whole(self.first + words.start),
                a_stride: whole(self.vocabulary),
                b_offset,
                b_stride,
                ..self.params([self.rows(), whole(self.dim), whole(words.len())])
            };
            let floats = weights.floats(rec, axis, &words);
            let part = if idx == 0 { dx } else { rec.scratch("part", dx.len) };
            Self::multiply(rec, self.stored == Stored::Columns, params, [d_logits, floats], part);
            if idx > 0 {
                rec.accumulate(part, dx);
            }
        }
    }

    /// Records the gradient of the weights, as `splits` partial sums.
    pub(super) fn backward_weights(
        &self,
        rec: &mut Recorder<'_>,
        [x, d_logits]: [View; 2],
        partials: View,
        splits: u32,
    ) {
        let of_x = (Word::U32(0), whole(self.dim), whole(self.dim));
        let of_logits = (whole(self.first), whole(self.vocabulary), whole(self.count));
        let ((a, a_of), (b, b_of)) = match self.stored {
            Stored::Rows => ((d_logits, of_logits), (x, of_x)),
            Stored::Columns => ((x, of_x), (d_logits, of_logits)),
        };
        let ((a_offset, a_stride, m), (b_offset, b_stride, n)) = (a_of, b_of);
        let params = kernel::Record {
            a_offset,
            a_stride,
            b_offset,
            b_stride,
            splits: Word::U32(splits),
            ..self.params([m, n, self.rows()])
        };
        rec.dispatch(&kernel::BACKWARD_WEIGHTS, params, [a, b], [partials], params.split_grid(splits));
    }
}
