//! Maxima and means over windows of an image.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::windows::{ImageWindows, Padding};
use super::{Built, Layer, Problem, as_built, image, optional_pair, pair, to_config};
use crate::kernels::{global_max, pooling as kernel, whole};
use crate::names;
use crate::onnx::{Attribute, Form, Order};
use crate::plan::{Grid, Length, Recorder, Word, length_word};
use crate::shape::Shape;

fn params(windows: &ImageWindows) -> kernel::Record {
    kernel::Record {
        rows: Word::Rows(1),
        in_h: whole(windows.input[0]),
        in_w: whole(windows.input[1]),
        channels: whole(windows.input[2]),
        out_h: whole(windows.out[0]),
        out_w: whole(windows.out[1]),
        pool_h: whole(windows.size[0]),
        pool_w: whole(windows.size[1]),
        stride_h: whole(windows.strides[0]),
        stride_w: whole(windows.strides[1]),
        pad_top: whole(windows.before[0]),
        pad_left: whole(windows.before[1]),
    }
}

fn elements(shape: &Shape) -> Grid {
    Grid::Elements(length_word(Length::per_row(shape.len())))
}

macro_rules! window_pooling {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $pooling:ident) => {
        $(#[$doc])*
        ///
        /// | tensor | shape |
        /// | --- | --- |
        /// | input | `[batch, height, width, channels]` |
        /// | output | `[batch, out_height, out_width, channels]` |
        ///
        /// **Across adapters** nothing changes. Golden values: Keras 3.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            /// Height and width of the window.
            #[serde(deserialize_with = "pair")]
            pub pool_size: [usize; 2],
            /// Steps of the window; as the window itself if not given.
            #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional_pair")]
            pub strides: Option<[usize; 2]>,
            /// Padding at the border.
            #[serde(deserialize_with = "names::read")]
            pub padding: Padding,
        }

        impl Default for $name {
            fn default() -> Self {
                Self { pool_size: [2, 2], strides: None, padding: Padding::Valid }
            }
        }

        impl $name {
            /// Windows of a size, side by side.
            pub fn new(pool_size: [usize; 2]) -> Self {
                Self { pool_size, ..Self::default() }
            }

            /// Steps of the window, down and across.
            #[must_use]
            pub fn strides(mut self, strides: [usize; 2]) -> Self {
                self.strides = Some(strides);
                self
            }

            /// Windows reach over the border, so that none of the input is left out.
            #[must_use]
            pub fn same(mut self) -> Self {
                self.padding = Padding::Same;
                self
            }

            fn windows(&self, inputs: &[Shape]) -> Result<ImageWindows, Problem> {
                ImageWindows::new(image(inputs)?, self.pool_size, self.strides.unwrap_or(self.pool_size), self.padding)
            }

            fn recorded_windows(&self, rec: &Recorder<'_>) -> ImageWindows {
                as_built(self.windows(&[rec.input_shape(0)]))
            }
        }

        impl Layer for $name {
            fn kind(&self) -> &'static str {
                $kind
            }

            fn config(&self) -> Value {
                to_config(self)
            }

            fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
                let windows = self.windows(inputs)?;
                Ok(Built::plain(Shape::new([windows.out[0], windows.out[1], windows.input[2]])))
            }

            fn forward(&self, rec: &mut Recorder<'_>) {
                Pooling::$pooling.forward(rec, &self.recorded_windows(rec));
            }

            fn backward(&self, rec: &mut Recorder<'_>) {
                Pooling::$pooling.backward(rec, &self.recorded_windows(rec));
            }

            fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
                Pooling::$pooling.onnx(form, &as_built(self.windows(std::slice::from_ref(form.input_shape(0)))));
                Ok(())
            }
        }
    };
}

window_pooling! {
    /// The largest value of each window. Kept for backward: input and output; the first maximum takes the gradient.
    MaxPooling2D, "MaxPooling2D", Max
}

window_pooling! {
    /// The mean of each window; padding is not counted. Nothing is kept for backward.
    AveragePooling2D, "AveragePooling2D", Average
}

/// Result of a window of a pooling layer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pooling {
    Max,
    Average,
}

impl Pooling {
    pub(super) fn forward(self, rec: &mut Recorder<'_>, windows: &ImageWindows) {
        let (x, y, grid) = (rec.input(0), rec.output(), elements(&rec.output_shape()));
        let kernel = match self {
            Self::Max => &kernel::FORWARD_MAX,
            Self::Average => &kernel::FORWARD_AVERAGE,
        };
        rec.dispatch(kernel, params(windows), [x], [y], grid);
    }

    pub(super) fn backward(self, rec: &mut Recorder<'_>, windows: &ImageWindows) {
        let (x, y, dy, grid) = (rec.input(0), rec.output(), rec.output_gradient(), elements(&rec.input_shape(0)));
        let Some(dx) = rec.input_gradient(0) else { return };
        match self {
            Self::Max => rec.dispatch(&kernel::BACKWARD_MAX, params(windows), [x, y, dy], [dx], grid),
            Self::Average => rec.dispatch(&kernel::BACKWARD_AVERAGE, params(windows), [dy], [dx], grid),
        };
    }
}

impl Pooling {
    pub(super) fn onnx(self, form: &mut Form<'_>, windows: &ImageWindows) {
        let x = form.channels_first(0);
        let mut settings = windows.onnx(form.input_shape(0).rank() - 1);
        settings.retain(|(name, _)| *name != "dilations");
        let kind = match self {
            Self::Max => "MaxPool",
            Self::Average => "AveragePool",
        };
        let y = form.op(kind, &[&x], &settings);
        form.output(y, Order::First);
    }
}

/// Writes a reduction over all positions of each channel. `keepdims`: 1 keeps their axes, 0 does not.
pub(super) fn reduce_onnx(form: &mut Form<'_>, kind: &'static str, keepdims: i64) {
    let (order, rank) = (form.order(0), form.input_shape(0).rank());
    let x = form.input_in(0, order);
    let axes = Attribute::sizes((0..rank - 1).map(|axis| Form::axis(order, axis, rank)));
    let y = form.op(kind, &[&x], &[("axes", axes), ("keepdims", Attribute::Int(keepdims))]);
    form.output(y, order);
}

/// The shape of a value for each channel.
fn of_channels(inputs: &[Shape], keepdims: bool) -> Result<Built, Problem> {
    let channels = image(inputs)?[2];
    Ok(Built::plain(Shape::new(if keepdims { vec![1, 1, channels] } else { vec![channels] })))
}

/// The mean over height and width of each channel.
///
/// | tensor | shape |
/// | --- | --- |
/// | input | `[batch, height, width, channels]` |
/// | output | `[batch, channels]`, or `[batch, 1, 1, channels]` |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct GlobalAveragePooling2D {
    /// Whether height and width are kept, with length 1.
    pub keepdims: bool,
}

/// The mean over all positions of each channel, however many axes they have.
pub(super) struct GlobalAverage;

impl GlobalAverage {
    /// All positions as one line.
    fn params(rec: &Recorder<'_>) -> kernel::Record {
        let shape = rec.input_shape(0);
        let positions = shape.positions();
        params(&ImageWindows {
            input: [1, positions, shape.last()],
            size: [1, positions],
            strides: [1, 1],
            out: [1, 1],
            before: [0, 0],
            dilation: [1, 1],
        })
    }

    pub(super) fn forward(rec: &mut Recorder<'_>) {
        let (x, y, params, grid) = (rec.input(0), rec.output(), Self::params(rec), elements(&rec.output_shape()));
        rec.dispatch(&kernel::FORWARD_GLOBAL_AVERAGE, params, [x], [y], grid);
    }

    pub(super) fn backward(rec: &mut Recorder<'_>) {
        let (dy, params, grid) = (rec.output_gradient(), Self::params(rec), elements(&rec.input_shape(0)));
        if let Some(dx) = rec.input_gradient(0) {
            rec.dispatch(&kernel::BACKWARD_GLOBAL_AVERAGE, params, [dy], [dx], grid);
        }
    }
}

impl Layer for GlobalAveragePooling2D {
    fn kind(&self) -> &'static str {
        "GlobalAveragePooling2D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        of_channels(inputs, self.keepdims)
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        GlobalAverage::forward(rec);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        GlobalAverage::backward(rec);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        reduce_onnx(form, "ReduceMean", self.keepdims.into());
        Ok(())
    }
}

/// The largest value over height and width of each channel.
///
/// | tensor | shape |
/// | --- | --- |
/// | input | `[batch, height, width, channels]` |
/// | output | `[batch, channels]`, or `[batch, 1, 1, channels]` |
///
/// **Across adapters** nothing changes. Kept for backward: input, output, and how many positions have the largest value:
/// they share the gradient. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct GlobalMaxPooling2D {
    /// Whether height and width are kept, with length 1.
    pub keepdims: bool,
}

/// The largest value over all positions of each channel, however many axes they have.
pub(super) struct GlobalMax;

impl GlobalMax {
    fn params(rec: &Recorder<'_>) -> global_max::Record {
        let shape = rec.input_shape(0);
        let (positions, channels) = (whole(shape.positions()), whole(shape.last()));
        global_max::Record { rows: Word::Rows(1), positions, channels }
    }

    pub(super) fn forward(rec: &mut Recorder<'_>) {
        let (x, y, params) = (rec.input(0), rec.output(), Self::params(rec));
        let ties = rec.scratch("ties", y.len);
        rec.keep("ties", ties);
        rec.dispatch(&global_max::FORWARD, params, [x], [y, ties], Grid::Elements(length_word(y.len)));
    }

    pub(super) fn backward(rec: &mut Recorder<'_>) {
        let (x, y, ties, dy) = (rec.input(0), rec.output(), rec.kept("ties"), rec.output_gradient());
        let params = Self::params(rec);
        if let Some(dx) = rec.input_gradient(0) {
            let grid = Grid::Elements(length_word(dx.len));
            rec.dispatch(&global_max::BACKWARD, params, [x, y, ties, dy], [dx], grid);
        }
    }
}

impl Layer for GlobalMaxPooling2D {
    fn kind(&self) -> &'static str {
        "GlobalMaxPooling2D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        of_channels(inputs, self.keepdims)
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        GlobalMax::forward(rec);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        GlobalMax::backward(rec);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        reduce_onnx(form, "ReduceMax", self.keepdims.into());
        Ok(())
    }
}
