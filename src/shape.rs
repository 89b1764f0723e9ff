//! Shapes of one row: everything but the batch axis.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The shape of one row of a tensor, row-major, without the batch axis.
///
/// Prints with the batch axis in front: `[batch, 8, 8, 1]`.
///
/// ```
/// use manyhands::Shape;
/// let image = Shape::new([8, 8, 1]);
/// assert_eq!(image.len(), 64);
/// assert_eq!(image.to_string(), "[batch, 8, 8, 1]");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A shape from its axes, outermost first.
    pub fn new(axes: impl Into<Vec<usize>>) -> Self {
        Self(axes.into())
    }

    /// The axes, outermost first.
    pub fn axes(&self) -> &[usize] {
        &self.0
    }

    /// Number of elements of one row; 1 for a scalar.
    #[allow(clippy::len_without_is_empty, reason = "a shape of no elements is refused when a model is built")]
    pub fn len(&self) -> usize {
        self.0.iter().product()
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Length of the last axis (features or channels); 1 for a scalar.
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// Number of positions before the last axis: [`len`](Self::len) / [`last`](Self::last).
    pub fn positions(&self) -> usize {
        self.0.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// The same shape with another last axis.
    pub fn with_last(&self, last: usize) -> Self {
        let mut axes = self.0.clone();
        axes.pop();
        axes.push(last);
        Self(axes)
    }
}

impl From<Vec<usize>> for Shape {
    fn from(axes: Vec<usize>) -> Self {
        Self(axes)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(axes: [usize; N]) -> Self {
        Self(axes.to_vec())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[batch")?;
        for axis in &self.0 {
            write!(f, ", {axis}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
