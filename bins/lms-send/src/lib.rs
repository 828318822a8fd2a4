//! `lms-send`: a file or a stream to every receiver of a multicast group, reliably.
//!
//! Arguments, progress and exit codes around [`ltp_linux::Sender`]. `lms-recv` is the other end.
//!
//! | module | contents |
//! | --- | --- |
//! | `args` | the command line |
//! | `events` | what `--json` prints |
//! | `news` | what a terminal shows |
//! | `outcome` | results, exit codes and their messages |
//! | `receivers` | progress and result of each receiver |
//! | `run` | from arguments to a transfer |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod events;
mod news;
mod outcome;
mod receivers;
mod run;

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
