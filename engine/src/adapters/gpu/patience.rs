//! Bound for the time of a dispatch. Windows resets a driver that is busy with one for two seconds, and browsers lose patience, too.

use super::super::Kind;
use crate::kernels::Extent;
use crate::plan::{Dispatch, Scalars, Work};

/// Time that a dispatch of a GPU should take.
const GPU_MS: f64 = 100.0;
/// Time that a dispatch of a driver should take that computes on the CPU: no system resets it, but a submission must end.
const SOFTWARE_MS: f64 = 10_000.0;
/// Work in a millisecond, in [`Work::weight`], before it is measured: 0.1 · 10¹² operations a second, as a small GPU of a laptop does.
const GPU_SPEED: f64 = 1e8;
/// Work in a millisecond of drivers that compute on the CPU, before it is measured.
const SOFTWARE_SPEED: f64 = 1e6;
/// Parts of a dispatch at most.
const MOST: u32 = 1 << 16;

/// Bounds by which a device cuts dispatches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Patience {
    /// Time that a dispatch should take.
    dispatch_ms: f64,
    /// Work in a millisecond, before it is measured.
    speed: f64,
}

impl Patience {
    /// For a kind of adapter; with another time for a dispatch, if one is given.
    pub(super) fn of(kind: Kind, dispatch_ms: Option<f64>) -> Self {
        let (usual_ms, speed) = match kind {
            Kind::Software => (SOFTWARE_MS, SOFTWARE_SPEED),
            _ => (GPU_MS, GPU_SPEED),
        };
        Self { dispatch_ms: dispatch_ms.unwrap_or(usual_ms), speed }
    }

    /// Whether a dispatch may take too long in runs of up to `capacity` rows, by its work.
    pub(super) fn extent(&self, dispatch: &Dispatch, capacity: u32) -> Extent {
        let most = Scalars { rows: capacity, batch_rows: capacity, is_first: 1, is_last: 1, ..Scalars::default() };
        let is_long = self.n_parts(dispatch, &most, None) > 1;
        if is_long && dispatch.kernel.may_run_in_parts() { Extent::Part } else { Extent::Whole }
    }

    /// Number of parts for a dispatch, by its work and the work that the device does in a millisecond.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
    pub(super) fn n_parts(&self, dispatch: &Dispatch, scalars: &Scalars, measured: Option<f64>) -> u32 {
        let ms = Work::of_dispatch(dispatch, scalars).weight() / measured.unwrap_or(self.speed).max(1.0);
        (ms / self.dispatch_ms).ceil().clamp(1.0, f64::from(MOST)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{completion, dense};
    use crate::plan::{Grid, Word};

    fn product(kernel: &'static crate::kernels::Kernel, [m, n, k]: [u32; 3]) -> Dispatch {
        Dispatch {
            kernel,
            node: String::new(),
            constants: Vec::new(),
            params: vec![Word::Rows(m), n.into(), k.into()],
            inputs: Vec::new(),
            outputs: Vec::new(),
            grid: Grid::Tiles { m: Word::Rows(m), n: n.into(), k: k.into(), depth: 1 },
        }
    }

    #[test]
    fn a_dispatch_has_as_many_parts_as_its_work_takes() {
        let gpu = Patience::of(Kind::IntegratedGpu, None);
        // 2,048 tokens before a vocabulary of 151,936: 0.64 · 10¹² operations.
        let head = product(&dense::FORWARD, [1, 151_936, 1024]);
        let scalars = Scalars { rows: 2048, ..Scalars::default() };
        assert_eq!(gpu.extent(&head, 2048), Extent::Part);
        assert_eq!(gpu.n_parts(&head, &scalars, None), 64);
        assert_eq!(gpu.n_parts(&head, &scalars, Some(4e8)), 16);
        assert_eq!(gpu.n_parts(&head, &scalars, Some(1e11)), 1);
        assert_eq!(gpu.n_parts(&head, &scalars, Some(0.0)), MOST);
    }

    #[test]
    fn short_dispatches_and_those_that_can_not_be_cut_are_whole() {
        let gpu = Patience::of(Kind::DiscreteGpu, None);
        assert_eq!(gpu.extent(&product(&dense::FORWARD, [1, 1024, 1024]), 2048), Extent::Whole);
        assert_eq!(gpu.extent(&product(&completion::COUNT, [1024, 1024, 1 << 20]), 1 << 20), Extent::Whole);
        let software = Patience::of(Kind::Software, None);
        assert_eq!(software.extent(&product(&dense::FORWARD, [1, 1024, 1024]), 2048), Extent::Whole);
        assert_eq!(software.extent(&product(&dense::FORWARD, [1, 151_936, 1024]), 2048), Extent::Part);
    }
}
