//! `dyram-relay`: the program. The library documents it.

use std::process::ExitCode;

fn main() -> ExitCode {
    dyram_relay::main_from(std::env::args_os())
}
