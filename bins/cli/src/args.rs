//! Parsing a command line.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use crate::logging::LogArgs;
use crate::units::ByteSize;

/// Parses `args`, the program's name first.
///
/// # Errors
/// `--help` and `--version` were printed (code 0), or the arguments are wrong and the reason was
/// printed to standard error (code 2).
pub fn parse<T: clap::Parser>(args: impl IntoIterator<Item = OsString>) -> Result<T, ExitCode> {
    T::try_parse_from(args).map_err(|error| show(&error))
}

/// Prints what clap has to say: help and version (code 0), or what is wrong with the arguments (code 2).
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
    let args: T = match parse(args) {
        Ok(args) => args,
        Err(code) => return code,
    };
    if let Err(message) = log(&args).init("warn").and_then(|()| check(&args)) {
        return usage(message);
    }
    crate::interrupt::install();
    match run(&args) {
        Ok(code) => crate::print::exit_code(code),
        Err(error) => crate::exit::fail(crate::exit::FAILED, format!("{error:#}")),
    }
}

/// Whether `name`, if given, can be the name of a file as it stands, which `is_plain` says.
///
/// # Errors
/// A sentence about `--name`.
pub fn check_name(name: Option<&str>, is_plain: impl FnOnce(&str) -> bool) -> Result<(), String> {
    match name {
        Some(name) if !is_plain(name) => Err(format!(
            "--name {name:?} is not a plain file name: no folders, leading dot or control \
             characters"
        )),
        _ => Ok(()),
    }
}

/// Whether a buffer of that size is large enough for a window of blocks.
///
/// # Errors
/// A sentence about `--buffer`.
pub fn check_buffer(size: ByteSize) -> Result<(), String> {
    if size.0 < 1 << 20 {
        return Err(format!("--buffer {size} is too small: at least 1MiB"));
    }
    Ok(())
}

/// Says what is wrong with a combination of arguments that each parse well; code 2.
pub fn usage(message: impl core::fmt::Display) -> ExitCode {
    crate::print_message!("error: {message}\n\nFor more information, try '--help'.");
    crate::print::exit_code(crate::exit::USAGE)
}
