//! `ldc-stream`: layers of a medium over TCP, with late data choice (LDC, `docs/papers.md`, chapter 5).
//!
//! | module | what |
//! | --- | --- |
//! | `args` | the command line |
//! | [`wire`] | what goes over the connection |
//! | `layers` | which bytes of which layer are due when; where they come from |
//! | `send`, `policy` | the sender: through a ring, or by plain `send` |
//! | `recv`, `account`, `ages` | the receiver: what arrived, what of it in time, how old it was |
//! | `events` | what `--json` prints |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod accept;
mod account;
mod ages;
mod args;
mod clock;
mod events;
mod layers;
mod policy;
mod recv;
mod send;
pub mod wire;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Args, Verb};

/// The command line, as `--help` shows it: man pages and completions are made of it.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program with these arguments, its name first.
pub fn main_from(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::args::main(
        args,
        |args: &Args| &args.log,
        |args| match &args.verb {
            Verb::Send(args) => args.check(),
            Verb::Recv(args) => args.check(),
        },
        |args| match &args.verb {
            Verb::Send(args) => send::run(args),
            Verb::Recv(args) => recv::run(args),
        },
    )
}
