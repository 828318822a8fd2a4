//! `lms-send`: a file or a stream to every receiver of a multicast group, reliably.
//!
//! Arguments, progress and exit codes around [`ltp_linux::Sender`]. `lms-recv` is the other end.
//!
//! | module | contents |
//! | --- | --- |
//! | `args` | the command line |
//! | `events` | what `--json` prints |
//! | `outcome` | results, exit codes and their messages |
//! | `receivers` | progress and result of each receiver |
//! | `reporter` | progress bar, messages, events |
//! | `run` | from arguments to a transfer |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod events;
mod outcome;
mod parity;
mod receivers;
mod reporter;
mod run;

use std::ffi::OsString;
use std::process::ExitCode;

/// Returns the command line, for man pages and completions.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program with these arguments, its name first.
pub fn main_from(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::args::main(args, |args| &args.transfer.log, args::Args::check, run::run)
}
