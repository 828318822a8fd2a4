//! `bfed-join`: joins a session of the Broadcast Federation and writes its stream, or is its source.
//!
//! One thread waits for the mediator, for the data and for Ctrl-C together.
//!
//! | module | what |
//! | --- | --- |
//! | `args` | the command line |
//! | `mediator` | asking a mediator: on a group (damped), by unicast, over HTTP |
//! | `session` | from the first question to the last refresh: costs, TRANSLATION, REDIRECT, NO_ROUTE |
//! | `input` | the session's data: from a group, or over HTTP |
//! | [`frames`] | numbered frames: what is missing, and where the end is |
//! | `output` | where the data goes |
//! | `receive`, `send` | the two things that the program does |
//! | `events` | what `--json` prints |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod events;
pub mod frames;
mod http;
mod input;
mod mediator;
mod output;
mod receive;
mod send;
mod session;

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
