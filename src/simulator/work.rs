//! What a plan costs: arithmetic, bytes that kernels touch, and bytes that travel.

use crate::kernels::Library;
use crate::plan::{Command, Dispatch, Pass, Plan, Role, Scalars};

/// Bytes of an f32.
const F32: u64 = 4;

/// What the dispatches of a pass do for a number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    /// Multiplications and additions of products and convolutions.
    pub flops: f64,
    /// Bytes that all other kernels read and write.
    pub bytes: f64,
}

impl Work {
    /// Of a pass.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn of(plan: &Plan, pass: Pass, rows: u32) -> Self {
        let scalars = Scalars { rows, batch_rows: rows, ..Scalars::default() };
        let mut work = Self::default();
        for command in plan.commands(pass) {
            let Command::Dispatch(dispatch) = command else { continue };
            match product_flops(dispatch, &scalars) {
                Some(flops) => work.flops += flops,
                None => {
                    let views = dispatch.inputs.iter().chain(&dispatch.outputs);
                    work.bytes += views.map(|view| (view.len.at(rows) * F32) as f64).sum::<f64>();
                }
            }
        }
        work
    }
}

/// Operations of a matrix product or convolution; `None` for other kernels.
fn product_flops(dispatch: &Dispatch, scalars: &Scalars) -> Option<f64> {
    if !dispatch.kernel.uses.contains(&Library::Product) {
        return None;
    }
    let field = |name: &str| {
        let place = dispatch.kernel.params.iter().position(|field| field.name == name)?;
        Some(f64::from(dispatch.params.get(place)?.bits(scalars)))
    };
    let product = |names: &[&str]| names.iter().map(|name| field(name)).product::<Option<f64>>();
    let terms =
        product(&["m", "n", "k"]).or_else(|| product(&["rows", "out_h", "out_w", "out_c", "k_h", "k_w", "in_c"]));
    terms.map(|terms| 2.0 * terms)
}

/// Bytes that travel between host and adapter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    /// Inputs, targets and sample weights of a row.
    pub fed_per_row: u64,
    /// Each exchange of the training pass, by command: whatever the rows, and for each row.
    pub exchanged: Vec<(u64, u64)>,
    /// Bytes of the parameters for each byte that is written: more than 1 where a skeleton stands for the plan.
    pub scale: f64,
}

impl Traffic {
    /// Of a plan as it is.
    pub fn of(plan: &Plan) -> Self {
        let is_fed = |role| matches!(role, Role::Input(_) | Role::Target(_) | Role::SampleWeight(_));
        let fed = plan.buffers.iter().filter(|buffer| is_fed(buffer.role));
        let exchanged = plan.commands(Pass::Train).iter().map(|command| match command {
            Command::Exchange(exchange) => (exchange.view.len.fixed * F32, exchange.view.len.per_row * F32),
            Command::Dispatch(_) => (0, 0),
        });
        Self {
            fed_per_row: fed.map(|buffer| buffer.len.per_row * F32).sum(),
            exchanged: exchanged.collect(),
            scale: 1.0,
        }
    }

    /// Bytes of an exchange.
    pub fn exchange(&self, command: usize, rows: u32) -> u64 {
        self.exchanged.get(command).map_or(0, |(fixed, per_row)| fixed + per_row * u64::from(rows))
    }
}
