//! A dispatch as text: kernels and constants by their names, which the reader knows, too.

use serde::{Deserialize, Serializer};

use super::{Dispatch, Grid, View, Word};
use crate::kernels::{self, Kernel};

/// What a [`Dispatch`] is read from.
#[derive(Deserialize)]
pub(super) struct Named {
    kernel: String,
    node: String,
    constants: Vec<(String, f64)>,
    params: Vec<Word>,
    inputs: Vec<View>,
    outputs: Vec<View>,
    grid: Grid,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
pub(super) fn name_of<S: Serializer>(kernel: &&'static Kernel, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&kernel.name())
}

impl TryFrom<Named> for Dispatch {
    type Error = String;

    fn try_from(named: Named) -> Result<Self, String> {
        let Named { kernel: name, node, constants, params, inputs, outputs, grid } = named;
        let kernel = kernels::find(&name).ok_or_else(|| format!("needs a kernel of the crate, but got `{name}`"))?;
        let known = |(constant, value): (String, f64)| {
            let found = kernel.constants.iter().find(|known| **known == constant);
            found.map(|known| (*known, value)).ok_or_else(|| format!("kernel `{name}` has no constant `{constant}`"))
        };
        let constants = constants.into_iter().map(known).collect::<Result<_, String>>()?;
        Ok(Self { kernel, node, constants, params, inputs, outputs, grid })
    }
}
