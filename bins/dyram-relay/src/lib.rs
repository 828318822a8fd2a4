//! `dyram-relay`: a DyRAM relay for Linux.
//!
//! The program drives [`dyram::Relay`] over UDP. Data goes from the parent to the children. NACKs are collected and
//! answered by receivers below; packets that no receiver below has are requested from the parent. Where IP multicast
//! carries the data, the relay listens to the groups and serves recovery only.
//!
//! # Threads
//!
//! | thread | task |
//! | --- | --- |
//! | data (`dyram-data`) | `ppoll` over the sockets and commands; owns the machine; receives in batches (`recvmmsg`, `UDP_GRO`), edits packets in place and sends up to 64 with one `sendmmsg`; allocates nothing for a packet |
//! | control (main) | tokio, one thread: signals, reloads, status socket, metrics |
//!
//! # Privileges
//!
//! The program needs none, except for ports below 1024. It drops all capabilities once the sockets are open, and
//! `daemon.user` changes the user.
//!
//! # Reload
//!
//! SIGHUP reloads the whole configuration, or none of it if it is invalid. Parents, `recovery` and `timers` change at
//! once; other keys need a restart, and log and `status` name those that differ
//! ([`needs_restart`](daemon_kit::daemon::Configuration::needs_restart)).
//!
//! # Exit codes
//!
//! 0: success, or `run` was ended by SIGTERM or SIGINT; 1: failed; 2: invalid command line or configuration; 74: the
//! result could not be written to standard output.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
pub mod config;
mod control;
mod daemon;
mod data;
pub mod metrics;
pub mod status;
mod top;
pub mod zone;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Args, Verb};
use cli::verbs;
use daemon::Relay;

/// Returns the command line, from which man pages and completions are generated.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program. The first argument is its name.
pub fn main_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = cli::args::start(arguments, |args: &Args| &args.log, "info");
    match args.map(|args| args.verb) {
        Err(code) => code,
        Ok(Verb::Run(file)) => verbs::run::<Relay>(daemon_kit::daemon::run(Relay, &file.config)),
        Ok(Verb::Other(verb)) => verbs::main::<Relay>(verb),
    }
}
