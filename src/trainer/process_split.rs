//! A split over the adapters of all processes, as one over processes and one within each.

use crate::error::{Error, Result};
use crate::scheduler::split::SplitMode;

/// A split over adapters as one over processes.
///
/// # Errors
/// If fixed proportions are not one for each adapter of all processes.
pub(super) fn over_processes(split: &SplitMode, n_adapters: &[usize]) -> Result<SplitMode> {
    match split {
        SplitMode::Learned => Ok(SplitMode::Learned),
        SplitMode::Even if n_adapters.iter().all(|n| *n == n_adapters[0]) => Ok(SplitMode::Even),
        SplitMode::Even => Ok(SplitMode::Fixed(n_adapters.iter().map(|n| (0..*n).map(|_| 1.0).sum()).collect())),
        SplitMode::Fixed(parts) => {
            let of_all = slices(parts, n_adapters)?;
            Ok(SplitMode::Fixed(of_all.into_iter().map(|parts| parts.iter().sum()).collect()))
        }
        SplitMode::Recorded(_) => Err(Error::setting(
            "a recorded split",
            "needs a single process, but the run has several",
            "give proportions, one for each adapter of all processes: `3:1`",
        )),
    }
}

/// The split over the adapters of the process of a rank.
///
/// # Errors
/// As [`over_processes`].
pub(super) fn within_process(split: &SplitMode, n_adapters: &[usize], rank: usize) -> Result<SplitMode> {
    let SplitMode::Fixed(parts) = split else { return Ok(split.clone()) };
    let own = slices(parts, n_adapters)?[rank];
    // Without rows, the proportions within do not matter.
    let has_rows = own.iter().any(|part| *part > 0.0);
    Ok(if has_rows { SplitMode::Fixed(own.to_vec()) } else { SplitMode::Even })
}

/// The proportions of each process' adapters.
fn slices<'a>(parts: &'a [f64], n_adapters: &[usize]) -> Result<Vec<&'a [f64]>> {
    let all: usize = n_adapters.iter().sum();
    if parts.len() != all {
        return Err(Error::setting(
            "split",
            format!("needs {all} parts, one for each adapter of all processes, but got {parts:?}"),
            "write one number for each adapter, first those of process 0: `3:1`",
        ));
    }
    let mut rest = parts;
    let slice = |n: &usize| {
        let (own, others) = rest.split_at(*n);
        rest = others;
        own
    };
    Ok(n_adapters.iter().map(slice).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_over_all_adapters_is_cut_at_the_processes() {
        let split = SplitMode::Fixed(vec![3.0, 1.0, 2.0]);
        assert_eq!(over_processes(&split, &[2, 1]).unwrap(), SplitMode::Fixed(vec![4.0, 2.0]));
        assert_eq!(within_process(&split, &[2, 1], 0).unwrap(), SplitMode::Fixed(vec![3.0, 1.0]));
        assert_eq!(within_process(&split, &[2, 1], 1).unwrap(), SplitMode::Fixed(vec![2.0]));
        assert_eq!(over_processes(&SplitMode::Even, &[2, 1]).unwrap(), SplitMode::Fixed(vec![2.0, 1.0]));
        let error = over_processes(&split, &[2, 2]).unwrap_err().to_string();
        assert!(
            error.starts_with("split needs 4 parts, one for each adapter of all processes, but got [3.0, 1.0, 2.0]")
        );
    }
}
