//! The axes of its input on which a layer works.

use std::fmt;

#[cfg(feature = "schema")]
use manyhands_engine::described::one_or_many;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Problem;
use crate::shape::{Shape, elements};

/// Axes of an input, in the count of Keras: `-1` is the last one, `[-2, -1]` are the last two, 0 is the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(schema_with = "one_or_many::<i32>"))]
pub struct Axes(Vec<i32>);

impl Default for Axes {
    /// The last one.
    fn default() -> Self {
        Self(vec![-1])
    }
}

impl<const N: usize> From<[i32; N]> for Axes {
    fn from(axes: [i32; N]) -> Self {
        Self(axes.to_vec())
    }
}

/// An axis of a row, from 0, by its number in Keras: 1 is the first after the batch, -1 the last.
pub(super) fn axis_of(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let from_start = if axis < 0 { axis.checked_add(rank)? } else { axis - 1 };
    usize::try_from(from_start).ok().filter(|_| from_start < rank)
}

impl Axes {
    /// Axes of a row, from 0, in order; `None` if one of them does not exist.
    pub(super) fn among(&self, input: &Shape) -> Option<Vec<usize>> {
        let axes = self.0.iter().map(|axis| axis_of((*axis).into(), input.rank()));
        let mut axes = axes.collect::<Option<Vec<usize>>>()?;
        axes.sort_unstable();
        axes.dedup();
        Some(axes)
    }

    /// Lengths of these axes of an input, in order.
    pub(super) fn of<'s>(&self, input: &'s Shape) -> Result<&'s [usize], Problem> {
        let n_axes = i32::try_from(input.rank() + 1).unwrap_or(i32::MAX);
        let mut places: Vec<i32> =
            self.0.iter().map(|axis| if *axis < 0 { axis.saturating_add(n_axes) } else { *axis }).collect();
        places.sort_unstable();
        let last = (1..n_axes).rev().take(places.len());
        if places.is_empty() || !places.iter().rev().copied().eq(last) {
            let problem = format!("needs the last axes of its input {input} as `axis`, but got {:?}", self.0);
            return Err(Problem::new(problem, "-1 is the last axis, [-2, -1] are the last two"));
        }
        Ok(&input.axes()[input.rank() - places.len()..])
    }

    /// Elements before these axes and in them, of an input that has them.
    pub(super) fn split(&self, input: &Shape) -> [usize; 2] {
        let within = self.of(input).map_or(1, elements);
        [input.len() / within.max(1), within]
    }
}

impl Serialize for Axes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0[..] {
            [axis] => axis.serialize(serializer),
            _ => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Axes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Axes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an axis or a list of axes")
            }

            fn visit_i64<E: serde::de::Error>(self, axis: i64) -> Result<Axes, E> {
                let axis = i32::try_from(axis).map_err(|_| E::custom(format!("there is no axis {axis}")))?;
                Ok(Axes(vec![axis]))
            }

            fn visit_u64<E: serde::de::Error>(self, axis: u64) -> Result<Axes, E> {
                i64::try_from(axis).map_err(E::custom).and_then(|axis| self.visit_i64(axis))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Axes, A::Error> {
                let mut axes = Vec::new();
                while let Some(axis) = values.next_element()? {
                    axes.push(axis);
                }
                Ok(Axes(axes))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_counted_as_in_keras() {
        let shape = Shape::new([2, 3, 5]);
        for (axes, needed) in
            [("-1", Some([6, 5])), ("3", Some([6, 5])), ("[-2, -1]", Some([2, 15])), ("[3, 2, 1]", Some([1, 30]))]
        {
            let axes: Axes = serde_json::from_str(axes).unwrap();
            assert_eq!(axes.of(&shape).ok().map(|_| axes.split(&shape)), needed, "{axes:?}");
        }
        for axes in ["0", "2", "[]", "[-1, -1]", "[-3, -1]", "[0, 1, 2, 3]", "4", "-5", "-2147483648"] {
            let axes: Axes = serde_json::from_str(axes).unwrap();
            assert!(axes.of(&shape).is_err(), "{axes:?}");
        }
        assert_eq!(serde_json::to_string(&Axes::default()).unwrap(), "-1");
        assert_eq!(serde_json::to_string(&Axes::from([-2, -1])).unwrap(), "[-2,-1]");
    }
}
