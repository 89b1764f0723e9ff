//! The `manyhands` command: train, evaluate and use networks on every GPU of the machine.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
