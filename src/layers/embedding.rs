//! A vector for each whole number.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::gradient_sums::sum_parts;
use super::linear::Linear;
use super::lora::{Lora, LowRank, changed, check_lora};
use super::{Built, Initializer, Layer, MaskUse, Parameter, Problem, activation, only, to_config};
use crate::kernels::rounding::MOST_WHOLE;
use crate::kernels::{embedding as kernel, packed, whole};
use crate::names;
use crate::onnx::{Attribute, Form, INT64, Order};
use crate::packed::{BLOCK, BlockAxis, PackedFormat};
use crate::plan::{Grid, Length, MAX_BINDING, Recorder, View, Word, length_word};
use crate::shape::{Shape, elements};

/// Names of the parameters: a table that is larger than one binding takes several.
const NAMES: [&str; 16] = [
    "embeddings",
    "embeddings_1",
    "embeddings_2",
    "embeddings_3",
    "embeddings_4",
    "embeddings_5",
    "embeddings_6",
    "embeddings_7",
    "embeddings_8",
    "embeddings_9",
    "embeddings_10",
    "embeddings_11",
    "embeddings_12",
    "embeddings_13",
    "embeddings_14",
    "embeddings_15",
];

/// A vector for each whole number below `input_dim`, such as a word or a character: `y[p] = embeddings[x[p]]`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, ...]`, whole numbers from 0 to `input_dim - 1` | |
/// | `embeddings` | `[input_dim, output_dim]` | `embeddings_initializer`, uniform in ±0.05 |
/// | `lora_embeddings_a` (with `lora_rank`) | `[input_dim, lora_rank]` | He uniform |
/// | `lora_embeddings_b` (with `lora_rank`) | `[lora_rank, output_dim]` | 0 |
/// | output | `[batch, ..., output_dim]` | |
///
/// With `lora_rank`, the table is frozen, and the product of two thin trainable factors stands beside it:
/// `embeddings + lora_alpha / lora_rank · lora_embeddings_a · lora_embeddings_b`. Hu et al. 2021, arXiv:2106.09685.
///
/// A table of more than 128 MiB, the largest binding that WebGPU promises, is kept as `embeddings`, `embeddings_1`, …:
/// equal parts of its rows, the last of which may be shorter. Where a model's input is read, data are checked before
/// anything runs: an index out of range is an error that names row and value.
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows. The gradient adds the
/// positions of an index in their order. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// Number of whole numbers, from 0 on.
    pub input_dim: usize,
    /// Length of a vector.
    pub output_dim: usize,
    /// Initial values of the vectors.
    #[serde(default = "uniform", deserialize_with = "names::read")]
    pub embeddings_initializer: Initializer,
    /// Whether 0 is padding. Later recurrent layers then skip such positions.
    #[serde(default)]
    pub mask_zero: bool,
    /// Rank of the trainable factors beside the table, which is then frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora_rank: Option<usize>,
    /// Factor of their product, times `lora_rank`; if not given, the product is added as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora_alpha: Option<f32>,
}

pub(super) fn uniform() -> Initializer {
    Initializer::RandomUniform
}

/// A part of the table: its parameter, first row and rows.
pub(super) type TablePart = (&'static str, usize, usize);

impl Embedding {
    /// Vectors of length `output_dim` for the whole numbers below `input_dim`.
    pub fn new(input_dim: usize, output_dim: usize) -> Self {
        Self {
            input_dim,
            output_dim,
            embeddings_initializer: uniform(),
            mask_zero: false,
            lora_rank: None,
            lora_alpha: None,
        }
    }

    /// Freezes the table, with trainable factors beside it; `dropout` is not for tables, as in PEFT.
    #[must_use]
    pub fn lora(mut self, lora: Lora) -> Self {
        self.set_lora(Some(lora));
        self
    }

    fn set_lora(&mut self, lora: Option<Lora>) {
        self.lora_rank = lora.map(|it| it.rank);
        self.lora_alpha = lora.map(|it| it.alpha);
    }

    /// The factors beside the first part of the table.
    fn low_rank(&self) -> Option<LowRank> {
        let lora = Lora::of_settings(self.lora_rank, self.lora_alpha, 0.0)?;
        Some(LowRank { kernel: NAMES[0], first: 0, a: "lora_embeddings_a", b: "lora_embeddings_b", lora })
    }

    /// With 0 for padding, which recurrent layers behind pass over.
    #[must_use]
    pub fn mask_zero(mut self) -> Self {
        self.mask_zero = true;
        self
    }

    /// The table in as many parts as bindings hold.
    pub(super) fn parts(&self) -> impl Iterator<Item = TablePart> {
        let most = usize::try_from(MAX_BINDING).unwrap_or(usize::MAX) / self.output_dim.max(1);
        let rows = self.input_dim.div_ceil(self.input_dim.div_ceil(most.max(1)).max(1)).max(1);
        let firsts = (0..self.input_dim).step_by(rows);
        NAMES.into_iter().zip(firsts).map(move |(name, first)| (name, first, rows.min(self.input_dim - first)))
    }

    fn params(&self, rec: &Recorder<'_>, (_, first, rows): TablePart, cols: usize, splits: u32) -> kernel::Record {
        kernel::Record {
            positions: length_word(Length::per_row(rec.input_shape(0).len())),
            cols: whole(cols),
            first: whole(first),
            rows: whole(rows),
            vocabulary: whole(self.input_dim),
            splits: Word::U32(splits),
        }
    }

    /// Records the vectors of a part of a table.
    fn look_up(&self, rec: &mut Recorder<'_>, part: TablePart, cols: usize, y: View) {
        let (ids, table, params) = (rec.input(0), rec.parameter(part.0), self.params(rec, part, cols, 1));
        if let Some(packing) = rec.packing(part.0) {
            return self.look_up_packed(rec, part, packing.format, [ids, table, y]);
        }
        rec.dispatch(&kernel::FORWARD, params, [ids, table], [y], Grid::Elements(length_word(y.len)));
    }

    /// Records the vectors of a part of a packed table: their blocks alone are unpacked.
    fn look_up_packed(
        &self,
        rec: &mut Recorder<'_>,
        (_, first, rows): TablePart,
        format: PackedFormat,
        [ids, table, y]: [View; 3],
    ) {
        let line_blocks = self.output_dim / BLOCK;
        let params = packed::Record {
            line_blocks: whole(line_blocks),
            first_line: whole(first),
            lines: whole(rows),
            first_block: Word::U32(0),
            blocks: whole(line_blocks),
            line_stride: whole(self.output_dim),
            value_stride: Word::U32(1),
            positions: length_word(Length::per_row(rec.input_shape(0).len())),
            vocabulary: whole(self.input_dim),
        };
        let grid = Grid::Elements(length_word(Length::per_row(rec.input_shape(0).len() * line_blocks)));
        rec.dispatch(&packed::GATHER, params, [table, ids], [y], grid).constants.extend(packed::constants(format));
    }

    /// Records the gradients of the parts of a table.
    fn backward_table(&self, rec: &mut Recorder<'_>, parts: Vec<TablePart>, cols: usize, dy: View) {
        let ids = rec.input(0);
        let splits = kernel::splits(elements(&[self.input_dim, cols]));
        let links = rec.scratch("links", ids.len);
        for part in parts {
            let params = self.params(rec, part, cols, splits);
            if part.1 == 0 {
                rec.dispatch(&kernel::LINK, params, [ids], [links], Grid::Elements(length_word(links.len)));
            }
            sum_parts(rec, part.0, splits, |rec, _, partials| {
                rec.dispatch(&kernel::CLEAR, params, [], [partials], Grid::Elements(length_word(partials.len)));
                let grid = Grid::Elements(length_word(dy.len));
                rec.dispatch(&kernel::BACKWARD, params, [ids, links, dy], [partials], grid);
            });
        }
    }

    /// The product of the second factor.
    fn linear(&self, rec: &Recorder<'_>, rank: usize) -> Linear {
        Linear { positions: rec.input_shape(0).len(), inputs: rank, units: self.output_dim }
    }
}

impl Layer for Embedding {
    fn kind(&self) -> &'static str {
        "Embedding"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn indices(&self) -> Option<usize> {
        Some(self.input_dim)
    }

    fn block_axis(&self, parameter: &str) -> Option<BlockAxis> {
        NAMES.contains(&parameter).then_some(BlockAxis::Last)
    }

    fn masking(&self) -> MaskUse {
        if self.mask_zero { MaskUse::Makes { value: 0.0 } } else { MaskUse::Drops }
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = only(inputs)?;
        if self.input_dim == 0 || self.output_dim == 0 || self.input_dim > MOST_WHOLE {
            return Err(Problem::new(
                format!(
                    "needs from 1 to {MOST_WHOLE} indices and vectors of at least one number, but got {} and {}",
                    self.input_dim, self.output_dim
                ),
                "`input_dim` is the largest index plus 1, `output_dim` the length of a vector",
            ));
        }
        let held: usize = self.parts().map(|(_, _, rows)| rows).sum();
        if held < self.input_dim {
            return Err(Problem::new(
                format!("needs a table of at most 2 GiB, but {} × {} is larger", self.input_dim, self.output_dim),
                "take shorter vectors, or fewer indices",
            ));
        }
        let parameter = |(name, _, rows): TablePart| Parameter {
            name,
            shape: vec![rows, self.output_dim],
            initializer: self.embeddings_initializer,
        };
        let mut output = input.axes().to_vec();
        output.push(self.output_dim);
        check_lora(self.lora_rank, self.lora_alpha, 0.0)?;
        let mut parameters: Vec<Parameter> = self.parts().map(parameter).collect();
        let shape = [self.input_dim, self.output_dim];
        parameters.extend(self.low_rank().into_iter().flat_map(|it| it.parameters(shape)));
        Ok(Built { output: Shape::new(output), parameters, statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let y = rec.output();
        let Some(low_rank) = self.low_rank() else {
            return self.parts().for_each(|part| self.look_up(rec, part, self.output_dim, y));
        };
        let frozen = rec.scratch("frozen", y.len);
        self.parts().for_each(|part| self.look_up(rec, part, self.output_dim, frozen));
        let linear = self.linear(rec, low_rank.lora.rank);
        let hidden = low_rank.hidden(rec, linear.positions);
        let unscaled = rec.scratch("lora_unscaled", hidden.len);
        self.look_up(rec, (low_rank.a, 0, self.input_dim), low_rank.lora.rank, unscaled);
        activation::forward(rec, low_rank.factor(), unscaled, hidden);
        low_rank.forward_output(rec, [frozen, hidden], linear, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let dy = rec.output_gradient();
        let Some(low_rank) = self.low_rank() else {
            return self.backward_table(rec, self.parts().collect(), self.output_dim, dy);
        };
        let rank = low_rank.lora.rank;
        let linear = self.linear(rec, rank);
        let d_hidden = low_rank.backward_output(rec, dy, linear);
        self.backward_table(rec, vec![(low_rank.a, 0, self.input_dim)], rank, d_hidden);
    }

    fn low_ranks(&self) -> Vec<LowRank> {
        let of_part = |low_rank| self.parts().map(move |(kernel, first, _)| LowRank { kernel, first, ..low_rank });
        self.low_rank().into_iter().flat_map(of_part).collect()
    }

    fn with_lora(&self, lora: Option<Lora>) -> Option<Arc<dyn Layer>> {
        Some(changed(self, |embedding| embedding.set_lora(lora)))
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let parts: Vec<_> = self.parts().map(|(name, ..)| form.tensor(name)).collect();
        let table = match &parts[..] {
            [table] => table.clone(),
            parts => form.op("Concat", &parts.iter().collect::<Vec<_>>(), &[("axis", Attribute::Int(0))]),
        };
        let x = form.input(0);
        // Out of range, an index is the nearest one, as on adapters.
        #[allow(clippy::cast_precision_loss, reason = "`build` checks that indices are exact in f32")]
        let ends = [0.0, (self.input_dim - 1) as f32].map(|end| form.scalar(end));
        let x = form.op("Clip", &[&x, &ends[0], &ends[1]], &[]);
        let x = form.op("Cast", &[&x], &[("to", Attribute::Int(INT64))]);
        let y = form.op("Gather", &[&table, &x], &[]);
        form.output(y, Order::Last);
        Ok(())
    }
}
