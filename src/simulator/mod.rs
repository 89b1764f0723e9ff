//! Predicts the speed of 1 to N adapters of a rig before you own them: `manyhands simulate`.
//!
//! A [`RigConfig`] describes adapters, their links and the host. [`simulate`] runs the scheduler's own code over them
//! in virtual time, and predicts the throughput of 1 to N adapters, with the bottleneck of each, and that of a placement
//! in stages: the adapters compute nothing, so that hours are simulated in milliseconds. `examples/rigs/` has rigs to start from.

// Files: `world.rs`, `virtual_time.rs`: simulated adapters and their clock; `spec.rs`, `link.rs`, `crowd.rs`: their numbers, links and
// shared cores; `cards.rs`, `speed.rs`: cards by name, and the time of a plan on them; `adapter.rs`, `arithmetic.rs`: the actor and its
// values; `network.rs`: MPI's collectives (`no_network.rs` without the feature `processes`); `skeleton.rs`, `cost.rs`: plans with few
// values, and what the plans they replace cost; `trial.rs`: some steps of copies or stages; `rig.rs`, `predict.rs`, `machines.rs`: rigs
// from a file, and their predicted speed; `incidents.rs`: steps in which something happens; `budget.rs`, `traffic.rs`: parts of a step;
// `report.rs`: tables.

pub(crate) mod adapter;
pub(crate) mod arithmetic;
mod budget;
pub mod cards;
pub(crate) mod cost;
pub(crate) mod crowd;
mod incidents;
pub(crate) mod link;
#[cfg(feature = "processes")]
mod machines;
#[cfg_attr(not(feature = "processes"), path = "no_network.rs")]
mod network;
pub(crate) mod predict;
mod report;
mod rig;
mod skeleton;
pub(crate) mod spec;
mod speed;
mod traffic;
pub(crate) mod trial;
pub(crate) mod virtual_time;
pub(crate) mod world;

pub use arithmetic::Arithmetic;
pub use crowd::Crowding;
pub use incidents::{Incident, IncidentKind, simulate_incidents};
pub use predict::{SimulatedStep, simulate_steps, step_ms};
pub use predict::{simulate, simulate_model};
pub use report::{AdapterAlone, LinkPoint, MachinePoint, Machines, Point, Report, StagePoint, Staged};
pub use rig::{HostSpec, MachineSpec, RigConfig};
pub use spec::{AdapterSpec, FaultKind, InjectedFault, Slowdown, Trigger};
pub use virtual_time::Virtual;
pub use world::World;
