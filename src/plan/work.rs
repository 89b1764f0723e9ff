//! Costs of a pass's dispatches: arithmetic of products, bytes of all other kernels.

use super::{Command, Pass, Plan, Scalars};
use crate::kernels::{Kernel, attention};
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
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn of(plan: &Plan, pass: Pass, rows: u32) -> Self {
        let scalars = Scalars { rows, batch_rows: rows, is_first: 1, is_last: 1, ..Scalars::default() };
        let mut work = Self::default();
        for command in plan.commands(pass) {
            let Command::Dispatch(dispatch) = command else { continue };
            if dispatch.grid.is_empty(&scalars) {
                continue;
            }
            let params: Vec<u32> = dispatch.params.iter().map(|word| word.bits(&scalars)).collect();
            work.dispatches += 1;
            match product_flops(dispatch.kernel, &params, &dispatch.constants) {
                Some(flops) => work.flops += flops,
                None => {
                    let views = dispatch.inputs.iter().chain(&dispatch.outputs);
                    work.bytes += views.map(|view| view.len.at(rows) as f64 * F32_BYTES as f64).sum::<f64>();
                }
            }
        }
        work
    }
}

/// Multiplications and additions of a matrix product or convolution with these `Params` and constants, those with zeros
/// beyond the border counted; `None` for other kernels.
pub fn product_flops(kernel: &Kernel, params: &[u32], constants: &[(&'static str, f64)]) -> Option<f64> {
    if kernel.stem == attention::FORWARD.stem {
        return attention::flops(kernel, params);
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
