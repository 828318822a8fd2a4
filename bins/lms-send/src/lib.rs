//! `lms-send`: a file or a stream to every receiver of a multicast group, reliably.
//!
//! A driver around [`ltp::Sender`]: one thread waits for requests and for the machine's own clock, and
//! hands batches of packets to the kernel (UDP segmentation offload). `lms-recv` is the other end.
//!
//! | module | what |
//! | --- | --- |
//! | `args` | the command line |
//! | `source` | where the bytes come from: a file or a stream |
//! | `net` | the sockets |
//! | `adapt` | slows down when receivers cannot follow |
//! | `events` | what `--json` prints |
//! | `receivers` | progress and result of each receiver |
//! | `run` | the loop |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod adapt;
mod args;
mod events;
mod machine;
mod net;
mod outcome;
mod receivers;
mod run;
mod source;

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
