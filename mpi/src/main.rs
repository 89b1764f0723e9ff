//! The command `manyhands` with MPI, for tests: the library is the one that they have built, and only the file that names MPI is
//! compiled again.

use manyhands::processes::{Group, Processes, Reply};

mod error {
    pub use manyhands::{Error, ErrorKind, Result};
}

mod runtime {
    pub use manyhands::internals::runtime::*;
}

#[path = "../../src/processes/mpi.rs"]
mod started;

fn main() {
    std::process::exit(manyhands::cli::main_in(started::world))
}
