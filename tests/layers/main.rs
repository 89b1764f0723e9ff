//! What models compute: layers, losses, optimizers and graphs against golden values, closed forms and difference
//! quotients. Needs the CPU alone.

#[path = "../common/bench.rs"]
mod bench;
#[path = "../common/close.rs"]
mod close;
#[path = "../common/golden.rs"]
mod golden;
#[path = "../common/largest_error.rs"]
mod largest_error;
#[path = "../common/table.rs"]
mod table;

mod activations;
mod adapting;
mod build;
mod contract;
mod conv_rows;
mod golden_files;
mod graph;
mod language;
mod losses;
mod masked_losses;
mod merging;
mod metrics;
mod norm_rows;
mod optimizers;
mod packed;
mod pixels;
mod random;
mod recurrent_rows;
mod reshaping;
mod rows;
mod scaling;
mod sequences;
mod updates_on_host;
