//! The geometry of windows over an image, which convolution and pooling share.

use serde::{Deserialize, Serialize};

use super::Problem;
use crate::onnx::Attribute;

/// Padding at the border of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// None: windows lie within the image.
    #[default]
    Valid,
    /// Padding for an output of length `ceil(size / stride)`; an odd rest goes to the end, as in Keras.
    Same,
}

/// A window over one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowAxis {
    pub out: usize,
    pub before: usize,
}

impl Padding {
    /// Output size and padding before, of windows of `window` at every `stride`.
    pub(super) fn axis(self, size: usize, window: usize, stride: usize) -> Option<WindowAxis> {
        match self {
            Self::Valid => Some(WindowAxis { out: size.checked_sub(window)? / stride + 1, before: 0 }),
            Self::Same => {
                let out = size.div_ceil(stride);
                // At most the size itself, and a window.
                let read = ((out - 1) * stride).saturating_add(window);
                Some(WindowAxis { out, before: read.saturating_sub(size) / 2 })
            }
        }
    }
}

/// The geometry of windows over an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageWindows {
    pub input: [usize; 3],
    pub size: [usize; 2],
    pub strides: [usize; 2],
    pub out: [usize; 2],
    pub before: [usize; 2],
    pub dilation: [usize; 2],
}

impl ImageWindows {
    pub(super) fn new(
        input: [usize; 3],
        size: [usize; 2],
        strides: [usize; 2],
        padding: Padding,
    ) -> Result<Self, Problem> {
        if size.contains(&0) || strides.contains(&0) || input.contains(&0) {
            return Err(Problem::new(
                format!(
                    "needs sizes and strides of at least 1, but got size {size:?}, strides {strides:?}, input {input:?}"
                ),
                "set them to 1 or more",
            ));
        }
        check_sides(input, size, strides, padding)?;
        let rows = padding.axis(input[0], size[0], strides[0]);
        let cols = padding.axis(input[1], size[1], strides[1]);
        let (Some(rows), Some(cols)) = (rows, cols) else {
            return Err(Problem::new(
                format!("needs an image of at least {} × {}, but got {} × {}", size[0], size[1], input[0], input[1]),
                "use padding `same`, a smaller window, or fewer layers that shrink the image",
            ));
        };
        let (out, before) = ([rows.out, cols.out], [rows.before, cols.before]);
        Ok(Self { input, size, strides, out, before, dilation: [1, 1] })
    }

    /// Windows of which only every `dilation`th line and column counts: of a convolution.
    pub(super) fn dilated(
        input: [usize; 3],
        size: [usize; 2],
        dilation: [usize; 2],
        strides: [usize; 2],
        padding: Padding,
    ) -> Result<Self, Problem> {
        if dilation.contains(&0) {
            return Err(Problem::new(
                format!("needs a dilation rate of at least 1, but got {dilation:?}"),
                "1 is a window without gaps",
            ));
        }
        let spread = |axis: usize| match size[axis] {
            0 => 0,
            size => (size - 1).saturating_mul(dilation[axis]).saturating_add(1),
        };
        let windows = Self::new(input, [spread(0), spread(1)], strides, padding)?;
        Ok(Self { size, dilation, ..windows })
    }
}

impl ImageWindows {
    /// Settings of an ONNX operator over the last `n_axes` axes: of a picture 2, of a sequence 1.
    pub(super) fn onnx(&self, n_axes: usize) -> Vec<(&'static str, Attribute)> {
        let last = |sizes: [usize; 2]| Attribute::sizes(sizes.into_iter().skip(2 - n_axes));
        let after = |axis: usize| {
            let window = (self.size[axis] - 1) * self.dilation[axis] + 1;
            ((self.out[axis] - 1) * self.strides[axis] + window).saturating_sub(self.input[axis] + self.before[axis])
        };
        let pads = self.before.into_iter().skip(2 - n_axes).chain((2 - n_axes..2).map(after));
        vec![
            ("kernel_shape", last(self.size)),
            ("strides", last(self.strides)),
            ("dilations", last(self.dilation)),
            ("pads", Attribute::sizes(pads)),
        ]
    }
}

/// Largest stride: shaders count pixels in 32 bits.
const MOST_STRIDE: usize = 1 << 28;

/// Windows beyond this, and beyond twice the image, read nothing but padding at their ends.
const WIDE_WINDOW: usize = 32;

/// Refuses padding without bound, and sizes that shaders can't count.
fn check_sides(input: [usize; 3], size: [usize; 2], strides: [usize; 2], padding: Padding) -> Result<(), Problem> {
    if let Some(stride) = strides.iter().find(|stride| **stride > MOST_STRIDE) {
        let problem = format!("needs strides of at most {MOST_STRIDE}, but got {stride}");
        return Err(Problem::new(problem, "a stride as long as the image gives one window"));
    }
    let most = [input[0], input[1]].map(|side| side.saturating_mul(2).max(WIDE_WINDOW));
    if padding == Padding::Valid || (size[0] <= most[0] && size[1] <= most[1]) {
        return Ok(());
    }
    Err(Problem::new(
        format!(
            "needs a window of at most {} × {} for an image of {} × {}, but got {} × {}",
            most[0], most[1], input[0], input[1], size[0], size[1]
        ),
        "take a smaller window: the ends of this one would read nothing but padding",
    ))
}

/// Strides and dilation where nothing is said.
pub(super) fn ones() -> [usize; 2] {
    [1, 1]
}

/// A size of a model, which its build check keeps within 32 bits.
pub(super) fn small(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
