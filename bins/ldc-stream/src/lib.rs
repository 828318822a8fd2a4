//! `ldc-stream`: layers of a medium over TCP or QUIC, with late data choice (LDC, `docs/papers.md`, chapter 5).
//!
//! | module | contents |
//! | --- | --- |
//! | `args` | the command line |
//! | [`wire`] | the format of the connection |
//! | `layers` | the layers, their bytes and their schedule |
//! | `send`, `policy`, `ring` | the sender: through rings, or by plain `send` |
//! | `accept`, `recv`, `account`, `ages` | the receiver and its statistics |
//! | `quic` | what both ends do over QUIC |
//! | `events` | the events of `--json` |
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
mod quic;
mod recv;
mod ring;
mod send;
pub mod wire;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Args, Verb};

/// Returns the command line as `--help` shows it, for man pages and completions.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program with these arguments, the program name first.
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
