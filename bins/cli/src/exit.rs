//! The exit codes every program uses.
//!
//! A program may add its own between 3 and 63 and says so in its `--help`.

use std::process::ExitCode;

/// All well.
pub const OK: u8 = 0;
/// Failed, or ended without the whole result.
pub const FAILED: u8 = 1;
/// The command line or a configuration file is wrong.
pub const USAGE: u8 = 2;
/// Everything was sent, but some of the expected receivers did not confirm it.
pub const UNCONFIRMED: u8 = 3;
/// The result could not be written, whatever the work came to (`EX_IOERR` of sysexits.h); see
/// [`crate::print`].
pub const UNWRITTEN: u8 = 74;
/// Stopped by Ctrl-C or SIGTERM.
pub const INTERRUPTED: u8 = 130;

/// The lines about exit codes 0, 1, 2 and 130 for the end of a `--help` text.
pub const HELP: &str = "\
Exit codes:
  0    all well
  1    failed, or ended without the whole result
  2    wrong usage: the command line or a configuration file
  74   the result could not be written to standard output
  130  interrupted by Ctrl-C or SIGTERM";

/// Writes `error: MESSAGE` to standard error, after removing a progress bar, and gives the code.
pub fn fail(code: u8, message: impl core::fmt::Display) -> ExitCode {
    crate::print_message!("error: {message}");
    crate::print::exit_code(code)
}
