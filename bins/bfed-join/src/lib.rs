//! `bfed-join`: joins a session of the Broadcast Federation and writes its stream.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program with its arguments, the first of which is its name.
pub fn main_from(_arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::exit::fail(cli::exit::FAILED, "sessions cannot be joined yet")
}
