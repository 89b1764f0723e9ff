//! Dropout by counter-based random numbers: of elements, of channels, of rows.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Layer, MaskUse, Problem, image, only, to_config};
use crate::kernels::{dropout as kernel, whole};
use crate::onnx::Form;
use crate::plan::{Grid, Recorder, View, Word, length_word};
use crate::shape::{Shape, elements};

/// The elements of a row that share a random number: `inner` neighbours, and the elements `drawn * inner` apart from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sharing {
    inner: usize,
    drawn: usize,
}

/// Elements to drop, and the way they share random numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DroppedElements {
    rate: f32,
    sharing: Sharing,
}

/// Refuses a rate that leaves nothing.
pub(super) fn check_rate(rate: f32) -> Result<(), Problem> {
    if (0.0..1.0).contains(&rate) {
        return Ok(());
    }
    Err(Problem::new(
        format!("needs a rate of at least 0 and below 1, but got {rate}"),
        "the rate is the part that is dropped: 0.5 drops half",
    ))
}

impl DroppedElements {
    /// Elements of rows of a length, each dropped by itself.
    pub(super) fn each(rate: f32, row_len: usize) -> Self {
        Self { rate, sharing: Sharing { inner: 1, drawn: row_len } }
    }

    fn forward(self, rec: &mut Recorder<'_>) {
        if self.rate == 0.0 || !rec.is_training() {
            return rec.pass_value();
        }
        let (x, y) = (rec.input(0), rec.output());
        self.record(rec, x, y);
    }

    fn backward(self, rec: &mut Recorder<'_>) {
        if self.rate == 0.0 {
            return rec.pass_gradient(0);
        }
        let dy = rec.output_gradient();
        if let Some(dx) = rec.input_gradient(0) {
            self.record(rec, dy, dx);
        }
    }

    pub(super) fn record(self, rec: &mut Recorder<'_>, x: View, y: View) {
        let len = length_word(y.len);
        let params = kernel::Record {
            len,
            row_len: Word::U32(u32::try_from(y.len.per_row).unwrap_or(u32::MAX)),
            first_row: Word::FirstRow,
            seed: Word::Seed,
            step: Word::Step,
            node: whole(rec.node_idx()),
            rate: Word::F32(self.rate),
            inner: whole(self.sharing.inner),
            drawn: whole(self.sharing.drawn),
        };
        rec.dispatch(&kernel::FORWARD, params, [x], [y], Grid::Elements(len));
    }
}

/// In training, sets a part `rate` of the elements to 0 and scales the others by `1 / (1 - rate)`.
///
/// | tensor | shape |
/// | --- | --- |
/// | input, output | `[batch, ...]`, the same |
///
/// **Across adapters** the same sample gets the same mask whatever the split: its key is (seed, training step,
/// node, row of the whole batch, element). Nothing is kept for backward: the mask is drawn again.
/// Source: Srivastava et al. 2014, JMLR 15.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Part of the elements that is dropped, in `[0, 1)`.
    pub rate: f32,
    /// Shape of a row's mask, without the batch: 1 for an axis along which elements are dropped together. Those that
    /// are not must be side by side. `[1, 1, 1]` drops whole images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noise_shape: Vec<usize>,
}

impl Dropout {
    /// Drops a part `rate`.
    pub fn new(rate: f32) -> Self {
        Self { rate, noise_shape: Vec::new() }
    }

    /// Way in which elements share random numbers; `None` if the mask does not fit a row.
    fn sharing(&self, input: &Shape) -> Option<Sharing> {
        if self.noise_shape.is_empty() {
            return Some(Sharing { inner: 1, drawn: input.len() });
        }
        let own = |axis: usize| self.noise_shape[axis] != 1;
        let fits = self.noise_shape.len() == input.rank()
            && self.noise_shape.iter().zip(input.axes()).all(|(mask, len)| *mask == 1 || mask == len);
        let first = (0..self.noise_shape.len()).find(|axis| own(*axis)).unwrap_or(self.noise_shape.len());
        let last = (first..self.noise_shape.len()).rfind(|axis| own(*axis)).map_or(first, |axis| axis + 1);
        let is_side_by_side = (first..last).all(|axis| own(axis) || input.axes()[axis] == 1);
        let sharing =
            || Sharing { inner: elements(&input.axes()[last..]), drawn: elements(&input.axes()[first..last]) };
        (fits && is_side_by_side).then(sharing)
    }

    fn recorded(&self, rec: &Recorder<'_>) -> DroppedElements {
        let Some(sharing) = self.sharing(&rec.input_shape(0)) else { unreachable!("`build` checks the mask's shape") };
        DroppedElements { rate: self.rate, sharing }
    }
}

impl Layer for Dropout {
    fn kind(&self) -> &'static str {
        "Dropout"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        check_rate(self.rate)?;
        let input = only(inputs)?;
        if self.sharing(input).is_none() {
            return Err(Problem::new(
                format!(
                    "needs a `noise_shape` with the length of each axis, or 1 before and behind them, but got {:?} for {input}",
                    self.noise_shape
                ),
                "leave the batch out: `[1, 1, 1]` drops whole images, `[1, 1, 64]` whole channels",
            ));
        }
        Ok(Built::plain(input.clone()))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).forward(rec);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).backward(rec);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        form.pass();
        Ok(())
    }
}

/// In training, sets a part `rate` of each image's channels to 0 and scales the others by `1 / (1 - rate)`.
///
/// | tensor | shape |
/// | --- | --- |
/// | input, output | `[batch, height, width, channels]` |
///
/// **Across adapters** the same sample gets the same mask whatever the split: its key is (seed, training step,
/// node, row of the whole batch, channel). Nothing is kept for backward: the mask is drawn again.
/// Source: Tompson et al. 2014, arXiv:1411.4280.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SpatialDropout2D {
    /// Part of the channels that is dropped, in `[0, 1)`.
    pub rate: f32,
}

impl SpatialDropout2D {
    fn recorded(self, rec: &Recorder<'_>) -> DroppedElements {
        DroppedElements { rate: self.rate, sharing: Sharing { inner: 1, drawn: rec.input_shape(0).last() } }
    }
}

impl Layer for SpatialDropout2D {
    fn kind(&self) -> &'static str {
        "SpatialDropout2D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        check_rate(self.rate)?;
        image(inputs)?;
        Ok(Built::plain(inputs[0].clone()))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).forward(rec);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).backward(rec);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        form.pass();
        Ok(())
    }
}

/// In training, sets a part `drop_path_rate` of the rows to 0 and scales the others by `1 / (1 - drop_path_rate)`: the
/// end of a residual branch, before it is added.
///
/// | tensor | shape |
/// | --- | --- |
/// | input, output | `[batch, ...]`, the same |
///
/// **Across adapters** the same sample is dropped whatever the split: the key is (seed, training step, node, row of the
/// whole batch). Nothing is kept for backward: the mask is drawn again. Source: Huang et al. 2016, arXiv:1603.09382.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StochasticDepth {
    /// Part of the rows that is dropped, in `[0, 1)`.
    pub drop_path_rate: f32,
}

impl StochasticDepth {
    fn recorded(self, rec: &Recorder<'_>) -> DroppedElements {
        DroppedElements { rate: self.drop_path_rate, sharing: Sharing { inner: rec.input_shape(0).len(), drawn: 1 } }
    }
}

impl Layer for StochasticDepth {
    fn kind(&self) -> &'static str {
        "StochasticDepth"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        check_rate(self.drop_path_rate)?;
        Ok(Built::plain(only(inputs)?.clone()))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).forward(rec);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).backward(rec);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        form.pass();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_shared_as_their_shape_says() {
        let sharing = |noise_shape: &[usize]| {
            let dropout = Dropout { rate: 0.5, noise_shape: noise_shape.to_vec() };
            dropout.sharing(&Shape::new([4, 5, 6])).map(|sharing| (sharing.inner, sharing.drawn))
        };
        assert_eq!(sharing(&[]), Some((1, 120)));
        assert_eq!(sharing(&[4, 5, 6]), Some((1, 120)));
        assert_eq!(sharing(&[1, 1, 6]), Some((1, 6)));
        assert_eq!(sharing(&[1, 5, 1]), Some((6, 5)));
        assert_eq!(sharing(&[4, 1, 1]), Some((30, 4)));
        assert_eq!(sharing(&[4, 5, 1]), Some((6, 20)));
        assert_eq!(sharing(&[1, 1, 1]), Some((1, 1)));
        for refused in [&[4, 1, 6][..], &[4, 5], &[2, 5, 6]] {
            assert_eq!(sharing(refused), None, "{refused:?}");
        }
    }
}
