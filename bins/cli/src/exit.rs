//! The exit codes of all programs.
//!
//! A program may add codes between 3 and 63, which its `--help` lists.

use std::process::ExitCode;

/// Success.
pub const OK: u8 = 0;
/// Failure, or an incomplete result.
pub const FAILED: u8 = 1;
/// The command line or a configuration file is invalid.
pub const USAGE: u8 = 2;
/// All data was sent, but some of the expected receivers did not confirm it.
pub const UNCONFIRMED: u8 = 3;
/// The result could not be written, whatever the outcome (`EX_IOERR` of sysexits.h); see [`crate::print`].
pub const UNWRITTEN: u8 = 74;
/// Stopped by Ctrl-C or SIGTERM.
pub const INTERRUPTED: u8 = 130;

/// The lines about common exit codes at the end of a `--help` text.
pub const HELP: &str = "\
Exit codes:
  0    success
  1    failed, or the result is incomplete
  2    wrong usage: the command line or a configuration file
  74   the result could not be written to standard output
  130  interrupted by Ctrl-C or SIGTERM";

/// Writes `error: MESSAGE` to standard error, above any progress bar, and returns the code.
pub fn fail(code: u8, message: impl core::fmt::Display) -> ExitCode {
    crate::print_message!("error: {message}");
    crate::print::exit_code(code)
}
