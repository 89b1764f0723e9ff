//! Layers that copy their input under other indices: padding, cropping, permuted axes, repetition.

use serde::de::{self, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::merge::sum_repeated;
use super::{BothWays, Built, Layer, Problem, image, only, to_config};
use crate::kernels::remap::{self as kernel, Axis, RemapArguments};
use crate::onnx::{Form, Order};
use crate::plan::{Grid, Recorder, View, length_word};
use crate::shape::Shape;

/// Elements before and after the picture, along its height and along its width.
pub(super) type Sides = [[usize; 2]; 2];

/// Reads `[[top, bottom], [left, right]]`, `[height, width]` for the same on both sides, or one number for all.
fn sides<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sides, D::Error> {
    struct EachSide;
    impl<'de> Visitor<'de> for EachSide {
        type Value = Sides;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a number, a pair or two pairs")
        }

        fn visit_u64<E: de::Error>(self, all: u64) -> Result<Sides, E> {
            let too_large = |_| E::invalid_value(Unexpected::Unsigned(all), &self);
            usize::try_from(all).map(|all| [[all, all]; 2]).map_err(too_large)
        }

        fn visit_i64<E: de::Error>(self, all: i64) -> Result<Sides, E> {
            let negative = |_| E::invalid_value(Unexpected::Signed(all), &self);
            u64::try_from(all).map_err(negative).and_then(|all| self.visit_u64(all))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Sides, A::Error> {
            let mut read = Vec::new();
            while let Some(BothWays(value)) = values.next_element()? {
                read.push(value);
            }
            Sides::try_from(read).map_err(|read| de::Error::invalid_length(read.len(), &self))
        }
    }
    deserializer.deserialize_any(EachSide)
}

/// Records a copy. That there are not too many axes was checked when the model was built.
pub(super) fn copy(rec: &mut Recorder<'_>, axes: &[Axis], (first, x_rows): (usize, usize), x: View, y: View) {
    let Some(RemapArguments { params, constants }) = RemapArguments::new(axes, first, x_rows) else {
        unreachable!("`build` checks the number of axes")
    };
    let grid = Grid::Elements(length_word(y.len));
    rec.dispatch(&kernel::FORWARD, params, [x], [y], grid).constants.extend(constants);
}

/// Height, width and channels of a shape that `build` found to be a picture.
fn picture(shape: &Shape) -> [usize; 3] {
    [shape.axes()[0], shape.axes()[1], shape.last()]
}

/// Records a picture with zeros around it.
pub(super) fn pad(rec: &mut Recorder<'_>, inner: [usize; 3], [height, width]: Sides, x: View, y: View) {
    let [lines, columns, channels] = inner;
    let side = |extent: usize, [before, after]: [usize; 2], stride| Axis {
        size: before + extent + after,
        stride,
        before,
        extent,
    };
    let axes = [side(lines, height, columns * channels), side(columns, width, channels), Axis::full(channels, 1)];
    copy(rec, &axes, (0, lines * columns * channels), x, y);
}

/// Records what is left of a picture without its sides.
pub(super) fn crop(rec: &mut Recorder<'_>, outer: [usize; 3], [height, width]: Sides, x: View, y: View) {
    let [lines, columns, channels] = outer;
    let left = |size: usize, [before, after]: [usize; 2], stride| Axis::full(size - before - after, stride);
    let axes = [left(lines, height, columns * channels), left(columns, width, channels), Axis::full(channels, 1)];
    copy(rec, &axes, ((height[0] * columns + width[0]) * channels, lines * columns * channels), x, y);
}

/// Writes zeros around the input: a picture, or, with the second of the sides alone, a sequence.
pub(super) fn pad_onnx(form: &mut Form<'_>, sides: Sides) {
    let (order, rank) = (form.order(0), form.input_shape(0).rank());
    let x = form.input_in(0, order);
    let end = |end: usize| {
        let mut row: Vec<usize> = sides.iter().skip(3 - rank).map(|side| side[end]).collect();
        row.push(0);
        [vec![0], order.axes_of(&row)].concat()
    };
    let pads = form.sizes([end(0), end(1)].concat());
    let y = form.op("Pad", &[&x, &pads], &[]);
    form.output(y, order);
}

/// Writes the input without its sides: a picture, or, with the second of the sides alone, a sequence.
pub(super) fn crop_onnx(form: &mut Form<'_>, sides: Sides) {
    let (order, shape) = (form.order(0), form.input_shape(0).clone());
    let x = form.input_in(0, order);
    let sides = || sides.iter().skip(3 - shape.rank());
    let starts = form.sizes(sides().map(|[before, _]| *before));
    let ends = form.sizes(shape.axes().iter().zip(sides()).map(|(size, [_, after])| size - after));
    let axes = form.sizes((0..shape.rank() - 1).map(|axis| Form::axis(order, axis, shape.rank())));
    let y = form.op("Slice", &[&x, &starts, &ends, &axes], &[]);
    form.output(y, order);
}

/// Zeros around a picture.
///
/// | tensor | shape |
/// | --- | --- |
/// | input | `[batch, height, width, channels]` |
/// | output | `[batch, top + height + bottom, left + width + right, channels]` |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ZeroPadding2D {
    /// `[[top, bottom], [left, right]]`, `[height, width]` for the same on both sides, or one number for all.
    #[serde(deserialize_with = "sides")]
    pub padding: [[usize; 2]; 2],
}

impl Default for ZeroPadding2D {
    fn default() -> Self {
        Self { padding: [[1, 1]; 2] }
    }
}

impl Layer for ZeroPadding2D {
    fn kind(&self) -> &'static str {
        "ZeroPadding2D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let [height, width, channels] = image(inputs)?;
        let padded = |size: usize, [before, after]: [usize; 2]| size.saturating_add(before).saturating_add(after);
        let [high, wide] = self.padding;
        Ok(Built::plain(Shape::new([padded(height, high), padded(width, wide), channels])))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, shape) = (rec.input(0), rec.output(), rec.input_shape(0));
        pad(rec, picture(&shape), self.padding, x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dy, shape) = (rec.output_gradient(), rec.output_shape());
        if let Some(dx) = rec.input_gradient(0) {
            crop(rec, picture(&shape), self.padding, dy, dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        pad_onnx(form, self.padding);
        Ok(())
    }
}

/// A picture without its sides.
///
/// | tensor | shape |
/// | --- | --- |
/// | input | `[batch, height, width, channels]` |
/// | output | `[batch, height - top - bottom, width - left - right, channels]` |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Cropping2D {
    /// `[[top, bottom], [left, right]]`, `[height, width]` for the same on both sides, or one number for all.
    #[serde(deserialize_with = "sides")]
    pub cropping: [[usize; 2]; 2],
}

impl Layer for Cropping2D {
    fn kind(&self) -> &'static str {
        "Cropping2D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let [height, width, channels] = image(inputs)?;
        let left = |size: usize, [before, after]: [usize; 2]| {
            size.checked_sub(before.saturating_add(after)).filter(|left| *left > 0)
        };
        let [high, wide] = self.cropping;
        match (left(height, high), left(width, wide)) {
            (Some(high), Some(wide)) => Ok(Built::plain(Shape::new([high, wide, channels]))),
            _ => Err(Problem::new(
                format!(
                    "needs an image that is larger than what it takes away, {:?}, but got {}",
                    self.cropping, inputs[0]
                ),
                "take away less: `cropping = [[top, bottom], [left, right]]`",
            )),
        }
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, shape) = (rec.input(0), rec.output(), rec.input_shape(0));
        crop(rec, picture(&shape), self.cropping, x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dy, shape) = (rec.output_gradient(), rec.output_shape());
        if let Some(dx) = rec.input_gradient(0) {
            pad(rec, picture(&shape), self.cropping, dy, dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        crop_onnx(form, self.cropping);
        Ok(())
    }
}

/// The axes in another order.
///
/// | tensor | shape |
/// | --- | --- |
/// | input | `[batch, axis 1, axis 2, ...]` |
/// | output | `[batch, axis dims[0], axis dims[1], ...]` |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Permute {
    /// The input's axes in the order of the output's. The first axis after the batch is 1: `[2, 1]` swaps two.
    pub dims: Vec<usize>,
}

/// Elements between neighbours on each axis.
fn strides(shape: &Shape) -> Vec<usize> {
    let mut strides = vec![1; shape.rank()];
    for axis in (1..shape.rank()).rev() {
        strides[axis - 1] = strides[axis] * shape.axes()[axis];
    }
    strides
}

impl Permute {
    fn axes(&self, x: &Shape) -> Vec<Axis> {
        let strides = strides(x);
        self.dims.iter().map(|dim| Axis::full(x.axes()[dim - 1], strides[dim - 1])).collect()
    }
}

impl Layer for Permute {
    fn kind(&self) -> &'static str {
        "Permute"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = only(inputs)?;
        let mut sorted = self.dims.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(1..=input.rank()) {
            return Err(Problem::new(
                format!(
                    "needs each axis from 1 to {} once in `dims`, but got {:?} for {input}",
                    input.rank(),
                    self.dims
                ),
                "the first axis after the batch is 1: `dims = [2, 1]` swaps two axes",
            ));
        }
        let output = Shape::new(self.dims.iter().map(|dim| input.axes()[dim - 1]).collect::<Vec<_>>());
        if input.len() < usize::MAX && RemapArguments::new(&self.axes(input), 0, input.len()).is_none() {
            return Err(Problem::new(
                format!("can move at most {} groups of axes, but got {:?}", kernel::MOST_AXES, self.dims),
                "permute in two steps",
            ));
        }
        Ok(Built::plain(output))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, shape) = (rec.input(0), rec.output(), rec.input_shape(0));
        copy(rec, &self.axes(&shape), (0, shape.len()), x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dy, output) = (rec.output_gradient(), rec.output_shape());
        let strides = strides(&output);
        let mut axes = vec![Axis::full(1, 0); self.dims.len()];
        for (place, dim) in self.dims.iter().enumerate() {
            axes[dim - 1] = Axis::full(output.axes()[place], strides[place]);
        }
        if let Some(dx) = rec.input_gradient(0) {
            copy(rec, &axes, (0, output.len()), dy, dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let x = form.input(0);
        let y = form.transpose(&x, std::iter::once(0).chain(self.dims.iter().copied()));
        form.output(y, Order::Last);
        Ok(())
    }
}

/// Each row's features several times: the input of a sequence.
///
/// | tensor | shape |
/// | --- | --- |
/// | input | `[batch, features]` |
/// | output | `[batch, n, features]` |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RepeatVector {
    /// Number of repetitions; at least 1.
    pub n: usize,
}

impl Layer for RepeatVector {
    fn kind(&self) -> &'static str {
        "RepeatVector"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        match (only(inputs)?.axes(), self.n) {
            (&[features], 1..) => Ok(Built::plain(Shape::new([self.n, features]))),
            _ => Err(Problem::new(
                format!("needs an input [batch, features] and `n` of at least 1, but got {} and {}", inputs[0], self.n),
                "`Flatten` makes one axis of several",
            )),
        }
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, features) = (rec.input(0), rec.output(), rec.input_shape(0).len());
        copy(rec, &[Axis::full(self.n, 0), Axis::full(features, 1)], (0, features), x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let features = rec.input_shape(0).len();
        sum_repeated(rec, &[self.n, features], &[1, features]);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let x = form.input(0);
        let x = form.unsqueeze(&x, &[1]);
        let shape = form.sizes([1, self.n, 1]);
        let y = form.op("Expand", &[&x, &shape], &[]);
        form.output(y, Order::Last);
        Ok(())
    }
}
