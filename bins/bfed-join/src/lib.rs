//! `bfed-join`: joins a session of the Broadcast Federation and writes its stream, or is its source.
//!
//! What it does is in the library `bfed-client`.
//!
//! | module | content |
//! | --- | --- |
//! | `args` | the command line |
//! | `receive`, `send` | the two things that the program does |
//! | `events` | what `--json` prints |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod events;
mod receive;
mod send;

use std::ffi::OsString;
use std::process::ExitCode;

/// The command line, as `--help` shows it: man pages and completions are made of it.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program with its arguments, the first of which is its name.
pub fn main_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::args::main(
        arguments,
        |args| &args.log,
        args::Args::check,
        |args| match args.send {
            true => send::run(args),
            false => receive::run(args),
        },
    )
}
