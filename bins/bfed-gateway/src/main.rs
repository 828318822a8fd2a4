//! `bfed-gateway`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    bfed_gateway::main_from(std::env::args_os())
}
