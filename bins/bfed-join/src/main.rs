//! `bfed-join`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    bfed_join::main_from(std::env::args_os())
}
