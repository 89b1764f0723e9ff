//! Costs of a pass's dispatches: arithmetic of products, bytes of all other kernels.

use super::{Command, Dispatch, Pass, Plan, Scalars};
use crate::kernels::{Kernel, attention, recurrent_scan};
use crate::size::F32_BYTES;

/// Work of a pass's dispatches for a number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Multiplications and additions of products and convolutions.
    pub flops: f64,
    /// Bytes that all other kernels read and write.
    pub bytes: f64,
    /// Kernels that run.
    pub dispatches: usize,
}

impl Work {
    /// Work of a pass whose rows run at once.
    pub fn of(plan: &Plan, pass: Pass, rows: u32) -> Self {
        let scalars = Scalars { rows, batch_rows: rows, is_first: 1, is_last: 1, ..Scalars::default() };
        let mut work = Self::default();
        for command in plan.commands(pass) {
            let Command::Dispatch(dispatch) = command else { continue };
            let Self { flops, bytes, dispatches } = Self::of_dispatch(dispatch, &scalars);
            work.flops += flops;
            work.bytes += bytes;
            work.dispatches += dispatches;
        }
        work
    }

    /// Work of one dispatch of a run with these numbers.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn of_dispatch(dispatch: &Dispatch, scalars: &Scalars) -> Self {
        if dispatch.grid.is_empty(scalars) {
            return Self::default();
        }
        let params: Vec<u32> = dispatch.params.iter().map(|word| word.bits(scalars)).collect();
        match product_flops(dispatch.kernel, &params, &dispatch.constants) {
            Some(flops) => Self { flops, bytes: 0.0, dispatches: 1 },
            None => {
                let views = dispatch.inputs.iter().chain(&dispatch.outputs);
                let bytes = views.map(|view| view.len.at(scalars.rows) as f64 * F32_BYTES as f64).sum::<f64>();
                Self { flops: 0.0, bytes, dispatches: 1 }
            }
        }
    }

    /// The work that each row of a pass adds, in one number.
    pub fn of_row(plan: &Plan, pass: Pass) -> f64 {
        let of = |rows| Self::of(plan, pass, rows).weight();
        ((of(72) - of(8)) / 64.0).max(0.0)
    }

    /// The work in one number: a usual card does ten operations in the time in which it moves a byte.
    pub fn weight(&self) -> f64 {
        self.flops + 10.0 * self.bytes
    }
}

/// Multiplications and additions of a matrix product or convolution with these `Params` and constants, those with zeros
/// beyond the border counted; `None` for other kernels.
pub fn product_flops(kernel: &Kernel, params: &[u32], constants: &[(&'static str, f64)]) -> Option<f64> {
    if kernel.stem == attention::FORWARD.stem {
        return attention::flops(kernel, params);
    }
    if kernel.stem == recurrent_scan::FORWARD_LSTM.stem {
        return recurrent_scan::flops(kernel, params);
    }
    if !kernel.is_tiled() {
        return None;
    }
    let field = |name: &str| {
        let place = kernel.params.iter().position(|field| field.name == name)?;
        Some(f64::from(*params.get(place)?))
    };
    let product = |names: &[&str]| names.iter().map(|name| field(name)).product::<Option<f64>>();
    let terms =
        product(&["m", "n", "k"]).or_else(|| product(&["rows", "out_h", "out_w", "out_c", "k_h", "k_w", "in_c"]));
    // A filter sees the channels of its group alone.
    let groups = constants.iter().find(|(name, _)| *name == "GROUPS").map_or(1.0, |(_, groups)| *groups);
    terms.map(|terms| 2.0 * terms / groups)
}
