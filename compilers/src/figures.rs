//! Figures that compilers tell of a kernel beside its instructions, by one name for all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A number that at least one compiler tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Registers of an invocation. Intel's: most registers of a subgroup, of 32 or 64 bytes, that hold something at once.
    Registers,
    /// Registers that did not fit and lie in memory. Intel's: stores and loads of them.
    Spilled,
    /// Bytes of memory for an invocation's registers and arrays. Intel's: for a subgroup's.
    ScratchBytes,
    /// Bytes of workgroup memory.
    WorkgroupBytes,
    /// Subgroups that share a SIMD; more of them hide more of the time that loads take.
    Subgroups,
    /// Cycles by the compiler's model, with loops run as often as it assumes. AMD's: of one subgroup that shares its SIMD with
    /// others; Intel's and NVIDIA's: of one subgroup alone.
    Cycles,
    /// Cycles from begin to end of a subgroup alone.
    Latency,
}

impl Figure {
    /// Every figure.
    pub const ALL: [Self; 7] = [
        Self::Registers,
        Self::Spilled,
        Self::ScratchBytes,
        Self::WorkgroupBytes,
        Self::Subgroups,
        Self::Cycles,
        Self::Latency,
    ];

    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::Spilled => "spilled registers",
            Self::ScratchBytes => "scratch bytes",
            Self::WorkgroupBytes => "workgroup bytes",
            Self::Subgroups => "subgroups a SIMD",
            Self::Cycles => "cycles",
            Self::Latency => "latency",
        }
    }
}

/// Figures of one kernel; a compiler that does not tell one leaves it out.
pub type Figures = BTreeMap<Figure, f64>;

/// A figure, the statistics of a driver whose sum it is, and what divides it.
#[derive(Debug)]
pub struct Source(pub Figure, pub &'static [&'static str], pub f64);

/// Figures out of a driver's statistics. A figure is left out if the driver has none of its statistics.
pub fn of(statistics: &[(String, f64)], sources: &[Source]) -> Figures {
    let mut figures = Figures::new();
    for Source(figure, names, divisor) in sources {
        for (_, value) in statistics.iter().filter(|(name, _)| names.contains(&name.as_str())) {
            *figures.entry(*figure).or_default() += value / divisor;
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_a_sum_or_missing() {
        let statistics =
            [("Spill Count".to_owned(), 2.0), ("Fill Count".to_owned(), 6.0), ("Max warps/SM".to_owned(), 32.0)];
        let sources = [
            Source(Figure::Spilled, &["Spill Count", "Fill Count"], 1.0),
            Source(Figure::Subgroups, &["Max warps/SM"], 4.0),
            Source(Figure::Cycles, &["Cycle Count"], 1.0),
        ];
        assert_eq!(of(&statistics, &sources), Figures::from([(Figure::Spilled, 8.0), (Figure::Subgroups, 8.0)]));
    }
}
