//! `lms-router`.

pub mod config;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program with its arguments, the first of which is its name.
pub fn main_from(_arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(2)
}
