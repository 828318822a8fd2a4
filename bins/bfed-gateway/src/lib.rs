//! `bfed-gateway`: a gateway of the Broadcast Federation for Linux.
//!
//! It drives the machines of [`bfed`]: a control node, which peers with other gateways over TCP and carries no
//! data, and data nodes, which forward over UDP (real-time sessions, congestion-controlled), over TCP
//! (bulk sessions) and through the native broadcast of their own network.
//!
//! # Processes and threads
//!
//! | verb | thread | work |
//! | --- | --- | --- |
//! | `run`, `control` | main | tokio, one thread: peers, data nodes, clients of the native network, status, metrics |
//! | `run`, `data` | one a data node (`bfed-data-N`) | its own sockets, its own machine, its own part of the native network's addresses |
//!
//! A process has as many data nodes as cores by default. Each registers with the control node, which spreads sessions
//! over all of them, on one machine or on several. A packet stays on one thread.
//!
//! # Slow receivers
//!
//! | session | queue | at the bound |
//! | --- | --- | --- |
//! | real-time | `limits.receiver-queue` for each receiver | the oldest frame is dropped: `drops{reason="queue_full"}` |
//! | bulk | the same, and at most 192 KiB beside it | while its socket takes nothing the source is not read: `plane{event="pauses"}`; a receiver that reads nothing for `limits.idle-timeout` is cut off: `drops{reason="stalled"}` |
//!
//! # Privileges
//!
//! None are needed except for ports below 1024, and none are kept: capabilities are dropped once the sockets are open,
//! and `daemon.user` changes the user.
//!
//! # What a reload changes
//!
//! SIGHUP reads the configuration again, whole or not at all. Peers, policies, authorisation, tokens, names, timers and
//! the control node's limits change at once (what an OPEN says, hold time and tables, with each peering's
//! next session); the rest waits for a restart, and log and `status` name what differs
//! ([`needs_restart`](daemon_kit::daemon::Configuration::needs_restart)).
//!
//! # Exit codes
//!
//! 0: success, or stopped by a signal; 1: failed; 2: the command line or the configuration is wrong; 74: the result
//! could not be written to standard output.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
pub mod config;
mod control;
mod daemon;
mod data;
mod limiter;
mod links;
pub mod metrics;
pub mod native;
mod page;
pub mod status;
mod token;
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

pub use daemon::open_with;
pub use data::{NotOpened, Opener};

use args::{Args, Verb};
use cli::verbs;
use config::Mode;
use daemon::Gateway;

/// Returns the command line for man pages and completions.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program; the first argument is its name.
pub fn main_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = cli::args::start(arguments, |args: &Args| &args.log, "info");
    let run = |mode, file: verbs::ConfigFile| {
        linux_net::process::raise_descriptor_limit();
        let gateway = Gateway { mode, open: None };
        verbs::run::<Gateway<'_>>(daemon_kit::daemon::run(gateway, &file.config))
    };
    match args.map(|args| args.verb) {
        Err(code) => code,
        Ok(Verb::Run(file)) => run(Mode::Whole, file),
        Ok(Verb::Control(file)) => run(Mode::Control, file),
        Ok(Verb::Data(file)) => run(Mode::Data, file),
        Ok(Verb::Other(verb)) => verbs::main::<Gateway<'_>>(verb),
        Ok(Verb::Token(verb)) => match token::run(verb) {
            Ok(line) => {
                cli::print_result!("{line}");
                cli::print::exit_code(cli::exit::OK)
            }
            Err(why) => cli::exit::fail(cli::exit::FAILED, why),
        },
        Ok(Verb::Drain { node, at }) => match at.path::<Gateway<'_>>() {
            Err(code) => code,
            Ok(socket) => verbs::show(status::drain(&socket, node), false, |_| {
                Some(format!("data node {node} drains\n"))
            }),
        },
    }
}
