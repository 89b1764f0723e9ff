//! All that a report of a machine holds.

use crate::doctor::facts::MachineFacts;
use crate::doctor::judge::Finding;
use manyhands_bench::kernels::{AdapterKernels, Checked};
use manyhands_bench::scaling::ScalingCurve;
use manyhands_bench::steps::RigSteps;
use serde::Serialize;

use super::faults::Faults;
use super::torch::Torch;

/// All that was measured.
#[derive(Serialize)]
pub struct Measured {
    pub machine: MachineFacts,
    pub findings: Vec<Finding>,
    /// Kernels beside their definitions.
    pub checked: Vec<CheckedAdapter>,
    pub kernels: Vec<AdapterKernels>,
    pub steps: Vec<RigSteps>,
    pub scaling: Vec<ScalingCurve>,
    pub faults: Option<Faults>,
    pub torch: Option<Torch>,
    /// Parts without a measurement.
    pub left_out: Vec<LeftOut>,
    pub seconds: f64,
    pub minutes: f64,
}

/// Kernels of an adapter beside their definitions.
#[derive(Clone, Debug, Serialize)]
pub struct CheckedAdapter {
    pub adapter: usize,
    pub name: String,
    #[serde(flatten)]
    pub checked: Checked,
}

/// A part that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub what: String,
    pub why: String,
}
