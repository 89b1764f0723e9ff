//! The command `manyhands` with MPI, for tests: the library is the one that they have built, and only the file that names MPI is
//! compiled again. With the argument `lose-adapter` it is a run that loses an adapter.

use manyhands::processes::{Group, Processes, Reply};

mod error {
    pub use manyhands::{Error, ErrorKind, Result};
}

mod runtime {
    pub use manyhands::internals::runtime::*;
}

#[path = "../../src/processes/mpi.rs"]
mod started;

#[path = "../../tests/common/breakable.rs"]
mod breakable;
mod lost;

fn main() {
    let loses = std::env::args().nth(1).is_some_and(|argument| argument == "lose-adapter");
    let status = if loses {
        started::world().map_or(1, |group| lost::run(&group))
    } else {
        manyhands::cli::main_in(started::world)
    };
    std::process::exit(status)
}
