//! Parsing a command line.

use std::ffi::OsString;
use std::process::ExitCode;

/// Parses `args`, the program's name first.
///
/// # Errors
/// `--help` and `--version` were printed (code 0), or the arguments are wrong and the reason was
/// printed to standard error (code 2).
pub fn parse<T: clap::Parser>(args: impl IntoIterator<Item = OsString>) -> Result<T, ExitCode> {
    T::try_parse_from(args).map_err(|error| {
        // A closed standard output is the reader's business.
        let _ = error.print();
        ExitCode::from(if error.use_stderr() {
            crate::exit::USAGE
        } else {
            crate::exit::OK
        })
    })
}

/// Says what is wrong with a combination of arguments that each parse well; code 2.
pub fn usage(message: impl core::fmt::Display) -> ExitCode {
    eprintln!("error: {message}\n\nFor more information, try '--help'.");
    ExitCode::from(crate::exit::USAGE)
}
