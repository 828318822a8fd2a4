//! `dyram-relay`: a relay of DyRAM for Linux.
//!
//! It drives the machine of [`dyram`] over UDP: data goes from the parent to the children, requests
//! are gathered and answered by receivers below, and what nobody below has is asked of the parent.
//! Where IP multicast carries the data, it listens to the groups and serves recovery beside it.
//!
//! # Threads
//!
//! | thread | what it does |
//! | --- | --- |
//! | data (`dyram-data`) | `ppoll` over the sockets and commands; owns the machine; receives in batches (`recvmmsg`, `UDP_GRO`), edits packets where they lie and sends up to 64 with one `sendmmsg`; no allocation for a packet |
//! | control (main) | tokio, one thread: signals, reloads, status socket, metrics |
//!
//! # Privileges
//!
//! None are needed (ports below 1024 aside), and none are kept: capabilities go once the sockets
//! are open, and `daemon.user` changes the user.
//!
//! # What a reload changes
//!
//! SIGHUP reads the configuration again, whole or not at all. Parents, `recovery` and `timers` change
//! at once; the rest waits for a restart, and log and `status` name what differs
//! ([`config::Config::needs_restart`]).
//!
//! # Metrics
//!
//! | metric | type | labels | what it says |
//! | --- | --- | --- | --- |
//! | `dyram_relay_info` | gauge | version, id, carriage | 1, and in its labels what is running |
//! | `dyram_relay_uptime_seconds` | gauge |  | Seconds since the start |
//! | `dyram_relay_reloads_total` | counter | result | Reloads, accepted and rejected |
//! | `dyram_relay_draining` | gauge |  | 1 while children are sent away |
//! | `dyram_relay_sessions` | gauge |  | Sessions served |
//! | `dyram_relay_children` | gauge |  | Children of all sessions |
//! | `dyram_relay_recovery_total` | counter | event | Packets missed, asked for, repaired and given up |
//! | `dyram_relay_members_total` | counter | event | Children that joined, left, fell silent, stalled or were refused |
//! | `dyram_relay_drops_total` | counter | reason | Packets dropped, by reason |
//! | `dyram_relay_received_packets_total` | counter |  | Packets received |
//! | `dyram_relay_received_bytes_total` | counter |  | Bytes of packets received |
//! | `dyram_relay_sent_packets_total` | counter |  | Packets sent |
//! | `dyram_relay_send_failures_total` | counter |  | Packets that could not be sent |
//! | `dyram_relay_receive_failures_total` | counter |  | Attempts to receive that failed |
//! | `dyram_relay_events_lost_total` | counter |  | Events that were not logged because too many came at once |
//!
//! # Exit codes
//!
//! 0: all well, or `run` was ended by SIGTERM or SIGINT; 1: failed; 2: the command line or the
//! configuration is wrong; 74: the result could not be written to standard output.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
pub mod config;
mod control;
mod daemon;
mod data;
pub mod metrics;
pub mod status;
#[cfg(feature = "top")]
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Args, Verb};
use cli::verbs;
use config::Config;

/// What the program calls itself.
const PROGRAM: &str = "dyram-relay";

/// The command line, as `--help` shows it: man pages and completions are made of it.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program with its arguments, the first of which is its name.
pub fn main_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Args = match cli::args::parse(arguments) {
        Ok(args) => args,
        Err(code) => return code,
    };
    if let Err(message) = args.log.init("info") {
        return cli::args::usage(message);
    }
    match args.verb {
        Verb::Run { config } => verbs::run(daemon::run(&config)),
        Verb::Check { config, here } => {
            let look = here.then_some(Config::on_this_host as fn(&_, &mut _));
            verbs::check(&config, Config::load(&config), look)
        }
        #[cfg(feature = "top")]
        Verb::Top { once, socket } => verbs::top(&top::VIEW, socket, once),
        Verb::Status { what, json, socket } => {
            let answer = status::query(&socket, what);
            verbs::status(answer, json, |answer| status::render(what, answer))
        }
    }
}
