//! Shapes of one row: everything but the batch axis.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The shape of one row of a tensor, row-major, without the batch axis.
///
/// Prints with the batch axis in front: `[batch, 8, 8, 1]`.
///
/// ```
/// use manyhands_engine::Shape;
/// let image = Shape::new([8, 8, 1]);
/// assert_eq!(image.len(), 64);
/// assert_eq!(image.to_string(), "[batch, 8, 8, 1]");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

    /// Number of elements of one row; 1 for a scalar, `usize::MAX` where they can't be counted.
    #[allow(clippy::len_without_is_empty, reason = "a shape of no elements is refused when a model is built")]
    pub fn len(&self) -> usize {
        elements(&self.0)
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
        self.0.split_last().map_or(1, |(_, outer)| elements(outer))
    }

    /// This shape with another last axis.
    pub fn with_last(&self, last: usize) -> Self {
        let mut axes = self.0.clone();
        axes.pop();
        axes.push(last);
        Self(axes)
    }
}

/// The product of sizes: `usize::MAX` where it does not fit, and never a small number by wrapping around.
///
/// Every product of sizes that a user may set goes through here, and is then compared with a limit.
pub fn elements(sizes: &[usize]) -> usize {
    sizes.iter().fold(1, |product, size| product.saturating_mul(*size))
}

impl From<Vec<usize>> for Shape {
    fn from(axes: Vec<usize>) -> Self {
        Self(axes)
    }
}

impl From<&[usize]> for Shape {
    fn from(axes: &[usize]) -> Self {
        Self(axes.to_vec())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_that_do_not_fit_are_the_largest_number() {
        assert_eq!(elements(&[1 << 31, 1 << 31, 4]), usize::MAX);
        assert_eq!(Shape::new([usize::MAX, usize::MAX, 3]).len(), usize::MAX);
        assert_eq!(Shape::new([usize::MAX, 2, 3]).positions(), usize::MAX);
        assert_eq!(elements(&[usize::MAX, usize::MAX, 0]), 0);
        assert_eq!((elements(&[]), elements(&[3, 5])), (1, 15));
    }
}
