//! `lms-recv`: a file or a stream from a multicast group, whole or not at all.
//!
//! A driver around [`ltp::Receiver`]: one thread takes batches of packets from the kernel (UDP receive
//! offload), gathers them into blocks, and writes each block once, right after it was verified.
//! `lms-send` is the other end.
//!
//! | module | what |
//! | --- | --- |
//! | `args` | the command line |
//! | `sink` | the stores: a file that appears when it is whole, or a stream that is passed on |
//! | `net` | the sockets |
//! | `machine` | the receiver, alone or below relays |
//! | `lms` | assistance by LMS routers |
//! | `events` | what `--json` prints |
//! | `run` | the loop, where the bytes go, what the user is told |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod events;
mod existing;
mod lms;
mod machine;
mod net;
mod outcome;
mod run;
mod sink;

use std::ffi::OsString;
use std::process::ExitCode;

/// The command line, as `--help` shows it: man pages and completions are made of it.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program with these arguments, its name first.
pub fn main_from(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::args::main(args, |args| &args.log, args::Args::check, run::run)
}
