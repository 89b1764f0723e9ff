//! Training and prediction on real adapters: the CPU, and each that wgpu finds here.

#[path = "../common/breakable.rs"]
mod breakable;
#[path = "../common/close.rs"]
mod close;
#[path = "../common/golden.rs"]
mod golden;
#[path = "../common/largest_error.rs"]
mod largest_error;
#[path = "../common/needed.rs"]
mod needed;
#[path = "../common/simulated.rs"]
mod simulated;

mod ahead;
mod augment;
mod averages;
mod faults;
mod frozen;
mod keras;
mod limits;
mod live;
mod lone;
mod on_batch;
mod packed;
mod placement;
mod precision;
mod predict;
mod processes;
mod recompute;
mod replicas;
mod sequences;
mod stages;
mod timeline;
mod vocabulary;
mod watch;
