//! `lms-router`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    lms_router::main_from(std::env::args_os())
}
