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
//! # Metrics
//!
//! | metric | type | labels | meaning |
//! | --- | --- | --- | --- |
//! | `dyram_relay_info` | gauge | version, id, carriage | 1; the labels identify the running program |
//! | `dyram_relay_uptime_seconds` | gauge |  | Seconds since the start |
//! | `dyram_relay_reloads_total` | counter | result | Reloads, accepted and rejected |
//! | `dyram_relay_draining` | gauge |  | 1 while the relay drains |
//! | `dyram_relay_sessions` | gauge |  | Sessions served |
//! | `dyram_relay_children` | gauge |  | Children of all sessions |
//! | `dyram_relay_recovery_total` | counter | event | Packets missed, asked for, repaired and given up |
//! | `dyram_relay_members_total` | counter | event | Children that joined, left, timed out, stalled or were refused |
//! | `dyram_relay_drops_total` | counter | reason | Packets dropped, by reason |
//! | `dyram_relay_received_packets_total` | counter |  | Packets received |
//! | `dyram_relay_received_bytes_total` | counter |  | Bytes of packets received |
//! | `dyram_relay_sent_packets_total` | counter |  | Packets sent |
//! | `dyram_relay_send_failures_total` | counter |  | Packets that could not be sent |
//! | `dyram_relay_receive_failures_total` | counter |  | Attempts to receive that failed |
//! | `dyram_relay_events_lost_total` | counter |  | Events that were not logged because too many occurred at once |
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
#[cfg(feature = "top")]
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Args, Verb};
use cli::verbs;
use config::Config;

/// Name of the program.
const PROGRAM: &str = "dyram-relay";

const EXAMPLE: verbs::Example = verbs::Example {
    program: PROGRAM,
    source: "bins/dyram-relay/dyram-relay.toml",
};

/// Returns the command line, from which man pages and completions are generated.
pub fn command() -> clap::Command {
    <args::Args as clap::CommandFactory>::command()
}

/// Runs the program. The first argument is its name.
pub fn main_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Args = match cli::args::parse(arguments) {
        Ok(args) => args,
        Err(code) => return code,
    };
    if let Err(message) = args.log.init("info") {
        return cli::args::usage(message);
    }
    match args.verb {
        Verb::Run(file) => verbs::run(daemon::run(&file.config), &EXAMPLE),
        Verb::Check(args) => verbs::check(&args, &EXAMPLE, Config::load, Config::on_this_host),
        #[cfg(feature = "top")]
        Verb::Top { once, socket } => verbs::top(&top::VIEW, socket, once),
        Verb::Status { what, json, socket } => {
            let answer = status::query(&socket, what);
            verbs::status(answer, json, |answer| status::render(what, answer))
        }
    }
}
