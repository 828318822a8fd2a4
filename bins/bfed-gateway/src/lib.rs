//! `bfed-gateway`: a gateway of the Broadcast Federation for Linux.
#![forbid(unsafe_code)]

pub mod native;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program with its arguments, the first of which is its name.
pub fn main_from(_arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::exit::fail(
        cli::exit::FAILED,
        "the gateway's networks are there, the gateway is not yet",
    )
}
