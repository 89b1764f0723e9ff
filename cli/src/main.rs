//! The `manyhands` command: train, evaluate and use networks on every GPU of the machine.

fn main() {
    std::process::exit(manyhands_cli::main())
}
