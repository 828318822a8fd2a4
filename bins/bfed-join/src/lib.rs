//! `bfed-join`: receives a session of the Broadcast Federation, or publishes one. The library `bfed-client` does
//! the work.
//!
//! | module | content |
//! | --- | --- |
//! | `args` | the command line |
//! | `receive`, `send`, `exec` | the verbs |
//! | `events` | what `--json` prints |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod events;
mod exec;
mod receive;
mod send;

use std::ffi::OsString;
use std::process::ExitCode;

/// Returns the command line for man pages and completions.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program; the first argument is its name.
pub fn main_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::args::main(
        arguments,
        |args| &args.log,
        args::Args::check,
        |args| match &args.verb {
            args::Verb::Recv(args) => receive::run(args),
            args::Verb::Send(args) => send::run(args),
            args::Verb::Exec(args) => exec::run(args),
        },
    )
}
