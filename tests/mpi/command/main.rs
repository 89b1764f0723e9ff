//! The command `manyhands` with MPI, for the tests. With the argument `lose-adapter` it is a run that loses an adapter.

#[path = "../../common/breakable.rs"]
mod breakable;
mod lost;

fn main() {
    let loses = std::env::args().nth(1).is_some_and(|argument| argument == "lose-adapter");
    let status = if loses {
        manyhands_mpi::world().map_or(1, |group| lost::run(&group))
    } else {
        manyhands_cli::main_in(manyhands_mpi::world)
    };
    std::process::exit(status)
}
