//! Maxima and means over windows of an image.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::windows::{Padding, Windows};
use super::{Built, Layer, Problem, as_built, image, optional_pair, pair, to_config};
use crate::kernels::{global_max, pooling as kernel, whole};
use crate::names;
use crate::plan::{Grid, Length, Recorder, Word, length_word};
use crate::shape::Shape;

fn params(windows: &Windows) -> kernel::Record {
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
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        ///
        /// | tensor | shape |
        /// | --- | --- |
        /// | input | `[batch, height, width, channels]` |
        /// | output | `[batch, out_height, out_width, channels]` |
        ///
        /// **Across adapters** nothing changes. Golden values: Keras 3.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            /// Height and width of the window.
            #[serde(deserialize_with = "pair")]
            pub pool_size: [usize; 2],
            /// Steps of the window; as the window itself if not given.
            #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional_pair")]
            pub strides: Option<[usize; 2]>,
            /// What stands beyond the border.
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

            fn windows(&self, inputs: &[Shape]) -> Result<Windows, Problem> {
                Windows::new(image(inputs)?, self.pool_size, self.strides.unwrap_or(self.pool_size), self.padding)
            }

            fn recorded_params(&self, rec: &Recorder<'_>) -> kernel::Record {
                params(&as_built(self.windows(&[rec.input_shape(0)])))
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
                self.record_forward(rec);
            }

            fn backward(&self, rec: &mut Recorder<'_>) {
                self.record_backward(rec);
            }
        }
    };
}

window_pooling! {
    /// The largest value of each window. Kept for backward: input and output; the first maximum takes the gradient.
    MaxPooling2D, "MaxPooling2D"
}

window_pooling! {
    /// The mean of each window; padding is not counted. Nothing is kept for backward.
    AveragePooling2D, "AveragePooling2D"
}

impl MaxPooling2D {
    fn record_forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, params) = (rec.input(0), rec.output(), self.recorded_params(rec));
        let grid = elements(&rec.output_shape());
        rec.dispatch(&kernel::FORWARD_MAX, params, [x], [y], grid);
    }

    fn record_backward(&self, rec: &mut Recorder<'_>) {
        let (x, y, dy, params) = (rec.input(0), rec.output(), rec.output_gradient(), self.recorded_params(rec));
        let grid = elements(&rec.input_shape(0));
        if let Some(dx) = rec.input_gradient(0) {
            rec.dispatch(&kernel::BACKWARD_MAX, params, [x, y, dy], [dx], grid);
        }
    }
}

impl AveragePooling2D {
    fn record_forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, params) = (rec.input(0), rec.output(), self.recorded_params(rec));
        let grid = elements(&rec.output_shape());
        rec.dispatch(&kernel::FORWARD_AVERAGE, params, [x], [y], grid);
    }

    fn record_backward(&self, rec: &mut Recorder<'_>) {
        let (dy, params) = (rec.output_gradient(), self.recorded_params(rec));
        let grid = elements(&rec.input_shape(0));
        if let Some(dx) = rec.input_gradient(0) {
            rec.dispatch(&kernel::BACKWARD_AVERAGE, params, [dy], [dx], grid);
        }
    }
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
#[serde(deny_unknown_fields, default)]
pub struct GlobalAveragePooling2D {
    /// Keep height and width, of length 1?
    pub keepdims: bool,
}

impl GlobalAveragePooling2D {
    fn recorded_params(rec: &Recorder<'_>) -> kernel::Record {
        let shape = rec.input_shape(0);
        let [height, width, channels] = [shape.axes()[0], shape.axes()[1], shape.axes()[2]];
        params(&Windows {
            input: [height, width, channels],
            size: [height, width],
            strides: [1, 1],
            out: [1, 1],
            before: [0, 0],
            dilation: [1, 1],
        })
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
        let (x, y, params) = (rec.input(0), rec.output(), Self::recorded_params(rec));
        let grid = elements(&rec.output_shape());
        rec.dispatch(&kernel::FORWARD_GLOBAL_AVERAGE, params, [x], [y], grid);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dy, params) = (rec.output_gradient(), Self::recorded_params(rec));
        let grid = elements(&rec.input_shape(0));
        if let Some(dx) = rec.input_gradient(0) {
            rec.dispatch(&kernel::BACKWARD_GLOBAL_AVERAGE, params, [dy], [dx], grid);
        }
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
#[serde(deny_unknown_fields, default)]
pub struct GlobalMaxPooling2D {
    /// Keep height and width, of length 1?
    pub keepdims: bool,
}

impl GlobalMaxPooling2D {
    fn recorded_params(rec: &Recorder<'_>) -> global_max::Record {
        let shape = rec.input_shape(0);
        let (positions, channels) = (whole(shape.positions()), whole(shape.last()));
        global_max::Record { rows: Word::Rows(1), positions, channels }
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
        let (x, y, params) = (rec.input(0), rec.output(), Self::recorded_params(rec));
        let ties = rec.scratch("ties", y.len);
        rec.keep("ties", ties);
        rec.dispatch(&global_max::FORWARD, params, [x], [y, ties], Grid::Elements(length_word(y.len)));
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (x, y, ties, dy) = (rec.input(0), rec.output(), rec.kept("ties"), rec.output_gradient());
        let params = Self::recorded_params(rec);
        if let Some(dx) = rec.input_gradient(0) {
            let grid = Grid::Elements(length_word(dx.len));
            rec.dispatch(&global_max::BACKWARD, params, [x, y, ties, dy], [dx], grid);
        }
    }
}
