//! Parsing a command line.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use crate::logging::LogArgs;

/// Parses `args`, the program's name first.
///
/// # Errors
/// `--help` and `--version` were printed (code 0), or the arguments are wrong and the reason was
/// printed to standard error (code 2).
pub fn parse<T: clap::Parser>(args: impl IntoIterator<Item = OsString>) -> Result<T, ExitCode> {
    T::try_parse_from(args).map_err(|error| show(&error))
}

/// Parses `args` and starts logging; `default` is the log level without `--log`.
///
/// # Errors
/// The exit code, after the reason was printed.
pub fn start<T: clap::Parser>(
    args: impl IntoIterator<Item = OsString>,
    log: impl FnOnce(&T) -> &LogArgs,
    default: &str,
) -> Result<T, ExitCode> {
    let args: T = parse(args)?;
    log(&args).init(default).map_err(usage)?;
    Ok(args)
}

/// Prints the message of clap: help and version (code 0), or an error (code 2).
pub fn show(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.use_stderr() {
        return ExitCode::from(crate::exit::USAGE);
    }
    if let Err(error) = printed.and_then(|()| std::io::stdout().flush()) {
        crate::print::lost(&error);
    }
    crate::print::exit_code(crate::exit::OK)
}

/// A program from its command line to its exit code: parses `args`, starts logging, checks what
/// `check` checks, listens for Ctrl-C, and runs. An error of `run` ends with code 1.
pub fn main<T, E>(
    args: impl IntoIterator<Item = OsString>,
    log: impl FnOnce(&T) -> &LogArgs,
    check: impl FnOnce(&T) -> Result<(), String>,
    run: impl FnOnce(&T) -> Result<u8, E>,
) -> ExitCode
where
    T: clap::Parser,
    E: core::fmt::Display,
{
    let args: T = match start(args, log, "warn") {
        Ok(args) => args,
        Err(code) => return code,
    };
    if let Err(message) = check(&args) {
        return usage(message);
    }
    crate::interrupt::install();
    match run(&args) {
        Ok(code) => crate::print::exit_code(code),
        Err(error) => crate::exit::fail(crate::exit::FAILED, format!("{error:#}")),
    }
}

/// Prints why arguments cannot be combined; code 2.
pub fn usage(message: impl core::fmt::Display) -> ExitCode {
    crate::print_message!("error: {message}\n\nFor more information, try '--help'.");
    crate::print::exit_code(crate::exit::USAGE)
}
